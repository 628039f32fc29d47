//! Optimizers, clipping and schedules.

use halite_core::{
    DType, HostArray, Tree,
    tree::{Empty, Leaf},
};
use halite_nn::{
    Adam, AdamW, Init, Optimizer, Param, RmsProp, Schedule, Sgd, Tensor, grad, init,
    optim::{self, Adafactor, Decay, Lamb, Lars, Muon, clip_global_norm},
    rng,
};
use halite_tests::eval::eval;

use crate::layers::golden::{Packed, cases, close};

/// Checks six updates of a matrix and a vector: both after each, and the norm before clipping if
/// gradients are clipped.
fn check_optimizer<O: Optimizer>(name: &str, optimizer: O, clip: Option<f64>) {
    check_optimizer_without(None, name, optimizer, clip);
}

/// Like [`check_optimizer`], with a loss that depends on only one of the two.
fn check_optimizer_without<O: Optimizer>(
    unused: Option<usize>,
    name: &str,
    optimizer: O,
    clip: Option<f64>,
) {
    let case = &cases(&format!("optimizer.{name}"))[&format!("optimizer.{name}")];
    let model: Vec<Leaf<Param>> = case.inputs[..2]
        .iter()
        .map(|leaf| Leaf(Param::new(&leaf.dims, Init::Zeros).with_dtype(DType::F64)))
        .collect();
    let inputs: Vec<HostArray> = case.inputs.iter().map(Packed::host).collect();
    let results = eval(
        move |cx, given| {
            let mut params: Vec<Leaf<Tensor<'_>>> =
                given[..2].iter().map(|&leaf| Leaf(leaf)).collect();
            let mut slots = init(
                cx,
                &optim::slots(&optimizer, &model),
                rng::constant_key(cx, rng::key(0)),
            );
            let mut outputs = Vec::new();
            for (step, grads) in given[2..].chunks(2).enumerate() {
                let step = cx.scalar(step as f64, DType::U32);
                let mut grads: Vec<Leaf<Tensor<'_>>> =
                    grads.iter().map(|&leaf| Leaf(leaf)).collect();
                if let Some(unused) = unused {
                    let used = 1 - unused;
                    grads = grad((params[used].0 * grads[used].0).sum_all(), &params);
                }
                if let Some(max_norm) = clip {
                    let norm;
                    (grads, norm) = clip_global_norm(cx, &model, grads, max_norm);
                    outputs.push(norm.convert(DType::F64));
                }
                (params, slots) = optim::update(&optimizer, cx, step, &model, params, grads, slots);
                outputs.extend(params.iter().map(|leaf| leaf.0));
            }
            outputs
        },
        &inputs,
    );
    assert_eq!(results.len(), case.outputs.len());
    for (index, (result, expected)) in results.iter().zip(&case.outputs).enumerate() {
        // Parameters in `f64` have rates, bias corrections and norms in `f64`.
        close(
            &format!("optimizer.{name}: output {index}"),
            result,
            expected,
            1e-13,
        );
    }
}

#[test]
fn optimizers_match_pytorch() {
    check_optimizer("sgd", Sgd::new(0.1), None);
    check_optimizer("sgd.momentum", Sgd::new(0.1).momentum(0.9), None);
    check_optimizer(
        "sgd.dampening",
        Sgd::new(0.1).momentum(0.9).dampening(0.3),
        None,
    );
    let nesterov = Sgd::new(0.05).momentum(0.8).nesterov().weight_decay(0.1);
    check_optimizer("sgd.nesterov", nesterov, None);
    check_optimizer(
        "sgd.decay_of_matrices",
        Sgd::new(0.1).weight_decay(0.1).decay(Decay::Matrices),
        None,
    );
    check_optimizer("adam", Adam::new(0.01), None);
    let options = Adam::new(0.1).betas(0.7, 0.9).eps(1e-3).weight_decay(0.2);
    check_optimizer("adam.options", options, None);
    check_optimizer("adamw", AdamW::new(0.01).weight_decay(0.3), None);
    check_optimizer("adamw.defaults", AdamW::new(0.01), None);
    check_optimizer(
        "adamw.matrices",
        AdamW::new(0.01).decay(Decay::Matrices),
        None,
    );
    check_optimizer("adam.clipped", Adam::new(0.01), Some(1.5));
    check_optimizer(
        "adamw.cosine",
        AdamW::new(Schedule::cosine(0.02, 5))
            .weight_decay(0.1)
            .decay(Decay::Matrices),
        None,
    );
}

#[test]
fn optimizers_skip_parameters_without_gradient() {
    let sgd = Sgd::new(0.1).momentum(0.9).weight_decay(0.1);
    check_optimizer_without(Some(1), "sgd.unused", sgd, None);
    check_optimizer_without(
        Some(1),
        "adam.unused",
        Adam::new(0.01).weight_decay(0.1),
        None,
    );
    check_optimizer_without(Some(1), "adamw.unused", AdamW::new(0.01), None);
    check_optimizer_without(Some(0), "adamw.unused_clipped", AdamW::new(0.01), Some(1.5));
}

#[test]
fn centered_rms_prop_of_equal_gradients_is_finite() {
    let gradients = HostArray::from_slice(&[0.01f32, 0.1, 0.3, 0.7, 1.0, 1.7, 3.3, 5.1], [8]);
    let results = eval(
        |cx, given| {
            let model = vec![Leaf(Param::new([8], Init::Zeros))];
            let optimizer = RmsProp::new(1e-3).centered();
            let slots = optim::slots(&optimizer, &model);
            let slots = slots.map_leaves(|_, param| cx.full(0.0, &param.ty));
            let params = vec![Leaf(given[0].zeros_like())];
            let steps = Leaf(cx.arange(4000, DType::U32));
            let body = |(params, slots), Leaf(step)| {
                let grads = vec![Leaf(given[0])];
                let next = optim::update(&optimizer, cx, step, &model, params, grads, slots);
                (next, Empty::new())
            };
            let ((params, _), _) = cx.scan((params, slots), steps, body);
            vec![params[0].0]
        },
        &[gradients.unwrap()],
    );
    let params = results[0].as_slice::<f32>().unwrap();
    assert!(params.iter().all(|param| param.is_finite()), "{params:?}");
}

/// The change of a parameter by its first update.
fn first_change<O: Optimizer>(optimizer: O, factors: [f32; 2]) -> Vec<f32> {
    let values = |seed: f32, factor: f32| -> HostArray {
        let values: Vec<f32> = (1..=6)
            .map(|at| (seed * at as f32).sin() * factor)
            .collect();
        HostArray::from_slice(&values, [2, 3]).unwrap()
    };
    let inputs = [values(1.7, factors[0]), values(0.9, factors[1])];
    let results = eval(
        move |cx, given| {
            let model = vec![Leaf(Param::new([2, 3], Init::Zeros))];
            let slots = optim::slots(&optimizer, &model);
            let slots = slots.map_leaves(|_, param| cx.full(0.0, &param.ty));
            let [params, grads] = [0, 1].map(|at| vec![Leaf(given[at])]);
            let step = cx.scalar(0.0, DType::U32);
            let (next, _) = optim::update(&optimizer, cx, step, &model, params, grads, slots);
            vec![next[0].0 - given[0]]
        },
        &inputs,
    );
    results[0].as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn norms_of_large_parameters_do_not_overflow() {
    // Squares of parameters from 2^64 on are beyond f32.
    let large = f32::exp2(70.0);
    fn check<O: Optimizer + Clone>(optimizer: O, factors: [f32; 2]) {
        let changes = first_change(optimizer.clone(), [1.0, 1.0]);
        let scaled = first_change(optimizer.clone(), factors);
        assert!(changes.iter().all(|change| *change != 0.0), "{changes:?}");
        for (change, scaled) in changes.iter().zip(&scaled) {
            let expected = change * factors[0];
            let distance = (scaled - expected).abs() / expected.abs();
            // The difference of two numbers of the size of the parameter.
            assert!(distance < 1e-3, "{optimizer:?}: {changes:?} {scaled:?}");
        }
    }
    check(Lars::new(64.0), [large, large]);
    check(Lars::new(64.0), [large, 1.0]);
    check(Lamb::new(0.5).eps(0.0), [large, 1.0]);
    check(Adafactor::new(0.5), [large, 1.0]);
    check(Muon::new(0.5).weight_decay(0.0), [1.0, large]);
}

#[test]
fn clipping_norm_ignores_frozen_parameters() {
    let results = eval(
        |cx, given| {
            let frozen = Param::new([1], Init::Zeros).frozen();
            let model = (Leaf(Param::new([2], Init::Zeros)), Leaf(frozen));
            let ((Leaf(scaled), Leaf(unscaled)), norm) =
                clip_global_norm(cx, &model, (Leaf(given[0]), Leaf(given[1])), 2.5);
            vec![norm, scaled, unscaled]
        },
        &[
            HostArray::from_slice(&[3.0, 4.0], [2]).unwrap(),
            HostArray::from_slice(&[1000.0], [1]).unwrap(),
        ],
    );
    let values: Vec<&[f64]> = results
        .iter()
        .map(|result| result.as_slice().unwrap())
        .collect();
    assert_eq!((values[0], values[2]), (&[5.0][..], &[1000.0][..]));
    assert!(
        (values[1][0] - 1.5).abs() < 1e-6 && (values[1][1] - 2.0).abs() < 1e-6,
        "{values:?}"
    );
}

/// Schedules with golden values, by name.
fn schedules() -> [(&'static str, Schedule); 7] {
    [
        ("step", Schedule::step_decay(0.1, 0.5, 7)),
        (
            "piecewise",
            Schedule::piecewise(0.1, [(5, 0.01), (20, 0.001)]),
        ),
        ("exponential", Schedule::exponential(0.1, 0.93, 1)),
        ("cosine", Schedule::cosine_to(0.1, 0.01, 39)),
        ("polynomial", Schedule::polynomial(0.1, 0.0, 2.0, 30)),
        ("linear", Schedule::linear(0.1, 0.02, 25)),
        ("one_cycle", Schedule::one_cycle(0.3, 40)),
    ]
}

#[test]
fn schedules_match_pytorch() {
    let golden = cases("schedule.");
    for (name, schedule) in &schedules() {
        let expected = &golden[&format!("schedule.{name}")].outputs[0].values;
        for (step, &expected) in expected.iter().enumerate() {
            let value = schedule.value(step as u64);
            assert!(
                (value - expected).abs() <= 1e-12,
                "{name} at {step}: {value}, not {expected}"
            );
        }
    }
    assert_eq!(golden.len(), schedules().len());
}

#[test]
fn schedules_are_the_same_on_device() {
    let mut all: Vec<Schedule> = schedules().into_iter().map(|(_, one)| one).collect();
    all.push(Schedule::warmup(0.3, 10).then(Schedule::cosine_to(0.3, 0.03, 20)));
    all.push(Schedule::constant(0.5).then_at(3, Schedule::step_decay(1.0, 0.5, 49)));
    let later = [48, 49, 50, 51, 52, 101, 1_000, 100_000];
    let steps: Vec<u32> = (0..40).chain(later).collect();
    let (traced, traced_steps) = (all.clone(), steps.clone());
    let results = eval(
        move |cx, _| {
            let at = |schedule: &Schedule| {
                let steps = traced_steps.iter();
                let rates: Vec<Tensor<'_>> = steps
                    .map(|&step| schedule.at(cx.scalar(f64::from(step), DType::U32)))
                    .collect();
                cx.stack(&rates, 0)
            };
            traced.iter().map(at).collect()
        },
        &[],
    );
    for (schedule, rates) in all.iter().zip(&results) {
        let rates = rates.as_slice::<f32>().expect("rates are f32");
        for (&step, &rate) in steps.iter().zip(rates) {
            let expected = schedule.value(u64::from(step));
            let off = (f64::from(rate) - expected).abs();
            assert!(
                off <= 2e-6 * expected.abs() + 1e-8,
                "{schedule:?} at {step}: {rate} on the device, {expected} on the host"
            );
        }
    }
}
