//! A tensor is not a `Mean`: the compiler names the calls that make one with the weights, and does
//! not offer `.into()`, which would ignore them. No attribute changes what it says of a result.

use halite_nn::{Mean, Tensor, Trace};

fn loss<'t>(error: Tensor<'t>) -> Mean<'t> {
    error.square().mean_all()
}

fn metric<'t>(cx: &'t Trace, error: Tensor<'t>) {
    cx.metric("error", error.abs());
}

fn main() {}
