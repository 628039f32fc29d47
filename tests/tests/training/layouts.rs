//! The same model, unchanged, on one device and on eight, laid out in every way.

use halite::{
    data::DatasetExt,
    models::{Classify, Cnn, ImageModel, Mlp},
    prelude::*,
    train::{
        Strategy, TrainerBuilder,
        loggers::{CsvLog, Split},
    },
};

use crate::support::{digits, trainer};

const STEPS: usize = 50;
const BATCH: usize = 16;

/// What is changed about a run, and how far each of its losses may be from those of one device.
struct Configuration {
    name: &'static str,
    change: fn(TrainerBuilder) -> TrainerBuilder,
    within: f64,
}

/// By name: the strategy, on these axes.
fn laid_out<const N: usize>(trainer: TrainerBuilder, strategy: &str, axes: [(&'static str, usize); N]) -> TrainerBuilder {
    // Small parameters too.
    let strategy: Strategy = strategy.parse().unwrap();
    trainer.mesh(axes).strategy(strategy.min_elements(64))
}

const CONFIGURATIONS: &[Configuration] = &[
    Configuration { name: "cpu x8, data parallel", change: |t| laid_out(t, "dp", [("data", 8)]), within: 1e-5 },
    Configuration { name: "cpu x8, FSDP", change: |t| laid_out(t, "fsdp", [("data", 8)]), within: 1e-5 },
    Configuration { name: "cpu 2x4, FSDP in groups", change: |t| laid_out(t, "fsdp", [("data", 2), ("fsdp", 4)]), within: 1e-5 },
    Configuration { name: "cpu 2x4, data x tensor", change: |t| laid_out(t, "dp+tp", [("data", 2), ("model", 4)]), within: 1e-5 },
    Configuration {
        name: "cpu 4x2, FSDP x tensor",
        change: |t| laid_out(t, "fsdp+tp", [("data", 4), ("model", 2)]),
        within: 1e-5,
    },
];

/// The loss of each step.
fn losses<M: ImageModel>(model: M::Of<Param>, trainer: TrainerBuilder) -> Vec<f64>
where
    M::Of<Param>: Send + Sync,
{
    let dir = tempfile::tempdir().unwrap();
    let trainer = trainer.batch_size(BATCH).log_every(1).out(dir.path()).build().unwrap();
    let fitted =
        trainer.fit(Classify::<M>::new(), model, Adam::new(1e-3), digits(true, 0..STEPS * BATCH), digits(false, 0..BATCH));
    fitted.unwrap_or_else(|error| panic!("{error}"));
    let rows = CsvLog::resume(dir.path().join("metrics.csv"), STEPS as u64).unwrap().rows().unwrap();
    let losses = rows
        .into_iter()
        .filter(|row| row.split == Split::Train)
        .map(|row| row.metrics.iter().find(|(name, _)| name == "loss").expect("every row has a loss").1);
    losses.collect()
}

fn the_losses_agree<M: ImageModel>(model: fn() -> M::Of<Param>)
where
    M::Of<Param>: Send + Sync,
{
    let one = losses::<M>(model(), trainer());
    assert_eq!(one.len(), STEPS);
    assert!(one[STEPS - 1] < 0.7 * one[0], "it learns: {one:?}");
    for Configuration { name, change, within } in CONFIGURATIONS {
        let many = losses::<M>(model(), change(trainer()));
        assert_eq!(many.len(), STEPS, "{name}");
        let distances = one.iter().zip(&many).map(|(one, many)| (one - many).abs());
        let (step, worst) = distances.enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap();
        println!("{name}: {worst:.1e} at step {step}");
        assert!(worst <= *within, "{name}: step {step}: {} on one device, {} so", one[step], many[step]);
    }
}

#[test]
fn a_dense_network_has_the_same_losses_in_every_layout() {
    the_losses_agree::<Mlp<()>>(|| Mlp::new(&[28 * 28, 128, 64, 10]));
}

#[test]
fn a_convolutional_network_has_the_same_losses_in_every_layout() {
    the_losses_agree::<Cnn<()>>(|| Cnn::new(10));
}
