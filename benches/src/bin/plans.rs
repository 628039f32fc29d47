//! Memory, transposes and copies of training steps as the vendors' compilers compile them, without
//! devices.
//!
//! `plans [WORKLOAD..] [--target tpu:v5e:1x1] [--precision bf16-mixed]`. The workloads are
//! those of `peer`, by default w3 and w5; the targets are one chip of a TPU v5e and one H100, whose
//! plugins are installed if they are missing. libtpu takes minutes for a residual network.
//!
//! Instructions in a loop are counted once. Bytes are those of their results, without padding. A
//! transpose within a fusion may be no more than an order of reading.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use halite::{
    DTypePolicy, ErrorKind, Result,
    backends::{OpenOptions, OpenTarget, Target, pjrt::CompiledInstruction},
    fetch::Bar,
    nn::Optimizer,
    stablehlo::{Function, Module, OpKind, Region, Type},
};
use halite_benches::{Arguments, Forward, Visitor, Workload, exit_code, visit};
use halite_core::{Capabilities, CompileOptions, Program, ProgramMemory};

fn main() -> ExitCode {
    exit_code(Options::read().and_then(|options| run(&options)))
}

struct Options {
    workloads: Vec<String>,
    targets: Vec<Target>,
    precision: DTypePolicy,
}

impl Options {
    fn read() -> Result<Self> {
        let arguments = Arguments::read("plans", &["--target", "--precision"])?;
        let mut targets = arguments.all("--target")?;
        if targets.is_empty() {
            targets = vec!["tpu:v5e:1x1".parse()?, "cuda:h100:1x1".parse()?];
        }
        Ok(Options {
            workloads: arguments.words(&["w3", "w5"]),
            targets,
            precision: (arguments.option("--precision")?).unwrap_or(DTypePolicy::F32),
        })
    }
}

fn run(options: &Options) -> Result<()> {
    for target in &options.targets {
        let target = target.open(&OpenOptions::default(), &mut Bar::default())?;
        for workload in &options.workloads {
            println!("{workload} on {}, {}", target.target(), options.precision);
            plan(workload, &target, options)?;
        }
    }
    Ok(())
}

/// Compiles a workload's step, and prints what the compiler reports.
fn plan(workload: &str, target: &OpenTarget, options: &Options) -> Result<()> {
    let lower = Lower {
        precision: options.precision,
        capabilities: target.target().capabilities()?,
    };
    let program = visit(workload, lower)?;
    let (count, bytes) = transposes(&program)?;
    println!("  StableHLO: {count} transposes, {bytes} bytes");

    let compiled = target.compile(&program, &CompileOptions::default())?;
    let ProgramMemory {
        arguments,
        outputs,
        aliased,
        temporary,
        peak,
        ..
    } = compiled.memory()?;
    let peak = peak.map_or("unknown".to_owned(), |peak| peak.to_string());
    println!("  arguments {arguments} bytes, outputs {outputs} ({aliased} in place of arguments)");
    println!("  temporary {temporary} bytes, peak {peak}");
    match compiled.instructions() {
        Ok(instructions) => print_instructions(&instructions),
        Err(error) if error.kind() == ErrorKind::Unsupported => println!("  {error}"),
        Err(error) => return Err(error),
    }
    Ok(())
}

struct Lower {
    precision: DTypePolicy,
    capabilities: Capabilities,
}

impl Visitor for Lower {
    type Output = Program;

    fn visit<M: Forward, O: Optimizer + Clone>(self, workload: Workload<M, O>) -> Result<Program> {
        workload.lower(self.precision, &self.capabilities)
    }
}

/// Number of transposes in the program as it is given to the compiler, and bytes of their results.
fn transposes(program: &Program) -> Result<(usize, usize)> {
    fn add(function: &Function, region: &Region, sum: &mut (usize, usize)) {
        for operation in &region.operations {
            if let OpKind::Transpose { .. } = operation.kind {
                let types = operation.results.iter().map(|&result| function.ty(result));
                sum.0 += 1;
                sum.1 += types.map(bytes_of).sum::<usize>();
            }
            for region in &operation.regions {
                add(function, region, sum);
            }
        }
    }
    let mut sum = (0, 0);
    for function in &Module::read(program.code.bytes())?.functions {
        add(function, &function.body, &mut sum);
    }
    Ok(sum)
}

fn bytes_of(ty: &Type) -> usize {
    match ty {
        Type::Tensor(ty) => ty.bytes(),
        _ => 0,
    }
}

/// Prints number and bytes of transposes and copies.
fn print_instructions(all: &[CompiledInstruction]) {
    for opcode in ["transpose", "copy"] {
        for (is_fused, place) in [(false, "outside fusions"), (true, "in fusions")] {
            let is_counted =
                |one: &&CompiledInstruction| one.opcode == opcode && one.is_fused == is_fused;
            let found = all.iter().filter(is_counted);
            let (count, bytes) =
                found.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.bytes));
            println!("  optimized: {opcode} {place}: {count}, {bytes} bytes");
        }
    }
}
