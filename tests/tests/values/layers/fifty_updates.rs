//! 50 updates by each optimizer, clipping and average, and 50 values of each schedule, compared with
//! PyTorch and Optax (`tests/golden/pytorch/optimizers.py`) in `f64`.

use std::{collections::BTreeMap, path::Path};

use halite_core::{
    DType, HostArray, Tree,
    tree::{Empty, Leaf},
};
use halite_nn::{
    Adafactor, Adagrad, Adam, AdamW, Init, Lamb, Lars, Lion, Muon, Optimizer, Param, RmsProp,
    Schedule, Sgd, Tensor, Trace, init,
    optim::{self, WeightAveraging, clip_global_norm, clip_value},
    rng,
    schedule::{Plateau, PlateauState},
};
use halite_tests::eval::eval;
use serde::Deserialize;

/// Largest difference, relative to 1 or to larger values.
const TOLERANCE: f64 = 1e-9;

type Values = BTreeMap<String, Vec<f64>>;

#[derive(Deserialize)]
struct Golden {
    shapes: BTreeMap<String, Vec<usize>>,
    /// Number of updates after which values are known.
    shown: Vec<usize>,
    params: Values,
    grads: BTreeMap<String, Vec<Vec<f64>>>,
    metrics: Vec<f64>,
    updates: BTreeMap<String, Vec<Values>>,
    schedules: Values,
}

fn golden() -> Golden {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pytorch/optimizers.json");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("the golden file is as optimizers.py writes it")
}

/// A model of named parameters.
#[derive(Clone, Debug, Tree)]
struct Model<L> {
    scalar: Option<L>,
    vector: Option<L>,
    unused: Option<L>,
    origin: Option<L>,
    matrix: Option<L>,
    tall: Option<L>,
    kernel: Option<L>,
}

impl Model<()> {
    /// The parameters of a golden case.
    fn of(values: &Values) -> Self {
        let has = |name: &str| values.contains_key(name).then_some(());
        Model {
            scalar: has("scalar"),
            vector: has("vector"),
            unused: has("unused"),
            origin: has("origin"),
            matrix: has("matrix"),
            tall: has("tall"),
            kernel: has("kernel"),
        }
    }
}

/// What is done with the gradients, and what is compared.
#[derive(Clone, Copy, Default)]
struct Options {
    clip_norm: Option<f64>,
    clip_value: Option<f64>,
    average: Option<WeightAveraging>,
}

/// Checks the values of the case `name`: the parameters, or their average.
#[track_caller]
fn check(name: &str, optimizer: impl Optimizer) {
    check_with(name, optimizer, Options::default());
}

#[track_caller]
fn check_with(name: &str, optimizer: impl Optimizer, options: Options) {
    let golden = golden();
    compare(name, &golden, &golden.updates[name], optimizer, options);
}

#[track_caller]
fn compare(
    name: &str,
    golden: &Golden,
    expected: &[Values],
    optimizer: impl Optimizer,
    options: Options,
) {
    let model = Model::of(&expected[0]).map_leaves(|path, ()| {
        Param::new(&golden.shapes[&path.to_string()], Init::Zeros).with_dtype(DType::F64)
    });
    let host = |values: &[f64], dims: &[usize]| HostArray::from_slice(values, dims).unwrap();
    let names = model.paths();
    let params = names
        .iter()
        .map(|name| host(&golden.params[name], &golden.shapes[name]));
    let grads = names.iter().map(|name| {
        let all = &golden.grads[name];
        let dims = [&[all.len()], &golden.shapes[name][..]].concat();
        host(&all.concat(), &dims)
    });
    let inputs: Vec<HostArray> = params.chain(grads).collect();
    let results = eval(
        move |cx, given| {
            let (params, grads) = given.split_at(given.len() / 2);
            let [params, grads] = [params, grads].map(|leaves| model.rebuild(leaves.to_vec()));
            trace(cx, &optimizer, &model, params, grads, options)
        },
        &inputs,
    );
    for (name_of_param, stacked) in names.iter().zip(&results) {
        let size: usize = golden.shapes[name_of_param].iter().product();
        let stacked: &[f64] = stacked.as_slice().unwrap();
        for (&step, expected) in golden.shown.iter().zip(expected) {
            let got = &stacked[(step - 1) * size..step * size];
            for (got, expected) in got.iter().zip(&expected[name_of_param]) {
                let off = (got - expected).abs();
                assert!(
                    off <= TOLERANCE * (1.0 + expected.abs()),
                    "{name}: `{name_of_param}` after {step} updates is {got}, not {expected}"
                );
            }
        }
    }
}

/// The parameters, or their averages, after each update.
fn trace<'t>(
    cx: &'t Trace,
    optimizer: &impl Optimizer,
    model: &Model<Param>,
    params: Model<Tensor<'t>>,
    grads: Model<Tensor<'t>>,
    options: Options,
) -> Vec<Tensor<'t>> {
    let key = rng::constant_key(cx, rng::key(0));
    let slots = init(cx, &optim::slots(optimizer, model), key);
    let averages = (options.average).map(|average| average.first(model, &params));
    let state = (Leaf(cx.scalar(0.0, DType::U32)), params, slots, averages);
    let (_, stacked) = cx.scan(
        state,
        grads,
        |(Leaf(step), params, slots, averages), grads| {
            let grads = match options.clip_norm {
                Some(most) => clip_global_norm(cx, model, grads, most).0,
                None => grads,
            };
            let grads = match options.clip_value {
                Some(most) => clip_value(cx, grads, most),
                None => grads,
            };
            let (params, slots) = optim::update(optimizer, cx, step, model, params, grads, slots);
            let averages = averages.map(|averages| {
                let average = options.average.unwrap();
                average.next(cx, step, model, averages, &params)
            });
            let shown = match &averages {
                Some(averages) => averages.leaves().into_iter().copied().map(Leaf).collect(),
                None => params
                    .leaves()
                    .into_iter()
                    .copied()
                    .map(Leaf)
                    .collect::<Vec<_>>(),
            };
            ((Leaf(step + 1), params, slots, averages), shown)
        },
    );
    stacked.into_iter().map(|Leaf(stacked)| stacked).collect()
}

#[test]
fn sgd_matches_for_50_updates() {
    check("sgd", Sgd::new(0.1));
    let nesterov = Sgd::new(0.05).momentum(0.8).nesterov().weight_decay(0.1);
    check("sgd.nesterov", nesterov);
    check("sgd.dampening", Sgd::new(0.05).momentum(0.8).dampening(0.3));
}

#[test]
fn adam_matches_for_50_updates() {
    check("adam", Adam::new(0.01));
    let options = Adam::new(0.1).betas(0.7, 0.9).eps(1e-3).weight_decay(0.2);
    check("adam.options", options);
    check("adamw", AdamW::new(0.01));
}

#[test]
fn rms_prop_matches_for_50_updates() {
    check("rmsprop", RmsProp::new(0.01));
    let options = RmsProp::new(0.02).alpha(0.9).eps(1e-3).momentum(0.8);
    check("rmsprop.options", options.weight_decay(0.1).centered());
}

#[test]
fn adagrad_matches_for_50_updates() {
    check("adagrad", Adagrad::new(0.01));
    let options = Adagrad::new(0.1).eps(1e-3).initial_accumulator(0.2);
    check("adagrad.options", options.weight_decay(0.1));
}

#[test]
fn adafactor_matches_for_50_updates() {
    check("adafactor", Adafactor::new(0.01));
    let options = Adafactor::new(0.3).beta2_decay(-0.5).eps(1e-4, 0.1);
    let options = options.clipping_threshold(1.2).weight_decay(0.1);
    check("adafactor.options", options);
}

#[test]
fn lion_matches_for_50_updates() {
    check("lion", Lion::new(0.01));
    check(
        "lion.options",
        Lion::new(0.02).betas(0.8, 0.9).weight_decay(0.2),
    );
}

#[test]
fn lamb_matches_for_50_updates() {
    check("lamb", Lamb::new(0.01));
    let options = Lamb::new(0.02).betas(0.8, 0.9).eps(1e-3).weight_decay(0.2);
    check("lamb.options", options);
}

#[test]
fn lars_matches_for_50_updates() {
    check("lars", Lars::new(0.1));
    let options = Lars::new(0.1).trust_coefficient(0.05).momentum(0.8);
    check("lars.options", options.nesterov().weight_decay(0.2));
}

#[test]
fn muon_matches_for_50_updates() {
    check("muon", Muon::new(0.02));
    let options = Muon::new(0.01).momentum(0.8).nesterov(false);
    check("muon.options", options.match_rms_adamw().weight_decay(0.3));
}

#[test]
fn groups_match_for_50_updates() {
    let adamw = AdamW::new(0.01).weight_decay(0.3);
    let groups = adamw
        .group("scalar|vector|unused|origin", |group| {
            group.weight_decay(0.0)
        })
        .unwrap()
        .group("kernel", |group| group.learning_rate(0.1))
        .unwrap();
    check("groups", groups);
}

#[test]
fn clipping_matches_for_50_updates() {
    let options = Options::default();
    let clip_norm = Some(1.5);
    check_with(
        "clip.norm",
        Adam::new(0.01),
        Options {
            clip_norm,
            ..options
        },
    );
    let clip_value = Some(0.7);
    check_with(
        "clip.value",
        Sgd::new(0.01),
        Options {
            clip_value,
            ..options
        },
    );
}

#[test]
fn averages_match_for_50_updates() {
    for (name, average) in [
        ("average.ema", WeightAveraging::ema(0.9)),
        (
            "average.ema_later",
            WeightAveraging::ema(0.9).start(4).every(3),
        ),
        ("average.swa", WeightAveraging::swa()),
        (
            "average.swa_later",
            WeightAveraging::swa().start(9).every(5),
        ),
    ] {
        let options = Options {
            average: Some(average),
            ..Options::default()
        };
        check_with(name, Adam::new(0.05), options);
    }
}

/// The step of the first is the gradient of the second.
#[test]
fn chain_of_a_plain_step_is_the_optimizer() {
    check("adam", Sgd::new(1.0).chain(Adam::new(0.01)));
    check("sgd", Sgd::new(0.5).chain(Sgd::new(0.2)));
}

#[test]
fn partition_updates_by_two_optimizers() {
    let golden = golden();
    let (adam, muon) = (&golden.updates["adam"], &golden.updates["muon"]);
    let expected: Vec<Values> = (adam.iter().cloned().zip(muon.iter().cloned()))
        .map(|(adam, muon)| adam.into_iter().chain(muon).collect())
        .collect();
    let optimizer = Adam::new(0.01).partition("matrix|tall", Muon::new(0.02));
    let (optimizer, options) = (optimizer.unwrap(), Options::default());
    compare("partition", &golden, &expected, optimizer, options);
}

/// One update of a `bf16` or `f16` matrix with a finite gradient, and with a NaN.
fn check_narrow(dtype: DType, optimizer: impl Optimizer + Clone) {
    let updated = |slope: f64, optimizer| {
        let model = Leaf(Param::new([2, 2], Init::Zeros).with_dtype(dtype));
        let result = eval(
            move |cx, _| {
                let key = rng::constant_key(cx, rng::key(0));
                let slots = init(cx, &optim::slots(&optimizer, &model), key);
                let param = Leaf(cx.full(0.5, &model.0.ty));
                let grads = Leaf(cx.full(slope, &model.0.ty));
                let step = cx.scalar(0.0, DType::U32);
                let (Leaf(next), _) =
                    optim::update(&optimizer, cx, step, &model, param, grads, slots);
                assert_eq!(next.dtype(), dtype);
                vec![next.convert(DType::F64)]
            },
            &[],
        );
        result[0].as_slice::<f64>().unwrap()[0]
    };
    let next = updated(0.25, optimizer.clone());
    assert!(next < 0.5 && next > 0.0, "{optimizer:?}: {next}");
    assert!(
        updated(f64::NAN, optimizer.clone()).is_nan(),
        "{optimizer:?}"
    );
}

#[test]
fn narrow_parameters_are_updated() {
    for dtype in [DType::Bf16, DType::F16] {
        check_narrow(dtype, Sgd::new(0.1).momentum(0.9).weight_decay(0.1));
        check_narrow(dtype, Adam::new(0.1));
        check_narrow(dtype, AdamW::new(0.1));
        check_narrow(dtype, RmsProp::new(0.02).centered().momentum(0.5));
        check_narrow(dtype, Adagrad::new(0.1));
        check_narrow(dtype, Adafactor::new(0.3));
        check_narrow(dtype, Lion::new(0.1));
        check_narrow(dtype, Lamb::new(0.1));
        check_narrow(dtype, Lars::new(1.0).trust_coefficient(0.1));
        check_narrow(dtype, Muon::new(0.1));
    }
}

/// Schedules with golden values, whose rates are computed from the step.
fn schedules() -> Vec<(&'static str, Schedule)> {
    vec![
        ("constant", Schedule::constant(0.1)),
        ("constant.warmup", Schedule::constant(0.1).with_warmup(10)),
        ("linear", Schedule::linear(0.1, 0.02, 25)),
        ("cosine", Schedule::cosine_to(0.1, 0.01, 50)),
        ("cosine.warmup", Schedule::cosine(0.1, 50).with_warmup(10)),
        ("step", Schedule::step_decay(0.1, 0.5, 7)),
        (
            "step.epochs",
            Schedule::step_decay(0.1, 0.5, 2).per_epoch(8),
        ),
        ("exponential", Schedule::exponential(0.1, 0.93, 1)),
        (
            "exponential.epochs",
            Schedule::exponential(0.1, 0.9, 1).per_epoch(6),
        ),
        ("one_cycle", Schedule::one_cycle(0.3, 50)),
        ("polynomial", Schedule::polynomial(0.1, 0.0, 2.0, 30)),
        ("warm_restarts", Schedule::warm_restarts(0.1, 0.01, 7, 1)),
        (
            "warm_restarts.longer",
            Schedule::warm_restarts(0.1, 0.001, 3, 2),
        ),
        ("inverse_sqrt", Schedule::inverse_sqrt(0.1, 10)),
    ]
}

#[test]
fn schedules_match_for_50_updates() {
    let golden = golden();
    let steps = golden.metrics.len();
    let all = schedules();
    assert_eq!(all.len() + 2, golden.schedules.len(), "and two plateaus");
    let traced = all.clone();
    let results = eval(
        move |cx, _| {
            let at = |schedule: &Schedule| {
                let steps = cx.arange(steps, DType::F64);
                let (_, Leaf(rates)) = cx.scan(Empty::new(), Leaf(steps), |none, Leaf(step)| {
                    (none, Leaf(schedule.at(step)))
                });
                rates
            };
            traced.iter().map(|(_, schedule)| at(schedule)).collect()
        },
        &[],
    );
    for ((name, schedule), device) in all.iter().zip(&results) {
        let device: &[f64] = device.as_slice().unwrap();
        for (step, (device, expected)) in device.iter().zip(&golden.schedules[*name]).enumerate() {
            for (place, got) in [("device", *device), ("host", schedule.value(step as u64))] {
                let off = (got - expected).abs();
                assert!(
                    off <= 1e-12,
                    "{name} at {step} on the {place}: {got}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn plateaus_match_for_50_updates() {
    let golden = golden();
    let min = Plateau {
        factor: 0.5,
        patience: 2,
        cooldown: 1,
        threshold: 0.01,
        ..Plateau::new("loss")
    };
    let max = Plateau {
        factor: 0.6,
        patience: 0,
        min_factor: 0.2,
        ..Plateau::new("accuracy")
    };
    for (name, plateau) in [("plateau", min), ("plateau.max", max)] {
        let mut state = PlateauState::new();
        for (step, expected) in golden.schedules[name].iter().enumerate() {
            let rate = 0.1 * state.factor;
            assert!(
                (rate - expected).abs() <= 1e-12,
                "{name} at {step}: {rate}, not {expected}"
            );
            state = plateau.next(&state, golden.metrics[step]);
        }
        assert!(state.factor < 0.5, "{name} reduces the rate: {state:?}");
    }
}
