//! Instructions of tiles. Each is a loop with the vector instructions of the processor: one that
//! takes many times as long as one like it calls a function that is not inlined, which the compiler
//! makes for the oldest processor, or gathers.
//!
//! `cargo bench -p halite-benches --bench instructions -- [FILTER]`; criterion's `elem/s` are
//! elements per second.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use halite_kernels::{
    Binary, Extent, Format, Instruction, Kind, Odd, Operation, Output, Program, Source, Target,
    Threads, Unary, View,
};

const ELEMENTS: usize = 1 << 12;
/// Times that the instruction is in a program.
const REPEATED: usize = 16;

const UNARY: [Unary; 8] = [
    Unary::Exp,
    Unary::ExpM1,
    Unary::Log,
    Unary::Log1P,
    Unary::Tanh,
    Unary::Logistic,
    Unary::Rsqrt,
    Unary::Erf,
];
const ODD: [Odd; 8] = [
    Odd::Exp,
    Odd::ExpM1,
    Odd::Log,
    Odd::Log1P,
    Odd::Tanh,
    Odd::Logistic,
    Odd::Rsqrt,
    Odd::Erf,
];

/// A program that mostly is this instruction, on two operands.
fn program(op: Operation) -> Program {
    let mut code = vec![
        Instruction::Load { into: 0, view: 0 },
        Instruction::Load { into: 1, view: 1 },
    ];
    let registers = [2, 3].repeat(REPEATED / 2).into_iter();
    code.extend(registers.map(|into| Instruction::Apply {
        op,
        into,
        operands: [0, 0, 1],
    }));
    code.push(Instruction::Store { x: 3, target: 0 });
    let views = (0..2).map(|source| (source, View::contiguous(&[ELEMENTS])));
    Program {
        rows: ELEMENTS,
        columns: 1,
        registers: vec![Kind::ELEMENTS; 4],
        outputs: vec![Output::Of(Extent::Elements)],
        views: views.collect(),
        code,
        ..Program::default()
    }
}

fn instructions(criterion: &mut Criterion) {
    let x: Vec<u32> = (0..ELEMENTS)
        .map(|at| ((at % 31) as f32 / 8.0).to_bits())
        .collect();
    let source = Source::Memory(Format::Word, bytemuck::cast_slice(&x));
    let mut out = vec![0u32; ELEMENTS];
    let threads = Threads::new(1).expect("one thread is the caller's");
    let mut group = criterion.benchmark_group("instructions");
    group.throughput(Throughput::Elements((ELEMENTS * REPEATED) as u64));
    let unary = UNARY.into_iter().map(Operation::Unary);
    let odd = ODD.into_iter().map(Operation::Odd);
    let others = [Operation::Binary(Binary::AddF), Operation::Select];
    for op in unary.chain(odd).chain(others) {
        let program = program(op);
        group.bench_function(format!("{op:?}"), |bencher| {
            bencher.iter(|| {
                let target = Target {
                    format: Format::Word,
                    bytes: bytemuck::cast_slice_mut(&mut out),
                };
                program.run(&threads, &[source, source], vec![target]);
            });
        });
    }
}

criterion_group!(benches, instructions);
criterion_main!(benches);
