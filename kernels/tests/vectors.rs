//! Instructions of tiles are loops with the vector instructions of the processor: none takes many
//! times as long as one like it. A function that is not inlined has two lanes in place of eight.

use std::time::{Duration, Instant};

use halite_kernels::{
    Binary, Extent, Format, Instruction, Kind, Odd, Operation, Output, Program, Source, Target,
    Threads, Unary, View,
};

const ELEMENTS: usize = 1 << 12;
/// Times that the instruction is in a program.
const REPEATED: usize = 16;

/// The least time of a program that mostly is this instruction.
fn time(op: Operation) -> Duration {
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
    let program = Program {
        rows: ELEMENTS,
        columns: 1,
        registers: vec![Kind::ELEMENTS; 4],
        outputs: vec![Output::Of(Extent::Elements)],
        views: (0..2)
            .map(|source| (source, View::contiguous(&[ELEMENTS])))
            .collect(),
        code,
        ..Program::default()
    };
    let x: Vec<f32> = (0..ELEMENTS).map(|at| (at % 31) as f32 / 8.0).collect();
    let source = Source::Memory(Format::Word, bytemuck::cast_slice(&x));
    let mut out = vec![0u32; ELEMENTS];
    let threads = Threads::new(1).expect("one thread is the caller's");
    let run = |_| {
        let started = Instant::now();
        let target = Target {
            format: Format::Word,
            bytes: bytemuck::cast_slice_mut(&mut out),
        };
        program.run(&threads, &[source, source], vec![target]);
        started.elapsed()
    };
    (0..200).map(run).min().expect("it runs")
}

#[track_caller]
fn check(ops: &[Operation], like: Operation, most: u32) {
    let limit = time(like) * most;
    for &op in ops {
        let found = time(op);
        assert!(
            found <= limit,
            "{op:?}: {found:?}, {like:?} {limit:?} / {most}"
        );
    }
}

#[test]
fn transcendental_functions_have_vectors() {
    let unary = [
        Unary::ExpM1,
        Unary::Log,
        Unary::Log1P,
        Unary::Tanh,
        Unary::Logistic,
        Unary::Rsqrt,
        Unary::Erf,
    ];
    check(
        &unary.map(Operation::Unary),
        Operation::Unary(Unary::Exp),
        5,
    );
    let odd = [
        Odd::ExpM1,
        Odd::Log,
        Odd::Log1P,
        Odd::Tanh,
        Odd::Logistic,
        Odd::Rsqrt,
        Odd::Erf,
    ];
    check(&odd.map(Operation::Odd), Operation::Odd(Odd::Exp), 5);
}

#[test]
fn selections_gather_nothing() {
    let sum = Operation::Binary(Binary::AddF);
    check(&[Operation::Select], sum, 4);
}
