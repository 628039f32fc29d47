//! Inference agrees with counting: the shape of a result is found here by enumerating positions,
//! without a formula.

use halite_core::{DType, TensorType};
use halite_ir::{
    ConvolutionAttributes, ConvolutionDims, DotAttributes, GatherAttributes, Op, Reduction,
    WindowAttributes, infer,
};
use proptest::prelude::*;

fn f32(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

/// Dimensions of the one result.
fn dims(op: Op, operands: &[&TensorType]) -> Result<Vec<usize>, String> {
    infer(&op, operands)
        .map(|results| results[0].dims().to_vec())
        .map_err(|error| error.to_string())
}

/// Where the elements of a line of `size` are, `dilation` apart, after `low` others; and how long
/// the line is.
fn line(size: usize, dilation: usize, low: i64, high: i64) -> (Vec<i64>, i64) {
    let places: Vec<i64> = (0..size).map(|i| low + (i * dilation) as i64).collect();
    let dilated = places.last().map_or(0, |last| last - low + 1);
    (places, low + dilated + high)
}

/// At how many places of a line of `length` a window fits.
fn fits(length: i64, size: usize, dilation: usize, stride: usize) -> usize {
    let reach = ((size - 1) * dilation) as i64;
    (0..length)
        .step_by(stride)
        .filter(|start| start + reach < length)
        .count()
}

proptest! {
    #[test]
    fn a_slice_has_as_many_elements_as_there_are_steps(size in 0usize..9, start in 0usize..9, limit in 0usize..9, stride in 1usize..4) {
        let op = Op::Slice { starts: vec![start], limits: vec![limit], strides: vec![stride] };
        let taken = (start..limit).step_by(stride).count();
        let valid = start <= limit && limit <= size;
        prop_assert_eq!(dims(op, &[&f32(&[size])]).ok(), valid.then_some(vec![taken]));
    }

    #[test]
    fn a_pad_is_as_long_as_the_line_of_its_elements(size in 0usize..6, low in -4i64..4, high in -4i64..4, interior in 0usize..3) {
        let op = Op::Pad { low: vec![low], high: vec![high], interior: vec![interior] };
        let (_, length) = line(size, interior + 1, low, high);
        prop_assert_eq!(dims(op, &[&f32(&[size]), &f32(&[])]).ok(), (length >= 0).then_some(vec![length as usize]));
    }

    #[test]
    fn windows_are_as_many_as_fit(
        size in 0usize..8, window in 1usize..4, stride in 1usize..4, base in 1usize..3, dilation in 1usize..3,
        low in 0usize..3, high in 0usize..3,
    ) {
        let (_, length) = line(size, base, low as i64, high as i64);
        let expected = fits(length, window, dilation, stride);
        let op = Op::ReduceWindow {
            kind: Reduction::Max,
            window: WindowAttributes {
                sizes: vec![window], strides: vec![stride], base_dilations: vec![base], window_dilations: vec![dilation],
                padding: vec![(low as i64, high as i64)],
            },
        };
        prop_assert_eq!(dims(op, &[&f32(&[size])]), Ok(vec![expected]));
        let conv = ConvolutionAttributes {
            input: ConvolutionDims { batch: 0, feature: 2, spatial: vec![1] },
            kernel: ConvolutionDims { batch: 2, feature: 1, spatial: vec![0] },
            output: ConvolutionDims { batch: 1, feature: 0, spatial: vec![2] },
            strides: vec![stride], padding: vec![(low as i64, high as i64)], input_dilation: vec![base],
            kernel_dilation: vec![dilation], reversal: vec![false], feature_groups: 1, batch_groups: 1, precision: Vec::new(),};
        prop_assert_eq!(dims(Op::Convolution(conv, DType::F32), &[&f32(&[5, size, 3]), &f32(&[window, 3, 7])]), Ok(vec![7, 5, expected]));
    }

    #[test]
    fn a_dot_keeps_each_dimension_once(roles in prop::collection::vec((0usize..4, 1usize..4), 0..6)) {
        // Each role has its size: 0 batch, 1 contracted, 2 left only, 3 right only.
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let mut dot = DotAttributes { lhs_batching: vec![], rhs_batching: vec![], lhs_contracting: vec![], rhs_contracting: vec![], ..DotAttributes::default()};
        for &(role, size) in &roles {
            match role {
                0 => { dot.lhs_batching.push(left.len()); dot.rhs_batching.push(right.len()) }
                1 => { dot.lhs_contracting.push(left.len()); dot.rhs_contracting.push(right.len()) }
                _ => {}
            }
            if role != 3 { left.push(size) }
            if role != 2 { right.push(size) }
        }
        let of = |wanted: usize| roles.iter().filter(move |(role, _)| *role == wanted).map(|(_, size)| *size);
        let expected: Vec<usize> = of(0).chain(of(2)).chain(of(3)).collect();
        prop_assert_eq!(dims(Op::Dot(dot, DType::F32), &[&f32(&left), &f32(&right)]), Ok(expected));
    }

    #[test]
    fn gather_result_dimensions(
        offset in prop::bool::ANY, rows in 1usize..5, columns in 1usize..5, n in 0usize..4, m in 0usize..4,
    ) {
        // Columns of rows, at the front or at the back.
        let gather = GatherAttributes {
            offset_dims: vec![if offset { 0 } else { 2 }], collapsed_slice_dims: vec![0], operand_batching_dims: vec![],
            start_indices_batching_dims: vec![], start_index_map: vec![0], index_vector_dim: 2, slice_sizes: vec![1, columns], indices_are_sorted: false,
};
        let indices = TensorType::new(DType::S32, [n, m]);
        let expected = if offset { vec![columns, n, m] } else { vec![n, m, columns] };
        prop_assert_eq!(dims(Op::Gather(gather), &[&f32(&[rows, columns]), &indices]), Ok(expected));
    }

    #[test]
    fn broadcast_repeats_only_dimensions_of_size_one(
        from in prop::collection::vec(0usize..4, 0..3), to in prop::collection::vec(0usize..4, 0..4),
        mapping in prop::collection::vec(0usize..4, 0..3),
    ) {
        let distinct = (0..4).all(|dim| mapping.iter().filter(|&&to| to == dim).count() <= 1);
        let valid = mapping.len() == from.len()
            && distinct
            && mapping.iter().zip(&from).all(|(&dim, &size)| dim < to.len() && (size == 1 || size == to[dim]));
        let op = Op::Broadcast { dims: to.clone(), mapping };
        prop_assert_eq!(dims(op, &[&f32(&from)]).ok(), valid.then_some(to));
    }

    /// Numbers of any size, in any place: an answer or an error, and no panic.
    #[test]
    fn hostile_numbers_are_errors(
        numbers in prop::collection::vec(prop_oneof![0usize..4, Just(usize::MAX), Just(isize::MAX as usize), any::<usize>()], 12),
        signed in prop::collection::vec(prop_oneof![-3i64..3, Just(i64::MAX), Just(i64::MIN)], 4),
        rank in 0usize..3,
    ) {
        let n = |range: std::ops::Range<usize>| numbers[range].to_vec();
        let x = f32(&numbers[..rank]);
        let y = f32(&numbers[rank..2 * rank]);
        let pairs = [(signed[0], signed[1]), (signed[2], signed[3])];
        let window = WindowAttributes {
            sizes: n(2..4), strides: n(4..6), base_dilations: n(6..8), window_dilations: n(8..10), padding: vec![(numbers[10] as i64, numbers[11] as i64); 2],
        };
        let conv_dims = |i: usize| ConvolutionDims { batch: numbers[i], feature: numbers[i + 1], spatial: n(i + 2..i + 2 + rank) };
        let ops = [
            Op::Iota { ty: x.clone(), dim: numbers[3] },
            Op::Broadcast { dims: n(4..7), mapping: n(7..7 + rank) },
            Op::Reshape { dims: n(4..7) },
            Op::Transpose { permutation: n(4..4 + rank) },
            Op::Reverse { dims: n(4..6) },
            Op::Concatenate { dim: numbers[4] },
            Op::Slice { starts: n(4..4 + rank), limits: n(6..6 + rank), strides: n(8..8 + rank) },
            Op::DynamicSlice { sizes: n(4..4 + rank) },
            Op::Pad { low: signed[..rank].to_vec(), high: signed[2..2 + rank].to_vec(), interior: n(4..4 + rank) },
            Op::Gather(GatherAttributes {
                offset_dims: n(0..1), collapsed_slice_dims: n(1..2), operand_batching_dims: n(2..3), start_indices_batching_dims: n(3..4),
                start_index_map: n(4..5), index_vector_dim: numbers[5], slice_sizes: n(6..6 + rank), indices_are_sorted: false,
            }),
            Op::Dot(DotAttributes {
                lhs_batching: n(0..1), rhs_batching: n(1..2), lhs_contracting: n(2..3), rhs_contracting: n(3..4), ..DotAttributes::default()
            }, DType::F32),
            Op::Convolution(ConvolutionAttributes {
                input: conv_dims(0), kernel: conv_dims(3), output: conv_dims(6), strides: n(0..rank), padding: pairs[..rank].to_vec(),
                input_dilation: n(4..4 + rank), kernel_dilation: n(6..6 + rank), reversal: vec![false; rank],
                feature_groups: numbers[8], batch_groups: numbers[9], precision: Vec::new(),
}, DType::F32),
            Op::Reduce { kind: Reduction::Sum, dims: n(4..6) },
            Op::ReduceWindow { kind: Reduction::Sum, window: window.clone() },
            Op::AllGather { dim: numbers[4], groups: vec![n(5..8), n(8..11)].into() },
            Op::AllToAll { split: numbers[4], concat: numbers[5], groups: vec![n(6..8)].into() },
        ];
        let index = TensorType::new(DType::S32, &numbers[..rank]);
        for op in ops {
            for operands in [&[][..], &[&x], &[&x, &y], &[&x, &index], &[&x, &x, &y]] {
                for result in infer(&op, operands).into_iter().flatten() {
                    prop_assert!(result.checked_bytes().is_ok(), "{:?} of {:?} is {}", op, operands, result);
                }
            }
        }
    }
}
