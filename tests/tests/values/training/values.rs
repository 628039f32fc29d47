//! Parameters that are loaded, given, or initialized outside of the trainer.

use halite::prelude::*;

use crate::training::support::{client, fetched, trainer};

#[derive(Tree, Clone, Debug)]
struct Net<L> {
    hidden: Linear<L>,
    out: Linear<L>,
}

impl<'t> Net<Tensor<'t>> {
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        self.out.forward(self.hidden.forward(x).tanh())
    }
}

fn net() -> Net<Param> {
    Net {
        hidden: Linear::new(2, 8),
        out: Linear::new(8, 1),
    }
}

struct Fit;

impl Task for Fit {
    type Model = Net<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _cx: &'t Trace,
        model: &Net<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let error = (model.forward(batch.input) - batch.target).square();
        Mean::weighted(error.sum([1]), batch.weight)
    }
}

/// 32 points `f32[32, 2]`, and the product of their coordinates, `f32[32, 1]`.
fn slices() -> (Vec<f32>, Vec<f32>) {
    let x: Vec<f32> = (0..64).map(|i| (i as f32 * 0.7).sin()).collect();
    let y = x.chunks(2).map(|x| x[0] * x[1]).collect();
    (x, y)
}

fn points() -> InMemory {
    let (x, y) = slices();
    InMemory::new([
        ("x", HostArray::from_slice(&x, [32, 2]).unwrap()),
        ("y", HostArray::from_slice(&y, [32, 1]).unwrap()),
    ])
    .unwrap()
}

fn hosts(model: &impl Tree<Leaf = Array>) -> Vec<HostArray> {
    let leaves = model.leaves().into_iter();
    leaves.map(fetched).collect()
}

#[test]
fn load_returns_the_trained_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let trainer = trainer()
        .epochs(1)
        .batch_size(8)
        .out(dir.path())
        .build()
        .unwrap();
    let fitted = trainer
        .fit(Fit, net(), Adam::new(0.05), points(), points())
        .unwrap();
    let loaded = trainer.load(&net(), dir.path()).unwrap();
    assert_eq!(hosts(&loaded), hosts(&fitted.model));

    let other = Net {
        out: Linear::new(8, 2),
        ..net()
    };
    let error = trainer.load(&other, dir.path()).unwrap_err().to_string();
    assert!(error.contains("model.out.weight"), "{error}");
    let error = trainer.load(&net(), dir.path().join("checkpoints").join("none"));
    assert!(error.is_err());
}

#[test]
fn fit_from_starts_with_the_given_parameters() {
    let trainer = trainer().epochs(40).batch_size(8).build().unwrap();
    let adam = || Adam::new(0.02);
    let first = trainer.fit(Fit, net(), adam(), points(), points()).unwrap();
    let loss = first.report.metrics["loss"];
    let frozen = Sgd::new(0.0);
    let same = trainer
        .fit_from(Fit, net(), first.model, frozen, points(), points())
        .unwrap();
    assert_eq!(same.report.metrics["loss"], loss);
    let better = trainer
        .fit_from(Fit, net(), same.model, adam(), points(), points())
        .unwrap();
    assert!(better.report.metrics["loss"] < loss, "{}", better.report);
}

#[test]
fn fit_from_rejects_values_of_other_types() {
    let trainer = trainer().epochs(1).batch_size(8).build().unwrap();
    let wider = Net {
        hidden: Linear::new(2, 9),
        out: Linear::new(9, 1),
    };
    let values = State::new(client(), &wider, &Sgd::new(0.1), 0)
        .unwrap()
        .model;
    let result = trainer.fit_from(Fit, net(), values, Sgd::new(0.1), points(), points());
    let error = result.err().unwrap().to_string();
    assert!(
        error.contains("`hidden.weight` is f32[2, 8], given f32[2, 9]"),
        "{error}"
    );
}

#[test]
fn state_updates_as_the_trainer_does() {
    let trainer = trainer().epochs(1).batch_size(32).seed(7).build().unwrap();
    let fitted = trainer
        .fit(Fit, net(), Adam::new(0.05), points(), points())
        .unwrap();

    let adam = Adam::new(0.05);
    let state = State::new(client(), &net(), &adam, 7).unwrap();
    let step = jit_step(client(), &state, move |cx, state, [x, y]| {
        state.set_training_mode(cx);
        let loss = mse(state.model.forward(x), y).mean_all();
        let gradients = grad(loss, &state.model);
        (state.update(gradients), [loss])
    });
    let (x, y) = slices();
    let x = Array::from_slice(client(), &x, [32, 2]).unwrap();
    let y = Array::from_slice(client(), &y, [32, 1]).unwrap();
    let (state, _) = step.call(state, [&x, &y]).unwrap();
    assert_eq!(fetched(&state.step).item::<u32>().unwrap(), 1);
    for (ours, trainers) in hosts(&state.model).iter().zip(hosts(&fitted.model)) {
        let (ours, trainers) = (ours.as_slice::<f32>().unwrap(), trainers);
        for (a, b) in ours.iter().zip(trainers.as_slice::<f32>().unwrap()) {
            assert!((a - b).abs() < 1e-5, "{a} and {b}");
        }
    }
}
