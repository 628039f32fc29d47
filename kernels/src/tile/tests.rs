//! Tests of programs, against plain loops.

use super::*;
use crate::Threads;

/// `relu(x + y[row]) * 2`, and whether `x` is positive.
fn program(rows: usize, columns: usize) -> Program {
    let mut row = View::contiguous(&[rows, columns]);
    row.dims[0].stride = 1;
    row.dims[1].stride = 0;
    Program {
        rows: rows * columns,
        columns: 1,
        registers: vec![Extent::Elements; 5],
        outputs: vec![Output::Of(Extent::Elements); 2],
        constants: vec![(3, 0), (4, 2f32.to_bits())],
        uniform: Vec::new(),
        views: vec![(0, View::contiguous(&[rows * columns])), (1, row)],
        code: vec![
            Instruction::Load { into: 0, view: 0 },
            Instruction::Load { into: 1, view: 1 },
            Instruction::Binary {
                op: Binary::AddF,
                into: 2,
                x: 0,
                y: 1,
            },
            Instruction::Binary {
                op: Binary::MaximumF,
                into: 1,
                x: 2,
                y: 3,
            },
            Instruction::Binary {
                op: Binary::MultiplyF,
                into: 2,
                x: 1,
                y: 4,
            },
            Instruction::Store { x: 2, target: 0 },
            Instruction::Binary {
                op: Binary::LessF,
                into: 2,
                x: 3,
                y: 0,
            },
            Instruction::Store { x: 2, target: 1 },
        ],
    }
}

fn run(threads: usize, rows: usize, columns: usize) -> (Vec<u32>, Vec<u8>) {
    let x: Vec<u32> = (0..rows * columns)
        .map(|at| (at as f32 * 0.37).sin().to_bits())
        .collect();
    let y: Vec<u32> = (0..rows).map(|at| (at as f32).cos().to_bits()).collect();
    let (mut out, mut positive) = (vec![0; x.len()], vec![0; x.len()]);
    program(rows, columns).run(
        &Threads::new(threads).expect("threads start"),
        &[Source::Words(&x), Source::Words(&y)],
        vec![Target::Words(&mut out), Target::Bytes(&mut positive)],
    );
    for (at, &value) in out.iter().enumerate() {
        let (x, y) = (f32::from_bits(x[at]), f32::from_bits(y[at / columns]));
        assert_eq!(f32::from_bits(value), (x + y).max(0.0) * 2.0);
        assert_eq!(positive[at], u8::from(x > 0.0));
    }
    (out, positive)
}

#[test]
fn tiles_compute_each_element() {
    for (rows, columns) in [(1, 1), (3, 7), (0, 5), (5, 0), (2, 1024), (67, 1023)] {
        run(1, rows, columns);
    }
}

#[test]
fn results_are_computed_in_place() {
    let (rows, columns) = (20, 1000);
    let (expected, _) = run(1, rows, columns);
    let mut out: Vec<u32> = (0..rows * columns)
        .map(|at| (at as f32 * 0.37).sin().to_bits())
        .collect();
    let y: Vec<u32> = (0..rows).map(|at| (at as f32).cos().to_bits()).collect();
    let mut positive = vec![0; out.len()];
    let program = program(rows, columns);
    // The operand is loaded before the result is stored, but also read after it.
    program.run(
        &Threads::new(2).expect("threads start"),
        &[Source::InPlace(0), Source::Words(&y)],
        vec![Target::Words(&mut out), Target::Bytes(&mut positive)],
    );
    assert_eq!(out, expected);
}

#[test]
fn bits_do_not_depend_on_threads() {
    assert_eq!(run(1, 300, 1001), run(3, 300, 1001));
}

/// The softmax of each row, the largest element of each row, and the sum of each column.
fn softmax(rows: usize, columns: usize) -> Program {
    let [elements, of_rows] = [Extent::Elements, Extent::Rows];
    let reduce = |op, initial: f32, into, x| Instruction::Reduce {
        op,
        initial: initial.to_bits(),
        into,
        x,
    };
    let binary = |op, into, x, y| Instruction::Binary { op, into, x, y };
    Program {
        rows,
        columns,
        registers: vec![elements, of_rows, elements, elements],
        outputs: vec![
            Output::Of(elements),
            Output::Of(of_rows),
            Output::Columns {
                op: Accumulate::AddF,
                initial: 1f32.to_bits(),
            },
        ],
        constants: Vec::new(),
        uniform: Vec::new(),
        views: vec![(0, View::contiguous(&[rows * columns]))],
        code: vec![
            Instruction::Load { into: 0, view: 0 },
            Instruction::Store { x: 0, target: 2 },
            reduce(Accumulate::MaximumF, f32::NEG_INFINITY, 1, 0),
            Instruction::Store { x: 1, target: 1 },
            Instruction::Broadcast { into: 2, x: 1 },
            binary(Binary::SubtractF, 3, 0, 2),
            Instruction::Unary {
                op: Unary::Exp,
                into: 2,
                x: 3,
            },
            reduce(Accumulate::AddF, 0.0, 1, 2),
            Instruction::Broadcast { into: 3, x: 1 },
            binary(Binary::DivideF, 0, 2, 3),
            Instruction::Store { x: 0, target: 0 },
        ],
    }
}

fn run_softmax(threads: usize, rows: usize, columns: usize) -> [Vec<u32>; 3] {
    let number = |at: usize| (at as f32 * 0.37).sin() * 5.0;
    let mut x: Vec<f32> = (0..rows * columns).map(number).collect();
    if rows > 1 && columns > 0 {
        x[columns] = f32::NAN;
    }
    let mut results = [vec![0; rows * columns], vec![0; rows], vec![0; columns]];
    softmax(rows, columns).run(
        &Threads::new(threads).expect("threads start"),
        &[Source::Words(bytemuck::cast_slice(&x))],
        results.iter_mut().map(|it| Target::Words(it)).collect(),
    );
    let [softmax, largest, sums] = results.each_ref().map(|it| it.iter().copied());
    let softmax: Vec<_> = softmax.map(f32::from_bits).collect();
    let close = |value: f32, exact: f64, size: f64| {
        let error = (f64::from(value) - exact).abs();
        let agrees = value.is_nan() && exact.is_nan() || error <= 1e-6 * size;
        assert!(agrees, "[{rows}, {columns}]: {value}, not {exact}");
    };
    for (row, largest) in largest.map(f32::from_bits).enumerate() {
        let x = &x[row * columns..][..columns];
        let has_nan = x.iter().any(|it| it.is_nan());
        let exact = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert!(
            has_nan && largest.is_nan() || largest == exact,
            "{largest}, not {exact}"
        );
        let exps = x
            .iter()
            .map(|&it| (f64::from(it) - f64::from(largest)).exp());
        let sum: f64 = exps.clone().sum();
        for (exp, &value) in exps.zip(&softmax[row * columns..]) {
            close(value, exp / sum, 1.0);
        }
    }
    for (column, sum) in sums.map(f32::from_bits).enumerate() {
        let column = || (0..rows).map(|row| f64::from(x[row * columns + column]));
        let size = column().map(f64::abs).sum::<f64>() + 1.0;
        close(sum, column().sum::<f64>() + 1.0, size);
    }
    results
}

#[test]
fn rows_are_reduced_within_a_pass() {
    for (rows, columns) in [
        (1, 1),
        (3, 7),
        (5, 0),
        (0, 5),
        (40, 33),
        (70, 1023),
        (3, 4096),
    ] {
        run_softmax(1, rows, columns);
    }
}

#[test]
fn bits_of_reductions_do_not_depend_on_threads() {
    assert_eq!(run_softmax(1, 500, 100), run_softmax(3, 500, 100));
}

#[test]
fn registers_exceed_16_bits() {
    let last = 1 << 16;
    let program = Program {
        rows: 1,
        columns: 1,
        registers: vec![Extent::Elements; last as usize + 1],
        outputs: vec![Output::Of(Extent::Elements)],
        constants: vec![(0, 1), (last, 2)],
        uniform: Vec::new(),
        views: Vec::new(),
        code: vec![Instruction::Store { x: last, target: 0 }],
    };
    let (threads, mut out) = (Threads::new(1).expect("threads start"), [0]);
    program.run(&threads, &[], vec![Target::Words(&mut out)]);
    assert_eq!(out, [2]);
}
