//! One model under every precision policy: results, storage on devices, and operations that stay in
//! f32.

use std::{path::Path, sync::Arc};

use halite::{
    Mesh,
    models::{Classify, Mlp},
    prelude::*,
    train::{
        LowerOptions, Strategy, TrainerBuilder,
        loggers::{CsvLog, Report, Split},
        lower_step,
    },
};
use halite_core::LossScale;

use crate::training::support::{
    Arms, Net, client, digits, error_of, fetched, latest, spirals, trainer, values,
};

fn mlp() -> Mlp<Param> {
    Mlp::new(&[28 * 28, 128, 10])
}

/// A metric of each step.
fn metric(dir: &Path, name: &str) -> Vec<f64> {
    let rows = CsvLog::resume(dir.join("metrics.csv"), u64::MAX)
        .unwrap()
        .rows()
        .unwrap();
    let of_row = |row: &halite::train::loggers::Row| {
        row.metrics
            .iter()
            .find(|(known, _)| known == name)
            .expect("it is in every row")
            .1
    };
    rows.iter()
        .filter(|row| row.split == Split::Train)
        .map(of_row)
        .collect()
}

/// The loss of each of 300 steps of 32 digits.
fn losses(trainer: TrainerBuilder) -> Vec<f64> {
    let dir = tempfile::tempdir().unwrap();
    let trainer = trainer
        .batch_size(32)
        .log_every(1)
        .out(dir.path())
        .build()
        .unwrap();
    trainer
        .fit(
            Classify::<Mlp<()>>::new(),
            mlp(),
            Adam::new(1e-3),
            digits(true, 0..300 * 32),
            digits(false, 0..32),
        )
        .unwrap();
    metric(dir.path(), "loss")
}

/// Mean of the last hundred.
fn end(losses: &[f64]) -> f64 {
    losses[losses.len() - 100..].iter().sum::<f64>() / 100.0
}

#[test]
fn every_policy_learns_as_f32_does() {
    let exact = losses(trainer());
    assert!(end(&exact) < 0.4, "{}", end(&exact));
    // Under the pure policies an update smaller than 1/256 of a weight is lost.
    for (name, mean_within, end_within) in [
        ("bf16-mixed", 0.005, 0.005),
        ("f16-mixed", 0.005, 0.005),
        ("bf16", 0.02, 0.02),
        ("use-bf16", 0.02, 0.02),
        ("downcast-bf16", 0.02, 0.02),
    ] {
        let losses = losses(trainer().precision(name.parse().unwrap()));
        let mean = exact
            .iter()
            .zip(&losses)
            .map(|(a, b)| (a - b).abs())
            .sum::<f64>()
            / exact.len() as f64;
        println!(
            "{name}: {mean:.4} from f32 on average, {:.4} and {:.4} at the end",
            end(&losses),
            end(&exact)
        );
        assert!(mean > 0.0, "{name} is not f32");
        assert!(
            mean < mean_within && (end(&losses) - end(&exact)).abs() < end_within,
            "{name}: {mean}, {}",
            end(&losses)
        );
    }
}

#[test]
fn devices_store_parameters_in_the_policys_dtype() {
    let build = || {
        trainer()
            .precision(DTypePolicy::BF16)
            .epochs(3)
            .batch_size(30)
    };
    let dir = tempfile::tempdir().unwrap();
    let fit = |trainer: TrainerBuilder| {
        trainer
            .build()?
            .fit(Arms, Net::new(), Adam::new(1e-2), spirals(300), spirals(60))
    };
    let whole = fit(build().out(dir.path())).unwrap();
    for (path, array) in whole.model.named() {
        assert_eq!(array.ty().dtype(), DType::F32, "{path}");
        let is_state = path.starts_with("norm.mean") || path.starts_with("norm.variance");
        assert_eq!(
            array.stored(),
            if is_state { DType::F32 } else { DType::Bf16 },
            "{path}"
        );
    }
    assert_eq!(whole.report.precision, "bf16");
    // A checkpoint has the declared dtypes, and a resumed run is bit-identical.
    let saved = latest(dir.path()).unwrap();
    assert!(
        saved
            .arrays()
            .all(|(_, array)| [DType::F32, DType::U32].contains(&array.dtype()))
    );
    drop(saved);
    let parts = tempfile::tempdir().unwrap();
    fit(build().epochs(1).out(parts.path())).unwrap();
    let error = error_of(fit(build()
        .out(parts.path())
        .resume(true)
        .precision(DTypePolicy::F32)))
    .to_string();
    assert!(
        error.contains("precision (--precision): saved bf16, given f32"),
        "{error}"
    );
    let parts = fit(build().out(parts.path()).resume(true)).unwrap();
    assert_eq!(values(&parts.model), values(&whole.model));
    // Inference uses the policy of its own trainer.
    let scores = |builder: TrainerBuilder| {
        let trainer = builder.build().unwrap();
        trainer.validate(Arms, &whole.model, spirals(60)).unwrap()
    };
    let [f32, bf16] = [trainer().batch_size(30), build()].map(scores);
    assert!(
        f32 != bf16 && (f32[0].1 - bf16[0].1).abs() < 0.05,
        "{f32:?} {bf16:?}"
    );
}

#[test]
fn overflowing_step_changes_nothing() {
    let policy = |first, growth_interval| DTypePolicy {
        loss_scale: Some(LossScale {
            first,
            growth_interval,
        }),
        ..DTypePolicy::F16_MIXED
    };
    let fit = |steps: usize, first, growth_interval, dir: &Path| {
        let trainer = trainer()
            .precision(policy(first, growth_interval))
            .batch_size(32)
            .log_every(1)
            .out(dir);
        let data = digits(true, 0..steps * 32);
        trainer
            .build()
            .unwrap()
            .fit(
                Classify::<Mlp<()>>::new(),
                mlp(),
                Adam::new(1e-3),
                data,
                digits(false, 0..32),
            )
            .unwrap()
    };
    // 2^30 is too much for any gradient of f16: the first steps only halve it.
    let [one, two, many] = [1, 2, 100].map(|steps| {
        let dir = tempfile::tempdir().unwrap();
        let fitted = fit(steps, 30, 20, dir.path());
        (values(&fitted.model), dir)
    });
    assert_eq!(one.0, two.0, "neither step changed a parameter");
    let factors = metric(many.1.path(), "loss_scale");
    assert_eq!(
        factors[..3],
        [30, 29, 28].map(|power| f64::from(power).exp2())
    );
    let least = factors.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(
        least < 2f64.powi(28) && factors.windows(2).any(|pair| pair[1] == 2.0 * pair[0]),
        "it shrinks, and grows: {factors:?}"
    );
    let report = Report::read(many.1.path().join("report.json")).unwrap();
    assert_eq!(report.loss_scale, factors.last().copied(), "{report}");
    let losses = metric(many.1.path(), "loss");
    assert!(losses[99] < 0.5 * losses[0], "{losses:?}");
    // The factor is part of a checkpoint.
    let saved = latest(many.1.path()).unwrap();
    let types: Vec<String> = saved
        .arrays()
        .map(|(path, array)| format!("{path} {}", array))
        .collect();
    assert!(
        types.contains(&"scale.factor f32[]".to_string())
            && types.contains(&"scale.good_steps u32[]".to_string())
    );
}

/// A product under a mixed policy is the exact sum of products of rounded factors, up to the
/// rounding of sums in `f32`.
#[test]
fn matmuls_round_operands_but_accumulate_in_f32() {
    let numbers = |count: usize, seed: usize| -> Vec<f32> {
        (0..count)
            .map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0)
            .collect()
    };
    let (x, w) = (numbers(8 * 64, 1), numbers(64 * 16, 2));
    let device = halite::Sharding::single(client().local_devices()[0]);
    let upload = |values: &[f32], dims: [usize; 2]| {
        Leaf(
            Array::upload(
                client(),
                &HostArray::from_slice(values, dims).unwrap(),
                &device,
            )
            .unwrap(),
        )
    };
    let inputs = [upload(&x, [8, 64]), upload(&w, [64, 16])];
    let product = |policy| {
        let jit = jit(client(), |_, [x, w]| [x.matmul(w)]).precision(policy);
        let [product] = jit.run(&inputs).unwrap();
        fetched(&product).as_slice::<f32>().unwrap().to_vec()
    };
    let exact = |round: &dyn Fn(f32) -> f64| -> Vec<f64> {
        let at = |row: usize, column: usize| {
            (0..64)
                .map(|k| round(x[row * 64 + k]) * round(w[k * 16 + column]))
                .sum()
        };
        (0..8 * 16).map(|i| at(i / 16, i % 16)).collect()
    };
    let furthest = |got: &[f32], expected: &[f64]| {
        got.iter()
            .zip(expected)
            .map(|(a, b)| (f64::from(*a) - b).abs())
            .fold(0.0, f64::max)
    };
    let [bf16, f16] = [
        exact(&|value| half::bf16::from_f32(value).to_f64()),
        exact(&|value| half::f16::from_f32(value).to_f64()),
    ];
    let mixed = product(DTypePolicy::BF16_MIXED);
    assert!(
        furthest(&mixed, &bf16) < 1e-5,
        "{}",
        furthest(&mixed, &bf16)
    );
    assert!(
        furthest(&mixed, &exact(&f64::from)) > 1e-3,
        "the factors are rounded"
    );
    let mixed = product(DTypePolicy::F16_MIXED);
    assert!(furthest(&mixed, &f16) < 1e-5, "{}", furthest(&mixed, &f16));
}

#[test]
fn narrow_storage_is_read_back_in_the_declared_dtype() {
    let device = halite::Sharding::single(client().local_devices()[0]);
    let host = Arc::new(HostArray::from_slice(&[1.0f32, 1.0 / 3.0, 257.0], [3]).unwrap());
    let array = Array::upload_as(client(), &host, &device, DType::Bf16).unwrap();
    let rounded = [1.0f32, 0.333_984_38, 256.0];
    assert_eq!(fetched(&array).as_slice::<f32>().unwrap(), rounded);
    assert_eq!(
        array
            .copy()
            .unwrap()
            .fetch()
            .unwrap()
            .wait()
            .unwrap()
            .as_slice::<f32>()
            .unwrap(),
        rounded
    );
    // A program under any policy accepts it with its declared dtype.
    let double = Jit::<Empty<()>, Leaf<()>, Leaf<()>>::function(client(), |_, Leaf(x)| Leaf(x + x));
    let twice = double.run(&array).unwrap();
    assert_eq!(
        (twice.ty().dtype(), twice.stored()),
        (DType::F32, DType::F32)
    );
    assert_eq!(
        fetched(&twice).as_slice::<f32>().unwrap(),
        rounded.map(|value| 2.0 * value)
    );
}

/// Lowered for TPUs without a device.
#[test]
fn sensitive_operations_stay_in_f32() {
    let mesh = Arc::new(Mesh::single(client().local_devices()[0]));
    let fields = [
        TensorType::new(DType::F32, [30, 2]),
        TensorType::new(DType::U8, [30]),
    ];
    for policy in [DTypePolicy::BF16_MIXED, DTypePolicy::USE_BF16] {
        let options = LowerOptions {
            precision: policy,
            ..LowerOptions::new(&mesh, Strategy::default())
        };
        let step = lower_step(Arms, Net::new(), Adam::new(1e-2), &fields, &options).unwrap();
        let text = String::from_utf8(step.program.code.bytes().to_vec()).unwrap();
        let lines = |op: &str| {
            text.lines()
                .filter(|line| {
                    line.contains(&format!("stablehlo.{op} "))
                        || line.contains(&format!("stablehlo.{op}("))
                })
                .collect::<Vec<_>>()
        };
        let dots = lines("dot_general");
        assert!(dots.len() >= 4, "{text}");
        assert!(dots.iter().all(|line| line.matches("xbf16>").count() == 2
            && line.contains("-> tensor<")
            && line.contains("xf32>")));
        // Between the first dense layer and the norm, and in the backward pass.
        assert!(
            lines("add")
                .iter()
                .chain(&lines("maximum"))
                .any(|line| line.contains("xbf16>")),
            "{text}"
        );
        for op in ["exponential", "log", "rsqrt", "sqrt", "reduce"] {
            let lines = lines(op);
            let fine = lines.iter().all(|line| !line.contains("bf16"));
            assert!(!lines.is_empty() && fine, "{op} under {policy}: {lines:#?}");
        }
        for (path, spec) in &step.inputs {
            let is_stored = path.starts_with("model.")
                && !path.contains("norm.mean")
                && !path.contains("norm.variance");
            let is_bf16 = is_stored && policy == DTypePolicy::USE_BF16;
            assert_eq!(
                spec.stored,
                if is_bf16 {
                    DType::Bf16
                } else {
                    spec.ty.dtype()
                },
                "{path}"
            );
        }
    }
}
