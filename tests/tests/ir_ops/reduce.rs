use std::slice::from_ref;

use half::bf16;
use halite_core::{DType, HostArray};
use halite_ir::{Extreme, Op, Reduction, Window};

use crate::support::*;

#[test]
fn reductions_of_any_dimensions_or_none() {
    let x = count(&[2, 3, 4]);
    let expected = by_index(&[3], |index| {
        indices(&[2, 4])
            .map(|k| at(&x, &[k[0], index[0], k[1]]))
            .sum()
    });
    gives(
        Op::Reduce {
            kind: Reduction::Sum,
            dims: vec![0, 2],
        },
        &[&x],
        &[expected],
    );
    gives(
        Op::Reduce {
            kind: Reduction::Sum,
            dims: vec![],
        },
        &[&x],
        from_ref(&x),
    );
    let small = host(&[2.0f32, -3.0, 0.5, 4.0], &[2, 2]);
    let table = [
        (Reduction::Sum, [-1.0f32, 4.5]),
        (Reduction::Product, [-6.0, 2.0]),
        (Reduction::Min, [-3.0, 0.5]),
        (Reduction::Max, [2.0, 4.0]),
    ];
    for (kind, expected) in table {
        gives(
            Op::Reduce {
                kind,
                dims: vec![1],
            },
            &[&small],
            &[host(&expected, &[2])],
        );
    }
    // Of no elements: what changes nothing.
    let (floats, ints, bytes, bools) = (
        count(&[0]),
        host::<i16>(&[], &[0]),
        host::<u8>(&[], &[0]),
        host::<bool>(&[], &[0]),
    );
    let table = [
        (Reduction::Sum, 0.0f32, 0i16, 0u8),
        (Reduction::Product, 1.0, 1, 1),
        (Reduction::Min, f32::INFINITY, i16::MAX, u8::MAX),
        (Reduction::Max, f32::NEG_INFINITY, i16::MIN, 0),
    ];
    for (kind, float, int, byte) in table {
        let op = Op::Reduce {
            kind,
            dims: vec![0],
        };
        gives(op.clone(), &[&floats], &[HostArray::scalar(float)]);
        gives(op.clone(), &[&ints], &[HostArray::scalar(int)]);
        gives(op, &[&bytes], &[HostArray::scalar(byte)]);
    }
    for (kind, bool, bits) in [(Reduction::And, true, -1i16), (Reduction::Or, false, 0)] {
        let op = Op::Reduce {
            kind,
            dims: vec![0],
        };
        gives(op.clone(), &[&bools], &[HostArray::scalar(bool)]);
        gives(op, &[&ints], &[HostArray::scalar(bits)]);
    }
}

#[test]
fn reductions_in_every_element_type() {
    let p = host(&[true, true, false, true], &[2, 2]);
    gives(
        Op::Reduce {
            kind: Reduction::And,
            dims: vec![1],
        },
        &[&p],
        &[host(&[true, false], &[2])],
    );
    gives(
        Op::Reduce {
            kind: Reduction::Or,
            dims: vec![0],
        },
        &[&p],
        &[host(&[true, true], &[2])],
    );
    gives(
        Op::Reduce {
            kind: Reduction::Or,
            dims: vec![0],
        },
        &[&host(&[1u32, 6], &[2])],
        &[HostArray::scalar(7u32)],
    );
    gives(
        Op::Reduce {
            kind: Reduction::Max,
            dims: vec![0],
        },
        &[&host(&[3u64, u64::MAX], &[2])],
        &[HostArray::scalar(u64::MAX)],
    );
    gives(
        Op::Reduce {
            kind: Reduction::Min,
            dims: vec![0],
        },
        &[&host(&[3i8, -128], &[2])],
        &[HostArray::scalar(-128i8)],
    );
    gives(
        Op::Reduce {
            kind: Reduction::Sum,
            dims: vec![0],
        },
        &[&host(&[0.5f64, 1e-9], &[2])],
        &[HostArray::scalar(0.5f64 + 1e-9)],
    );
    let halves = host(&[bf16::from_f32(0.5); 6], &[6]);
    gives(
        Op::Reduce {
            kind: Reduction::Sum,
            dims: vec![0],
        },
        &[&halves],
        &[HostArray::scalar(bf16::from_f32(3.0))],
    );
    for kind in [Reduction::Min, Reduction::Max] {
        let got = run(
            Op::Reduce {
                kind,
                dims: vec![0],
            },
            &[&host(&[1.0f32, f32::NAN, 2.0], &[3])],
        )
        .remove(0);
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
        for (row, (&index, &value)) in indices
            .iter()
            .zip(got[0].as_slice::<f32>().unwrap())
            .enumerate()
        {
            let expected = rows[row][index as usize];
            assert!(
                value == expected || value.is_nan() && expected.is_nan(),
                "{kind:?} of {:?} is {value}",
                rows[row]
            );
        }
    }
    // Long enough for the compiler to reduce in parts.
    let long: Vec<f32> = (0..100_000).map(|i| ((i * 7919) % 1009) as f32).collect();
    let first = |wanted: f32| long.iter().position(|&x| x == wanted).unwrap() as i32;
    let x = host(&long, &[100_000]);
    gives(
        Op::ArgReduce {
            kind: Extreme::Max,
            dim: 0,
        },
        &[&x],
        &[
            HostArray::scalar(1008.0f32),
            HostArray::scalar(first(1008.0)),
        ],
    );
    gives(
        Op::ArgReduce {
            kind: Extreme::Min,
            dim: 0,
        },
        &[&x],
        &[HostArray::scalar(0.0f32), HostArray::scalar(first(0.0))],
    );
    let bytes = host(&[3u8, 200, 200, 0], &[2, 2]);
    gives(
        Op::ArgReduce {
            kind: Extreme::Max,
            dim: 0,
        },
        &[&bytes],
        &[host(&[200u8, 200], &[2]), host(&[1i32, 0], &[2])],
    );
    let halves = host(&[1.0, 2.0, 2.0].map(bf16::from_f32), &[3]);
    gives(
        Op::ArgReduce {
            kind: Extreme::Max,
            dim: 0,
        },
        &[&halves],
        &[
            HostArray::scalar(bf16::from_f32(2.0)),
            HostArray::scalar(1i32),
        ],
    );
}

/// Directly by the definition.
fn slide(kind: Reduction, window: &Window, x: &HostArray, out: &[usize]) -> HostArray {
    let dims = x.ty().dims();
    by_index(out, |index| {
        let mut inside = Vec::new();
        for offset in indices(&window.sizes) {
            let place = |d: usize| {
                let place = index[d] * window.strides[d] + offset[d] * window.window_dilations[d];
                let place = place.checked_sub(window.padding[d].0)?;
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

#[test]
fn reduce_window_attributes() {
    let x = noise(&[2, 7, 6]);
    let windows = [
        Window {
            sizes: vec![1, 2, 3],
            strides: vec![1, 2, 1],
            base_dilations: vec![1, 1, 1],
            window_dilations: vec![1, 1, 1],
            padding: vec![(0, 0), (1, 0), (2, 1)],
        },
        Window {
            sizes: vec![1, 2, 2],
            strides: vec![1, 1, 2],
            base_dilations: vec![1, 2, 1],
            window_dilations: vec![1, 1, 3],
            padding: vec![(0, 0), (0, 2), (1, 1)],
        },
        // A cumulative sum.
        Window {
            sizes: vec![1, 7, 1],
            strides: vec![1, 1, 1],
            base_dilations: vec![1, 1, 1],
            window_dilations: vec![1, 1, 1],
            padding: vec![(0, 0), (6, 0), (0, 0)],
        },
    ];
    for window in windows {
        for kind in [
            Reduction::Sum,
            Reduction::Product,
            Reduction::Min,
            Reduction::Max,
        ] {
            let got = run(
                Op::ReduceWindow {
                    kind,
                    window: window.clone(),
                },
                &[&x],
            )
            .remove(0);
            let expected = slide(kind, &window, &x, got.ty().dims());
            close(
                got.as_slice().unwrap(),
                expected.as_slice().unwrap(),
                1e-5,
                &format!("{kind:?} {window:?}"),
            );
        }
    }
    let window = Window {
        sizes: vec![2],
        strides: vec![1],
        base_dilations: vec![1],
        window_dilations: vec![1],
        padding: vec![(0, 1)],
    };
    let (bits, bools) = (host(&[3u8, 6, 5], &[3]), host(&[true, true, false], &[3]));
    gives(
        Op::ReduceWindow {
            kind: Reduction::And,
            window: window.clone(),
        },
        &[&bits],
        &[host(&[2u8, 4, 5], &[3])],
    );
    gives(
        Op::ReduceWindow {
            kind: Reduction::Or,
            window: window.clone(),
        },
        &[&bits],
        &[host(&[7u8, 7, 5], &[3])],
    );
    gives(
        Op::ReduceWindow {
            kind: Reduction::And,
            window,
        },
        &[&bools],
        &[host(&[true, false, false], &[3])],
    );
}

#[test]
fn select_and_scatter_adds_to_the_extreme_of_each_window() {
    let x = host(&[1.0f32, 5.0, 2.0, 5.0, 0.0, 4.0], &[6]);
    let source = host(&[10.0f32, 20.0, 30.0], &[3]);
    let window = Window {
        sizes: vec![3],
        strides: vec![2],
        base_dilations: vec![1],
        window_dilations: vec![1],
        padding: vec![(0, 1)],
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
fn sort_is_stable_with_total_order() {
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
        order.sort_by(|&a, &b| {
            if descending {
                x[b].total_cmp(&x[a])
            } else {
                x[a].total_cmp(&x[b])
            }
        });
        let sorted: Vec<f32> = order.iter().map(|&i| x[i]).collect();
        let places: Vec<i32> = order.iter().map(|&i| i as i32).collect();
        gives(
            Op::Sort { dim: 0, descending },
            &[&host(&x, &[8]), &host(&place, &[8])],
            &[host(&sorted, &[8]), host(&places, &[8])],
        );
    }
    let x = host(&[3i32, 1, 2, -1, 0, -2], &[2, 3]);
    gives(
        Op::Sort {
            dim: 1,
            descending: false,
        },
        &[&x],
        &[host(&[1i32, 2, 3, -2, -1, 0], &[2, 3])],
    );
    gives(
        Op::Sort {
            dim: 0,
            descending: true,
        },
        &[&x],
        &[host(&[3i32, 1, 2, -1, 0, -2], &[2, 3])],
    );
    gives(
        Op::Sort {
            dim: 0,
            descending: false,
        },
        &[&host(&[200u8, 100], &[2])],
        &[host(&[100u8, 200], &[2])],
    );
    gives(
        Op::Sort {
            dim: 0,
            descending: false,
        },
        &[&host(&[true, false], &[2])],
        &[host(&[false, true], &[2])],
    );
    assert_eq!(x.ty().dtype(), DType::S32);
}
