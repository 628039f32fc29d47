//! Reading and writing at indices of every integer type.

use halite_core::DType;
use halite_ir::GatherAttributes;
use halite_nn::Tensor;

use super::of_pairs;

use crate::edge_values::table::rows;

rows! {
    "take" Indices INTEGERS [1] ["take", "take_along", "gather"] |x| vec![
        x[1].take(x[0], 0),
        x[1].take_along(x[0], 0),
        x[1].gather(x[0], elements()),
    ];
    "scatter" Indices INTEGERS [] ["scatter", "scatter_add", "scatter_set"] |x| {
        let count = x[0].dims()[0];
        let updates = x[1].trace().arange(count, DType::F32) + 1.0;
        (x[1].scatter_add(x[0], updates, 0), x[1].scatter_set(x[0], updates, 0))
    };
    "one_hot" Indices INTEGERS [] ["one_hot"] |x| x[0].one_hot(7, DType::F32);
    "dynamic_slice" Indices INTEGERS [] ["dynamic_slice", "dynamic_update_slice"]
        |x| sliced(x[0], x[1]);
}

/// Single elements of a vector.
fn elements() -> GatherAttributes {
    GatherAttributes {
        offset_dims: vec![],
        collapsed_slice_dims: vec![0],
        operand_batching_dims: vec![],
        start_indices_batching_dims: vec![],
        start_index_map: vec![0],
        index_vector_dim: 1,
        slice_sizes: vec![1],
        indices_are_sorted: false,
    }
}

fn sliced<'t>(index: Tensor<'t>, table: Tensor<'t>) -> Vec<Tensor<'t>> {
    let cx = table.trace();
    let nines = cx.scalar(9.0, DType::F32).broadcast_to([2]);
    vec![
        of_pairs(index, index, |start, _| table.dynamic_slice(&[start], [2])),
        of_pairs(index, index, |start, _| {
            table.dynamic_update_slice(nines, &[start])
        }),
    ]
}
