//! Reductions, softmax, cumulative operations, windows, sorting and products.

use halite_core::DType;
use halite_ir::{DotAttributes, Extreme, Reduction, WindowAttributes};
use halite_nn::{ConvOptions, ConvTransposeOptions, Interpolation, Padding, Tensor};

use super::of_each;

use crate::edge_values::table::rows;

rows! {
    "sum" Rows NUMBERS [0] ["sum", "sum_keep", "sum_all", "reduce", "reduce_keep"] |x| vec![
        x[0].reduce(Reduction::Sum, [1]),
        x[0].sum_keep([1]),
        of_each(x[0], |row, _| row.sum_all()),
    ];
    "prod" Rows NUMBERS [0] ["prod", "prod_keep"] |x| (x[0].prod([1]), x[0].prod_keep([1]));
    "max" Rows NUMBERS [0] ["max", "max_keep"] |x| (x[0].max([1]), x[0].max_keep([1]));
    "min" Rows NUMBERS [0] ["min", "min_keep"] |x| (x[0].min([1]), x[0].min_keep([1]));
    "all" Rows BITS [] ["all", "all_keep"] |x| (x[0].all([1]), x[0].all_keep([1]));
    "any" Rows BITS [] ["any", "any_keep"] |x| (x[0].any([1]), x[0].any_keep([1]));
    "mean" Rows FLOATS [0] ["mean", "mean_keep", "mean_all"] |x| vec![
        x[0].mean([1]),
        x[0].mean_keep([1]),
        of_each(x[0], |row, _| row.mean_all()),
    ];
    "var" Rows FLOATS [0] ["var", "var_keep"] |x| (x[0].var([1]), x[0].var_keep([1]));
    "softmax" Rows FLOATS [0] ["softmax"] |x| x[0].softmax(1);
    "log_softmax" Rows FLOATS [0] ["log_softmax"] |x| x[0].log_softmax(1);
    "logsumexp" Rows FLOATS [0] ["logsumexp"] |x| x[0].logsumexp([1]);
    "cumsum" Rows NUMBERS [0] ["cumsum"] |x| x[0].cumsum(1);
    "cumprod" Rows ALL [0] ["cumprod"] |x| x[0].cumprod(1);
    "cummax" Rows ALL [0] ["cummax"] |x| x[0].cummax(1);
    "cummin" Rows ALL [0] ["cummin"] |x| x[0].cummin(1);
    "cumlogsumexp" Rows FLOATS [0] ["cumlogsumexp"] |x| x[0].cumlogsumexp(1);
    "argmax" Rows NUMBERS [] ["argmax", "arg_reduce"] |x| {
        let (value, place) = x[0].arg_reduce(Extreme::Max, 1);
        vec![x[0].argmax(1), value, place]
    };
    "argmin" Rows NUMBERS [] ["argmin", "arg_reduce"] |x| {
        let (value, place) = x[0].arg_reduce(Extreme::Min, 1);
        vec![x[0].argmin(1), value, place]
    };
    "sort" Rows ALL [0] ["sort"] |x| (x[0].sort(1, false), x[0].sort(1, true));
    "argsort" Rows ALL [] ["argsort", "sort_with_indices", "Trace::sort_by"] |x| {
        let cx = x[0].trace();
        let places = cx.iota(&x[0].ty().with_dtype(DType::S32), 1);
        vec![
            x[0].argsort(1, false),
            x[0].argsort(1, true),
            x[0].sort_with_indices(1, false).0,
            cx.sort_by(&[x[0], places], 1, false)[1],
        ]
    };
    "top_k" Rows ALL [] ["top_k"] |x| x[0].top_k(x[0].dims()[1].min(2), 1);
    "max_pool" Rows NUMBERS [0] ["max_pool", "global_max_pool"] |x| {
        let x = x[0].unsqueeze(2);
        let before = Padding::Explicit(vec![(1, 0)]);
        vec![
            unless_too_short(x, |x| x.max_pool([2], [], Padding::Valid)),
            x.max_pool([2], [1], before),
            x.global_max_pool(),
        ]
    };
    "avg_pool" Rows FLOATS [0] ["avg_pool", "global_avg_pool"] |x| {
        let x = x[0].unsqueeze(2);
        let before = Padding::Explicit(vec![(1, 0)]);
        vec![
            unless_too_short(x, |x| x.avg_pool([2], [], Padding::Valid)),
            x.avg_pool([2], [1], before),
            x.global_avg_pool(),
        ]
    };
    "adaptive_avg_pool" Rows FLOATS [0] ["adaptive_avg_pool"] |x| {
        let x = x[0].unsqueeze(2);
        (x.adaptive_avg_pool([2]), x.adaptive_avg_pool([1]))
    };
    "adaptive_max_pool" Rows NUMBERS [0] ["adaptive_max_pool"] |x| {
        let x = x[0].unsqueeze(2);
        (x.adaptive_max_pool([2]), x.adaptive_max_pool([1]))
    };
    "interpolate" Rows FLOATS [0] ["interpolate", "interpolate_by"] |x| {
        let x = x[0].unsqueeze(2);
        // Halves, whose products are exact.
        let between = (2 * x.dims()[1]).saturating_sub(1);
        vec![
            x.interpolate([between], Interpolation::Linear { align_corners: true }),
            x.interpolate_by([2.0], Interpolation::Nearest),
            x.interpolate([2], Interpolation::NearestExact),
        ]
    };
    "reduce_window" Rows NUMBERS [0] ["reduce_window"] |x|
        [Reduction::Sum, Reduction::Product, Reduction::Min]
            .map(|kind| unless_too_short(x[0], |x| x.reduce_window(kind, pairs())))
            .to_vec();
    "conv" Rows NUMBERS [0] ["conv", "conv_general"] |x| {
        let options = ConvOptions {
            padding: Padding::Explicit(vec![(1, 1)]),
            ..ConvOptions::default()
        };
        x[0].unsqueeze(2).conv(two_one(x[0]), &options)
    };
    "conv_transpose" Rows NUMBERS [0] ["conv_transpose"] |x| {
        let by = |stride| ConvTransposeOptions {
            strides: vec![stride],
            ..ConvTransposeOptions::default()
        };
        [1, 2].map(|stride| x[0].unsqueeze(2).conv_transpose(two_one(x[0]), &by(stride))).to_vec()
    };
    "columns" Rows NUMBERS [0] ["sum", "prod", "max", "min", "argmax", "argmin", "cumsum"]
        |x| columns(x[0]);
    "columns_floats" Rows FLOATS [0] ["mean", "var", "softmax", "log_softmax", "logsumexp"]
        |x| columns_floats(x[0]);
    "columns_sorted" Rows ALL [0] ["sort", "argsort", "top_k"] |x| columns_sorted(x[0]);
    "matmul" Rows NUMBERS [0] ["matmul", "tensordot", "dot_general"] |x| products(x[0]);
}

/// A kernel of 2 and 1 of the type of `x`: `[2, 1, 1]`.
fn two_one(x: Tensor<'_>) -> Tensor<'_> {
    let cx = x.trace();
    let kernel = [2.0, 1.0].map(|value| cx.scalar(value, DType::F32));
    cx.stack(&kernel, 0).convert(x.dtype()).reshape([2, 1, 1])
}

/// `windows` of two elements of dimension 1; nothing of one element, for which they are a mistake.
fn unless_too_short<'t>(x: Tensor<'t>, windows: impl Fn(Tensor<'t>) -> Tensor<'t>) -> Tensor<'t> {
    match x.dims()[1] {
        1 => x.slice_dim(1, ..0),
        _ => windows(x),
    }
}

/// Windows of two along the second dimension.
fn pairs() -> WindowAttributes {
    WindowAttributes {
        sizes: vec![1, 2],
        strides: vec![1, 1],
        base_dilations: vec![1, 1],
        window_dilations: vec![1, 1],
        padding: vec![(0, 0); 2],
    }
}

/// Reductions of the first dimension, whose elements are not side by side in memory.
fn columns(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let x = x.t();
    vec![
        x.sum([0]),
        x.prod([0]),
        x.max([0]),
        x.min([0]),
        x.argmax(0),
        x.argmin(0),
        x.cumsum(0).t(),
    ]
}

fn columns_floats(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let x = x.t();
    vec![
        x.mean([0]),
        x.var([0]),
        x.softmax(0).t(),
        x.log_softmax(0).t(),
        x.logsumexp([0]),
    ]
}

fn columns_sorted(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let x = x.t();
    let (values, places) = x.top_k(x.dims()[0].min(2), 0);
    vec![
        x.sort(0, false).t(),
        x.sort(0, true).t(),
        x.argsort(0, false).t(),
        x.argsort(0, true).t(),
        values.t(),
        places.t(),
    ]
}

/// By 1, 2, 1, 2, .., in three ways.
fn products(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let by = x.trace().arange(x.dims()[1], DType::S32) % 2 + 1;
    let by = by.convert(x.dtype()).unsqueeze(1);
    let dot = DotAttributes {
        lhs_batching: vec![],
        rhs_batching: vec![],
        lhs_contracting: vec![1],
        rhs_contracting: vec![0],
        ..DotAttributes::default()
    };
    vec![
        x.matmul(by),
        x.tensordot(by, &[(1, 0)]),
        x.dot_general(by, dot, x.dtype()),
    ]
}
