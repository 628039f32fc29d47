//! Indices of all integer types: beyond the table they follow the documented rule, and none wraps
//! to another.

use halite_core::{DType, Element, HostArray, TensorType, tree::Leaf};
use halite_nn::{Tensor, Trace, grad, s};
use halite_tests::eval::{eval, host};

const TABLE: [f64; 4] = [10.0, 11.0, 12.0, 13.0];

#[test]
fn slice_has_the_elements_of_numpy() {
    let values: Vec<f32> = (0..24).map(|value| value as f32).collect();
    let found = eval(
        |_, x| {
            let part = x[0].at(s![1, ..; 2, -3..]);
            vec![part, grad(part.square().sum_all(), &Leaf(x[0])).0]
        },
        &[host(&values, &[2, 3, 4])],
    );
    // np.arange(24).reshape(2, 3, 4)[1, ::2, -3:]
    let expected = [13.0, 14.0, 15.0, 21.0, 22.0, 23.0];
    assert_eq!(found[0].ty().to_string(), "f32[2, 3]");
    assert_eq!(found[0].as_slice::<f32>().unwrap(), expected);
    let slopes = values.iter().map(|value| match expected.contains(value) {
        true => 2.0 * value,
        false => 0.0,
    });
    assert_eq!(
        found[1].as_slice::<f32>().unwrap(),
        slopes.collect::<Vec<_>>()
    );
}

/// What operations read and write at these places, with gradients.
fn operations<'t>(cx: &'t Trace, table: Tensor<'t>, at: Tensor<'t>) -> Vec<Tensor<'t>> {
    let count = at.dims()[0];
    let updates = cx.arange(count, DType::F64) + 1.0;
    let read = table.take(at, 0);
    let column = at.reshape([count, 1]);
    let rows = table.broadcast_to([count, 4]);
    let along = rows.take_along(column, 1);
    let first = at.slice_dim(0, ..1).reshape([]);
    let written = table.scatter_add(at, updates, 0);
    vec![
        read,
        grad((read * updates).sum_all(), &Leaf(table)).0,
        along.reshape([count]),
        grad((along.reshape([count]) * updates).sum_all(), &Leaf(table)).0,
        written,
        at.one_hot(4, DType::F64).sum([0]),
        table.dynamic_slice(&[first], [2]),
        table.dynamic_update_slice(table.slice_dim(0, ..2) * 0.0, &[first]),
        grad(written.square().sum_all(), &Leaf(updates)).0,
    ]
}

/// Reads and writes at `given`, whose values are `exact`, against the rules.
fn check<T: Element>(given: &[T], exact: &[i128]) {
    let indices = host(given, &[given.len()]);
    let name = indices.ty().to_string();
    let results = eval(
        |cx, x| operations(cx, x[0], x[1]),
        &[host(&TABLE, &[4]), indices],
    );
    let result = |at: usize| results[at].as_slice::<f64>().unwrap().to_vec();
    let near: Vec<usize> = exact.iter().map(|&at| at.clamp(0, 3) as usize).collect();
    let inside = |at: &i128| (0..4).contains(at);
    let read: Vec<f64> = near.iter().map(|&at| TABLE[at]).collect();
    let mut slopes = [0.0; 4];
    near.iter()
        .zip(1..)
        .for_each(|(&at, weight)| slopes[at] += f64::from(weight));
    let (mut sums, mut counts) = (TABLE, [0.0; 4]);
    for (&at, weight) in exact.iter().zip(1..).filter(|(at, _)| inside(at)) {
        sums[at as usize] += f64::from(weight);
        counts[at as usize] += 1.0;
    }
    assert_eq!(result(0), read, "take at {name}");
    assert_eq!(result(1), slopes, "gradient of take at {name}");
    assert_eq!(result(2), read, "take_along at {name}");
    assert_eq!(result(3), slopes, "gradient of take_along at {name}");
    assert_eq!(result(4), sums, "scatter_add at {name}");
    assert_eq!(result(5), counts, "one_hot of {name}");
    let start = exact[0].clamp(0, 2) as usize;
    assert_eq!(
        result(6),
        TABLE[start..start + 2],
        "dynamic_slice at {name}"
    );
    let mut written = TABLE;
    written[start..start + 2].fill(0.0);
    assert_eq!(result(7), written, "dynamic_update_slice at {name}");
    let of_updates = exact.iter().map(|at| {
        if inside(at) {
            2.0 * sums[*at as usize]
        } else {
            0.0
        }
    });
    assert_eq!(
        result(8),
        of_updates.collect::<Vec<_>>(),
        "gradient of scatter_add at {name}"
    );
}

macro_rules! check_at {
    ($($ty:ty: $($value:expr),*;)*) => {$(
        for first in [$($value),*] {
            let given: Vec<$ty> = [first].into_iter().chain([$($value),*]).collect();
            let exact: Vec<i128> = given.iter().map(|&at| at.into()).collect();
            check(&given, &exact);
        }
    )*};
}

#[test]
fn indices_of_any_integer_type_do_not_wrap() {
    check_at! {
        i8: -128, -1, 0, 3, 4, 127;
        u8: 0, 3, 4, 128, 255;
        i16: i16::MIN, 2, 256, 300, i16::MAX;
        u16: 1, 256, 1 << 15, u16::MAX;
        i32: i32::MIN, -1, 2, 1 << 8, 1 << 16, i32::MAX;
        u32: 1, 1 << 16, 1 << 31, (1 << 31) + 2, u32::MAX;
        i64: i64::MIN, -1, 2, 1 << 32, (1 << 32) + 1, -(1 << 32), i64::MAX;
        u64: 1, 1 << 32, (1 << 32) + 3, 1 << 63, (1 << 63) + 1, u64::MAX;
    }
}

/// A table longer than an index type reaches.
#[test]
fn small_indices_read_large_tables() {
    let table: Vec<f64> = (0..300).map(f64::from).collect();
    let arrays: [HostArray; 2] = [host(&[255u8, 200, 0], &[3]), host(&[127i8, -1, 5], &[3])];
    for (at, expected) in arrays
        .into_iter()
        .zip([[255.0, 200.0, 0.0], [127.0, 0.0, 5.0]])
    {
        let results = eval(
            |_, x| {
                let read = x[0].take(x[1], 0);
                vec![
                    read,
                    grad(read.sum_all(), &Leaf(x[0])).0,
                    x[1].one_hot(300, DType::F64),
                ]
            },
            &[host(&table, &[300]), at],
        );
        assert_eq!(results[0].as_slice::<f64>().unwrap(), expected);
        let slopes = results[1].as_slice::<f64>().unwrap();
        assert_eq!(expected.map(|at| slopes[at as usize]), [1.0; 3]);
        assert_eq!(results[2].ty(), &TensorType::new(DType::F64, [3, 300]));
        let hot: f64 = results[2].as_slice::<f64>().unwrap().iter().sum();
        let inside = if expected[1] == 0.0 { 2.0 } else { 3.0 };
        assert_eq!(hot, inside);
    }
}
