use std::slice::from_ref;

use half::{bf16, f16};
use halite_core::{DType, HostArray, TensorType};
use halite_ir::{BinaryOp, ComparisonDirection, Literal, Op, UnaryOp};

use crate::ir_ops::support::*;

type Formulas1 = [(UnaryOp, fn(f64) -> f64); 20];
type Formulas2 = [(BinaryOp, fn(f64, f64) -> f64); 9];

const FLOATS: [f32; 10] = [-2.5, -1.5, -0.75, -0.5, -0.0, 0.0, 0.25, 0.5, 1.5, 3.25];

#[test]
fn unary_operations_on_floats_are_their_formulas() {
    let x = host(&FLOATS, &[10]);
    let table: Formulas1 = [
        (UnaryOp::Abs, f64::abs),
        (UnaryOp::Cbrt, f64::cbrt),
        (UnaryOp::Ceil, f64::ceil),
        (UnaryOp::Cosine, f64::cos),
        (UnaryOp::Erf, erf),
        (UnaryOp::Exponential, f64::exp),
        (UnaryOp::ExponentialMinusOne, f64::exp_m1),
        (UnaryOp::Floor, f64::floor),
        (UnaryOp::Log, f64::ln),
        (UnaryOp::LogPlusOne, f64::ln_1p),
        (UnaryOp::Logistic, |x| 1.0 / (1.0 + (-x).exp())),
        (UnaryOp::Negate, |x| -x),
        (UnaryOp::RoundNearestAfz, f64::round),
        (UnaryOp::RoundNearestEven, f64::round_ties_even),
        (UnaryOp::Rsqrt, |x| 1.0 / x.sqrt()),
        (UnaryOp::Sign, |x| if x == 0.0 { 0.0 } else { x.signum() }),
        (UnaryOp::Sine, f64::sin),
        (UnaryOp::Sqrt, f64::sqrt),
        (UnaryOp::Tan, f64::tan),
        (UnaryOp::Tanh, f64::tanh),
    ];
    for (unary, formula) in table {
        let expected: Vec<f32> = FLOATS
            .iter()
            .map(|&x| formula(f64::from(x)) as f32)
            .collect();
        gives_about(Op::Unary(unary), &[&x], &expected, 2e-6);
    }
}

/// The series of the error function: exact enough below 4.
fn erf(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn unary_operations_take_every_float_type() {
    let unaries = [
        UnaryOp::Erf,
        UnaryOp::Tanh,
        UnaryOp::Logistic,
        UnaryOp::Cbrt,
        UnaryOp::Tan,
        UnaryOp::Rsqrt,
        UnaryOp::ExponentialMinusOne,
    ];
    for unary in unaries {
        let reference = run(Op::Unary(unary), &[&host(&[0.5f64, 1.25], &[2])]).remove(0);
        let reference = reference.as_slice::<f64>().unwrap();
        let half = run(
            Op::Unary(unary),
            &[&host(&[0.5, 1.25].map(f16::from_f32), &[2])],
        )
        .remove(0);
        let brain = run(
            Op::Unary(unary),
            &[&host(&[0.5, 1.25].map(bf16::from_f32), &[2])],
        )
        .remove(0);
        for (i, &reference) in reference.iter().enumerate() {
            let (half, brain) = (
                half.as_slice::<f16>().unwrap()[i],
                brain.as_slice::<bf16>().unwrap()[i],
            );
            assert!(
                (half.to_f64() - reference).abs() < 4e-3 * reference.max(1.0),
                "{unary:?}: {half}, {}",
                reference
            );
            assert!(
                (brain.to_f64() - reference).abs() < 3e-2 * reference.max(1.0),
                "{unary:?}: {brain}, {}",
                reference
            );
        }
    }
}

#[test]
fn unary_operations_on_integers_or_bools() {
    let s = host(&[-128i8, -1, 0, 1, 127], &[5]);
    gives(
        Op::Unary(UnaryOp::Abs),
        &[&host(&[-5i32, 0, 7], &[3])],
        &[host(&[5i32, 0, 7], &[3])],
    );
    gives(
        Op::Unary(UnaryOp::Negate),
        &[&s],
        &[host(&[-128i8, 1, 0, -1, -127], &[5])],
    );
    gives(
        Op::Unary(UnaryOp::Negate),
        &[&host(&[1u8, 0], &[2])],
        &[host(&[255u8, 0], &[2])],
    );
    gives(
        Op::Unary(UnaryOp::Sign),
        &[&s],
        &[host(&[-1i8, -1, 0, 1, 1], &[5])],
    );
    gives(
        Op::Unary(UnaryOp::Not),
        &[&s],
        &[host(&[127i8, 0, -1, -2, -128], &[5])],
    );
    gives(
        Op::Unary(UnaryOp::Not),
        &[&host(&[true, false], &[2])],
        &[host(&[false, true], &[2])],
    );
    gives(
        Op::Unary(UnaryOp::CountLeadingZeros),
        &[&host(&[0u16, 1, 0x8000], &[3])],
        &[host(&[16u16, 15, 0], &[3])],
    );
    gives(
        Op::Unary(UnaryOp::Popcnt),
        &[&host(&[0i64, -1, 6], &[3])],
        &[host(&[0i64, 64, 2], &[3])],
    );
    let odd = host(&[f32::NAN, f32::INFINITY, 1.0], &[3]);
    gives(
        Op::Unary(UnaryOp::IsFinite),
        &[&odd],
        &[host(&[false, false, true], &[3])],
    );
    let sign = run(Op::Unary(UnaryOp::Sign), &[&odd]).remove(0);
    assert!(sign.as_slice::<f32>().unwrap()[0].is_nan());
}

#[test]
fn binary_operations_on_floats_are_their_formulas() {
    let left: Vec<f32> = FLOATS.iter().flat_map(|&x| [x; 10]).collect();
    let right: Vec<f32> = [FLOATS; 10].concat();
    let (x, y) = (host(&left, &[10, 10]), host(&right, &[10, 10]));
    let table: Formulas2 = [
        (BinaryOp::Add, |x, y| x + y),
        (BinaryOp::Atan2, f64::atan2),
        (BinaryOp::Divide, |x, y| x / y),
        (BinaryOp::Maximum, f64::max),
        (BinaryOp::Minimum, f64::min),
        (BinaryOp::Multiply, |x, y| x * y),
        (BinaryOp::Power, f64::powf),
        (BinaryOp::Remainder, |x, y| x % y),
        (BinaryOp::Subtract, |x, y| x - y),
    ];
    for (binary, formula) in table {
        let expected: Vec<f32> = left
            .iter()
            .zip(&right)
            .map(|(&x, &y)| formula(f64::from(x), f64::from(y)) as f32)
            .collect();
        gives_about(Op::Binary(binary), &[&x, &y], &expected, 2e-6);
    }
    let (nan, one) = (host(&[f32::NAN, 1.0], &[2]), host(&[1.0, f32::NAN], &[2]));
    for binary in [BinaryOp::Maximum, BinaryOp::Minimum] {
        let got = run(Op::Binary(binary), &[&nan, &one]).remove(0);
        assert!(
            got.as_slice::<f32>().unwrap().iter().all(|x| x.is_nan()),
            "{binary:?} keeps NaN: {got:?}"
        );
    }
}

#[test]
fn binary_operations_on_integers_or_bools() {
    let (x, y) = (
        host(&[-7i32, 7, 6, i32::MIN], &[4]),
        host(&[2i32, -2, 3, 1], &[4]),
    );
    let table: [(BinaryOp, [i32; 4]); 11] = [
        (BinaryOp::Add, [-5, 5, 9, i32::MIN + 1]),
        (BinaryOp::And, [-7 & 2, 7 & -2, 2, 0]),
        (BinaryOp::Divide, [-3, -3, 2, i32::MIN]),
        (BinaryOp::Maximum, [2, 7, 6, 1]),
        (BinaryOp::Minimum, [-7, -2, 3, i32::MIN]),
        (BinaryOp::Multiply, [-14, -14, 18, i32::MIN]),
        (BinaryOp::Or, [-7 | 2, 7 | -2, 7, i32::MIN + 1]),
        (BinaryOp::Remainder, [-1, 1, 0, 0]),
        (BinaryOp::Subtract, [-9, 9, 3, i32::MAX]),
        (BinaryOp::Xor, [-7 ^ 2, 7 ^ -2, 5, i32::MIN + 1]),
        (BinaryOp::Power, [49, 0, 216, i32::MIN]),
    ];
    for (binary, expected) in table {
        gives(Op::Binary(binary), &[&x, &y], &[host(&expected, &[4])]);
    }
    let (bits, by) = (host(&[-16i32, 1, 1], &[3]), host(&[2i32, 31, 40], &[3]));
    gives(
        Op::Binary(BinaryOp::ShiftLeft),
        &[&bits, &by],
        &[host(&[-64i32, i32::MIN, 0], &[3])],
    );
    gives(
        Op::Binary(BinaryOp::ShiftRightArithmetic),
        &[&bits, &by],
        &[host(&[-4i32, 0, 0], &[3])],
    );
    gives(
        Op::Binary(BinaryOp::ShiftRightLogical),
        &[&bits, &by],
        &[host(&[0x3FFF_FFFCi32, 0, 0], &[3])],
    );

    let (p, q) = (
        host(&[false, false, true, true], &[4]),
        host(&[false, true, false, true], &[4]),
    );
    let (and, or, xor) = (
        [false, false, false, true],
        [false, true, true, true],
        [false, true, true, false],
    );
    let table = [
        (BinaryOp::And, and),
        (BinaryOp::Multiply, and),
        (BinaryOp::Minimum, and),
        (BinaryOp::Or, or),
        (BinaryOp::Add, or),
        (BinaryOp::Maximum, or),
        (BinaryOp::Xor, xor),
    ];
    for (binary, expected) in table {
        gives(Op::Binary(binary), &[&p, &q], &[host(&expected, &[4])]);
    }
}

#[test]
fn comparisons_of_nan_signed_zero_unsigned() {
    let all = [
        ComparisonDirection::Eq,
        ComparisonDirection::Ne,
        ComparisonDirection::Lt,
        ComparisonDirection::Le,
        ComparisonDirection::Gt,
        ComparisonDirection::Ge,
    ];
    for comparison in all {
        fn holds<T: PartialOrd>(
            comparison: ComparisonDirection,
            x: &[T; 4],
            y: &[T; 4],
        ) -> HostArray {
            let holds = |(x, y): (&T, &T)| match comparison {
                ComparisonDirection::Eq => x == y,
                ComparisonDirection::Ne => x != y,
                ComparisonDirection::Lt => x < y,
                ComparisonDirection::Le => x <= y,
                ComparisonDirection::Gt => x > y,
                ComparisonDirection::Ge => x >= y,
            };
            host(&x.iter().zip(y).map(holds).collect::<Vec<bool>>(), &[4])
        }
        let (x, y) = (
            [f32::NAN, -0.0, 1.0, f32::NEG_INFINITY],
            [f32::NAN, 0.0, 2.0, f32::INFINITY],
        );
        gives(
            Op::Compare(comparison),
            &[&host(&x, &[4]), &host(&y, &[4])],
            &[holds(comparison, &x, &y)],
        );
        let (x, y) = ([-1i8, 1, 3, -128], [1i8, -1, 3, 127]);
        gives(
            Op::Compare(comparison),
            &[&host(&x, &[4]), &host(&y, &[4])],
            &[holds(comparison, &x, &y)],
        );
        let (x, y) = ([255u8, 1, 3, 128], [1u8, 255, 3, 127]);
        gives(
            Op::Compare(comparison),
            &[&host(&x, &[4]), &host(&y, &[4])],
            &[holds(comparison, &x, &y)],
        );
        let (x, y) = ([true, true, false, false], [true, false, true, false]);
        gives(
            Op::Compare(comparison),
            &[&host(&x, &[4]), &host(&y, &[4])],
            &[holds(comparison, &x, &y)],
        );
    }
}

#[test]
fn select_or_clamp_by_scalars_or_tensors() {
    let (a, b) = (host(&[1i16, 2, 3], &[3]), host(&[-1i16, -2, -3], &[3]));
    gives(
        Op::Select,
        &[&host(&[true, false, true], &[3]), &a, &b],
        &[host(&[1i16, -2, 3], &[3])],
    );
    gives(
        Op::Select,
        &[&HostArray::scalar(false), &a, &b],
        from_ref(&b),
    );
    let x = host(&[-5.0f32, 0.5, 5.0], &[3]);
    gives(
        Op::Clamp,
        &[&HostArray::scalar(-1.0f32), &x, &HostArray::scalar(1.0f32)],
        &[host(&[-1.0f32, 0.5, 1.0], &[3])],
    );
    let high = host(&[0.0f32, 0.25, 9.0], &[3]);
    gives(
        Op::Clamp,
        &[&HostArray::scalar(-1.0f32), &x, &high],
        &[host(&[-1.0f32, 0.25, 5.0], &[3])],
    );
    gives(
        Op::Clamp,
        &[
            &HostArray::scalar(2u8),
            &host(&[1u8, 200], &[2]),
            &HostArray::scalar(9u8),
        ],
        &[host(&[2u8, 9], &[2])],
    );
}

#[test]
fn conversions_go_between_all_element_types() {
    let x = host(&[0.0f32, 1.0, 2.75, 100.0], &[4]);
    gives(
        Op::Convert(DType::S32),
        &[&x],
        &[host(&[0i32, 1, 2, 100], &[4])],
    );
    gives(
        Op::Convert(DType::S32),
        &[&host(&[-2.75f32], &[1])],
        &[host(&[-2i32], &[1])],
    );
    gives(
        Op::Convert(DType::Bool),
        &[&x],
        &[host(&[false, true, true, true], &[4])],
    );
    gives(
        Op::Convert(DType::Bf16),
        &[&host(&[1.003_906_2f32], &[1])],
        &[host(&[bf16::from_f32(1.0)], &[1])],
    );
    gives(
        Op::Convert(DType::F32),
        &[&host(&[true, false], &[2])],
        &[host(&[1.0f32, 0.0], &[2])],
    );
    gives(
        Op::Convert(DType::U8),
        &[&host(&[-1i32, 258], &[2])],
        &[host(&[255u8, 2], &[2])],
    );
    // Through every pair of types and back to s32, small numbers stay.
    let small = host(&[0i32, 1, 1, 0], &[4]);
    for from in DType::computed() {
        for to in DType::computed() {
            let ty = TensorType::new(DType::S32, [4]);
            let graph = graph([ty], |graph, [x]| {
                let x = push(graph, Op::Convert(from), &[x]);
                let x = push(graph, Op::Convert(to), &[x]);
                vec![push(graph, Op::Convert(DType::S32), &[x])]
            });
            assert_eq!(
                run_graph(&graph, &[&small]),
                from_ref(&small),
                "{from} {to}"
            );
        }
    }
}

#[test]
fn bits_are_kept_or_rounded_away() {
    gives(
        Op::BitcastConvert(DType::U32),
        &[&host(&[1.0f32, -0.0], &[2])],
        &[host(&[0x3F80_0000u32, 0x8000_0000], &[2])],
    );
    gives(
        Op::BitcastConvert(DType::Bf16),
        &[&host(&[0x3F80u16], &[1])],
        &[host(&[bf16::ONE], &[1])],
    );
    gives(
        Op::BitcastConvert(DType::S64),
        &[&host(&[u64::MAX], &[1])],
        &[host(&[-1i64], &[1])],
    );
    let op = Op::ReducePrecision {
        exponent: 8,
        mantissa: 7,
    };
    let x = [1.0f32, 1.01, std::f32::consts::PI, -1e30];
    gives(
        op,
        &[&host(&x, &[4])],
        &[host(&x.map(|x| bf16::from_f32(x).to_f32()), &[4])],
    );
    gives_about(
        Op::ReducePrecision {
            exponent: 5,
            mantissa: 10,
        },
        &[&host(&[1e6f32], &[1])],
        &[f32::INFINITY],
        0.0,
    );
}

#[test]
fn constants_of_every_type_arrive_bit_for_bit() {
    fn check(literal: Literal) {
        let expected = literal.to_host();
        gives(Op::Constant(literal), &[], &[expected]);
    }
    macro_rules! each {
        ($($rust:ty: [$($value:expr),*];)*) => {$(
            let values: Vec<$rust> = vec![$($value),*];
            for &value in &values {
                check(Literal::splat(value, []));
                check(Literal::splat(value, [2, 3]));
                check(Literal::splat(value, [0, 3]));
            }
            // Listed, and as a block of digits, in one and in three dimensions.
            check(Literal::new(&values, [values.len()]).unwrap());
            let many: Vec<$rust> = values.iter().copied().cycle().take(48).collect();
            check(Literal::new(&many, [48]).unwrap());
            check(Literal::new(&many, [2, 4, 6]).unwrap());
            check(Literal::new(&many[..2], [1, 2]).unwrap());
            check(Literal::new::<$rust>(&[], [0]).unwrap());
            check(Literal::new::<$rust>(&[], [2, 0]).unwrap());
        )*};
    }
    each! {
        bool: [true, false, false];
        i8: [i8::MIN, -1, 0, i8::MAX];
        i16: [i16::MIN, -1, 0, i16::MAX];
        i32: [i32::MIN, -1, 0, i32::MAX];
        i64: [i64::MIN, -1, 0, i64::MAX];
        u8: [0, 1, u8::MAX];
        u16: [0, 1, u16::MAX];
        u32: [0, 1, u32::MAX];
        u64: [0, 1, u64::MAX];
        f16: [f16::ZERO, f16::NEG_ZERO, f16::INFINITY, f16::NEG_INFINITY, f16::MIN_POSITIVE, f16::MAX, f16::from_f32(0.1), f16::from_bits(1)];
        bf16: [bf16::ZERO, bf16::NEG_ZERO, bf16::INFINITY, bf16::NEG_INFINITY, bf16::MIN_POSITIVE, bf16::MAX, bf16::from_f32(0.1), bf16::from_bits(1)];
        f32: [0.0, -0.0, 1.0, 1.0 / 3.0, 0.1, 1e-45, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 16_777_216.0, 1e-5, 12_345_678.0];
        f64: [0.0, -0.0, 1.0, 1.0 / 3.0, 0.1, 5e-324, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-300, 9_007_199_254_740_993.0];
    }
}
