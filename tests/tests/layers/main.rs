//! Layers, losses, optimizers and schedules on the CPU plugin, compared with PyTorch
//! (`tests/golden/pytorch/make.py`), and gradients compared with finite differences.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use halite_core::{DType, HostArray, Tree, tree::Leaf};
use halite_nn::{
    Activation, Adam, AdamW, BatchNorm, Conv1d, Conv2d, Conv3d, CrossEntropy, Embedding, GroupNorm,
    Init, LayerNorm, Linear, Mean, Optimizer, Padding, Param, RmsNorm, Schedule, Sgd, Tensor,
    Trace, bce_with_logits, cross_entropy, grad, huber, init, kl_divergence, mae, mse,
    optim::{self, Decay, clip_global_norm},
    rng, soft_cross_entropy,
};
use halite_tests::eval::eval;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    inputs: Vec<Packed>,
    outputs: Vec<Packed>,
    cotangent: Option<Packed>,
    gradients: Option<Vec<Option<Packed>>>,
}

#[derive(Deserialize)]
struct Packed {
    dims: Vec<usize>,
    dtype: String,
    values: Vec<f64>,
}

impl Packed {
    fn host(&self) -> HostArray {
        let made = match self.dtype.as_str() {
            "f64" => HostArray::from_slice(&self.values, &self.dims),
            "s32" => HostArray::from_slice(
                &self
                    .values
                    .iter()
                    .map(|&value| value as i32)
                    .collect::<Vec<_>>(),
                &self.dims,
            ),
            other => panic!("element type {other}"),
        };
        made.expect("the file has as many values as its dimensions say")
    }
}

/// The cases whose names begin with `prefix`.
fn cases(prefix: &str) -> BTreeMap<String, Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pytorch/layers.json");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut cases: BTreeMap<String, Case> =
        serde_json::from_str(&text).expect("the golden file is as make.py writes it");
    cases.retain(|name, _| name.starts_with(prefix));
    assert!(!cases.is_empty(), "no golden case begins with {prefix}");
    cases
}

fn close(what: &str, got: &HostArray, expected: &Packed, tolerance: f64) {
    assert_eq!(got.ty().dims(), expected.dims, "dimensions of {what}");
    let got: &[f64] = got
        .as_slice()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    for (index, (&got, &expected)) in got.iter().zip(&expected.values).enumerate() {
        let off = (got - expected).abs();
        assert!(
            off <= tolerance * (1.0 + expected.abs()),
            "{what}[{index}] is {got}, not {expected}: off by {off:e}"
        );
    }
}

/// Builds a model from tensors in the order of its leaves.
fn with<'t, M: Tree<Leaf = Param>>(
    model: &M,
    leaves: &[Tensor<'t>],
) -> halite_core::tree::Of<M, Tensor<'t>> {
    model.rebuild(leaves.iter().copied())
}

/// Runs all cases that begin with `prefix` in one program; checks values, gradients and finite
/// differences.
fn check(
    prefix: &str,
    function: impl for<'t> Fn(&'t Trace, &str, &[Tensor<'t>]) -> Vec<Tensor<'t>> + Send + Sync + 'static,
) {
    const STEP: f64 = 1e-5;
    let cases = Arc::new(cases(prefix));
    let mut inputs = Vec::new();
    for case in cases.values() {
        inputs.extend(case.inputs.iter().chain(&case.cotangent).map(Packed::host));
    }
    let traced = cases.clone();
    let results = eval(
        move |cx, given| {
            let mut given = given.iter().copied();
            let mut all = Vec::new();
            for (name, case) in traced.iter() {
                let inputs: Vec<Tensor<'_>> = given.by_ref().take(case.inputs.len()).collect();
                let outputs = function(cx, name, &inputs);
                all.extend(outputs.iter().copied());
                let Some(gradients) = &case.gradients else {
                    continue;
                };
                let cotangent = given
                    .next()
                    .expect("there are as many inputs as the cases have");
                let wanted = |index: &usize| gradients[*index].is_some();
                let indices: Vec<usize> = (0..inputs.len()).filter(wanted).collect();
                let wrt: Vec<Leaf<Tensor<'_>>> =
                    indices.iter().map(|&index| Leaf(inputs[index])).collect();
                let slopes = grad((outputs[0] * cotangent).sum_all(), &wrt);
                all.extend(slopes.iter().map(|slope| slope.0));

                // The directional derivative as a central difference.
                let mut along = cx.scalar(0.0, DType::F64);
                let (mut before, mut after) = (inputs.clone(), inputs.clone());
                for (&index, slope) in indices.iter().zip(&slopes) {
                    let x = inputs[index];
                    let places = cx.arange(x.ty().elements(), DType::F64).reshape(x.dims());
                    let direction = (places * 7.3 + (index + 1) as f64).sin();
                    along = along + (slope.0 * direction).sum_all();
                    before[index] = x - direction * STEP;
                    after[index] = x + direction * STEP;
                }
                let (after, before) = (
                    function(cx, name, &after)[0],
                    function(cx, name, &before)[0],
                );
                let difference = ((after - before) * cotangent).sum_all() / (2.0 * STEP);
                all.extend([along, difference]);
            }
            all
        },
        &inputs,
    );
    let mut results = results.into_iter();
    for (name, case) in cases.iter() {
        let mut next = || {
            results
                .next()
                .expect("there are as many results as were returned")
        };
        for (index, output) in case.outputs.iter().enumerate() {
            // One pass over data far from its running mean loses precision of the variance: see
            // `BatchNorm`.
            let tolerance = if name == "batch_norm.offset" {
                1e-9
            } else {
                1e-11
            };
            close(
                &format!("{name}: output {index}"),
                &next(),
                output,
                tolerance,
            );
        }
        let Some(gradients) = &case.gradients else {
            continue;
        };
        for (index, gradient) in gradients.iter().enumerate() {
            if let Some(gradient) = gradient {
                close(
                    &format!("{name}: gradient of input {index}"),
                    &next(),
                    gradient,
                    1e-8,
                );
            }
        }
        let (along, difference) = (next(), next());
        let number = |host: &HostArray| host.as_slice::<f64>().expect("the check is in f64")[0];
        let (along, difference) = (number(&along), number(&difference));
        // At a kink the central difference is the mean of both slopes.
        if !has_kink(name) {
            assert!(
                (along - difference).abs() <= 1e-5 * (1.0 + along.abs()),
                "{name}: slope {along}, difference {difference}"
            );
        }
    }
    assert_eq!(results.count(), 0, "results that no case has");
}

fn has_kink(name: &str) -> bool {
    let kinks = ["relu", "elu", "hard_", "erf_inv"];
    kinks.iter().any(|kink| {
        name.strip_prefix("activation.")
            .is_some_and(|name| name.contains(kink))
    })
}

#[test]
fn activations_match_pytorch() {
    check("activation.", |_, name, inputs| {
        let x = inputs[0];
        vec![match name
            .strip_prefix("activation.")
            .expect("the prefix was asked for")
        {
            "relu" => Activation::Relu.forward(x),
            "relu6" => Activation::Relu6.forward(x),
            "leaky_relu" => Activation::LeakyRelu(0.1).forward(x),
            "elu" => Activation::Elu(1.5).forward(x),
            "selu" => Activation::Selu.forward(x),
            "gelu" => Activation::Gelu.forward(x),
            "gelu_tanh" => Activation::GeluTanh.forward(x),
            "silu" => Activation::Silu.forward(x),
            "mish" => Activation::Mish.forward(x),
            "softplus" => Activation::Softplus.forward(x),
            "log_sigmoid" => x.log_sigmoid(),
            "hard_sigmoid" => Activation::HardSigmoid.forward(x),
            "hard_swish" => Activation::HardSwish.forward(x),
            "sigmoid" => Activation::Sigmoid.forward(x),
            "tanh" => Activation::Tanh.forward(x),
            "glu" => x.glu(),
            "erf_inv" => x.erf_inv(),
            other => panic!("no activation {other}"),
        }]
    });
}

#[test]
fn linear_layers_match_pytorch() {
    check("linear", |_, name, inputs| {
        let layer = match name {
            "linear" => Linear::new(4, 5),
            _ => Linear::new(4, 2).without_bias(),
        };
        vec![with(&layer, &inputs[1..]).forward(inputs[0])]
    });
    check("embedding", |_, name, inputs| {
        let layer = with(&Embedding::new(5, 3), &inputs[1..]);
        vec![if name == "embedding" {
            layer.forward(inputs[0])
        } else {
            layer.attend(inputs[0])
        }]
    });
}

#[test]
fn convolutions_match_pytorch() {
    check("conv", |_, name, inputs| {
        let (x, leaves) = (inputs[0], &inputs[1..]);
        vec![match name {
            "conv2d" => with(&Conv2d::new(3, 4, 3), leaves).forward(x),
            "conv2d.same" => with(&Conv2d::new(2, 3, 3).same(), leaves).forward(x),
            "conv2d.strided" => with(
                &Conv2d::new(2, 3, [3, 2]).stride([2, 1]).padding([1, 0]),
                leaves,
            )
            .forward(x),
            "conv2d.dilated_groups" => with(
                &Conv2d::new(4, 6, 3)
                    .padding(2)
                    .dilation(2)
                    .groups(2)
                    .without_bias(),
                leaves,
            )
            .forward(x),
            "conv1d" => with(&Conv1d::new(3, 4, 3).padding(1), leaves).forward(x),
            "conv3d" => with(&Conv3d::new(2, 3, 2), leaves).forward(x),
            other => panic!("no layer {other}"),
        }]
    });
}

#[test]
fn pooling_matches_pytorch() {
    for prefix in ["max_pool", "avg_pool", "global_"] {
        check(prefix, |_, name, inputs| {
            let x = inputs[0];
            let one = || Padding::Explicit(vec![(1, 1), (1, 1)]);
            vec![match name {
                "max_pool" | "max_pool.odd" => x.max_pool([2, 2], [], Padding::Valid),
                "max_pool.overlapping" => x.max_pool([3, 3], [2, 2], one()),
                "avg_pool" => x.avg_pool([3, 3], [2, 2], one()),
                "global_avg_pool" => x.global_avg_pool(),
                "global_max_pool" => x.global_max_pool(),
                other => panic!("no pool {other}"),
            }]
        });
    }
}

#[test]
fn batch_norm_matches_pytorch() {
    check("batch_norm", |cx, name, inputs| {
        let features = inputs[1].dims()[0];
        let layer = match name {
            "batch_norm.momentum" => BatchNorm::new(features).momentum(0.25).eps(1e-3),
            _ => BatchNorm::new(features),
        };
        let layer = with(&layer, &inputs[1..]);
        if name == "batch_norm.evaluation" {
            cx.set_mode(false, None);
            return vec![layer.forward(inputs[0])];
        }
        cx.set_mode(true, None);
        let y = layer.forward(inputs[0]);
        vec![y, cx.updated(layer.mean), cx.updated(layer.variance)]
    });
}

#[test]
fn sample_norms_match_pytorch() {
    for prefix in ["layer_norm", "group_norm", "rms_norm"] {
        check(prefix, |_, name, inputs| {
            let (x, leaves) = (inputs[0], &inputs[1..]);
            vec![match name {
                "layer_norm" => with(&LayerNorm::new(6), leaves).forward(x),
                "layer_norm.no_bias" => {
                    with(&LayerNorm::new(6).without_bias().eps(1e-3), leaves).forward(x)
                }
                "group_norm" => with(&GroupNorm::new(3, 6), leaves).forward(x),
                "rms_norm" => with(&RmsNorm::new(6), leaves).forward(x),
                other => panic!("no layer {other}"),
            }]
        });
    }
}

#[test]
fn losses_match_pytorch() {
    for prefix in [
        "cross_entropy",
        "soft_cross_entropy",
        "kl_divergence",
        "bce_with_logits",
        "mse",
        "mae",
        "huber",
        "smooth_l1",
    ] {
        check(prefix, |_, name, inputs| {
            let (x, target) = (inputs[0], inputs[1]);
            let options = CrossEntropy::new();
            let mean: Mean<'_> = match name {
                "cross_entropy" | "cross_entropy.large" | "cross_entropy.positions" => {
                    cross_entropy(x, target)
                }
                "cross_entropy.smoothing" => options.label_smoothing(0.1).loss(x, target),
                "cross_entropy.ignore" => options.ignore(-100).loss(x, target),
                "cross_entropy.class_weights" => options.class_weights(inputs[2]).loss(x, target),
                "cross_entropy.everything" => options
                    .class_weights(inputs[2])
                    .label_smoothing(0.2)
                    .ignore(-100)
                    .loss(x, target),
                "cross_entropy.weights" => options.weights(inputs[2]).loss(x, target),
                "soft_cross_entropy" => soft_cross_entropy(x, target),
                "kl_divergence" => kl_divergence(x, target),
                "bce_with_logits" => bce_with_logits(x, target),
                "mse" => mse(x, target),
                "mae" => mae(x, target),
                "huber" => huber(x, target, 0.7),
                "smooth_l1" => {
                    let mean = huber(x, target, 0.7);
                    Mean {
                        total: mean.total / 0.7,
                        weight: mean.weight,
                    }
                }
                other => panic!("no loss {other}"),
            };
            vec![mean.value()]
        });
    }
}

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
fn clipping_norm_ignores_frozen_parameters() {
    let results = eval(
        |cx, given| {
            let frozen = Param::new([1], Init::Zeros).frozen();
            let model = (Leaf(Param::new([2], Init::Zeros)), Leaf(frozen));
            let ((Leaf(scaled), Leaf(kept)), norm) =
                clip_global_norm(cx, &model, (Leaf(given[0]), Leaf(given[1])), 2.5);
            vec![norm, scaled, kept]
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

#[test]
fn schedules_match_pytorch() {
    let schedules = [
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
    ];
    let golden = cases("schedule.");
    for (name, schedule) in &schedules {
        let expected = &golden[&format!("schedule.{name}")].outputs[0].values;
        for (step, &expected) in expected.iter().enumerate() {
            let value = schedule.value(step as u64);
            assert!(
                (value - expected).abs() <= 1e-12,
                "{name} at {step}: {value}, not {expected}"
            );
        }
    }
    assert_eq!(golden.len(), schedules.len());

    let mut schedules: Vec<Schedule> = schedules
        .into_iter()
        .map(|(_, schedule)| schedule)
        .collect();
    schedules.push(Schedule::warmup(0.3, 10).then(Schedule::cosine_to(0.3, 0.03, 20)));
    schedules.push(Schedule::constant(0.5).then_at(3, Schedule::step_decay(1.0, 0.5, 49)));
    let steps: Vec<u32> = (0..40)
        .chain([48, 49, 50, 51, 52, 101, 1_000, 100_000])
        .collect();
    let (traced, asked) = (schedules.clone(), steps.clone());
    let results = eval(
        move |cx, _| {
            let at = |schedule: &Schedule| {
                let rates: Vec<Tensor<'_>> = asked
                    .iter()
                    .map(|&step| schedule.at(cx.scalar(f64::from(step), DType::U32)))
                    .collect();
                cx.stack(&rates, 0)
            };
            traced.iter().map(at).collect()
        },
        &[],
    );
    for (schedule, rates) in schedules.iter().zip(&results) {
        for (&step, &rate) in steps
            .iter()
            .zip(rates.as_slice::<f32>().expect("rates are f32"))
        {
            let expected = schedule.value(u64::from(step));
            let off = (f64::from(rate) - expected).abs();
            assert!(
                off <= 2e-6 * expected.abs() + 1e-8,
                "{schedule:?} at {step}: {rate} on the device, {expected} on the host"
            );
        }
    }
}
