use std::slice::from_ref;

use half::bf16;
use halite_core::{Element, HostArray};
use halite_ir::{Extreme, Op, Reduction, WindowAttributes};

use crate::ir_ops::support::*;

fn reduce(kind: Reduction, dims: &[usize]) -> Op {
    let dims = dims.to_vec();
    Op::Reduce { kind, dims }
}

#[test]
fn reductions_of_any_dimensions_or_none() {
    let x = count(&[2, 3, 4]);
    let expected = by_index(&[3], |index| {
        indices(&[2, 4])
            .map(|k| at(&x, &[k[0], index[0], k[1]]))
            .sum()
    });
    gives(reduce(Reduction::Sum, &[0, 2]), &[&x], &[expected]);
    gives(reduce(Reduction::Sum, &[]), &[&x], from_ref(&x));
    let small = host(&[2.0f32, -3.0, 0.5, 4.0], &[2, 2]);
    for (kind, expected) in [
        (Reduction::Sum, [-1.0f32, 4.5]),
        (Reduction::Product, [-6.0, 2.0]),
        (Reduction::Min, [-3.0, 0.5]),
        (Reduction::Max, [2.0, 4.0]),
    ] {
        gives(reduce(kind, &[1]), &[&small], &[host(&expected, &[2])]);
    }
}

#[test]
fn reductions_of_no_elements_are_neutral() {
    let (floats, ints) = (count(&[0]), host::<i16>(&[], &[0]));
    let (bytes, bools) = (host::<u8>(&[], &[0]), host::<bool>(&[], &[0]));
    for (kind, float, int, byte) in [
        (Reduction::Sum, 0.0f32, 0i16, 0u8),
        (Reduction::Product, 1.0, 1, 1),
        (Reduction::Min, f32::INFINITY, i16::MAX, u8::MAX),
        (Reduction::Max, f32::NEG_INFINITY, i16::MIN, 0),
    ] {
        let op = reduce(kind, &[0]);
        gives(op.clone(), &[&floats], &[HostArray::scalar(float)]);
        gives(op.clone(), &[&ints], &[HostArray::scalar(int)]);
        gives(op, &[&bytes], &[HostArray::scalar(byte)]);
    }
    for (kind, bool, bits) in [(Reduction::And, true, -1i16), (Reduction::Or, false, 0)] {
        let op = reduce(kind, &[0]);
        gives(op.clone(), &[&bools], &[HostArray::scalar(bool)]);
        gives(op, &[&ints], &[HostArray::scalar(bits)]);
    }
}

#[test]
fn reductions_in_every_element_type() {
    let scalar = |kind, x: HostArray, expected: HostArray| {
        gives(reduce(kind, &[0]), &[&x], &[expected]);
    };
    let p = host(&[true, true, false, true], &[2, 2]);
    let rows = host(&[true, false], &[2]);
    gives(reduce(Reduction::And, &[1]), &[&p], &[rows]);
    scalar(Reduction::Or, p, host(&[true, true], &[2]));
    let bits = host(&[1u32, 6], &[2]);
    scalar(Reduction::Or, bits, HostArray::scalar(7u32));
    let large = host(&[3u64, u64::MAX], &[2]);
    scalar(Reduction::Max, large, HostArray::scalar(u64::MAX));
    let signed = host(&[3i8, -128], &[2]);
    scalar(Reduction::Min, signed, HostArray::scalar(-128i8));
    let doubles = host(&[0.5f64, 1e-9], &[2]);
    scalar(Reduction::Sum, doubles, HostArray::scalar(0.5f64 + 1e-9));
    let halves = host(&[bf16::from_f32(0.5); 6], &[6]);
    let three = bf16::from_f32(3.0);
    scalar(Reduction::Sum, halves, HostArray::scalar(three));
    for kind in [Reduction::Min, Reduction::Max] {
        let x = host(&[1.0f32, f32::NAN, 2.0], &[3]);
        let got = run(reduce(kind, &[0]), &[&x]).remove(0);
        assert!(got.item::<f32>().unwrap().is_nan(), "{kind:?} keeps NaN");
    }
}

#[test]
fn argmax_prefers_first_nan_then_first_equal() {
    let nan = f32::NAN;
    let rows: [[f32; 5]; 6] = [
        [1.0, 3.0, 3.0, -1.0, -1.0],
        [f32::NEG_INFINITY; 5],
        [f32::INFINITY; 5],
        [0.0, nan, 9.0, nan, -9.0],
        [nan; 5],
        [-0.0, 0.0, -0.0, 0.0, 0.0],
    ];
    let x = host(rows.as_flattened(), &[6, 5]);
    for (kind, indices) in [
        (Extreme::Max, [1, 0, 0, 1, 0, 0]),
        (Extreme::Min, [3, 0, 0, 1, 0, 0]),
    ] {
        let got = run(Op::ArgReduce { kind, dim: 1 }, &[&x]);
        assert_eq!(got[1], host(&indices, &[6]), "{kind:?}");
        let values = got[0].as_slice::<f32>().unwrap();
        for ((row, &index), &value) in rows.iter().zip(&indices).zip(values) {
            let expected = row[index as usize];
            assert!(
                value == expected || value.is_nan() && expected.is_nan(),
                "{kind:?} of {row:?} is {value}"
            );
        }
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

#[test]
fn argmax_of_bytes_is_unsigned() {
    let bytes = host(&[3u8, 200, 200, 0], &[2, 2]);
    extreme_is(Extreme::Max, &bytes, &[200u8, 200], &[1, 0]);
}

#[test]
fn argmax_of_bf16_finds_the_first() {
    let halves = host(&[1.0, 2.0, 2.0].map(bf16::from_f32), &[3]);
    extreme_is(Extreme::Max, &halves, &[bf16::from_f32(2.0)], &[1]);
}

/// `reduce_window` by its definition.
fn slide(kind: Reduction, window: &WindowAttributes, x: &HostArray, out: &[usize]) -> HostArray {
    let dims = x.ty().dims();
    by_index(out, |index| {
        let mut inside = Vec::new();
        for offset in indices(&window.sizes) {
            let place = |d: usize| {
                let place = index[d] * window.strides[d] + offset[d] * window.window_dilations[d];
                let place = place.checked_sub(window.padding[d].0 as usize)?;
                (place % window.base_dilations[d] == 0
                    && place / window.base_dilations[d] < dims[d])
                    .then_some(place / window.base_dilations[d])
            };
            if let Some(place) = (0..dims.len()).map(place).collect::<Option<Vec<usize>>>() {
                inside.push(at(x, &place));
            }
        }
        match kind {
            Reduction::Sum => inside.into_iter().sum(),
            Reduction::Product => inside.into_iter().product(),
            Reduction::Min => inside.into_iter().fold(f32::INFINITY, f32::min),
            Reduction::Max => inside.into_iter().fold(f32::NEG_INFINITY, f32::max),
            Reduction::And | Reduction::Or => unreachable!("the tests of windows are of floats"),
        }
    })
}

/// Windows of these sizes, without strides, dilations and padding.
fn windows(sizes: &[usize]) -> WindowAttributes {
    let ones = vec![1; sizes.len()];
    WindowAttributes {
        sizes: sizes.to_vec(),
        strides: ones.clone(),
        base_dilations: ones.clone(),
        window_dilations: ones,
        padding: vec![(0, 0); sizes.len()],
    }
}

#[test]
fn reduce_window_attributes() {
    let x = noise(&[2, 7, 6]);
    let strided = WindowAttributes {
        strides: vec![1, 2, 1],
        padding: vec![(0, 0), (1, 0), (2, 1)],
        ..windows(&[1, 2, 3])
    };
    let dilated = WindowAttributes {
        strides: vec![1, 1, 2],
        base_dilations: vec![1, 2, 1],
        window_dilations: vec![1, 1, 3],
        padding: vec![(0, 0), (0, 2), (1, 1)],
        ..windows(&[1, 2, 2])
    };
    let cumulative = WindowAttributes {
        padding: vec![(0, 0), (6, 0), (0, 0)],
        ..windows(&[1, 7, 1])
    };
    for window in [strided, dilated, cumulative] {
        for kind in [
            Reduction::Sum,
            Reduction::Product,
            Reduction::Min,
            Reduction::Max,
        ] {
            let op = Op::ReduceWindow {
                kind,
                window: window.clone(),
            };
            let got = run(op, &[&x]).remove(0);
            let what = format!("{kind:?} {window:?}");
            let expected = slide(kind, &window, &x, got.ty().dims());
            let expected = expected.as_slice().unwrap();
            close(got.as_slice().unwrap(), expected, 1e-5, &what);
        }
    }
}

#[test]
fn reduce_window_combines_bits() {
    let window = WindowAttributes {
        padding: vec![(0, 1)],
        ..windows(&[2])
    };
    let op = |kind| Op::ReduceWindow {
        kind,
        window: window.clone(),
    };
    let (bits, bools) = (host(&[3u8, 6, 5], &[3]), host(&[true, true, false], &[3]));
    let [and, or] = [[2u8, 4, 5], [7, 7, 5]].map(|bits| host(&bits, &[3]));
    gives(op(Reduction::And), &[&bits], &[and]);
    gives(op(Reduction::Or), &[&bits], &[or]);
    let both = host(&[true, false, false], &[3]);
    gives(op(Reduction::And), &[&bools], &[both]);
}

#[test]
fn select_and_scatter_adds_to_the_extreme_of_each_window() {
    let x = host(&[1.0f32, 5.0, 2.0, 5.0, 0.0, 4.0], &[6]);
    let source = host(&[10.0f32, 20.0, 30.0], &[3]);
    let window = WindowAttributes {
        strides: vec![2],
        padding: vec![(0, 1)],
        ..windows(&[3])
    };
    let op = |kind| Op::SelectAndScatter {
        kind,
        window: window.clone(),
    };
    gives(
        op(Extreme::Max),
        &[&x, &source],
        &[host(&[0.0f32, 10.0, 0.0, 20.0, 0.0, 30.0], &[6])],
    );
    gives(
        op(Extreme::Min),
        &[&x, &source],
        &[host(&[10.0f32, 0.0, 0.0, 0.0, 50.0, 0.0], &[6])],
    );
}

#[test]
fn sort_is_stable_by_value() {
    let x = [
        2.0f32,
        -0.0,
        f32::NAN,
        0.0,
        f32::NEG_INFINITY,
        -f32::NAN,
        f32::INFINITY,
        2.0,
    ];
    let place: Vec<i32> = (0..8).collect();
    for descending in [false, true] {
        let mut order: Vec<usize> = (0..8).collect();
        // NaN is larger than all, whatever its sign, and the zeros are equal.
        order.sort_by(|&a, &b| {
            let (a, b) = if descending { (b, a) } else { (a, b) };
            let numbers = x[a].partial_cmp(&x[b]);
            numbers.unwrap_or_else(|| x[a].is_nan().cmp(&x[b].is_nan()))
        });
        let sorted: Vec<f32> = order.iter().map(|&i| x[i]).collect();
        let places: Vec<i32> = order.iter().map(|&i| i as i32).collect();
        gives(
            Op::Sort {
                dim: 0,
                descending,
                by_bits: false,
            },
            &[&host(&x, &[8]), &host(&place, &[8])],
            &[host(&sorted, &[8]), host(&places, &[8])],
        );
    }
}

#[test]
fn sort_along_any_dimension_in_any_type() {
    let sorts = |x: &HostArray, dim, descending, expected: HostArray| {
        gives(
            Op::Sort {
                dim,
                descending,
                by_bits: false,
            },
            &[x],
            &[expected],
        );
    };
    let x = host(&[3i32, 1, 2, -1, 0, -2], &[2, 3]);
    let rows = host(&[1i32, 2, 3, -2, -1, 0], &[2, 3]);
    sorts(&x, 1, false, rows);
    sorts(&x, 0, true, x.clone());
    sorts(
        &host(&[200u8, 100], &[2]),
        0,
        false,
        host(&[100u8, 200], &[2]),
    );
    let bools = host(&[true, false], &[2]);
    sorts(&bools, 0, false, host(&[false, true], &[2]));
}
