//! A tensor is not a `Mean`: the compiler must not offer `.into()`, which would ignore the weights.

use halite_nn::{Mean, Tensor, Trace};

fn loss<'t>(error: Tensor<'t>) -> Mean<'t> {
    error.square().mean_all()
}

fn metric<'t>(cx: &'t Trace, error: Tensor<'t>) {
    cx.metric("error", error.abs());
}

fn main() {}
