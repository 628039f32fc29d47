//! Tests of programs, against plain loops.

use super::*;
use crate::{
    Threads,
    narrow::tests::{nearest_bf16, nearest_f16},
};

fn apply(op: Operation, into: Register, operands: &[Register]) -> Instruction {
    let mut all = [0; 3];
    all[..operands.len()].copy_from_slice(operands);
    Instruction::Apply {
        op,
        into,
        operands: all,
    }
}

fn words(x: &[u32]) -> Source<'_> {
    Source::Memory(Format::Word, bytemuck::cast_slice(x))
}

fn words_mut(out: &mut [u32]) -> Target<'_> {
    Target {
        format: Format::Word,
        bytes: bytemuck::cast_slice_mut(out),
    }
}

fn bytes_mut(bytes: &mut [u8]) -> Target<'_> {
    Target {
        format: Format::U8,
        bytes,
    }
}

/// `relu(x + y[row]) * 2`, and whether `x` is positive.
fn program(rows: usize, columns: usize) -> Program {
    let mut row = View::contiguous(&[rows, columns]);
    row.dims[0].stride = 1;
    row.dims[1].stride = 0;
    Program {
        rows: rows * columns,
        columns: 1,
        registers: vec![Kind::ELEMENTS; 5],
        outputs: vec![Output::Of(Extent::Elements); 2],
        constants: vec![(3, 0), (4, 2f32.to_bits().into())],
        uniform: Vec::new(),
        views: vec![(0, View::contiguous(&[rows * columns])), (1, row)],
        code: vec![
            Instruction::Load { into: 0, view: 0 },
            Instruction::Load { into: 1, view: 1 },
            apply(Operation::Binary(Binary::AddF), 2, &[0, 1]),
            apply(Operation::Binary(Binary::MaximumF), 1, &[2, 3]),
            apply(Operation::Binary(Binary::MultiplyF), 2, &[1, 4]),
            Instruction::Store { x: 2, target: 0 },
            apply(Operation::Compare(Compare::LessF), 2, &[3, 0]),
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
        &[words(&x), words(&y)],
        vec![words_mut(&mut out), bytes_mut(&mut positive)],
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
        &[Source::InPlace(Format::Word, 0), words(&y)],
        vec![words_mut(&mut out), bytes_mut(&mut positive)],
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
    let kind = |extent| Kind {
        extent,
        is_wide: false,
    };
    let reduce = |op, initial: f32, into, x| {
        let initial = initial.to_bits().into();
        apply(Operation::Reduce { op, initial }, into, &[x])
    };
    let binary = |op, into, x, y| apply(Operation::Binary(op), into, &[x, y]);
    Program {
        rows,
        columns,
        registers: [elements, of_rows, elements, elements].map(kind).to_vec(),
        outputs: vec![
            Output::Of(elements),
            Output::Of(of_rows),
            Output::Columns {
                op: Accumulate::AddF,
                initial: 1f32.to_bits().into(),
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
            apply(Operation::Broadcast, 2, &[1]),
            binary(Binary::SubtractF, 3, 0, 2),
            apply(Operation::Unary(Unary::Exp), 2, &[3]),
            reduce(Accumulate::AddF, 0.0, 1, 2),
            apply(Operation::Broadcast, 3, &[1]),
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
        &[words(bytemuck::cast_slice(&x))],
        results.iter_mut().map(|it| words_mut(it)).collect(),
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
        registers: vec![Kind::ELEMENTS; last as usize + 1],
        outputs: vec![Output::Of(Extent::Elements)],
        constants: vec![(0, 1), (last, 2)],
        uniform: Vec::new(),
        views: Vec::new(),
        code: vec![Instruction::Store { x: last, target: 0 }],
    };
    let (threads, mut out) = (Threads::new(1).expect("threads start"), [0]);
    program.run(&threads, &[], vec![words_mut(&mut out)]);
    assert_eq!(out, [2]);
}

/// Runs one operation on elements of some formats; the result is of the last one.
fn computed(op: Operation, operands: &[(Format, &[u8])], format: Format, count: usize) -> Vec<u64> {
    let formats = operands.iter().map(|it| it.0).chain([format]);
    let registers = formats.map(|format| Kind {
        extent: Extent::Elements,
        is_wide: format.is_wide(),
    });
    let into = operands.len() as Register;
    let load = |view: usize| Instruction::Load {
        into: view as Register,
        view,
    };
    let store = Instruction::Store { x: into, target: 0 };
    let inner = [apply(op, into, &[0, 1, 2][..operands.len()]), store];
    let program = Program {
        rows: count,
        columns: 1,
        registers: registers.collect(),
        outputs: vec![Output::Of(Extent::Elements)],
        views: (0..operands.len())
            .map(|it| (it, View::contiguous(&[count])))
            .collect(),
        code: (0..operands.len()).map(load).chain(inner).collect(),
        ..Program::default()
    };
    let sources: Vec<_> = operands
        .iter()
        .map(|&(format, bytes)| Source::Memory(format, bytes))
        .collect();
    let mut out = vec![0u64; (count * format.size()).div_ceil(8)];
    let bytes = &mut bytemuck::cast_slice_mut(&mut out)[..count * format.size()];
    let threads = Threads::new(1).expect("one thread is the caller's");
    program.run(&threads, &sources, vec![Target { format, bytes }]);
    let bytes: &[u8] = bytemuck::cast_slice(&out);
    bytes[..count * format.size()]
        .chunks_exact(format.size())
        .map(|it| format.word(it))
        .collect()
}

#[test]
fn functions_of_16_bits_round_once() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    type Function = fn(f64) -> f64;
    let functions: [(Odd, Function); 12] = [
        (Odd::Exp, f64::exp),
        (Odd::ExpM1, f64::exp_m1),
        (Odd::Log, f64::ln),
        (Odd::Log1P, f64::ln_1p),
        (Odd::Tanh, f64::tanh),
        (Odd::Logistic, |x| 1.0 / (1.0 + (-x).exp())),
        (Odd::Rsqrt, |x| 1.0 / x.sqrt()),
        (Odd::Cos, f64::cos),
        (Odd::Sin, f64::sin),
        (Odd::Tan, f64::tan),
        (Odd::Cbrt, f64::cbrt),
        (Odd::Erf, libm::erf),
    ];
    for (op, exact) in functions {
        for (format, round) in [
            (Format::Bf16, Convert::RoundBf16),
            (Format::F16, Convert::RoundF16),
        ] {
            let x = computed(
                Operation::Odd(op),
                &[(format, bytemuck::cast_slice(&all))],
                Format::Word,
                all.len(),
            );
            let x: Vec<u32> = x.iter().map(|&word| word as u32).collect();
            let x = computed(
                Operation::Convert(round),
                &[(Format::Word, bytemuck::cast_slice(&x))],
                format,
                x.len(),
            );
            for (&bits, &found) in all.iter().zip(&x) {
                let from =
                    |bits: u16| f64::from(f32::from_bits(format.word(&bits.to_le_bytes()) as u32));
                let exact = exact(from(bits));
                let expected = match format {
                    Format::F16 => nearest_f16(exact),
                    _ => nearest_bf16(exact),
                };
                let found = f32::from_bits(found as u32);
                let same =
                    found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(
                    same,
                    "{op:?} of {format:?} {}: {found}, not {expected}",
                    from(bits)
                );
            }
        }
    }
}

#[test]
fn wide_registers_mix_with_narrow_ones() {
    let (x, y) = ([i64::MIN, -1, 0, 5, i64::MAX], [3i64, -1, 0, 7, 1]);
    let (x, y): (&[u8], &[u8]) = (bytemuck::cast_slice(&x), bytemuck::cast_slice(&y));
    let wide = [(Format::Wide, x), (Format::Wide, y)];
    let less = computed(Operation::Compare(Compare::LessS), &wide, Format::U8, 5);
    assert_eq!(less, [1, 0, 0, 1, 0]);
    let sums = computed(Operation::Binary(Binary::Add), &wide, Format::Wide, 5);
    assert_eq!(
        sums.iter().map(|&it| it as i64).collect::<Vec<_>>(),
        [i64::MIN + 3, -2, 0, 12, i64::MIN]
    );
    let selected = computed(
        Operation::Select,
        &[(Format::S8, &[0, 1, 0, 1, 255]), wide[0], wide[1]],
        Format::Wide,
        5,
    );
    assert_eq!(
        selected.iter().map(|&it| it as i64).collect::<Vec<_>>(),
        [3, -1, 0, 5, i64::MAX]
    );
    let short = computed(
        Operation::Shorten(Shorten::IntFromInt),
        &wide[..1],
        Format::S16,
        5,
    );
    assert_eq!(short, [0, 0xffff_ffff, 0, 5, 0xffff_ffff]);
    let floats = computed(
        Operation::Widen(Widen::DoubleFromS),
        &[(Format::S8, &[128, 255, 0, 5, 127])],
        Format::Wide,
        5,
    );
    assert_eq!(
        floats
            .iter()
            .map(|&it| f64::from_bits(it))
            .collect::<Vec<_>>(),
        [-128.0, -1.0, 0.0, 5.0, 127.0]
    );
}
