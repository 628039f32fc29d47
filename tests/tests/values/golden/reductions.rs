//! Reductions, windows, pooling, cumulative operations.

use halite_ir::{Extreme, Op, WindowAttributes};
use halite_nn::Tensor;
use halite_tests::{functions, golden::Given};

use crate::golden::contractions::padding;

functions! {
    argmax(g) g.x().argmax(g.size("dim"));
    argmax_pair(g) g.x().arg_reduce(Extreme::Max, g.size("dim"));
    argmin(g) g.x().argmin(g.size("dim"));
    argmin_pair(g) g.x().arg_reduce(Extreme::Min, g.size("dim"));
    log_softmax(g) g.x().log_softmax(g.size("dim"));
    logsumexp(g) g.x().logsumexp(g.list("dims"));
    mean(g) g.x().mean(g.list("dims"));
    reduce(g) g.x().reduce(g.reduction(), g.list("dims"));
    softmax(g) g.x().softmax(g.size("dim"));
    var(g) g.x().var(g.list("dims"));

    avg_pool(g) g.x().avg_pool(g.list("window"), g.list("strides"), padding(g));
    max_pool(g) g.x().max_pool(g.list("window"), g.list("strides"), padding(g));
    reduce_window(g) g.x().reduce_window(g.reduction(), window(g));
    select_and_scatter(g) g.cx.push_one(Op::SelectAndScatter { kind: g.extreme(), window: window(g) }, g.inputs());

    cumlogsumexp(g) cumulative(g, Tensor::cumlogsumexp);
    cummax(g) cumulative(g, Tensor::cummax);
    cummin(g) cumulative(g, Tensor::cummin);
    cumprod(g) cumulative(g, Tensor::cumprod);
    cumsum(g) cumulative(g, Tensor::cumsum);
}

fn window(g: &Given<'_>) -> WindowAttributes {
    WindowAttributes {
        sizes: g.list("sizes"),
        strides: g.list("strides"),
        base_dilations: g.list("base_dilations"),
        window_dilations: g.list("window_dilations"),
        padding: g.get("padding"),
    }
}

fn cumulative<'t>(g: &Given<'t>, scan: impl Fn(Tensor<'t>, usize) -> Tensor<'t>) -> Tensor<'t> {
    let dim = g.size("dim");
    if g.get("reverse") {
        scan(g.x().reverse([dim]), dim).reverse([dim])
    } else {
        scan(g.x(), dim)
    }
}
