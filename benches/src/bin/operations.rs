//! Processor time of single operations on the embedded executor and on XLA's CPU plugin, in turns.
//!
//! `cargo run --release -p halite-benches --bin operations -- [NAME..] [PROGRAM.mlir..]` prints the
//! medians of a launch in milliseconds, and their ratio, for the operations whose names contain one
//! of these, or all, and for programs of StableHLO in files. The sizes are those at which they were
//! first compared.
#![forbid(unsafe_code)]

#[path = "operations/known.rs"]
mod known;

use std::{process::ExitCode, sync::Arc, time::Instant};

use halite::{
    Client, Error, HostArray, Result,
    backends::{Accelerator, OpenOptions},
    fetch::Quiet,
    stablehlo::{Module, ValueId},
};
use halite_benches::{ProcessorClock, exit_code};
use halite_core::{
    Arg, Code, CompileOptions, DType, DeviceBuffers, HostBytes, Loaded, Program, Signature,
    TensorType,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds in turns, of which the medians are printed.
const ROUNDS: usize = 7;

/// Least seconds of a round.
const ROUND: f64 = 0.03;

fn main() -> ExitCode {
    exit_code(run(&std::env::args().skip(1).collect::<Vec<_>>()))
}

fn run(arguments: &[String]) -> Result<()> {
    let (files, names): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|it| it.ends_with(".mlir"));
    let mut operations: Vec<(String, String)> = Vec::new();
    if !names.is_empty() || files.is_empty() {
        let is_wanted =
            |name: &str| names.is_empty() || names.iter().any(|wanted| name.contains(&***wanted));
        let known = known::operations()
            .into_iter()
            .filter(|(name, _)| is_wanted(name));
        operations.extend(known.map(|(name, text)| (name.to_owned(), text)));
    }
    for file in files {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Error::invalid("operations", format!("{file}: {error}")))?;
        operations.push((file.clone(), text));
    }
    let open =
        |accelerator: Accelerator| accelerator.open_with(&OpenOptions::default(), &mut Quiet);
    let embedded = open(Accelerator::Embedded { devices: None })?;
    let cpu = open(Accelerator::Cpu { devices: None })?;
    println!(
        "processor time of a launch in ms\n{:34} embedded      cpu    ratio",
        ""
    );
    for (name, text) in &operations {
        let mut subjects = [
            Subject::new(&embedded.client, text)?,
            Subject::new(&cpu.client, text)?,
        ];
        for _ in 0..ROUNDS {
            subjects.iter_mut().try_for_each(Subject::measure)?;
        }
        let [embedded, cpu] = subjects.map(|mut subject| {
            subject.times.sort_by(f64::total_cmp);
            subject.times[ROUNDS / 2]
        });
        println!("{name:34} {embedded:8.3} {cpu:8.3} {:8.1}", embedded / cpu);
    }
    Ok(())
}

/// A program on a client.
struct Subject {
    loaded: Loaded,
    inputs: Vec<DeviceBuffers>,
    /// Milliseconds of a launch, of each round.
    times: Vec<f64>,
}

impl Subject {
    fn new(client: &Client, text: &str) -> Result<Self> {
        let program = program(text)?;
        let loaded = client.compile(&program, &CompileOptions::default())?;
        let device = client.local_devices()[0];
        let upload = |(number, ty): (usize, &TensorType)| {
            let host = input(number, ty);
            client.upload(HostBytes::Borrowed(host.bytes()), ty, device.into())
        };
        let inputs = program.signature.inputs.iter().enumerate().map(upload);
        let inputs = inputs.collect::<Result<_>>()?;
        let mut subject = Subject {
            loaded,
            inputs,
            times: Vec::new(),
        };
        subject.launch()?;
        Ok(subject)
    }

    fn launch(&mut self) -> Result<()> {
        let arguments = self.inputs.iter().map(Arg::Borrow).collect();
        let outputs = self.loaded.launch(arguments)?;
        outputs[0].first().ready()?.wait()
    }

    fn measure(&mut self) -> Result<()> {
        let (started, clock) = (Instant::now(), ProcessorClock::start());
        let mut count = 0.0;
        while started.elapsed().as_secs_f64() < ROUND {
            self.launch()?;
            count += 1.0;
        }
        self.times.push(1e3 * clock.seconds() / count);
        Ok(())
    }
}

/// A program with the signature of its main function.
fn program(text: &str) -> Result<Program> {
    let module = Module::parse(text)?;
    let main = module.main()?;
    let types = |ids: &[ValueId]| -> Result<Vec<TensorType>> {
        let ty = |id: &ValueId| {
            let ty = main.ty(*id).as_tensor().and_then(|ty| ty.tensor_type());
            ty.ok_or_else(|| Error::invalid("operations", "a value that is not a tensor"))
        };
        ids.iter().map(ty).collect()
    };
    Ok(Program {
        name: Arc::from("operation"),
        code: Code::from(text.as_bytes()),
        signature: Signature {
            inputs: types(&main.body.arguments)?,
            outputs: types(&main.body.results)?,
            donated: Vec::new(),
        },
        partitions: 1,
        replicas: 1,
    })
}

/// Pseudorandom elements: floats between -1 and 1, integers below 1,000.
fn input(number: usize, ty: &TensorType) -> HostArray {
    let mut host = HostArray::zeros(ty.clone());
    let size = ty.dtype().size();
    let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_add(number as u64);
    for element in host.bytes_mut().chunks_exact_mut(size) {
        // Xorshift (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let float = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        match ty.dtype() {
            DType::F32 => element.copy_from_slice(&float.to_le_bytes()),
            DType::F64 => element.copy_from_slice(&f64::from(float).to_le_bytes()),
            DType::C64 => {
                element[..4].copy_from_slice(&float.to_le_bytes());
                element[4..].copy_from_slice(&(-float).to_le_bytes());
            }
            DType::Bool => element[0] = (state & 1) as u8,
            _ => element.copy_from_slice(&(state % 1000).to_le_bytes()[..size]),
        }
    }
    host
}
