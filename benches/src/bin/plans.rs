//! Memory, transposes and copies of training steps as the vendors' compilers compile them, without
//! devices.
//!
//! `plans [WORKLOAD..] [--target tpu:v5e:1x1] [--precision bf16-mixed] [--list]`. The workloads are
//! those of `peer`, by default w3 and w5; the targets are one chip of a TPU v5e and one H100, whose
//! plugins are installed if they are missing. libtpu takes minutes for a residual network.
//!
//! Instructions in a loop are counted once. Bytes are those of their results, without padding. A
//! transpose within a fusion may be no more than an order of reading. `--list` prints each
//! transpose and copy of the optimized program, the largest first.
#![forbid(unsafe_code)]

use std::{cmp::Reverse, collections::HashSet, iter::repeat, process::ExitCode};

use prost::Message;

use halite::{
    DTypePolicy, Error, ErrorKind, Param, Result,
    backends::{OpenOptions, OpenTarget, Target},
    fetch::Bar,
    nn::Optimizer,
    stablehlo::{Function, Module, OpKind, Region, Type},
};
use halite_benches::{Forward, Visitor, Workload, visit};
use halite_core::{Capabilities, CompileOptions, Program, ProgramMemory};

fn main() -> ExitCode {
    match Options::read(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    workloads: Vec<String>,
    targets: Vec<Target>,
    precision: DTypePolicy,
    list: bool,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Options {
            workloads: vec![],
            targets: vec![],
            precision: DTypePolicy::F32,
            list: false,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| Error::invalid("plans", format!("`{argument}` needs a value")))
            };
            match argument.as_str() {
                "--target" => options.targets.push(value()?.parse()?),
                "--precision" => options.precision = value()?.parse()?,
                "--list" => options.list = true,
                _ => options.workloads.push(argument),
            }
        }
        if options.workloads.is_empty() {
            options.workloads = ["w3", "w5"].map(String::from).to_vec();
        }
        if options.targets.is_empty() {
            options.targets = vec!["tpu:v5e:1x1".parse()?, "cuda:h100:1x1".parse()?];
        }
        Ok(options)
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
        capabilities: Capabilities::on(target.target().platform()),
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
    match compiled.optimized() {
        Ok((format, code)) => {
            let instructions = instructions(&format, &code)?;
            for opcode in ["transpose", "copy"] {
                print_instructions(opcode, &instructions, options.list);
            }
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            println!("  the compiler does not return its optimized program");
        }
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

    fn visit<M: Forward, O: Optimizer + Clone>(self, workload: Workload<M, O>) -> Result<Program>
    where
        M::Of<Param>: Send + Sync + Clone,
    {
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
    for function in &Module::read(&program.code)?.functions {
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

/// Prints number and bytes of the instructions `opcode`, and each of them if `list` is set.
fn print_instructions(opcode: &str, all: &[Instruction], list: bool) {
    let mut found: Vec<_> = all.iter().filter(|one| one.opcode == opcode).collect();
    found.sort_by_key(|one| Reverse(one.bytes));
    for (is_fused, place) in [(false, "outside fusions"), (true, "in fusions")] {
        let some = || found.iter().filter(|one| one.is_fused == is_fused);
        let (count, bytes) = (some().count(), some().map(|one| one.bytes).sum::<u64>());
        println!("  optimized: {opcode} {place}: {count}, {bytes} bytes");
        for one in some().filter(|_| list) {
            println!("    {} bytes: {}", one.bytes, one.description);
        }
    }
}

/// An instruction of an optimized program.
struct Instruction {
    opcode: String,
    /// Bytes of its result, without padding; 0 of tuples.
    bytes: u64,
    /// True within a fusion.
    is_fused: bool,
    /// Its name, the dimensions and layout of its result, and the line it comes from.
    description: String,
}

/// Reads all instructions of an optimized program.
fn instructions(format: &str, code: &[u8]) -> Result<Vec<Instruction>> {
    let error = |kind, message| Error::new(kind, "optimized program", message);
    let module = match format {
        "hlo_with_config" => hlo::WithConfig::decode(code).map(|it| it.module.unwrap_or_default()),
        "hlo" => hlo::Module::decode(code),
        _ => {
            let message = format!("unknown format `{format}`; expected hlo or hlo_with_config");
            return Err(error(ErrorKind::Unsupported, message));
        }
    };
    let module = module.map_err(|why| error(ErrorKind::Corrupt, why.to_string()))?;
    let all = || (module.computations.iter()).flat_map(|it| it.instructions.iter().zip(repeat(it)));
    let fused: HashSet<i64> = all()
        .filter(|(one, _)| one.opcode == "fusion")
        .flat_map(|(one, _)| one.called_computation_ids.iter().copied())
        .collect();
    let read = |(one, computation): (&hlo::Instruction, &hlo::Computation)| Instruction {
        opcode: one.opcode.clone(),
        bytes: one.shape.as_ref().map_or(0, hlo::Shape::bytes),
        is_fused: fused.contains(&computation.id),
        description: one.to_string(),
    };
    Ok(all().map(read).collect())
}

/// The messages of XLA's `hlo.proto` and `xla_data.proto`, with the fields that are read.
mod hlo {
    use std::fmt;

    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct WithConfig {
        #[prost(message, optional, tag = "1")]
        pub(crate) module: Option<Module>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Module {
        #[prost(message, repeated, tag = "3")]
        pub(crate) computations: Vec<Computation>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Computation {
        #[prost(message, repeated, tag = "2")]
        pub(crate) instructions: Vec<Instruction>,
        #[prost(int64, tag = "5")]
        pub(crate) id: i64,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Instruction {
        #[prost(string, tag = "1")]
        pub(crate) name: String,
        #[prost(string, tag = "2")]
        pub(crate) opcode: String,
        #[prost(message, optional, tag = "3")]
        pub(crate) shape: Option<Shape>,
        #[prost(message, optional, tag = "7")]
        pub(crate) metadata: Option<Metadata>,
        #[prost(int64, repeated, tag = "38")]
        pub(crate) called_computation_ids: Vec<i64>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Metadata {
        #[prost(string, tag = "2")]
        pub(crate) op_name: String,
        #[prost(string, tag = "3")]
        pub(crate) source_file: String,
        #[prost(int32, tag = "4")]
        pub(crate) source_line: i32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Shape {
        #[prost(int32, tag = "2")]
        pub(crate) element_type: i32,
        #[prost(int64, repeated, tag = "3")]
        pub(crate) dimensions: Vec<i64>,
        #[prost(message, optional, tag = "5")]
        pub(crate) layout: Option<Layout>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Layout {
        #[prost(int64, repeated, tag = "1")]
        pub(crate) minor_to_major: Vec<i64>,
    }

    impl Shape {
        /// Bytes of its elements; 0 of tuples and of types that steps do not have.
        pub(crate) fn bytes(&self) -> u64 {
            let size = match self.element_type {
                // pred, s8, u8
                1 | 2 | 6 => 1,
                // s16, u16, f16, bf16
                3 | 7 | 10 | 16 => 2,
                // s32, u32, f32
                4 | 8 | 11 => 4,
                // s64, u64, f64
                5 | 9 | 12 => 8,
                _ => 0,
            };
            self.dimensions.iter().product::<i64>() as u64 * size
        }
    }

    impl fmt::Display for Instruction {
        /// `transpose.3 [64, 10]{[1, 0]} model.head at layers.rs:12`
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", self.name)?;
            if let Some(shape) = &self.shape {
                let layout = shape.layout.clone().unwrap_or_default().minor_to_major;
                write!(f, " {:?}{{{layout:?}}}", shape.dimensions)?;
            }
            match &self.metadata {
                Some(from) if !from.source_file.is_empty() => {
                    let (file, line) = (&from.source_file, from.source_line);
                    write!(f, " {} at {file}:{line}", from.op_name)
                }
                Some(from) => write!(f, " {}", from.op_name),
                None => Ok(()),
            }
        }
    }
}
