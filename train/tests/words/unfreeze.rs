//! Parameters that an optimizer begins with later.

use std::fmt::Debug;

use halite_backends::Accelerator;
use halite_core::{Array, Client, tree::Tree};
use halite_nn::{
    Adafactor, Adagrad, Adam, AdamW, Lamb, Linear, Lion, Optimizer, RmsProp, Schedule, Sgd, freeze,
    jit_step,
};
use halite_train::{Fitted, State, TrainerBuilder};

use super::{error_of, trainer};
use crate::shared::plane::{Model, Plane, samples};

/// Gradients of the weight and of the bias at a step.
fn gradients(step: u32) -> ([f32; 2], [f32; 1]) {
    let wave = |at: f32| (1.3 * step as f32 + at).sin();
    ([wave(0.0), wave(1.0)], [wave(2.0)])
}

/// Weight and bias after updates with the gradients of these steps.
fn updated<O: Optimizer + Clone>(
    client: &Client,
    optimizer: &O,
    steps: std::ops::Range<u32>,
) -> (Vec<f32>, Vec<f32>) {
    let mut state = State::new(client, &Linear::new(2, 1), optimizer, 7).unwrap();
    let step = jit_step(client, &state, |cx, state, [weight, bias]| {
        state.set_training_mode(cx);
        let of_bias = state.model.bias.expect("it has one") * bias;
        let loss = (state.model.weight * weight).sum_all() + of_bias.sum_all();
        let gradients = state.gradients(loss);
        (state.update(gradients), [loss])
    });
    for (weight, bias) in steps.map(gradients) {
        let weight = Array::from_slice(client, &weight, [2, 1]).unwrap();
        let bias = Array::from_slice(client, &bias, [1]).unwrap();
        (state, _) = step.call(state, [&weight, &bias]).unwrap();
    }
    let values = |array: &Array| array.read().unwrap().as_slice::<f32>().unwrap().to_vec();
    (
        values(&state.model.weight),
        values(&state.model.bias.unwrap()),
    )
}

fn assert_near(name: &dyn Debug, got: &[f32], expected: &[f32]) {
    for (got, expected) in got.iter().zip(expected) {
        let off = (got - expected).abs();
        assert!(
            off <= 1e-6 * expected.abs().max(1.0),
            "{name:?}: {got}, not {expected}"
        );
    }
}

/// The first update after the third is that of a new optimizer: a new parameter group of PyTorch.
fn begins_anew<O: Optimizer + Clone>(client: &Client, optimizer: O) {
    let later = optimizer.clone().unfreeze("weight", 3).unwrap();
    let (first, _) = updated(client, &optimizer, 0..0);
    assert_eq!(
        updated(client, &later, 0..3).0,
        first,
        "{optimizer:?}: it is frozen"
    );
    let (weight, bias) = updated(client, &later, 0..8);
    assert_near(&optimizer, &weight, &updated(client, &optimizer, 3..8).0);
    let all = updated(client, &optimizer, 0..8);
    assert_near(&optimizer, &bias, &all.1);
    assert_ne!(weight, all.0, "{optimizer:?}");
}

#[test]
fn unfrozen_parameters_begin_as_new_ones() {
    let client = Accelerator::Embedded { devices: None }.open().unwrap();
    begins_anew(&client, Adam::new(0.1));
    begins_anew(&client, AdamW::new(0.1).weight_decay(0.3));
    begins_anew(
        &client,
        Sgd::new(0.1).momentum(0.9).dampening(0.5).weight_decay(0.1),
    );
    begins_anew(&client, RmsProp::new(0.1));
    begins_anew(&client, Adagrad::new(0.1));
    begins_anew(&client, Adafactor::new(0.1));
    begins_anew(&client, Lion::new(0.1).weight_decay(0.3));
    begins_anew(&client, Lamb::new(0.1));
    let groups = Adam::new(0.1)
        .group("bias", |adam| adam.learning_rate(0.01))
        .unwrap();
    begins_anew(&client, groups);
    begins_anew(
        &client,
        Adam::new(0.1).partition("weight", Sgd::new(0.2)).unwrap(),
    );
}

fn fit<O: Optimizer>(
    run: TrainerBuilder,
    model: Model<halite_nn::Param>,
    optimizer: O,
) -> Fitted<Plane> {
    let run = run.build().unwrap();
    run.fit(Plane, model, optimizer, samples(24), samples(8))
        .unwrap()
}

fn weights(fitted: &Fitted<Plane>) -> Vec<f32> {
    let leaves = fitted.model.leaves().into_iter();
    let values = leaves.map(|leaf| leaf.read().unwrap().as_slice::<f32>().unwrap().to_vec());
    values.flatten().collect()
}

#[test]
fn frozen_gradients_do_not_count_in_clipping() {
    let run = || trainer().gradient_clip_val(0.01).accumulate_grad_batches(2);
    let sgd = || Sgd::new(1.0);
    let later = sgd().unfreeze("out.bias", 1000).unwrap();
    let frozen = fit(run(), freeze(Model::new(), "out.bias").unwrap(), sgd());
    let never = fit(run(), Model::new(), later);
    assert_near(&"clipped", &weights(&never), &weights(&frozen));
    let trained = weights(&fit(run(), Model::new(), sgd()));
    assert!(
        (trained[0] - weights(&frozen)[0]).abs() > 1e-4,
        "{trained:?}"
    );
}

#[test]
fn unfreezing_resumes_to_the_bit() {
    let dir = tempfile::tempdir().unwrap();
    // It begins within the second epoch of six steps; schedules count all steps.
    let optimizer = || {
        let adam = Adam::new(Schedule::linear(0.1, 0.0, 18));
        adam.unfreeze("**.bias", 8).unwrap()
    };
    let run = |epochs: u64| {
        let run = trainer()
            .max_epochs(epochs)
            .checkpoint_every(7)
            .resume(true);
        fit(run.out(dir.path()), Model::new(), optimizer())
    };
    let whole = fit(trainer().max_epochs(3), Model::new(), optimizer());
    assert_eq!(whole.report.step_compiles, 1);
    run(1);
    run(2);
    assert_eq!(weights(&run(3)), weights(&whole));
}

#[test]
fn unfreezing_of_no_parameter_is_a_mistake() {
    let optimizer = Sgd::new(0.1).unfreeze("backbone.**", 5).unwrap();
    let run = trainer().build().unwrap();
    let error = error_of(run.fit(Plane, Model::new(), optimizer, samples(24), ()));
    assert!(
        error.contains("unfreeze `backbone.**` has no parameter"),
        "{error}"
    );
}
