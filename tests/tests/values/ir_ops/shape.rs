use std::slice::from_ref;

use halite_core::{DType, HostArray, TensorType};
use halite_ir::Op;

use crate::ir_ops::support::*;

#[test]
fn iota_counts_along_its_dimension_in_every_number_type() {
    let ty = |dtype| TensorType::new(dtype, [2, 3]);
    gives(
        Op::Iota {
            ty: ty(DType::F32),
            dim: 1,
        },
        &[],
        &[host(&[0.0f32, 1.0, 2.0, 0.0, 1.0, 2.0], &[2, 3])],
    );
    gives(
        Op::Iota {
            ty: ty(DType::U8),
            dim: 0,
        },
        &[],
        &[host(&[0u8, 0, 0, 1, 1, 1], &[2, 3])],
    );
    gives(
        Op::Iota {
            ty: ty(DType::S64),
            dim: 1,
        },
        &[],
        &[host(&[0i64, 1, 2, 0, 1, 2], &[2, 3])],
    );
    let half = half::bf16::from_f32;
    gives(
        Op::Iota {
            ty: TensorType::new(DType::Bf16, [3]),
            dim: 0,
        },
        &[],
        &[host(&[half(0.0), half(1.0), half(2.0)], &[3])],
    );
}

#[test]
fn broadcast_maps_dimensions_in_any_order() {
    let cases: [(&[usize], &[usize], &[usize]); 6] = [
        (&[], &[2, 3], &[]),
        (&[3], &[2, 3], &[1]),
        (&[2], &[2, 3], &[0]),
        (&[1, 3], &[4, 2, 3], &[1, 2]),
        (&[3, 2], &[2, 5, 3], &[2, 0]),
        (&[3], &[0, 3], &[1]),
    ];
    for (from, to, mapping) in cases {
        let x = noise(from);
        let expected = by_index(to, |index| {
            let source: Vec<usize> = mapping
                .iter()
                .zip(from)
                .map(|(&dim, &size)| if size == 1 { 0 } else { index[dim] })
                .collect();
            at(&x, &source)
        });
        gives(
            Op::Broadcast {
                dims: to.to_vec(),
                mapping: mapping.to_vec(),
            },
            &[&x],
            &[expected],
        );
    }
}

#[test]
fn reshape_transpose_reverse() {
    let x = count(&[2, 3, 4]);
    gives(
        Op::Reshape {
            dims: vec![4, 1, 6],
        },
        &[&x],
        &[count(&[4, 1, 6])],
    );
    gives(
        Op::Reshape { dims: vec![] },
        &[&count(&[1, 1])],
        &[count(&[])],
    );
    let permutation = vec![2, 0, 1];
    let expected = by_index(&[4, 2, 3], |index| at(&x, &[index[1], index[2], index[0]]));
    gives(Op::Transpose { permutation }, &[&x], &[expected]);
    let expected = by_index(&[2, 3, 4], |index| {
        at(&x, &[1 - index[0], index[1], 3 - index[2]])
    });
    gives(Op::Reverse { dims: vec![2, 0] }, &[&x], &[expected]);
}

#[test]
fn concatenate_any_number_of_tensors() {
    let (x, y, z) = (count(&[2, 1]), noise(&[2, 3]), count(&[2, 0]));
    let expected = by_index(&[2, 4], |index| {
        if index[1] == 0 {
            at(&x, index)
        } else {
            at(&y, &[index[0], index[1] - 1])
        }
    });
    gives(Op::Concatenate { dim: 1 }, &[&x, &y, &z], &[expected]);
    gives(Op::Concatenate { dim: 0 }, &[&x], from_ref(&x));
}

#[test]
fn slice_strides_pad_amounts() {
    let x = count(&[7, 5]);
    let op = Op::Slice {
        starts: vec![1, 0],
        limits: vec![7, 5],
        strides: vec![2, 3],
    };
    gives(
        op,
        &[&x],
        &[by_index(&[3, 2], |index| {
            at(&x, &[1 + 2 * index[0], 3 * index[1]])
        })],
    );
    let op = Op::Slice {
        starts: vec![3, 0],
        limits: vec![3, 5],
        strides: vec![1, 1],
    };
    gives(op, &[&x], &[count(&[0, 5])]);

    let fill = HostArray::scalar(-9.0f32);
    let op = Op::Pad {
        low: vec![-1, 2],
        high: vec![1, -1],
        interior: vec![1, 0],
    };
    let expected = by_index(&[13, 6], |index| {
        let (row, column) = (index[0] + 1, index[1] as i64 - 2);
        if row % 2 == 0 && row / 2 < 7 && column >= 0 {
            at(&x, &[row / 2, column as usize])
        } else {
            -9.0
        }
    });
    gives(op, &[&x, &fill], &[expected]);
}
