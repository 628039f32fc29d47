//! A plan is made of the program that is trained.

use halite::{
    backends::{OpenOptions, Target},
    fetch::Bar,
    models::{Classify, Mlp},
    plan,
    prelude::*,
    train::{LowerOptions, Strategy},
};

use halite_telemetry::TelemetryOptions;

use crate::training::support::digits;

const BATCH: usize = 32;

fn model() -> Mlp<Param> {
    Mlp::new(&[784, 64, 10])
}

/// Text of the training step that a trainer compiles on eight virtual CPU devices.
fn trained(strategy: &Strategy, precision: DTypePolicy) -> String {
    let directory = tempfile::tempdir().unwrap();
    let opened = Accelerator::cpu()
        .open_with(&OpenOptions::default(), &mut Bar::default())
        .unwrap();
    let devices = vec![("cpu_device_count".into(), 8i64.into())];
    let telemetry = TelemetryOptions {
        dump_dir: Some(directory.path().into()),
        ..TelemetryOptions::default()
    };
    let client = telemetry.attach(Client::new(
        opened.driver.plugin().unwrap().client(devices).unwrap(),
    ));
    Trainer::builder(&client)
        .quiet(true)
        .mesh([("data", 4), ("model", 2)])
        .strategy(strategy.clone())
        .precision(precision)
        .batch_size(BATCH)
        .epochs(1)
        .build()
        .unwrap()
        .fit(
            Classify::<Mlp<()>>::new(),
            model(),
            Adam::new(1e-3),
            digits(true, 0..BATCH),
            digits(false, 0..BATCH),
        )
        .unwrap();
    let mut files = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let step = files
        .find(|path| {
            path.to_str()
                .unwrap()
                .ends_with("-train_step.stablehlo.mlir")
        })
        .expect("a dump of the step");
    std::fs::read_to_string(step).unwrap()
}

#[test]
fn plan_for_cpus_has_the_program_that_is_trained() {
    let target = "cpu:8".parse::<Target>().unwrap();
    let target = target
        .open(&OpenOptions::default(), &mut Bar::default())
        .unwrap();
    let mesh = target.mesh([("data", 4), ("model", 2)]).unwrap();
    let strategy = "fsdp+tp".parse::<Strategy>().unwrap().min_elements(64);
    let strategy = strategy.rule("hidden.0.weight", "None, model").unwrap();
    let batch = [
        TensorType::new(DType::U8, [BATCH, 28, 28]),
        TensorType::new(DType::U8, [BATCH]),
    ];
    for precision in [DTypePolicy::BF16_MIXED, DTypePolicy::F16_MIXED] {
        let options = LowerOptions {
            precision,
            ..LowerOptions::new(&mesh, strategy.clone())
        };
        let task = Classify::<Mlp<()>>::new();
        let planned =
            plan::lower(&target, task, model(), Adam::new(1e-3), &batch, &options).unwrap();
        let planned = String::from_utf8(planned.program.code.bytes().to_vec()).unwrap();
        let trained = trained(&strategy, precision);
        let different = planned.lines().zip(trained.lines()).find(|(a, b)| a != b);
        assert_eq!(different, None, "{precision}");
        assert_eq!(planned.len(), trained.len(), "{precision}");
    }
}
