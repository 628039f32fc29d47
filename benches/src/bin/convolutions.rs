//! Convolutions on the CPU: halite as chosen, XLA's code, halite's kernels, and PyTorch.
//!
//! `convolutions [--count 100] [--seed 1] [--dtype f32|bf16] [--filter TEXT] [--python PYTHON]`
//! draws shapes from published networks and measures the result and both gradients of each, in
//! turns in one run. It prints a line a shape, where the choice was wrong by more than 10 %, where
//! halite is behind PyTorch, and the quantiles. Without `--python`, an interpreter with PyTorch,
//! there is no PyTorch.
//!
//! `convolutions --table FILE [--dtype ..] [--filter ..]` measures other shapes, and writes
//! `core/ir/src/passes/kernels/measured.txt`, from which programs choose. Lines of other processors
//! and types are kept.
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
use halite_benches::{Arguments, ConvShape, exit_code};

use self::{
    measure::{Clients, Measured},
    torch::Torch,
};

/// As in `peer`: XLA's CPU plugin allocates for every launch, from several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What the command line says.
struct Options {
    count: usize,
    seed: u64,
    dtype: DType,
    filter: String,
    python: Option<String>,
    table: Option<String>,
}

fn main() -> ExitCode {
    exit_code(Options::read().and_then(|options| options.run()))
}

impl Options {
    fn read() -> Result<Self> {
        let names = [
            "--count", "--seed", "--dtype", "--filter", "--python", "--table",
        ];
        let arguments = Arguments::read("convolutions", &names)?;
        let dtype = match arguments.option::<String>("--dtype")?.as_deref() {
            None | Some("f32") => DType::F32,
            Some("bf16") => DType::Bf16,
            Some(other) => {
                let message = format!("`--dtype {other}`; expected f32 or bf16");
                return Err(Error::invalid("convolutions", message));
            }
        };
        Ok(Options {
            count: arguments.option("--count")?.unwrap_or(100),
            seed: arguments.option("--seed")?.unwrap_or(1),
            dtype,
            filter: arguments.option("--filter")?.unwrap_or_default(),
            python: arguments.option("--python")?,
            table: arguments.option("--table")?,
        })
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
