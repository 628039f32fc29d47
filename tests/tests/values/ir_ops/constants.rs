//! Literals of every element type, and what depends on the number of elements.

use half::{bf16, f16};
use halite_core::{Element, HostArray};
use halite_ir::{Extreme, Literal, Op};

use crate::ir_ops::support::*;

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

/// Checks the value and the index that an extreme over dimension 0 has.
fn extreme_is<T: Element>(kind: Extreme, x: &HostArray, values: &[T], indices: &[i32]) {
    let dims = &x.ty().dims()[1..];
    let expected = [host(values, dims), host(indices, dims)];
    gives(Op::ArgReduce { kind, dim: 0 }, &[x], &expected);
}

#[test]
fn argmax_of_a_long_array_finds_the_first() {
    // Long enough for the compiler to reduce in parts.
    let long: Vec<f32> = (0..100_000).map(|i| ((i * 7919) % 1009) as f32).collect();
    let first = |value: f32| long.iter().position(|&x| x == value).unwrap() as i32;
    let x = host(&long, &[100_000]);
    extreme_is(Extreme::Max, &x, &[1008.0f32], &[first(1008.0)]);
    extreme_is(Extreme::Min, &x, &[0.0f32], &[first(0.0)]);
}
