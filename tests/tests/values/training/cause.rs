//! The search for NaN and invalid labels in the data after a run has diverged.

use halite::{
    data::{Loader, LoaderOptions},
    prelude::*,
};

use crate::training::support::{error_of, in_memory, trainer};

const SAMPLES: usize = 40;
const BATCH: usize = 8;

#[derive(Tree, Clone)]
struct Net<L> {
    out: Linear<L>,
}

/// Three classes of points in the plane.
struct Points;

impl Task for Points {
    type Model = Net<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Net<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        CrossEntropy::new()
            .weights(batch.weight)
            .loss(model.out.forward(batch.input), batch.target)
    }
}

/// Points, of which one coordinate or one label is another than it should be.
fn points(x: Option<(usize, f32)>, label: Option<(usize, u8)>) -> InMemory {
    let mut xs: Vec<f32> = (0..2 * SAMPLES)
        .map(|index| (index as f32 * 0.37).sin())
        .collect();
    let mut labels: Vec<u8> = (0..SAMPLES).map(|index| (index % 3) as u8).collect();
    if let Some((at, value)) = x {
        xs[at] = value;
    }
    if let Some((at, value)) = label {
        labels[at] = value;
    }
    in_memory(&xs, [SAMPLES, 2], &labels)
}

fn fit(rate: f64, train: InMemory, validation: InMemory) -> String {
    let trainer = trainer()
        .batch_size(BATCH)
        .seed(3)
        .epochs(4)
        .build()
        .unwrap();
    let model = Net {
        out: Linear::new(2, 3),
    };
    error_of(trainer.fit(Points, model, Sgd::new(rate), train, validation)).to_string()
}

/// Step, from 1, and row at which the first epoch has this sample.
fn place(sample: usize) -> (u64, usize) {
    place_in(0, BATCH, sample)
}

/// Batch, from 1, and row at which an epoch has this sample.
fn place_in(epoch: u64, batch_size: usize, sample: usize) -> (u64, usize) {
    let index: Vec<f32> = (0..SAMPLES).map(|index| index as f32).collect();
    let data =
        InMemory::new([("index", HostArray::from_slice(&index, [SAMPLES]).unwrap())]).unwrap();
    let loader = Loader::new(data, LoaderOptions::shuffled(batch_size, 3)).unwrap();
    let batches = loader.epoch(epoch).enumerate();
    let found = batches.filter_map(|(batch, read)| {
        let rows = read.unwrap().arrays[0].as_slice::<f32>().unwrap().to_vec();
        Some((
            batch as u64 + 1,
            rows.iter().position(|&row| row == sample as f32)?,
        ))
    });
    found.last().expect("every sample is in the epoch")
}

#[track_caller]
fn assert_says(error: &str, parts: &[String]) {
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[test]
fn nan_in_the_data_is_located() {
    let (step, row) = place(17);
    for (value, text) in [
        (f32::NAN, "NaN"),
        (f32::INFINITY, "inf"),
        (f32::NEG_INFINITY, "-inf"),
    ] {
        let error = fit(
            0.1,
            points(Some((2 * 17 + 1, value)), None),
            points(None, None),
        );
        assert!(
            error.starts_with(&format!("fit: `loss` is not finite at step {step}; ")),
            "{error}"
        );
        let place =
            format!("field `x` has {text} at [{row}, 1] of the batch, in sample 17 of the dataset");
        assert_says(
            &error,
            &[
                "The data is the cause: ".into(),
                place,
                format!("(epoch 0, batch {})", step - 1),
            ],
        );
        assert!(!error.contains("A smaller learning rate"), "{error}");
    }
}

#[test]
fn invalid_label_is_located() {
    let (step, row) = place(23);
    let error = fit(0.1, points(None, Some((23, 7))), points(None, None));
    assert!(
        error.starts_with(&format!("fit: `loss` is not finite at step {step}; ")),
        "{error}"
    );
    let place = format!("at [{row}] of the batch, in sample 23 of the dataset");
    let what =
        "field `label` has the label 7, and the loss at tests/tests/values/training/cause.rs:";
    assert_says(
        &error,
        &[what.into(), "has 3 classes, 0 to 2,".into(), place],
    );
    assert!(!error.contains("A smaller learning rate"), "{error}");
}

#[test]
fn divergence_is_distinguished_from_bad_data() {
    let error = fit(1e38, points(None, None), points(None, None));
    let cause =
        "The batch of that step is finite, and every label is valid: the model has diverged";
    assert_says(
        &error,
        &[
            "fit: `loss` is not finite at step".into(),
            cause.into(),
            "A smaller learning rate".into(),
        ],
    );
}

#[test]
fn validation_names_bad_data() {
    let error = fit(0.1, points(None, None), points(None, Some((30, 200))));
    let what =
        "validate: `loss` is not finite: the data is the cause: field `label` has the label 200";
    assert_says(
        &error,
        &[
            what.into(),
            "at [6] of the batch, in sample 30 of the dataset".into(),
        ],
    );
}

#[test]
fn rejected_checkpoint_names_bad_data() {
    let dir = tempfile::tempdir().unwrap();
    let trainer = trainer()
        .batch_size(BATCH)
        .seed(3)
        .epochs(1)
        .checkpoint_every(1)
        .out(dir.path())
        .build()
        .unwrap();
    let model = Net {
        out: Linear::new(2, 3),
    };
    let bad = points(Some((2 * 17, f32::NAN)), None);
    let error =
        error_of(trainer.fit(Points, model, Sgd::new(0.1), bad, points(None, None))).to_string();
    assert_says(
        &error,
        &[
            "field `x` has NaN".into(),
            "in sample 17 of the dataset".into(),
        ],
    );
}

#[test]
fn bad_data_is_found_after_a_change_of_the_batch_size() {
    let dir = tempfile::tempdir().unwrap();
    let run = |epochs, batch_size, data| {
        let trainer = trainer().seed(3).epochs(epochs).batch_size(batch_size);
        let trainer = trainer.out(dir.path()).resume(epochs > 1);
        let trainer = match epochs {
            1 => trainer,
            _ => trainer.allow_changes(["all"]),
        };
        let model = Net {
            out: Linear::new(2, 3),
        };
        let trainer = trainer.build().unwrap();
        trainer.fit(Points, model, Sgd::new(0.1), data, points(None, None))
    };
    run(1, BATCH, points(None, None)).unwrap();
    let bad = points(Some((2 * 17, f32::NAN)), None);
    let error = error_of(run(2, BATCH / 2, bad)).to_string();
    let (batch, row) = place_in(1, BATCH / 2, 17);
    assert_says(
        &error,
        &[
            format!("field `x` has NaN at [{row}, 0] of the batch, in sample 17 of the dataset"),
            format!("(epoch 1, batch {})", batch - 1),
        ],
    );
}

#[test]
fn loss_without_a_path_to_a_parameter_is_refused() {
    struct Cut;

    impl Task for Cut {
        type Model = Net<()>;
        type Batch = Labeled<()>;

        fn loss<'t>(
            &self,
            _: &'t Trace,
            model: &Net<Tensor<'t>>,
            batch: &Labeled<Tensor<'t>>,
        ) -> Mean<'t> {
            Mean::weighted(
                model.out.forward(batch.input).argmax(1).convert(DType::F32),
                batch.weight,
            )
        }
    }

    let trainer = trainer().batch_size(BATCH).build().unwrap();
    let model = Net {
        out: Linear::new(2, 3),
    };
    let error = error_of(trainer.fit(
        Cut,
        model,
        Sgd::new(0.1),
        points(None, None),
        points(None, None),
    ))
    .to_string();
    let parts = [
        "training/cause.rs:",
        "grad: the loss, computed at",
        "depends on none of `model.out.weight` (f32[2, 3])",
    ];
    assert_says(&error, &parts.map(String::from));
    assert!(!error.contains("train/src"), "{error}");
}

#[test]
fn integer_state_needs_no_gradient() {
    #[derive(Tree)]
    struct Counting<L> {
        out: Linear<L>,
        count: L,
    }

    struct Count;

    impl Task for Count {
        type Model = Counting<()>;
        type Batch = Labeled<()>;

        fn loss<'t>(
            &self,
            cx: &'t Trace,
            model: &Counting<Tensor<'t>>,
            batch: &Labeled<Tensor<'t>>,
        ) -> Mean<'t> {
            cx.update(model.count, model.count + 1);
            CrossEntropy::new()
                .weights(batch.weight)
                .loss(model.out.forward(batch.input), batch.target)
        }
    }

    let trainer = trainer().batch_size(BATCH).build().unwrap();
    let model = Counting {
        out: Linear::new(2, 3),
        count: Param::state([], Init::Zeros).with_dtype(DType::S32),
    };
    let fitted = trainer
        .fit(
            Count,
            model,
            Sgd::new(0.1),
            points(None, None),
            points(None, None),
        )
        .unwrap();
    let count = fitted.model.count.fetch().unwrap().wait().unwrap();
    assert_eq!(count.as_slice::<i32>().unwrap(), [(SAMPLES / BATCH) as i32]);
}

#[test]
fn model_without_trained_parameters_is_refused() {
    let trainer = trainer().batch_size(BATCH).build().unwrap();
    let model = Net {
        out: Linear::new(2, 3).map_leaves(|_, param| param.frozen()),
    };
    let error = error_of(trainer.fit(
        Points,
        model,
        Sgd::new(0.1),
        points(None, None),
        points(None, None),
    ))
    .to_string();
    assert_says(&error, &["fit: the model has no trained parameter".into()]);
}

#[derive(Tree)]
struct Spare<L> {
    used: Linear<L>,
    spare: Linear<L>,
}

/// [`Points`], with a layer that nothing uses.
struct Half;

impl Task for Half {
    type Model = Spare<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Spare<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        CrossEntropy::new()
            .weights(batch.weight)
            .loss(model.used.forward(batch.input), batch.target)
    }
}

#[test]
fn unused_parameters_do_not_decay_in_a_run() {
    let spare = |clip: Option<f64>, epochs: u64| {
        let mut trainer = trainer().batch_size(BATCH).epochs(epochs);
        if let Some(clip) = clip {
            trainer = trainer.clip_norm(clip);
        }
        let model = Spare {
            used: Linear::new(2, 3),
            spare: Linear::new(2, 3),
        };
        let adam = AdamW::new(0.1).weight_decay(0.5);
        let fitted = trainer
            .build()
            .unwrap()
            .fit(Half, model, adam, points(None, None), points(None, None))
            .unwrap();
        [fitted.model.used.weight, fitted.model.spare.weight]
            .map(|array| array.fetch().unwrap().wait().unwrap())
    };
    let (first, later, clipped) = (spare(None, 1), spare(None, 2), spare(Some(0.1), 2));
    assert_ne!(first[0], later[0]);
    assert_eq!(first[1], later[1]);
    assert_eq!(first[1], clipped[1]);
}
