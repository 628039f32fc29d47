//! Losses and gradients beside JAX's `shard_map`, from `tests/golden/shard_map.json` and the script
//! that wrote it.

use std::collections::BTreeMap;

use halite_core::{HostArray, PartitionSpec, tree::Leaf};
use halite_ir::Reduction;
use halite_nn::{Over, Tensor, Trace, grad};
use halite_tests::eval::host;
use serde::Deserialize;

use crate::shard_map::support::*;

#[derive(Deserialize)]
struct Golden {
    loss: f64,
    gradients: Vec<Vec<f64>>,
}

/// The same in Python: `waves` in `shard_map.py`.
fn waves(dims: &[usize], seed: usize) -> HostArray {
    let values: Vec<f64> = (0..dims.iter().product())
        .map(|i: usize| (i as f64 * 0.7 + seed as f64).sin())
        .collect();
    host(&values, dims)
}

#[track_caller]
fn check(
    name: &str,
    specs: &'static [&'static str],
    dims: &[&[usize]],
    local: impl for<'t> Fn(&'t Trace, &[Tensor<'t>]) -> Tensor<'t> + Send + Sync + 'static,
) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/shard_map.json");
    let mut all: BTreeMap<String, Golden> =
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let golden = all.remove(name).unwrap();
    let mesh = mesh();
    let given = run(
        &mesh.clone(),
        move |cx, x| {
            let specs: Vec<PartitionSpec> =
                specs.iter().map(|text| text.parse().unwrap()).collect();
            let loss =
                cx.shard_map(&mesh, x, &specs, &[whole()], |parts| vec![local(cx, parts)])[0];
            let gradients = grad(loss, &x.iter().copied().map(Leaf).collect::<Vec<_>>());
            [loss]
                .into_iter()
                .chain(gradients.into_iter().map(|Leaf(gradient)| gradient))
                .collect()
        },
        &dims
            .iter()
            .enumerate()
            .map(|(seed, dims)| (waves(dims, seed), whole()))
            .collect::<Vec<_>>(),
    );
    let expected = [vec![golden.loss]].into_iter().chain(golden.gradients);
    for (i, (given, expected)) in given.iter().zip(expected).enumerate() {
        let given = given.as_slice::<f64>().unwrap();
        assert_eq!(given.len(), expected.len(), "{name}, result {i}");
        for (given, expected) in given.iter().zip(&expected) {
            assert!(
                (given - expected).abs() <= 1e-11 * expected.abs().max(1.0),
                "{name}, result {i}: {given}, JAX {expected}"
            );
        }
    }
}

#[test]
fn sharded_step_matches_jax() {
    check(
        "layers",
        &["(data)", "(None, model)", "(model)", "(data)"],
        &[&[4, 3], &[3, 8], &[8, 2], &[4, 2]],
        |_, x| {
            let out = x[0]
                .matmul(x[1])
                .tanh()
                .matmul(x[2])
                .all_reduce(Reduction::Sum, "model");
            (out - x[3])
                .square()
                .sum_all()
                .all_reduce(Reduction::Sum, "data")
        },
    );
}

#[test]
fn collectives_match_jax() {
    check(
        "collectives",
        &["(data, model)", "(model)", "()", "()"],
        &[&[4, 16], &[8], &[2], &[3]],
        |cx, x| {
            let a = x[0].sin().all_gather(1, "model") * 0.3;
            let b = a.reduce_scatter(Reduction::Sum, 0, "data");
            let c = b.square().all_to_all(1, 0, "model");
            let d = c.collective_permute([(0, 1), (1, 2), (2, 3), (3, 0)], "model");
            let e = d.all_reduce_mean(["data", "model"])
                + x[1].sin().sum_all() * cx.axis_index("model").convert(x[1].dtype());
            let total =
                e.tanh().sum_all() * x[2].sum_all() + (d * c).sum_all() + x[3].cos().sum_all();
            total.all_reduce(Reduction::Sum, Over::ALL)
        },
    );
}
