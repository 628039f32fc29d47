//! What inference says of operations that do not fit.

use expect_test::{Expect, expect};
use halite_core::{DType, DType::*, PartitionSpec, TensorType};
use halite_ir::{
    Binary, Comparison, ConvDims, Convolution, Dot, Extreme, Gather, Graph, Groups, Literal, Op,
    Reduction, Remat, Scatter, Unary, Window, infer,
};

/// One line per error.
fn check(cases: Vec<(Op, Vec<TensorType>)>, expected: Expect) {
    let mut lines = String::new();
    for (op, operands) in cases {
        let operands: Vec<&TensorType> = operands.iter().collect();
        match infer(&op, &operands) {
            Ok(results) => panic!("{op:?} of {operands:?} is accepted and gives {results:?}"),
            Err(error) => lines += &format!("{error}\n"),
        }
    }
    expected.assert_eq(&lines);
}

fn ty(dtype: DType, dims: &[usize]) -> TensorType {
    TensorType::new(dtype, dims)
}

fn f32(dims: &[usize]) -> TensorType {
    ty(F32, dims)
}

#[test]
fn elementwise_operand_types() {
    check(
        vec![
            (Op::Binary(Binary::Add), vec![f32(&[3, 4]), f32(&[4, 3])]),
            (Op::Binary(Binary::Add), vec![f32(&[3]), ty(Bf16, &[3])]),
            (Op::Binary(Binary::Multiply), vec![f32(&[3])]),
            (Op::Binary(Binary::And), vec![f32(&[3]), f32(&[3])]),
            (
                Op::Binary(Binary::Subtract),
                vec![ty(Bool, &[3]), ty(Bool, &[3])],
            ),
            (Op::Binary(Binary::Atan2), vec![ty(S32, &[]), ty(S32, &[])]),
            (Op::Unary(Unary::Exponential), vec![ty(S32, &[2])]),
            (Op::Unary(Unary::Abs), vec![ty(U8, &[2])]),
            (Op::Unary(Unary::Not), vec![f32(&[2])]),
            (
                Op::Unary(Unary::PopulationCount),
                vec![f32(&[2]), f32(&[2])],
            ),
            (Op::Compare(Comparison::Lt), vec![f32(&[2]), f32(&[])]),
            (Op::Select, vec![ty(S32, &[2]), f32(&[2]), f32(&[2])]),
            (Op::Select, vec![ty(Bool, &[3]), f32(&[2]), f32(&[2])]),
            (Op::Select, vec![ty(Bool, &[2]), f32(&[2]), f32(&[3])]),
            (Op::Clamp, vec![f32(&[]), f32(&[2]), f32(&[3])]),
            (Op::Clamp, vec![ty(S32, &[]), f32(&[2]), f32(&[])]),
            (Op::BitcastConvert(S64), vec![f32(&[2])]),
            (Op::BitcastConvert(U8), vec![ty(Bool, &[2])]),
            (
                Op::ReducePrecision {
                    exponent: 0,
                    mantissa: 7,
                },
                vec![f32(&[])],
            ),
            (
                Op::ReducePrecision {
                    exponent: 8,
                    mantissa: 7,
                },
                vec![ty(S8, &[])],
            ),
        ],
        expect![[r#"
            add: f32[3, 4] and f32[4, 3] differ; elementwise operations need equal types (broadcast first)
            add: f32[3] and bf16[3] differ; elementwise operations need equal types (convert one first)
            multiply: takes 2 operands, got 1 (f32[3])
            and: f32[3] has elements of type f32; takes bool and integers
            subtract: bool[3] has elements of type bool; takes integers and floats (convert first)
            atan2: s32[] has elements of type s32; takes floats (convert first)
            exponential: s32[2] has elements of type s32; takes floats (convert first)
            abs: u8[2] has elements of type u8; takes signed integers and floats (convert first)
            not: f32[2] has elements of type f32; takes bool and integers
            population_count: takes 1 operand, got 2 (f32[2], f32[2])
            compare: f32[2] and f32[] differ; elementwise operations need equal types (broadcast first)
            select: the predicate is s32[2]; it must be bool (compare first)
            select: the predicate is bool[3], for f32[2] it must be bool[2] or bool[]
            select: f32[2] and f32[3] differ; elementwise operations need equal types (broadcast first)
            clamp: the upper bound is f32[3], for f32[2] it must be f32[2] or f32[]
            clamp: the lower bound is s32[], for f32[2] it must be f32[2] or f32[]
            bitcast_convert: elements of f32[2] have 32 bits, s64 has 64; the bits of one element are kept
            bitcast_convert: elements of bool[2] have 1 bits, u8 has 8; the bits of one element are kept
            reduce_precision: 0 exponent bits and 7 mantissa bits; a float has 1 to 11 and 0 to 52
            reduce_precision: s8[] has elements of type s8; takes floats (convert first)
        "#]],
    );
}

#[test]
fn moving_elements_wants_dimensions_that_are_there() {
    let huge = usize::MAX;
    check(
        vec![
            (Op::Constant(Literal::splat(1.0f32, [])), vec![f32(&[])]),
            (Op::Constant(Literal::splat(1.0f32, [huge, 2])), vec![]),
            (
                Op::Iota {
                    ty: f32(&[2]),
                    dim: 1,
                },
                vec![],
            ),
            (
                Op::Iota {
                    ty: f32(&[]),
                    dim: 0,
                },
                vec![],
            ),
            (
                Op::Iota {
                    ty: ty(Bool, &[2]),
                    dim: 0,
                },
                vec![],
            ),
            (
                Op::Broadcast {
                    dims: vec![4, 3],
                    mapping: vec![0],
                },
                vec![f32(&[3])],
            ),
            (
                Op::Broadcast {
                    dims: vec![4, 3],
                    mapping: vec![0, 0],
                },
                vec![f32(&[4, 4])],
            ),
            (
                Op::Broadcast {
                    dims: vec![4, 3],
                    mapping: vec![2],
                },
                vec![f32(&[3])],
            ),
            (
                Op::Broadcast {
                    dims: vec![3],
                    mapping: vec![],
                },
                vec![f32(&[3])],
            ),
            (
                Op::Broadcast {
                    dims: vec![huge, huge],
                    mapping: vec![],
                },
                vec![f32(&[])],
            ),
            (Op::Reshape { dims: vec![5] }, vec![f32(&[2, 3])]),
            (
                Op::Reshape {
                    dims: vec![huge, huge],
                },
                vec![f32(&[2, 3])],
            ),
            (
                Op::Reshape {
                    dims: vec![0, huge],
                },
                vec![f32(&[0])],
            ),
            (Op::Reshape { dims: vec![4] }, vec![f32(&[huge, 2])]),
            (
                Op::Transpose {
                    permutation: vec![0],
                },
                vec![f32(&[2, 3])],
            ),
            (
                Op::Transpose {
                    permutation: vec![0, 0],
                },
                vec![f32(&[2, 3])],
            ),
            (
                Op::Transpose {
                    permutation: vec![0, 2],
                },
                vec![f32(&[2, 3])],
            ),
            (Op::Reverse { dims: vec![1, 1] }, vec![f32(&[2, 3])]),
            (Op::Reverse { dims: vec![0] }, vec![f32(&[])]),
            (Op::Concatenate { dim: 0 }, vec![]),
            (Op::Concatenate { dim: 1 }, vec![f32(&[2, 3]), f32(&[3, 3])]),
            (Op::Concatenate { dim: 0 }, vec![f32(&[2]), ty(S32, &[2])]),
            (Op::Concatenate { dim: 2 }, vec![f32(&[2, 3])]),
            (
                Op::Concatenate { dim: 1 },
                vec![
                    f32(&[0, isize::MAX as usize]),
                    f32(&[0, isize::MAX as usize]),
                    f32(&[0, 2]),
                ],
            ),
            (
                Op::Slice {
                    starts: vec![0],
                    limits: vec![4],
                    strides: vec![1],
                },
                vec![f32(&[3])],
            ),
            (
                Op::Slice {
                    starts: vec![2],
                    limits: vec![1],
                    strides: vec![1],
                },
                vec![f32(&[3])],
            ),
            (
                Op::Slice {
                    starts: vec![0],
                    limits: vec![1],
                    strides: vec![0],
                },
                vec![f32(&[3])],
            ),
            (
                Op::Slice {
                    starts: vec![0],
                    limits: vec![1],
                    strides: vec![huge],
                },
                vec![f32(&[3])],
            ),
            (
                Op::Slice {
                    starts: vec![0],
                    limits: vec![1, 1],
                    strides: vec![1],
                },
                vec![f32(&[3])],
            ),
            (
                Op::Pad {
                    low: vec![-2],
                    high: vec![-2],
                    interior: vec![0],
                },
                vec![f32(&[3]), f32(&[])],
            ),
            (
                Op::Pad {
                    low: vec![0],
                    high: vec![0],
                    interior: vec![huge],
                },
                vec![f32(&[3]), f32(&[])],
            ),
            (
                Op::Pad {
                    low: vec![0],
                    high: vec![0],
                    interior: vec![huge / 2],
                },
                vec![f32(&[9]), f32(&[])],
            ),
            (
                Op::Pad {
                    low: vec![i64::MAX],
                    high: vec![i64::MAX],
                    interior: vec![0],
                },
                vec![f32(&[0]), f32(&[])],
            ),
            (
                Op::Pad {
                    low: vec![0],
                    high: vec![0],
                    interior: vec![0],
                },
                vec![f32(&[3]), ty(S32, &[])],
            ),
            (
                Op::Pad {
                    low: vec![0],
                    high: vec![],
                    interior: vec![0],
                },
                vec![f32(&[3]), f32(&[])],
            ),
        ],
        expect![[r#"
            constant: takes 0 operands, got 1 (f32[])
            constant: f32[18446744073709551615, 2] is larger than any address space
            iota: dimension 1 of f32[2], whose only dimension is 0
            iota: dimension 0 of f32[], which has no dimensions
            iota: bool[2] cannot count; takes integers and floats
            broadcast: dimension 0 of f32[3] is 3, dimension 0 of f32[4, 3] is 4; only a dimension of 1 is repeated
            broadcast: mapped dimension 0 of f32[4, 3] appears twice in [0, 0]
            broadcast: mapped dimension 2 of f32[4, 3], whose dimensions are 0 to 1
            broadcast: 0 mapped dimensions [] for f32[3], which has 1 dimensions
            broadcast: f32[18446744073709551615, 18446744073709551615] is larger than any address space
            reshape: f32[2, 3] has 6 elements, f32[5] has 5; a reshape keeps them all
            reshape: f32[18446744073709551615, 18446744073709551615] is larger than any address space
            reshape: f32[0, 18446744073709551615] is larger than any address space
            reshape: f32[18446744073709551615, 2] is larger than any address space
            transpose: 1 permuted dimensions [0] for f32[2, 3], which has 2 dimensions
            transpose: dimension 0 of f32[2, 3] appears twice in [0, 0]
            transpose: dimension 2 of f32[2, 3], whose dimensions are 0 to 1
            reverse: dimension 1 of f32[2, 3] appears twice in [1, 1]
            reverse: dimension 0 of f32[], which has no dimensions
            concatenate: takes one operand or more, got none
            concatenate: f32[2, 3] and f32[3, 3] along dimension 1: the element type and all other dimensions must be equal
            concatenate: f32[2] and s32[2] along dimension 0: the element type and all other dimensions must be equal
            concatenate: dimension 2 of f32[2, 3], whose dimensions are 0 to 1
            concatenate: dimension 1 would have size 18446744073709551616, larger than any address space
            slice: 0..4 of dimension 0 of f32[3], whose indices are 0..3
            slice: 2..1 of dimension 0 of f32[3], whose indices are 0..3
            slice: strides [0]: number 0 is 0, it must be 1 or more
            slice: stride 18446744073709551615 is larger than 9223372036854775807
            slice: 2 limits [1, 1] for f32[3], which has 1 dimensions
            pad: dimension 0 of f32[3], padded by -2 before, -2 after, 0 between, would have size -1
            pad: interior padding 18446744073709551615 is larger than 9223372036854775807
            pad: dimension 0 of f32[9], padded by 0 before, 0 after, 9223372036854775807 between, would have size 73786976294838206465, larger than any address space
            pad: f32[18446744073709551614] is larger than any address space
            pad: the padding value is s32[], for f32[3] it must be f32[]
            pad: 0 high paddings [] for f32[3], which has 1 dimensions
        "#]],
    );
}

fn gather() -> Gather {
    Gather {
        offset_dims: vec![1],
        collapsed_slice_dims: vec![0],
        operand_batching_dims: vec![],
        indices_batching_dims: vec![],
        start_index_map: vec![0],
        index_vector_dim: 1,
        slice_sizes: vec![1, 4],
    }
}

fn scatter() -> Scatter {
    Scatter {
        combine: Some(Reduction::Sum),
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        operand_batching_dims: vec![],
        indices_batching_dims: vec![],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        unique_indices: false,
    }
}

#[test]
fn indexing_operand_types() {
    let gathers = [
        (gather(), ty(F32, &[3])),
        (
            Gather {
                index_vector_dim: 2,
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                index_vector_dim: 0,
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                start_index_map: vec![2],
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                slice_sizes: vec![1],
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                slice_sizes: vec![1, 5],
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                slice_sizes: vec![2, 4],
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                offset_dims: vec![],
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                offset_dims: vec![2],
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                collapsed_slice_dims: vec![1, 0],
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                operand_batching_dims: vec![0],
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                operand_batching_dims: vec![1],
                start_index_map: vec![0],
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                operand_batching_dims: vec![1],
                indices_batching_dims: vec![0],
                ..gather()
            },
            ty(S32, &[3]),
        ),
        (
            Gather {
                operand_batching_dims: vec![1],
                indices_batching_dims: vec![1],
                ..gather()
            },
            ty(S32, &[3, 1]),
        ),
    ];
    let scatters = [
        (scatter(), ty(F32, &[3]), f32(&[3, 4])),
        (scatter(), ty(S32, &[3]), ty(S32, &[3, 4])),
        (scatter(), ty(S32, &[3]), f32(&[3])),
        (scatter(), ty(S32, &[3]), f32(&[2, 4])),
        (scatter(), ty(S32, &[3]), f32(&[3, 5])),
        (
            Scatter {
                combine: Some(Reduction::And),
                ..scatter()
            },
            ty(S32, &[3]),
            f32(&[3, 4]),
        ),
        (
            Scatter {
                update_window_dims: vec![0, 1],
                ..scatter()
            },
            ty(S32, &[3]),
            f32(&[3, 4]),
        ),
        (
            Scatter {
                update_window_dims: vec![9],
                ..scatter()
            },
            ty(S32, &[3]),
            f32(&[3, 4]),
        ),
    ];
    let mut cases: Vec<(Op, Vec<TensorType>)> = gathers
        .into_iter()
        .map(|(gather, indices)| (Op::Gather(gather), vec![f32(&[6, 4]), indices]))
        .collect();
    cases.extend(scatters.into_iter().map(|(scatter, indices, updates)| {
        (Op::Scatter(scatter), vec![f32(&[6, 4]), indices, updates])
    }));
    let start = ty(S32, &[]);
    cases.extend([
        (Op::DynamicSlice { sizes: vec![2] }, vec![]),
        (
            Op::DynamicSlice { sizes: vec![4] },
            vec![f32(&[3]), start.clone()],
        ),
        (Op::DynamicSlice { sizes: vec![2] }, vec![f32(&[3])]),
        (
            Op::DynamicSlice { sizes: vec![2] },
            vec![f32(&[3]), f32(&[])],
        ),
        (
            Op::DynamicSlice { sizes: vec![2, 2] },
            vec![f32(&[3, 3]), start.clone(), ty(S64, &[])],
        ),
        (Op::DynamicUpdateSlice, vec![f32(&[3])]),
        (
            Op::DynamicUpdateSlice,
            vec![f32(&[3]), f32(&[4]), start.clone()],
        ),
        (
            Op::DynamicUpdateSlice,
            vec![f32(&[3]), ty(S32, &[2]), start],
        ),
    ]);
    check(
        cases,
        expect![[r#"
            gather: the indices are f32[3]; they must be integers
            gather: index vector dimension 2 of the indices s32[3]; it must be at most 1
            gather: each index of s32[3] has 3 components, and 1 dimensions [0] of f32[6, 4] are indexed
            gather: indexed dimension 2 of f32[6, 4], whose dimensions are 0 to 1
            gather: 1 slice sizes [1] for f32[6, 4], which has 2 dimensions
            gather: slice size 5 in dimension 1 of f32[6, 4], which has 4
            gather: slice size 2 in dimension 0 of f32[6, 4], which is collapsed; it must be 1
            gather: offset dimensions [] are 0, slices of f32[6, 4] keep 1 dimensions
            gather: offset dimensions [2] must be ascending and below 2
            gather: dropped dimensions [1, 0] of f32[6, 4] must be in ascending order
            gather: dimension 0 of f32[6, 4] is batched, and so is neither dropped nor indexed
            gather: batching dimensions [1] of f32[6, 4] and [] of the indices s32[3] are paired
            gather: batching dimension 1 of f32[6, 4] is 4, dimension 0 of the indices s32[3] is 3
            gather: dimension 1 of the indices s32[3, 1] holds their components, not a batch
            scatter: the indices are f32[3]; they must be integers
            scatter: the updates s32[3, 4] and f32[6, 4] must have the same element type
            scatter: the updates f32[3] have 1 dimensions, the indices s32[3] give 1 and windows of f32[6, 4] 1
            scatter: dimension 0 of the updates f32[2, 4] is 2, the indices s32[3] imply 3
            scatter: dimension 1 of the updates f32[3, 5] is a window of 5, dimension 1 of f32[6, 4] has 4
            scatter: f32[6, 4] has elements of type f32; takes bool and integers
            scatter: window dimensions [0, 1] of the updates are 2, windows of f32[6, 4] have 1 dimensions
            scatter: window dimensions [9] must be ascending and below 2
            dynamic_slice: takes an operand and its start indices, got none
            dynamic_slice: size 4 in dimension 0 of f32[3], which has 3
            dynamic_slice: 0 start indices [] for f32[3], which has 1 dimensions
            dynamic_slice: start indices [f32[]] must be integer scalars of one type
            dynamic_slice: start indices [s32[], s64[]] must be integer scalars of one type
            dynamic_update_slice: takes an operand, an update and start indices, got 1 (f32[3])
            dynamic_update_slice: dimension 0 of the update f32[4] is 4, of f32[3] only 3
            dynamic_update_slice: the update s32[2] and f32[3] must have the same element type and rank
        "#]],
    );
}

fn dot() -> Dot {
    Dot {
        left_batch: vec![],
        right_batch: vec![],
        left_contract: vec![1],
        right_contract: vec![0],
        result: F32,
    }
}

fn convolution() -> Convolution {
    let dims = |batch, feature, spatial: [usize; 2]| ConvDims {
        batch,
        feature,
        spatial: spatial.to_vec(),
    };
    Convolution {
        input: dims(0, 3, [1, 2]),
        kernel: dims(3, 2, [0, 1]),
        output: dims(0, 3, [1, 2]),
        strides: vec![1, 1],
        padding: vec![(0, 0), (0, 0)],
        input_dilation: vec![1, 1],
        kernel_dilation: vec![1, 1],
        reversal: vec![false, false],
        feature_groups: 1,
        batch_groups: 1,
        result: F32,
    }
}

#[test]
fn products_say_which_dimensions_do_not_pair() {
    let (x, kernel) = (f32(&[2, 8, 8, 6]), f32(&[3, 3, 6, 4]));
    let conv = |conv| (Op::Convolution(conv), vec![x.clone(), kernel.clone()]);
    check(
        vec![
            (Op::Dot(dot()), vec![f32(&[3, 8]), f32(&[7, 2])]),
            (Op::Dot(dot()), vec![f32(&[3, 8]), ty(Bf16, &[8, 2])]),
            (Op::Dot(dot()), vec![f32(&[8]), f32(&[8, 2])]),
            (
                Op::Dot(Dot {
                    right_contract: vec![],
                    ..dot()
                }),
                vec![f32(&[3, 8]), f32(&[8, 2])],
            ),
            (
                Op::Dot(Dot {
                    left_batch: vec![1],
                    right_batch: vec![1],
                    ..dot()
                }),
                vec![f32(&[3, 8]), f32(&[8, 8])],
            ),
            (
                Op::Dot(Dot {
                    left_batch: vec![0],
                    right_batch: vec![1],
                    ..dot()
                }),
                vec![f32(&[3, 8]), f32(&[8, 2])],
            ),
            (
                Op::Dot(Dot {
                    result: Bf16,
                    ..dot()
                }),
                vec![f32(&[3, 8]), f32(&[8, 2])],
            ),
            (Op::Dot(dot()), vec![ty(Bool, &[3, 8]), ty(Bool, &[8, 2])]),
            conv(Convolution {
                strides: vec![1],
                ..convolution()
            }),
            conv(Convolution {
                strides: vec![0, 1],
                ..convolution()
            }),
            conv(Convolution {
                padding: vec![(0, 0), (-9, -9)],
                ..convolution()
            }),
            conv(Convolution {
                padding: vec![(i64::MAX, i64::MAX), (0, 0)],
                ..convolution()
            }),
            conv(Convolution {
                padding: vec![(i64::MIN, i64::MIN), (0, 0)],
                ..convolution()
            }),
            conv(Convolution {
                feature_groups: 2,
                ..convolution()
            }),
            conv(Convolution {
                feature_groups: 0,
                ..convolution()
            }),
            conv(Convolution {
                batch_groups: 3,
                ..convolution()
            }),
            conv(Convolution {
                batch_groups: 4,
                ..convolution()
            }),
            conv(Convolution {
                feature_groups: 2,
                batch_groups: 2,
                ..convolution()
            }),
            conv(Convolution {
                input: ConvDims {
                    batch: 0,
                    feature: 0,
                    spatial: vec![1, 2],
                },
                ..convolution()
            }),
            conv(Convolution {
                output: ConvDims {
                    batch: 0,
                    feature: 1,
                    spatial: vec![2, 7],
                },
                ..convolution()
            }),
            (
                Op::Convolution(convolution()),
                vec![f32(&[2, 8, 8, 6]), f32(&[3, 3, 5, 4])],
            ),
            (
                Op::Convolution(convolution()),
                vec![f32(&[2, 8, 8, 6]), f32(&[3, 0, 6, 4])],
            ),
            (
                Op::Convolution(convolution()),
                vec![f32(&[2, 8, 8, 6]), f32(&[3, 6, 4])],
            ),
            (
                Op::Convolution(Convolution {
                    kernel: ConvDims {
                        batch: 3,
                        feature: 2,
                        spatial: vec![0, 1],
                    },
                    feature_groups: 3,
                    ..convolution()
                }),
                vec![f32(&[2, 8, 8, 6]), f32(&[3, 3, 2, 4])],
            ),
        ],
        expect![[r#"
            dot: contracting dimension 1 of f32[3, 8] is 8, dimension 0 of f32[7, 2] is 7
            dot: f32[3, 8] and bf16[8, 2] must have the same element type (convert one first)
            dot: batch or contracting dimension 1 of f32[8], whose only dimension is 0
            dot: contracting dimensions [1] of f32[3, 8] and [] of f32[8, 2] are paired
            dot: batch or contracting dimension 1 of f32[3, 8] appears twice in [1, 1]
            dot: batch dimension 0 of f32[3, 8] is 3, dimension 1 of f32[8, 2] is 2
            dot: f32[3, 8] and f32[8, 2] to a result of bf16; it must be f32 or a wider type of its family
            dot: bool[3, 8] has elements of type bool; takes integers and floats (convert first)
            convolution: 1 strides for f32[2, 8, 8, 6], which has 2 spatial dimensions
            convolution: strides [0, 1]: number 0 is 0, it must be 1 or more
            convolution: dimension 2 of f32[2, 8, 8, 6], padded by -9 and -9, would have size -10
            convolution: spatial dimension 0 would have size 18446744073709551620, larger than any address space
            convolution: dimension 1 of f32[2, 8, 8, 6], padded by -9223372036854775808 and -9223372036854775808, would have size -18446744073709551608
            convolution: f32[2, 8, 8, 6] has 6 features (dimension 3) in 2 groups, the kernel f32[3, 3, 6, 4] takes 6 (dimension 2)
            convolution: 0 feature groups and 1 batch groups; both must be 1 or more, one of them 1
            convolution: the kernel f32[3, 3, 6, 4] gives 4 features (dimension 3), not a multiple of 3 groups
            convolution: the batch of f32[2, 8, 8, 6] is 2 (dimension 0), not a multiple of 4 batch groups
            convolution: 2 feature groups and 2 batch groups; both must be 1 or more, one of them 1
            convolution: the input's dimensions: batch 0, feature 0, spatial [1, 2]; each of 0 to 3 must appear once
            convolution: the output's dimensions: batch 0, feature 1, spatial [2, 7]; each of 0 to 3 must appear once
            convolution: f32[2, 8, 8, 6] has 6 features (dimension 3) in 1 group, the kernel f32[3, 3, 5, 4] takes 5 (dimension 2)
            convolution: dimension 1 of the kernel f32[3, 0, 6, 4] is 0
            convolution: f32[2, 8, 8, 6] and the kernel f32[3, 6, 4] must have the same rank, 2 or more
            convolution: the kernel f32[3, 3, 2, 4] gives 4 features (dimension 3), not a multiple of 3 groups
        "#]],
    );
}

fn window() -> Window {
    Window {
        sizes: vec![2, 2],
        strides: vec![2, 2],
        base_dilations: vec![1, 1],
        window_dilations: vec![1, 1],
        padding: vec![(0, 0), (0, 0)],
    }
}

#[test]
fn reduction_operand_types() {
    let sum = Reduction::Sum;
    let windows = |window| (Op::ReduceWindow { kind: sum, window }, vec![f32(&[4, 4])]);
    check(
        vec![
            (
                Op::Reduce {
                    kind: sum,
                    dims: vec![2],
                },
                vec![f32(&[2, 3])],
            ),
            (
                Op::Reduce {
                    kind: sum,
                    dims: vec![1, 0],
                },
                vec![f32(&[2, 3])],
            ),
            (
                Op::Reduce {
                    kind: sum,
                    dims: vec![0, 0],
                },
                vec![f32(&[2, 3])],
            ),
            (
                Op::Reduce {
                    kind: sum,
                    dims: vec![0],
                },
                vec![ty(Bool, &[2])],
            ),
            (
                Op::Reduce {
                    kind: Reduction::And,
                    dims: vec![0],
                },
                vec![f32(&[2])],
            ),
            (
                Op::ArgReduce {
                    kind: Extreme::Max,
                    dim: 0,
                },
                vec![f32(&[0, 2])],
            ),
            (
                Op::ArgReduce {
                    kind: Extreme::Min,
                    dim: 1,
                },
                vec![f32(&[2])],
            ),
            (
                Op::ArgReduce {
                    kind: Extreme::Max,
                    dim: 0,
                },
                vec![ty(U8, &[1 << 31])],
            ),
            windows(Window {
                sizes: vec![2],
                ..window()
            }),
            windows(Window {
                sizes: vec![2, 0],
                ..window()
            }),
            windows(Window {
                strides: vec![0, 1],
                ..window()
            }),
            windows(Window {
                padding: vec![(0, 0)],
                ..window()
            }),
            windows(Window {
                padding: vec![(usize::MAX, 0), (0, 0)],
                ..window()
            }),
            windows(Window {
                window_dilations: vec![usize::MAX, 1],
                ..window()
            }),
            (
                Op::SelectAndScatter {
                    kind: Extreme::Max,
                    window: window(),
                },
                vec![f32(&[4, 4]), f32(&[2, 3])],
            ),
            (
                Op::SelectAndScatter {
                    kind: Extreme::Max,
                    window: Window {
                        window_dilations: vec![1, 2],
                        ..window()
                    },
                },
                vec![f32(&[4, 4]), f32(&[2, 1])],
            ),
            (
                Op::Sort {
                    dim: 0,
                    descending: false,
                },
                vec![],
            ),
            (
                Op::Sort {
                    dim: 1,
                    descending: false,
                },
                vec![f32(&[3])],
            ),
            (
                Op::Sort {
                    dim: 0,
                    descending: false,
                },
                vec![f32(&[3]), f32(&[4])],
            ),
        ],
        expect![[r#"
            reduce_sum: dimension 2 of f32[2, 3], whose dimensions are 0 to 1
            reduce_sum: dimensions [1, 0] of f32[2, 3] must be in ascending order
            reduce_sum: dimension 0 of f32[2, 3] appears twice in [0, 0]
            reduce_sum: bool[2] has elements of type bool; takes integers and floats (convert first)
            reduce_and: f32[2] has elements of type f32; takes bool and integers
            argmax: dimension 0 of f32[0, 2] has 0 elements; it must have 1 to 2147483647
            argmin: dimension 1 of f32[2], whose only dimension is 0
            argmax: dimension 0 of u8[2147483648] has 2147483648 elements; it must have 1 to 2147483647
            reduce_window: 1 window sizes [2] for f32[4, 4], which has 2 dimensions
            reduce_window: window sizes [2, 0]: number 1 is 0, it must be 1 or more
            reduce_window: window strides [0, 1]: number 0 is 0, it must be 1 or more
            reduce_window: 1 paddings [(0, 0)] for f32[4, 4], which has 2 dimensions
            reduce_window: padding 18446744073709551615 is larger than 9223372036854775807
            reduce_window: window dilations 18446744073709551615 is larger than 9223372036854775807
            select_and_scatter: the source is f32[2, 3], the windows of f32[4, 4] are f32[2, 2]
            select_and_scatter: the window has dilations; they are all to be 1
            sort: takes one operand or more, got none
            sort: dimension 1 of f32[3], whose only dimension is 0
            sort: f32[3] and f32[4] are sorted together, and must have the same dimensions
        "#]],
    );
}

/// A graph of inputs that gives some of them.
fn region(inputs: &[TensorType], outputs: &[usize]) -> Graph {
    let mut graph = Graph::new();
    let inputs: Vec<_> = inputs.iter().map(|ty| graph.input(ty.clone())).collect();
    graph.set_outputs(outputs.iter().map(|&i| inputs[i]).collect());
    graph
}

#[test]
fn region_signatures() {
    let (go, x) = (ty(Bool, &[]), f32(&[2]));
    let types = [go.clone(), x.clone()];
    let repeat = |carried, condition: Graph, body: Graph| {
        (
            Op::While {
                carried,
                condition: Box::new(condition),
                body: Box::new(body),
            },
            types.to_vec(),
        )
    };
    let other = region(&[go.clone(), f32(&[3])], &[0, 1]);
    let index = ty(S32, &[]);
    // A value of another, larger graph.
    let mut foreign = region(&types, &[0]);
    foreign.set_outputs(
        region(&[go.clone(), go.clone(), go], &[2])
            .outputs()
            .to_vec(),
    );
    check(
        vec![
            repeat(0, region(&types, &[0]), region(&types, &[])),
            repeat(3, region(&types, &[0]), region(&types, &[])),
            repeat(2, region(&types, &[1]), region(&types, &[0, 1])),
            repeat(2, region(&types[..1], &[0]), region(&types, &[0, 1])),
            repeat(2, region(&types, &[0]), other.clone()),
            repeat(2, region(&types, &[0]), region(&types, &[1, 0])),
            repeat(2, region(&types, &[0]), region(&types, &[0])),
            repeat(2, foreign, region(&types, &[0])),
            (Op::Case { branches: vec![] }, vec![]),
            (Op::Case { branches: vec![] }, vec![index.clone()]),
            (
                Op::Case {
                    branches: vec![region(&[], &[])],
                },
                vec![ty(U32, &[])],
            ),
            (
                Op::Case {
                    branches: vec![region(&[], &[]), other],
                },
                vec![index.clone()],
            ),
            (
                Op::Case {
                    branches: vec![region(&types, &[0]), region(&types, &[1])],
                },
                vec![index, types[0].clone(), x],
            ),
            (Op::OptimizationBarrier, vec![]),
        ],
        expect![[r#"
            while: 0 carried values of operands 2 (bool[], f32[2]); at least one is carried
            while: 3 carried values of operands 2 (bool[], f32[2]); at least one is carried
            while: the condition returns [f32[2]]; it must return [bool[]]
            while: the condition takes [bool[]], the operands are [bool[], f32[2]]; they are 1 and 2
            while: the body takes [bool[], f32[3]], the operands are [bool[], f32[2]]; number 1 is f32[3] and f32[2]
            while: the body returns [f32[2], bool[]], the carried values are [bool[], f32[2]]; number 0 is f32[2] and bool[]
            while: the body returns [bool[]], the carried values are [bool[], f32[2]]; they are 1 and 2
            while: the condition returns value 2, it has 2
            case: takes an index and the inputs of its branches, got none
            case: takes one branch or more, got none
            case: the index is u32[]; it must be s32[]
            case: branch 1 takes [bool[], f32[3]], the operands are []; they are 2 and 0
            case: branch 0 returns [bool[]], branch 1 returns [f32[2]]; number 0 is f32[2] and bool[]
            optimization_barrier: takes one operand or more, got none
        "#]],
    );
}

#[test]
fn scan_signatures() {
    let (x, row) = (f32(&[4, 2]), f32(&[2]));
    let scan = |carried, scanned, length, body: Graph, operands: &[TensorType]| {
        (
            Op::Scan {
                carried,
                scanned,
                length,
                reverse: false,
                body: Box::new(body),
            },
            operands.to_vec(),
        )
    };
    let both = [row.clone(), row.clone()];
    let checkpoint = |body: Graph, operands: &[TensorType]| {
        (
            Op::Checkpoint {
                body: Box::new(body),
                remat: Remat::Full,
            },
            operands.to_vec(),
        )
    };
    check(
        vec![
            scan(2, 1, 4, region(&both, &[0]), &[row.clone(), x.clone()]),
            scan(
                usize::MAX,
                1,
                4,
                region(&both, &[0]),
                &[row.clone(), x.clone()],
            ),
            scan(
                1,
                1,
                usize::MAX,
                region(&both, &[0]),
                &[row.clone(), x.clone()],
            ),
            scan(1, 1, 3, region(&both, &[0]), &[row.clone(), x.clone()]),
            scan(1, 1, 4, region(&both, &[0]), &[row.clone(), f32(&[])]),
            scan(
                1,
                1,
                4,
                region(&[row.clone(), x.clone()], &[0]),
                &[row.clone(), x.clone()],
            ),
            scan(1, 1, 4, region(&both, &[]), &[row.clone(), x.clone()]),
            scan(
                1,
                0,
                4,
                region(&[row.clone(), x.clone()], &[1]),
                &[row.clone(), x.clone()],
            ),
            scan(0, 1, 4, region(&both, &[]), &[row.clone(), x.clone()]),
            scan(
                0,
                0,
                usize::MAX / (1 << 33),
                region(&[f32(&[1 << 33, 4])], &[0]),
                &[f32(&[1 << 33, 4])],
            ),
            checkpoint(region(&both, &[0]), &both[..1]),
            checkpoint(region(&both, &[]), &both),
        ],
        expect![[r#"
            scan: 2 carried and 1 scanned values of operands 2 (f32[2], f32[4, 2])
            scan: 18446744073709551615 carried and 1 scanned values of operands 2 (f32[2], f32[4, 2])
            scan: 18446744073709551615 iterations exceed the range of s32
            scan: scanned operand 0 is f32[4, 2]; for 3 iterations its first dimension must be 3
            scan: scanned operand 0 is f32[]; for 4 iterations its first dimension must be 4
            scan: the body takes [f32[2], f32[4, 2]], the operands are [f32[2], f32[2]]; number 1 is f32[4, 2] and f32[2]
            scan: the body returns [], the carried values are [f32[2]]; they are 0 and 1
            scan: the body returns [f32[4, 2]], the carried values are [f32[2]]; number 0 is f32[4, 2] and f32[2]
            scan: the body returns nothing; it must return one value or more
            scan: f32[2147483647, 8589934592, 4] is larger than any address space
            checkpoint: the body takes [f32[2], f32[2]], the operands are [f32[2]]; they are 2 and 1
            checkpoint: the body returns nothing; it must return one value or more
        "#]],
    );
    let (op, operands) = scan(
        1,
        1,
        4,
        region(&[row.clone(), x.clone(), row.clone()], &[0, 1, 2]),
        &[row, x.clone(), x],
    );
    let results = infer(&op, &operands.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(format!("{results:?}"), "[f32[2], f32[4, 4, 2], f32[4, 2]]");
}

#[test]
fn collectives_want_groups_of_one_size() {
    let sum = Reduction::Sum;
    let x = || vec![f32(&[4, 3])];
    check(
        vec![
            (
                Op::AllReduce {
                    kind: sum,
                    groups: vec![vec![0, 0]].into(),
                },
                x(),
            ),
            (
                Op::AllReduce {
                    kind: sum,
                    groups: vec![vec![]].into(),
                },
                x(),
            ),
            (
                Op::AllReduce {
                    kind: Reduction::Or,
                    groups: Groups::All,
                },
                x(),
            ),
            (
                Op::AllGather {
                    dim: 0,
                    groups: Groups::All,
                },
                x(),
            ),
            (
                Op::AllGather {
                    dim: 2,
                    groups: vec![vec![0, 1]].into(),
                },
                x(),
            ),
            (
                Op::AllGather {
                    dim: 0,
                    groups: vec![vec![0, 1], vec![2]].into(),
                },
                x(),
            ),
            (
                Op::AllGather {
                    dim: 0,
                    groups: vec![vec![0, 1], vec![1, 2]].into(),
                },
                x(),
            ),
            (
                Op::AllGather {
                    dim: 0,
                    groups: vec![vec![0, usize::MAX]].into(),
                },
                x(),
            ),
            (
                Op::ReduceScatter {
                    kind: sum,
                    dim: 1,
                    groups: vec![vec![0, 1]].into(),
                },
                x(),
            ),
            (
                Op::AllToAll {
                    split: 1,
                    concat: 0,
                    groups: vec![vec![0, 1]].into(),
                },
                x(),
            ),
            (
                Op::AllToAll {
                    split: 0,
                    concat: 2,
                    groups: vec![vec![0, 1]].into(),
                },
                x(),
            ),
            (
                Op::CollectivePermute {
                    pairs: vec![(0, 1), (0, 2)],
                    groups: Groups::All,
                },
                x(),
            ),
            (
                Op::CollectivePermute {
                    pairs: vec![(0, 1), (2, 1)],
                    groups: Groups::All,
                },
                x(),
            ),
            (Op::PartitionId, x()),
            (
                Op::ShardingConstraint(PartitionSpec::new([vec!["a"], vec![], vec!["b"]])),
                x(),
            ),
            (
                Op::ShardingConstraint(PartitionSpec::new([vec!["a"], vec!["a"]])),
                x(),
            ),
        ],
        expect![[r#"
            all_reduce: device 0 appears twice in groups [[0, 0]]
            all_reduce: groups [[]] must have equally many members, one or more
            all_reduce: f32[4, 3] has elements of type f32; takes bool and integers
            all_gather: the groups are empty, and the result depends on their size: name the devices, such as [[0, 1]]
            all_gather: dimension 2 of f32[4, 3], whose dimensions are 0 to 1
            all_gather: groups [[0, 1], [2]] must have equally many members, one or more
            all_gather: device 1 appears twice in groups [[0, 1], [1, 2]]
            all_gather: device 18446744073709551615 is not a valid device number
            reduce_scatter: dimension 1 of f32[4, 3] is 3, not a multiple of the 2 members of a group
            all_to_all: dimension 1 of f32[4, 3] is 3, not a multiple of the 2 members of a group
            all_to_all: concatenated dimension 2 of f32[4, 3], whose dimensions are 0 to 1
            collective_permute: device 0 sends twice in [(0, 1), (0, 2)]
            collective_permute: device 1 is sent to twice in [(0, 1), (2, 1)]
            partition_id: takes 0 operands, got 1 (f32[4, 3])
            sharding_constraint: (a, None, b) has 3 dimensions, f32[4, 3] has 2
            sharding_constraint: (a, a) uses axis `a` twice; an axis can split one dimension
        "#]],
    );
}
