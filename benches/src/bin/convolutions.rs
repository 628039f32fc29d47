//! Convolutions on the CPU: halite as chosen, XLA's code, halite's kernels, and PyTorch.
//!
//! `convolutions [--count 100] [--seed 1] [--dtype f32|bf16] [--filter TEXT] [--python PYTHON]` draws
//! shapes from published networks and measures the result and both gradients of each, in turns in one
//! run. It prints a line a shape, where the choice was wrong by more than 10 %, where halite is behind
//! PyTorch, and the quantiles. Without `--python`, an interpreter with PyTorch, there is no PyTorch.
//!
//! `convolutions --table FILE [--dtype ..] [--filter ..]` measures other shapes, and writes `core/ir/src/passes/kernels/measured.txt`,
//! from which programs choose. Lines of other processors and types are kept.
//!
//! Times are those of the processor, of all threads together, the least of several rounds: a busy
//! machine changes them less than the time that passes, whose ratios to PyTorch's stand beside.
#![forbid(unsafe_code)]

#[path = "convolutions/measure.rs"]
mod measure;
#[path = "convolutions/report.rs"]
mod report;
#[path = "convolutions/table.rs"]
mod table;
#[path = "convolutions/torch.rs"]
mod torch;

use std::process::ExitCode;

use halite::{DType, Error, Result};
use halite_benches::ConvShape;

use self::{
    measure::{Clients, Measured},
    torch::Torch,
};

/// As in `peer`: XLA's CPU plugin allocates for every launch, from several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What the command line says.
struct Arguments {
    count: usize,
    seed: u64,
    dtype: DType,
    filter: String,
    python: Option<String>,
    table: Option<String>,
}

fn main() -> ExitCode {
    match Arguments::read().and_then(|arguments| arguments.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn read() -> Result<Self> {
        let mut arguments = Arguments {
            count: 100,
            seed: 1,
            dtype: DType::F32,
            filter: String::new(),
            python: None,
            table: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(name) = words.next() {
            let missing = || Error::invalid("convolutions", format!("{name} needs a value"));
            let value = words.next().ok_or_else(missing)?;
            let wrong = || Error::invalid("convolutions", format!("{name} cannot be {value}"));
            match &name[..] {
                "--count" => arguments.count = value.parse().map_err(|_| wrong())?,
                "--seed" => arguments.seed = value.parse().map_err(|_| wrong())?,
                "--dtype" => {
                    let known = [DType::F32, DType::Bf16];
                    let named = known.into_iter().find(|it| it.to_string() == value);
                    arguments.dtype = named.ok_or_else(wrong)?;
                }
                "--filter" => arguments.filter = value,
                "--python" => arguments.python = Some(value),
                "--table" => arguments.table = Some(value),
                _ => {
                    let message = format!("unknown option {name}; see the head of its source");
                    return Err(Error::invalid("convolutions", message));
                }
            }
        }
        Ok(arguments)
    }

    fn run(self) -> Result<()> {
        let clients = Clients::open()?;
        if let Some(path) = &self.table {
            return table::write(&clients, self.dtype, &self.filter, path);
        }
        let mut torch = self.python.as_deref().map(Torch::start).transpose()?;
        let shapes = ConvShape::draw(self.count, self.seed);
        let shapes = shapes
            .iter()
            .filter(|it| it.to_string().contains(&self.filter));
        report::print_head();
        let mut all = Vec::new();
        for shape in shapes {
            let measured = Measured::of(&clients, shape, self.dtype, torch.as_mut())?;
            report::print_line(shape, &measured);
            all.push((shape.clone(), measured));
        }
        report::print_summary(&all);
        Ok(())
    }
}
