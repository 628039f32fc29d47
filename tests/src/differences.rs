//! Gradients against finite differences, both computed in one program.

use halite_core::{DType, tree::Leaf};
use halite_nn::{Tensor, Trace, grad};

use crate::eval::Function;

/// Returns a program that takes `count` points and a direction for each of those in `floats`. It
/// makes a scalar of the results of `function` and returns the derivative of that scalar along the
/// directions twice, by the gradient and by a central difference of this `step`; and both again for
/// the second derivative.
pub fn differences(
    function: impl Function,
    count: usize,
    floats: Vec<usize>,
    step: f64,
) -> impl Function {
    traced(move |cx, all| {
        let (x, along) = all.split_at(count);
        let line = Line {
            x,
            along,
            floats: &floats,
        };
        let (ahead, behind) = (line.moved(step), line.moved(-step));
        let slope = line.slope(cx, &function, x);
        let difference = loss(cx, &function, &ahead) - loss(cx, &function, &behind);
        let second = line.derivative(slope, x);
        let second_difference =
            line.slope(cx, &function, &ahead) - line.slope(cx, &function, &behind);
        vec![
            slope,
            difference / (2.0 * step),
            second,
            second_difference / (2.0 * step),
        ]
    })
}

/// Compares the four results of [`differences`]. `tolerance` is relative to 1, or to the value if
/// that is larger.
///
/// # Panics
/// If a derivative differs from the central difference, or if the first is 0, which tests nothing.
#[track_caller]
pub fn check_differences(name: &str, values: &[f64], tolerance: f64) {
    for (order, pair) in values.chunks(2).enumerate() {
        let (gradient, measured) = (pair[0], pair[1]);
        let error = (gradient - measured).abs() / measured.abs().max(1.0);
        assert!(
            error <= tolerance,
            "{name}: derivative {} is {gradient}, measured {measured}",
            order + 1
        );
    }
    assert!(
        values[0].abs() > 1e-9,
        "{name}: the derivative is {}, which tests nothing",
        values[0]
    );
}

/// Makes the compiler infer the lifetimes of a closure as those of a [`Function`].
fn traced<F: Function>(function: F) -> F {
    function
}

/// A point and a direction.
struct Line<'a, 't> {
    x: &'a [Tensor<'t>],
    along: &'a [Tensor<'t>],
    floats: &'a [usize],
}

impl<'t> Line<'_, 't> {
    fn moved(&self, step: f64) -> Vec<Tensor<'t>> {
        let mut moved = self.x.to_vec();
        for (&i, &along) in self.floats.iter().zip(self.along) {
            moved[i] = self.x[i] + along * step;
        }
        moved
    }

    fn slope(&self, cx: &'t Trace, function: &impl Function, at: &[Tensor<'t>]) -> Tensor<'t> {
        self.derivative(loss(cx, function, at), at)
    }

    /// The derivative of a scalar at `at`, along the direction.
    fn derivative(&self, scalar: Tensor<'t>, at: &[Tensor<'t>]) -> Tensor<'t> {
        let wrt: Vec<_> = self.floats.iter().map(|&i| Leaf(at[i])).collect();
        let gradients = grad(scalar, &wrt);
        let parts = gradients
            .iter()
            .zip(self.along)
            .map(|(gradient, &along)| (gradient.0 * along).sum_all());
        parts
            .reduce(|a, b| a + b)
            .expect("there is something to differentiate by")
    }
}

/// A scalar that depends on each element of the results with another weight, and not only linearly.
fn loss<'t>(cx: &'t Trace, function: &impl Function, at: &[Tensor<'t>]) -> Tensor<'t> {
    let mut total = cx.scalar(0.0, DType::F64);
    for (i, result) in function(cx, at).into_iter().enumerate() {
        if result.dtype().is_float() {
            let flat = result.convert(DType::F64).flatten();
            let weight = (cx.arange(flat.dims()[0], DType::F64) * 1.7 + (i as f64 + 0.5)).sin();
            total = total + (weight * (flat + flat.square() * 0.3)).sum_all();
        }
    }
    total
}
