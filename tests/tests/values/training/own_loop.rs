//! The loss scale of a policy in a loop without the trainer.

use halite::prelude::*;
use halite_core::LossScale;

use crate::training::support::{client, fetched};

/// A layer of 64 features that is 0.002 off its targets, 4096 samples, and the norm of its gradient
/// after one step of a loop without the trainer.
fn gradient_of_own_loop(policy: DTypePolicy, scaled: bool) -> Result<f32> {
    let net = Linear::new(64, 64);
    let sgd = Sgd::new(1.0);
    let seed_state = |policy| State::with_precision(client(), &net, &sgd, 0, policy);
    let state = seed_state(policy)?;
    let x: Vec<f32> = (0..4096 * 64)
        .map(|i| ((i * 7919) % 2003) as f32 / 1001.0 - 1.0)
        .collect();
    let x = Array::from_slice(client(), &x, [4096, 64])?;
    let exact = jit_like(client(), (&state.model, &x), |_, (model, x)| {
        [model.forward(x) + 0.002]
    });
    let [y] = exact.run((&state.model, &x))?;
    let step = jit_step(client(), &state, move |cx, state, [x, y]| {
        state.set_training_mode(cx);
        let loss = mse(state.model.forward(x), y).mean_all();
        let gradients = match scaled {
            true => state.gradients(loss),
            false => grad(loss, &state.model),
        };
        let norm = optim::global_norm(cx, &gradients);
        (state.update(gradients), [norm])
    });
    let (next, [norm]) = step.precision(policy).call(state, [&x, &y])?;
    assert_eq!(next.scale.is_some(), policy.loss_scale.is_some());
    norm.fetch()?.wait()?.item()
}

#[test]
fn own_loop_scales_its_loss() {
    let exact = gradient_of_own_loop(DTypePolicy::F32, true).unwrap();
    let scaled = gradient_of_own_loop(DTypePolicy::F16_MIXED, true).unwrap();
    assert!(
        exact > 0.0 && (scaled / exact - 1.0).abs() < 0.2,
        "{scaled}, {exact}"
    );
    let plain = gradient_of_own_loop(DTypePolicy::F32, false).unwrap();
    assert_eq!(plain, exact);
}

#[test]
fn gradient_of_f16_without_a_scale_is_refused() {
    let error = gradient_of_own_loop(DTypePolicy::F16_MIXED, false).unwrap_err();
    let error = error.to_string();
    for part in [
        "own_loop.rs:",
        "grad: under `f16-mixed` gradients are computed in f16",
        "`state.gradients(loss)` of a `State::with_precision(.., policy)`",
        "`cx.scales_loss()`",
    ] {
        assert!(error.contains(part), "`{part}` in {error}");
    }
    // A state without a scale does not help.
    let state = State::new(client(), &Linear::new(2, 1), &Sgd::new(0.1), 0).unwrap();
    let step = |by_hand: bool| {
        jit_step(client(), &state, move |cx, state, [x]| {
            let loss = state.model.forward(x).square().mean_all();
            if by_hand {
                cx.scales_loss();
            }
            let factor = 1024.0;
            let gradients = state.gradients(loss * factor);
            let gradients = gradients.map_leaves(|_, gradient| gradient / factor);
            (state.update(gradients), [loss])
        })
        .precision(DTypePolicy::F16_MIXED)
    };
    let (without, by_hand) = (step(false), step(true));
    let x = Array::from_slice(client(), &[1.0f32, 2.0], [1, 2]).unwrap();
    let spec = |array: &Array| halite::nn::ArraySpec::of(array);
    let specs = Tree::leaf_refs(&state).map_leaves(|_, array| spec(array));
    let inputs = [Leaf(spec(&x))];
    assert!(without.prepare(&specs, &inputs).is_err());
    by_hand.prepare(&specs, &inputs).unwrap();
}

/// A scale that is too large halves, and its steps change nothing.
#[test]
fn overflowing_step_of_an_own_loop_changes_nothing() {
    let policy = DTypePolicy {
        loss_scale: Some(LossScale {
            first: 30,
            growth_interval: 2000,
        }),
        ..DTypePolicy::F16_MIXED
    };
    let (net, adam) = (Linear::new(2, 1), Adam::new(0.1));
    let mut state = State::with_precision(client(), &net, &adam, 0, policy).unwrap();
    let step = jit_step(client(), &state, move |cx, state, [x]| {
        state.set_training_mode(cx);
        let loss = state.model.forward(x).square().mean_all();
        let gradients = state.gradients(loss);
        let bias = state.model.bias.expect("it has a bias").sum_all();
        let factor = state.scale.as_ref().expect("the policy has one").factor;
        (state.update(gradients), [bias, factor])
    })
    .precision(policy);
    let x = Array::from_slice(client(), &[300.0f32, 200.0], [1, 2]).unwrap();
    let mut seen = Vec::new();
    for _ in 0..30 {
        let (next, [bias, factor]) = step.call(state, [&x]).unwrap();
        seen.push((
            fetched(&bias).item::<f32>().unwrap(),
            fetched(&factor).item::<f32>().unwrap().log2(),
        ));
        state = next;
    }
    assert_eq!(seen[1], (seen[0].0, 29.0), "{seen:?}");
    let last = seen.last().unwrap();
    assert!(
        last.1 < 29.0 && last.0 != seen[0].0 && last.0.is_finite(),
        "{seen:?}"
    );
    // The first step that Adam does moves a parameter by the rate: bias corrections do not count the
    // steps before it.
    let moves = seen.windows(2).map(|pair| (pair[1].0 - pair[0].0).abs());
    let first = moves.into_iter().find(|&moved| moved > 0.0).unwrap();
    assert!((first - 0.1).abs() < 1e-4, "{first} in {seen:?}");
}
