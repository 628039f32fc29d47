//! Gradients of f32 networks whose activations XLA computes again inside fused backward kernels,
//! where they may round differently from the forward pass. The reference is the same network with
//! each activation behind an optimization barrier.

use halite_core::{DType, HostArray, TensorType, tree::Leaf};
use halite_ir::{Reduction, ScatterAttributes};
use halite_nn::{ConvOptions, GroupNorm, Padding, Tensor, grad};
use halite_tests::eval::{Function, eval, host, noise};

fn f32s(seed: u64, dims: &[usize], scale: f64) -> HostArray {
    let values = noise(seed, dims, -scale, scale);
    let values: Vec<f32> = values
        .as_slice::<f64>()
        .unwrap()
        .iter()
        .map(|&value| value as f32)
        .collect();
    host(&values, dims)
}

/// `|a - b| / |b|` over all elements of all tensors.
fn distance(a: &[HostArray], b: &[HostArray]) -> f64 {
    let (mut difference, mut size) = (0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        for (&a, &b) in a
            .as_slice::<f32>()
            .unwrap()
            .iter()
            .zip(b.as_slice::<f32>().unwrap())
        {
            difference += f64::from(a - b).powi(2);
            size += f64::from(b).powi(2);
        }
    }
    (difference / size).sqrt()
}

/// A network of inputs and parameters; its second argument is what it applies to its activations.
type Network = for<'t> fn(&[Tensor<'t>], Wrap<'t>) -> Tensor<'t>;
type Wrap<'t> = fn(Tensor<'t>) -> Tensor<'t>;

/// Compares gradients by all `inputs` but the first with those of the program that has a barrier
/// behind each activation.
#[track_caller]
fn check(inputs: &[HostArray], network: Network) {
    let gradients = |barriers: bool| {
        let gradients = traced(move |cx, x| {
            let y = network(
                x,
                if barriers {
                    |y| y.optimization_barrier()
                } else {
                    |y| y
                },
            )
            .flatten();
            let weights = (cx.arange(y.dims()[0], DType::F32) * 1.7 + 0.5).sin();
            let wrt: Vec<_> = x[1..].iter().map(|&x| Leaf(x)).collect();
            grad((y * weights).sum_all(), &wrt)
                .into_iter()
                .map(|Leaf(g)| g)
                .collect()
        });
        eval(gradients, inputs)
    };
    let wrong = distance(&gradients(false), &gradients(true));
    assert!(
        wrong < 1e-4,
        "the gradients differ by {wrong:.2e} of their norm"
    );
}

fn traced<F: Function>(function: F) -> F {
    function
}

/// conv - group norm - ReLU by three parameters.
fn block<'t>(x: Tensor<'t>, parameters: &[Tensor<'t>]) -> Tensor<'t> {
    let &[kernel, scale, bias] = parameters else {
        unreachable!("a kernel, a scale and a bias")
    };
    let same = ConvOptions {
        padding: Padding::Same,
        ..ConvOptions::default()
    };
    GroupNorm {
        scale,
        bias,
        groups: 4,
        eps: 1e-5,
    }
    .forward(x.conv(kernel, &same))
    .relu()
}

/// An image of `[2, 24, 40, 3]` and the parameters of two blocks.
fn image_inputs() -> Vec<HostArray> {
    vec![
        f32s(1, &[2, 24, 40, 3], 1.0),
        f32s(2, &[3, 3, 3, 8], 0.3),
        f32s(3, &[8], 1.0),
        f32s(4, &[8], 0.3),
        f32s(5, &[3, 3, 8, 16], 0.2),
        f32s(6, &[16], 1.0),
        f32s(7, &[16], 0.3),
    ]
}

#[test]
fn max_pool_behind_group_norm() {
    check(&image_inputs(), |x, activation| {
        let pooled =
            |x, parameters| activation(block(x, parameters)).max_pool([2, 2], [], Padding::Valid);
        pooled(pooled(x[0], &x[1..4]), &x[4..])
    });
}

#[test]
fn max_over_space_behind_group_norm() {
    check(&image_inputs(), |x, activation| {
        activation(block(block(x[0], &x[1..4]), &x[4..])).max([1, 2])
    });
}

#[test]
fn max_over_features_behind_group_norm() {
    check(&image_inputs(), |x, activation| {
        activation(block(block(x[0], &x[1..4]), &x[4..])).max([3])
    });
}

#[test]
fn scattered_max_behind_group_norm() {
    check(&image_inputs(), |x, activation| {
        let rows = activation(block(block(x[0], &x[1..4]), &x[4..])).reshape([2 * 24 * 40, 16]);
        let indices = x[0].trace().iota(&TensorType::new(DType::S32, [1920]), 0) / 4.0;
        let scatter = ScatterAttributes {
            update_window_dims: vec![1],
            inserted_window_dims: vec![0],
            input_batching_dims: vec![],
            scatter_indices_batching_dims: vec![],
            scatter_dims_to_operand_dims: vec![0],
            index_vector_dim: 1,
            unique_indices: false,
            indices_are_sorted: false,
        };
        rows.slice_dim(0, ..480)
            .scatter(indices, rows, scatter, Some(Reduction::Max))
    });
}

#[test]
fn maximum_of_equal_towers() {
    let mut inputs = image_inputs();
    inputs.extend_from_within(1..4);
    check(&inputs, |x, activation| {
        let towers = [block(x[0], &x[1..4]), block(x[0], &x[7..])].map(activation);
        block(towers[0].maximum(towers[1]), &x[4..7])
    });
}

#[test]
fn remainder_below_an_integer_quotient() {
    // 0.7 / 0.1 rounds to 7, but 7 * 0.1 is more than 0.7.
    let (a, b) = (0.7f32, 0.1f32);
    assert_eq!((a / b, a % b > 0.09), (7.0, true));
    let results = eval(
        |_, x| vec![grad((x[0] % x[1]).sum_all(), &Leaf(x[1])).0],
        &[host(&[a, 0.75, -a], &[3]), host(&[b, b, b], &[3])],
    );
    assert_eq!(results[0], host(&[-6.0f32, -7.0, 6.0], &[3]));
}
