//! Training in `f32`: processes differ from one device as the devices of one process do.

use halite_core::{DType, Result, tree::Tree};
use halite_train::{Fitted, Task, TrainerBuilder};

use super::{EXECUTORS, Trained, alike, gpt, layers, mlp};
use crate::shared::regression::net;

/// Largest difference of weights that is rounding, relative to the largest weight.
const ROUNDING: f64 = 1e-6;

/// A hundred steps over eight devices differ from those of one device by at most three times what
/// eight devices of one process do, or by rounding.
fn check<K: Task>(fit: impl Fn(TrainerBuilder) -> Result<Fitted<K>> + Sync) {
    for open in EXECUTORS {
        let one = alike(open, [1, 1], &fit);
        assert_eq!(one.steps, 100);
        let largest = (one.weights.iter()).fold(0.0, |most: f64, weight| most.max(weight.abs()));
        let distance = |other: &Trained| one.distance(other).weights;
        let of_devices = distance(&alike(open, [1, 8], &fit));
        let limit = (3.0 * of_devices).max(ROUNDING * largest);
        for shape in [[2, 4], [4, 2], [8, 1]] {
            let distance = distance(&alike(open, shape, &fit));
            assert!(
                distance <= limit,
                "{shape:?}: {distance:e}, and {of_devices:e} in one process"
            );
        }
    }
}

#[test]
#[ignore = "takes minutes: docs/long-campaigns.md"]
fn dense_networks_differ_as_on_devices() {
    check(|builder| {
        let net = net().map_leaves(|_, param| param.with_dtype(DType::F32));
        mlp::fit_net(builder, net, 64, 25)
    });
}

#[test]
#[ignore = "takes minutes: docs/long-campaigns.md"]
fn convolutions_with_batch_norm_differ_as_on_devices() {
    check(|builder| layers::fit_long(builder, DType::F32));
}

#[test]
#[ignore = "takes minutes: docs/long-campaigns.md"]
fn transformers_with_dropout_differ_as_on_devices() {
    check(|builder| gpt::fit_long(builder, DType::F32));
}
