//! Gradients of f32 networks whose activations XLA computes again inside fused backward kernels, where they may round
//! differently from the forward pass. The reference is the same network with each activation behind an optimization
//! barrier.

use halite_core::{DType, HostArray, tree::Leaf};
use halite_nn::{ConvOptions, GroupNorm, Padding, Tensor, grad};
use halite_tests::eval::{Function, eval, host, noise};

fn f32s(seed: u64, dims: &[usize], scale: f64) -> HostArray {
    let values = noise(seed, dims, -scale, scale);
    let values: Vec<f32> = values.as_slice::<f64>().unwrap().iter().map(|&value| value as f32).collect();
    host(&values, dims)
}

/// `|a - b| / |b|` over all elements of all tensors.
fn distance(a: &[HostArray], b: &[HostArray]) -> f64 {
    let (mut difference, mut size) = (0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        for (&a, &b) in a.as_slice::<f32>().unwrap().iter().zip(b.as_slice::<f32>().unwrap()) {
            difference += f64::from(a - b).powi(2);
            size += f64::from(b).powi(2);
        }
    }
    (difference / size).sqrt()
}

/// Compares gradients by all `inputs` but the first with those of the program that has a barrier behind each activation.
/// The network's second argument is what it applies to its activations.
#[track_caller]
fn check(inputs: &[HostArray], network: for<'t> fn(&[Tensor<'t>], fn(Tensor<'t>) -> Tensor<'t>) -> Tensor<'t>) {
    let gradients = |barriers: bool| {
        let gradients = traced(move |cx, x| {
            let y = network(x, if barriers { |y| y.optimization_barrier() } else { |y| y }).flatten();
            let weights = (cx.arange(y.dims()[0], DType::F32) * 1.7 + 0.5).sin();
            let wrt: Vec<_> = x[1..].iter().map(|&x| Leaf(x)).collect();
            grad((y * weights).sum_all(), &wrt).into_iter().map(|Leaf(g)| g).collect()
        });
        eval(gradients, inputs)
    };
    let wrong = distance(&gradients(false), &gradients(true));
    assert!(wrong < 1e-4, "the gradients differ by {wrong:.2e} of their norm");
}

fn traced<F: Function>(function: F) -> F {
    function
}

#[test]
fn max_pool_behind_group_norm() {
    let inputs = [
        f32s(1, &[2, 24, 40, 3], 1.0),
        f32s(2, &[3, 3, 3, 8], 0.3),
        f32s(3, &[8], 1.0),
        f32s(4, &[8], 0.3),
        f32s(5, &[3, 3, 8, 16], 0.2),
        f32s(6, &[16], 1.0),
        f32s(7, &[16], 0.3),
    ];
    check(&inputs, |x, activation| {
        let same = ConvOptions { padding: Padding::Same, ..ConvOptions::default() };
        let mut y = x[0];
        for block in x[1..].chunks(3) {
            let &[kernel, scale, bias] = block else { unreachable!("three parameters each") };
            let norm = GroupNorm { scale, bias, groups: 4, eps: 1e-5 };
            y = activation(norm.forward(y.conv(kernel, &same)).relu()).max_pool([2, 2], [], Padding::Valid);
        }
        y
    });
}
