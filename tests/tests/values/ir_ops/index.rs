use halite_core::HostArray;
use halite_ir::{GatherAttributes, Op, Reduction, ScatterAttributes};

use crate::ir_ops::support::*;

#[test]
fn dynamic_slices_are_clamped_into_the_operand() {
    let x = count(&[4, 5]);
    let scalar = HostArray::scalar::<i32>;
    let starts = |a, b| [scalar(a), scalar(b)];
    for (row, column, first) in [(1, 2, [1, 2]), (9, -3, [2, 0])] {
        let [a, b] = starts(row, column);
        let expected = by_index(&[2, 3], |index| {
            at(&x, &[first[0] + index[0], first[1] + index[1]])
        });
        gives(
            Op::DynamicSlice { sizes: vec![2, 3] },
            &[&x, &a, &b],
            &[expected],
        );
        let update = noise(&[2, 3]);
        let expected = by_index(&[4, 5], |index| {
            let inside =
                (0..2).all(|dim| (first[dim]..first[dim] + [2, 3][dim]).contains(&index[dim]));
            if inside {
                at(&update, &[index[0] - first[0], index[1] - first[1]])
            } else {
                at(&x, index)
            }
        });
        gives(Op::DynamicUpdateSlice, &[&x, &update, &a, &b], &[expected]);
    }
    let (a, b) = (HostArray::scalar(1u8), HostArray::scalar(2u8));
    gives(
        Op::DynamicSlice { sizes: vec![1, 1] },
        &[&x, &a, &b],
        &[host(&[7.0f32], &[1, 1])],
    );
}

/// Rows of a table by index: an embedding.
fn rows(width: usize) -> GatherAttributes {
    GatherAttributes {
        offset_dims: vec![2],
        collapsed_slice_dims: vec![0],
        operand_batching_dims: vec![],
        start_indices_batching_dims: vec![],
        start_index_map: vec![0],
        index_vector_dim: 2,
        slice_sizes: vec![1, width],
        indices_are_sorted: false,
    }
}

#[test]
fn gather_clamps_indices() {
    let table = noise(&[6, 4]);
    let indices = [3usize, 0, 5, 99, 1, 1];
    let expected = by_index(&[2, 3, 4], |index| {
        at(&table, &[indices[index[0] * 3 + index[1]].min(5), index[2]])
    });
    gives(
        Op::Gather(rows(4)),
        &[&table, &host(&indices.map(|i| i as i32), &[2, 3])],
        &[expected],
    );
}

#[test]
fn gather_by_index_vectors_or_batch() {
    let x = noise(&[3, 4, 5]);
    let gather = GatherAttributes {
        offset_dims: vec![0],
        collapsed_slice_dims: vec![0, 2],
        operand_batching_dims: vec![],
        start_indices_batching_dims: vec![],
        start_index_map: vec![2, 0],
        index_vector_dim: 0,
        slice_sizes: vec![1, 4, 1],
        indices_are_sorted: false,
    };
    let indices = host(&[4u32, 0, 2, 1], &[2, 2]);
    let expected = by_index(&[4, 2], |index| {
        at(&x, &[[2, 1][index[1]], index[0], [4, 0][index[1]]])
    });
    gives(Op::Gather(gather), &[&x, &indices], &[expected]);

    // Which of 5 logits, for each of 3 x 4.
    let gather = GatherAttributes {
        offset_dims: vec![],
        collapsed_slice_dims: vec![2],
        operand_batching_dims: vec![0, 1],
        start_indices_batching_dims: vec![0, 1],
        start_index_map: vec![2],
        index_vector_dim: 2,
        slice_sizes: vec![1, 1, 1],
        indices_are_sorted: false,
    };
    let labels: Vec<i32> = (0..12).map(|i| i * 7 % 5).collect();
    let expected = by_index(&[3, 4], |index| {
        at(
            &x,
            &[index[0], index[1], labels[index[0] * 4 + index[1]] as usize],
        )
    });
    gives(
        Op::Gather(gather),
        &[&x, &host(&labels, &[3, 4])],
        &[expected],
    );
}

/// Scatters rows.
fn scatter(combine: Option<Reduction>) -> Op {
    Op::Scatter(
        ScatterAttributes {
            update_window_dims: vec![1],
            inserted_window_dims: vec![0],
            input_batching_dims: vec![],
            scatter_indices_batching_dims: vec![],
            scatter_dims_to_operand_dims: vec![0],
            index_vector_dim: 1,
            unique_indices: false,
            indices_are_sorted: false,
        },
        combine,
    )
}

#[test]
fn scatter_skips_indices_out_of_range() {
    let x = count(&[4, 2]);
    let indices = host(&[1i32, 3, 1, 7], &[4]);
    let updates = host(&[10.0f32, 20.0, 30.0, 40.0, 0.5, 2.0, 9.0, 9.0], &[4, 2]);
    let table = [
        (
            Some(Reduction::Sum),
            [0.0f32, 1.0, 12.5, 25.0, 4.0, 5.0, 36.0, 47.0],
        ),
        (
            Some(Reduction::Product),
            [0.0, 1.0, 10.0, 120.0, 4.0, 5.0, 180.0, 280.0],
        ),
        (
            Some(Reduction::Min),
            [0.0, 1.0, 0.5, 2.0, 4.0, 5.0, 6.0, 7.0],
        ),
        (
            Some(Reduction::Max),
            [0.0, 1.0, 10.0, 20.0, 4.0, 5.0, 30.0, 40.0],
        ),
    ];
    for (combine, expected) in table {
        gives(
            scatter(combine),
            &[&x, &indices, &updates],
            &[host(&expected, &[4, 2])],
        );
    }
    let bits = host(&[1i32, 2, 7, 15, 16, 32, 6, 9], &[4, 2]);
    let more = host(&[3i32, 3, 12, 12, 6, 6, 9, 9], &[4, 2]);
    gives(
        scatter(Some(Reduction::And)),
        &[&bits, &indices, &more],
        &[host(&[1i32, 2, 2, 2, 16, 32, 4, 8], &[4, 2])],
    );
    gives(
        scatter(Some(Reduction::Or)),
        &[&bits, &indices, &more],
        &[host(&[1i32, 2, 7, 15, 16, 32, 14, 13], &[4, 2])],
    );
    let (indices, updates) = (host(&[2i32, 0], &[2]), noise(&[2, 2]));
    let expected = by_index(&[4, 2], |index| match index[0] {
        0 => at(&updates, &[1, index[1]]),
        2 => at(&updates, &[0, index[1]]),
        _ => at(&x, index),
    });
    gives(scatter(None), &[&x, &indices, &updates], &[expected]);
}

#[test]
fn scatter_by_batch_or_window() {
    let x = count(&[2, 5]);
    let scatter = ScatterAttributes {
        update_window_dims: vec![1],
        inserted_window_dims: vec![],
        input_batching_dims: vec![0],
        scatter_indices_batching_dims: vec![0],
        scatter_dims_to_operand_dims: vec![1],
        index_vector_dim: 1,
        unique_indices: true,
        indices_are_sorted: false,
    };
    let updates = host(&[100.0f32, 200.0, 300.0, 400.0], &[2, 2]);
    let expected = [0.0f32, 101.0, 202.0, 3.0, 4.0, 5.0, 6.0, 7.0, 308.0, 409.0];
    gives(
        Op::Scatter(scatter, Some(Reduction::Sum)),
        &[&x, &host(&[1i32, 3], &[2]), &updates],
        &[host(&expected, &[2, 5])],
    );
}
