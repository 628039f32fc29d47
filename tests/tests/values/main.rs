//! What programs compute: every operation, gradient, layer, loss and optimizer, random networks and
//! whole trainings, on XLA's CPU plugin. `HALITE_TEST_ACCELERATOR` names another accelerator, and
//! `HALITE_TEST_TARGETS` targets for which everything is compiled too.

mod attention;
mod chlo;
mod custom_ops;
mod edge_values;
mod embedded;
mod golden;
mod gradients;
mod hyperparameters;
mod interpreted;
mod ir_ops;
mod kernels;
mod layer_behaviour;
mod layers;
mod loss_numbers;
mod networks;
mod numbers;
mod programs;
mod random;
mod shard_map;
mod split;
mod stack;
mod training;
mod transformer;

/// These modules run every operation, and compositions that a compiler treats otherwise; the others
/// add none. `.ci/full` runs all of them.
#[test]
fn suite_passes_on_embedded() {
    let suites = [
        "golden::",
        "ir_ops::",
        "networks::",
        "split::",
        "training::",
    ];
    let other_suites = ["edge_values::", "layers::", "embedded::", "shard_map::"];
    // Every mesh of `layouts` takes minutes, because each partition runs the whole program.
    let slow = ["training::layouts::"];
    halite_tests::embedded::rerun(&suites, &[&other_suites[..], &slow].concat());
}
