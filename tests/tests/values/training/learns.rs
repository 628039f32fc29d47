//! Training trains.

use halite::{
    models::{Classify, Mlp},
    prelude::*,
};

use crate::training::support::{
    Arms, Net, client, counting, digits, fetched, latest, spirals, trainer, values,
};

#[test]
fn two_epochs_of_mnist_reach_ninety_percent() {
    let trainer = counting().epochs(2).batch_size(32).build().unwrap();
    let model = Mlp::new(&[28 * 28, 128, 10]);
    let task = Classify::<Mlp<()>>::new;
    let fitted = trainer
        .fit(
            task(),
            model,
            Adam::new(3e-3),
            digits(true, 0..6_000),
            digits(false, (0..10_000).step_by(5)),
        )
        .unwrap();
    let report = &fitted.report;
    assert!(report.metrics["accuracy"] > 0.9, "{report}");
    assert!(report.metrics["loss"] < 0.35, "{report}");
    assert_eq!(
        (
            report.steps,
            report.epochs,
            report.step_compiles,
            report.blocking_reads
        ),
        (2 * 187, 2, 1, 0),
        "{report}"
    );
    assert!(!report.interrupted && fitted.stopped_by.is_none() && report.last_checkpoint.is_none());

    // The reported accuracy is that of the model's own predictions.
    let again = trainer
        .validate(task(), &fitted.model, digits(false, (0..10_000).step_by(5)))
        .unwrap();
    let again: Vec<(&str, f64)> = again
        .iter()
        .map(|(name, value)| (&**name, *value))
        .collect();
    assert_eq!(
        again,
        [
            ("loss", report.metrics["loss"]),
            ("accuracy", report.metrics["accuracy"])
        ]
    );
    let answers = trainer
        .predict(task(), &fitted.model, digits(false, 0..100))
        .unwrap();
    assert_eq!(answers.ty().to_string(), "s32[100]");
}

#[test]
fn running_statistics_are_saved() {
    let dir = tempfile::tempdir().unwrap();
    let trainer = trainer()
        .epochs(12)
        .batch_size(30)
        .clip_norm(1.0)
        .out(dir.path())
        .build()
        .unwrap();
    let rate = Schedule::warmup(1e-2, 20).then(Schedule::cosine(1e-2, 220));
    let fitted = trainer
        .fit(
            Arms,
            Net::new(),
            AdamW::new(rate),
            spirals(600),
            spirals(303),
        )
        .unwrap();
    let report = &fitted.report;
    // A third would be chance.
    assert!(report.metrics["accuracy"] > 0.85, "{report}");
    // Dropout makes it harder while it trains.
    assert!(
        report.train_metrics["loss"] > report.metrics["loss"],
        "{report}"
    );

    let mut saved = latest(dir.path()).unwrap();
    for (path, value) in values(&fitted.model) {
        assert_eq!(
            saved.take(&format!("model.{path}"), value.ty()).unwrap(),
            value,
            "{path}"
        );
    }
    let [mean, variance] = [&fitted.model.norm.mean, &fitted.model.norm.variance].map(fetched);
    assert!(
        mean.as_slice::<f32>()
            .unwrap()
            .iter()
            .any(|mean| mean.abs() > 1e-3)
    );
    assert!(
        variance
            .as_slice::<f32>()
            .unwrap()
            .iter()
            .all(|variance| *variance > 0.0 && *variance != 1.0)
    );
    // Two moments a parameter; statistics have none.
    let slots: Vec<&str> = saved
        .arrays()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("slots."))
        .collect();
    assert_eq!(slots.len(), 2 * 6, "{slots:?}");
}

#[test]
fn evaluation_uses_running_statistics() {
    let trainer = trainer().epochs(1).batch_size(30).build().unwrap();
    let optimizer = AdamW::new(1e-2);
    let (train, validation) = (spirals(60), spirals(30));
    let fitted = trainer.fit(Arms, Net::new(), optimizer, train, validation);
    let mut model = fitted.unwrap().model;
    let scores = |model: &Net<Array>| trainer.validate(Arms, model, spirals(303)).unwrap();
    let before = scores(&model);
    let sharding = model.norm.mean.sharding().clone();
    let shifted = HostArray::from_slice(&[5.0f32; 32], [32]).unwrap();
    model.norm.mean = Array::upload(client(), &shifted, &sharding).unwrap();
    assert_ne!(scores(&model), before);
    assert_eq!(fetched(&model.norm.mean), shifted, "they do not change");
}
