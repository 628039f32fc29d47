//! Operations that move elements, whose bits stay, and constants.

use halite_core::{DType, TensorType};
use halite_nn::{Tensor, s};

use crate::edge_values::table::rows;

rows! {
    "moves" Rows ALL [0] [
        "reshape", "flatten", "flatten_from", "transpose", "swap_dims", "t", "move_dim", "reverse",
        "unsqueeze", "squeeze", "broadcast_to", "broadcast_in_dim", "pad", "pad_interior"
    ] |x| moved(x[0]);
    "parts" Rows ALL [0] [
        "slice", "slice_strided", "slice_dim", "index", "at", "split", "dynamic_slice",
        "dynamic_update_slice", "tril", "triu", "Trace::concat", "Trace::stack"
    ] |x| parts(x[0]);
    "made" Rows NUMBERS [] [
        "Trace::iota", "Trace::arange", "Trace::eye", "Trace::full", "Trace::scalar"
    ] |x| {
        let (cx, size, dtype) = (x[0].trace(), x[0].dims()[1], x[0].dtype());
        vec![
            cx.arange(size, dtype),
            cx.eye(size, dtype),
            cx.full(0.0, &TensorType::new(dtype, [size])) + cx.scalar(1.0, dtype),
            cx.iota(&TensorType::new(dtype, [2, size]), 1),
        ]
    };
    "lower_triangle" Rows F32 [] ["Trace::lower_triangle"] |x| {
        let (cx, size) = (x[0].trace(), x[0].dims()[1]);
        (cx.lower_triangle(size, size, 0), cx.lower_triangle(3, size, -1))
    };
}

fn moved(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let dims = x.dims();
    let padded = x.pad(1, [(1, 0), (0, 1)]);
    let again = x.pad_interior(1, [1, 0], [0, 1], [0, 0]);
    vec![
        x.flatten_from(0).reshape([dims[1], dims[0]]).flatten(),
        x.move_dim(0, 1).swap_dims(0, 1).transpose([1, 0]).t().t(),
        x.reverse([1]),
        x.unsqueeze(1).squeeze(1).unsqueeze(1),
        x.broadcast_in_dim([1, dims[0], dims[1]], [1, 2])
            .squeeze(0)
            .broadcast_to([2, dims[0], dims[1]]),
        padded.eq(padded).or(again.ne(again)).select(padded, again),
    ]
}

fn parts(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let (cx, dims) = (x.trace(), x.dims());
    let start = |at: f64| [cx.scalar(at, DType::S32), cx.scalar(0.0, DType::S32)];
    let zeros = x.zeros_like();
    vec![
        x.slice_strided([0, 0], &dims, [2, 1]),
        x.slice_dim(0, 1..).at(s![..2]),
        x.index(0, 3),
        x.dynamic_slice(&start(2.0), [2, dims[1]]),
        x.dynamic_update_slice(x.slice([0..2, 0..dims[1]]), &start(1.0)),
        x.tril(0),
        x.triu(1),
        cx.concat(&[x, zeros], 1),
        cx.stack(&[x, zeros], 1),
        cx.concat(&x.split(0, 2), 0),
    ]
}
