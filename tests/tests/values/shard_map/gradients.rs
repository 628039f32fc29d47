//! Gradients through `shard_map` against finite differences, and the gradients of those.

use std::sync::Arc;

use halite_core::{HostArray, Mesh, PartitionSpec, tree::Leaf};
use halite_ir::Reduction;
use halite_nn::{Manual, Tensor, Trace, grad};
use halite_tests::{
    differences::{check_differences, differences},
    eval::{eval, noise},
};

use crate::shard_map::support::*;

/// Code for one device.
trait Local: for<'t> Fn(&'t Trace, &[Tensor<'t>]) -> Vec<Tensor<'t>> + Send + Sync + 'static {}
impl<F: for<'t> Fn(&'t Trace, &[Tensor<'t>]) -> Vec<Tensor<'t>> + Send + Sync + 'static> Local
    for F
{
}

/// Compares the gradient of `local`, on noise of `dims` sharded by `in_specs`, with finite
/// differences.
#[track_caller]
fn check(
    name: &str,
    dims: &[&[usize]],
    in_specs: &[PartitionSpec],
    out_specs: &[PartitionSpec],
    local: impl Local,
) {
    check_over(
        name,
        &Manual::over(&mesh()),
        &mesh(),
        dims,
        in_specs,
        out_specs,
        local,
    );
}

#[track_caller]
fn check_over(
    name: &str,
    over: &Manual,
    mesh: &Arc<Mesh>,
    dims: &[&[usize]],
    in_specs: &[PartitionSpec],
    out_specs: &[PartitionSpec],
    local: impl Local,
) {
    let points = dims
        .iter()
        .zip(1..)
        .map(|(dims, seed)| noise(seed, dims, -2.0, 2.0));
    let directions = dims
        .iter()
        .zip(101..)
        .map(|(dims, seed)| noise(seed, dims, -1.0, 1.0));
    let all: Vec<(HostArray, PartitionSpec)> = points
        .chain(directions)
        .map(|host| (host, whole()))
        .collect();
    let (over, ins, outs) = (over.clone(), in_specs.to_vec(), out_specs.to_vec());
    let program = differences(
        move |cx: &_, x: &[_]| cx.shard_map(over.clone(), x, &ins, &outs, |parts| local(cx, parts)),
        dims.len(),
        (0..dims.len()).collect(),
        1e-5,
    );
    let results = try_run(mesh, program, &all).unwrap_or_else(|error| panic!("{name}: {error}"));
    let values: Vec<f64> = results
        .iter()
        .map(|result| result.item::<f64>().unwrap())
        .collect();
    check_differences(name, &values, 1e-6);
}

fn blocks() -> PartitionSpec {
    spec(&[&["data"], &["model"]])
}

#[test]
fn collectives_are_differentiated_over_axes() {
    let one = |name: &str, local: fn(Tensor<'_>) -> Tensor<'_>| {
        check(
            name,
            &[&[4, 16]],
            &[blocks()],
            &[spec(&[&["data", "model"]])],
            move |_, x| vec![local(x[0])],
        );
    };
    one("sum over model", |x| {
        x.all_reduce(Reduction::Sum, "model") * x
    });
    one("sum over data", |x| {
        x.all_reduce(Reduction::Sum, "data").sin()
    });
    one("mean over both", |x| {
        x.all_reduce_mean(["data", "model"]) * x
    });
    one("max", |x| x.all_reduce(Reduction::Max, "model") * x);
    one("gather", |x| x.square().all_gather(1, "model").sin());
    one("gather of both", |x| {
        x.all_gather(0, ["model", "data"]).sin()
    });
    one("reduce scatter", |x| {
        x.sin().reduce_scatter(Reduction::Sum, 1, "model").square()
    });
    one("all to all", |x| x.sin().all_to_all(1, 0, "model").square());
    one("permute", |x| {
        x.sin()
            .collective_permute([(0, 1), (1, 2), (3, 0)], "model")
            .square()
    });
    one("index", |x| {
        x * x.trace().axis_index(["model", "data"]).convert(x.dtype())
    });
}

#[test]
fn replicated_input_gradient_sums_over_devices() {
    // `b` is whole everywhere, `w` along `data`; the outputs are whole along `model`, and along
    // both.
    check(
        "shared inputs and outputs",
        &[&[4, 8], &[8, 6], &[6]],
        &[blocks(), spec(&[&["model"]]), whole()],
        &[spec(&[&["data"]]), whole()],
        |_, x| {
            let y = (x[0].matmul(x[1]).all_reduce(Reduction::Sum, "model") + x[2]).tanh();
            vec![y, y.square().sum_all().all_reduce(Reduction::Sum, "data")]
        },
    );
    // The same on every device from the beginning to the end.
    check("whole", &[&[3]], &[whole()], &[whole()], |_, x| {
        vec![x[0].sin()]
    });
    check(
        "whole, and summed",
        &[&[3]],
        &[whole()],
        &[whole()],
        |_, x| vec![x[0].sin().all_reduce(Reduction::Sum, "data")],
    );
}

#[test]
fn captured_tensors_are_replicated() {
    let all = [
        noise(1, &[8], -1.0, 1.0),
        noise(2, &[], -1.0, 1.0),
        noise(3, &[8], -1.0, 1.0),
        noise(4, &[], -1.0, 1.0),
    ];
    let over = Manual::over(&mesh());
    let program = differences(
        move |cx, x| {
            let scale = x[1].exp();
            let split = [spec(&[&["model"]])];
            cx.shard_map(over.clone(), &x[..1], &split, &split, |parts| {
                vec![(parts[0] * scale).sin()]
            })
        },
        2,
        vec![0, 1],
        1e-5,
    );
    let results = run(&mesh(), program, &all.map(|host| (host, whole())));
    let values: Vec<f64> = results
        .iter()
        .map(|result| result.item::<f64>().unwrap())
        .collect();
    check_differences("captured", &values, 1e-6);
}

#[test]
fn some_axes_manual() {
    let over = Manual::over(&mesh()).only(["model"]);
    check_over(
        "partly manual",
        &over,
        &mesh(),
        &[&[4, 8], &[8, 6]],
        &[spec(&[&[], &["model"]]), spec(&[&["model"]])],
        &[whole()],
        |_, x| vec![x[0].matmul(x[1]).all_reduce(Reduction::Sum, "model").tanh()],
    );
}

#[test]
fn sharded_step_has_the_same_gradients() {
    // Two layers, the first cut by columns and the second by rows over `model`, the batch over
    // `data`.
    fn loss<'t>(x: &[Tensor<'t>], hidden: impl FnOnce(Tensor<'t>) -> Tensor<'t>) -> Tensor<'t> {
        (hidden(x[0].matmul(x[1]).tanh().matmul(x[2])) - x[3])
            .square()
            .sum_all()
    }
    let inputs = [
        noise(1, &[8, 6], -1.0, 1.0),
        noise(2, &[6, 12], -1.0, 1.0),
        noise(3, &[12, 4], -1.0, 1.0),
        noise(4, &[8, 4], -1.0, 1.0),
    ];
    fn with_gradients<'t>(loss: Tensor<'t>, x: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let gradients = grad(loss, &[Leaf(x[1]), Leaf(x[2])]);
        vec![loss, gradients[0].0, gradients[1].0]
    }
    let plain = eval(|_, x| with_gradients(loss(x, |y| y), x), &inputs);
    let mesh = mesh();
    let given = run(
        &mesh.clone(),
        move |cx, x| {
            let specs = [
                spec(&[&["data"]]),
                spec(&[&[], &["model"]]),
                spec(&[&["model"]]),
                spec(&[&["data"]]),
            ];
            let total = cx.shard_map(&mesh, x, &specs, &[whole()], |x| {
                let loss = loss(x, |y| y.all_reduce(Reduction::Sum, "model"));
                vec![loss.all_reduce(Reduction::Sum, "data")]
            });
            with_gradients(total[0], x)
        },
        &inputs.map(|host| (host, whole())),
    );
    for (i, (given, plain)) in given.iter().zip(&plain).enumerate() {
        let (given, plain) = (
            given.as_slice::<f64>().unwrap(),
            plain.as_slice::<f64>().unwrap(),
        );
        let worst = given
            .iter()
            .zip(plain)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(worst < 1e-11, "result {i}: {worst}");
    }
}
