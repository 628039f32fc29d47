//! One model on one device and on eight, with every sharding strategy.

use std::{path::Path, sync::Arc};

use halite::{
    DeviceId, Mesh,
    models::{Classify, Cnn, ImageModel, LanguageModel, Mlp},
    prelude::*,
    train::{
        LowerOptions, Strategy, TrainerBuilder,
        loggers::{CsvLog, Row, Split},
        lower_step,
    },
    tree::Family,
};

use halite_core::CompileOptions;
use halite_tests::long::part;

use crate::training::support::{client, digits, error_of, latest, on_all_devices, trainer, values};

const STEPS: usize = 50;
const BATCH: usize = 16;

/// Changes of a run, and the tolerance of its losses relative to those of one device.
struct Configuration {
    name: &'static str,
    change: fn(TrainerBuilder) -> TrainerBuilder,
    within: f64,
}

/// A strategy by its name, on these axes.
fn laid_out<const N: usize>(
    trainer: TrainerBuilder,
    strategy: &str,
    axes: [(&'static str, usize); N],
) -> TrainerBuilder {
    // Small parameters too.
    let strategy: Strategy = strategy.parse().unwrap();
    let count = axes.iter().map(|(_, size)| size).product();
    trainer
        .devices(client().local_devices().into_iter().take(count))
        .mesh(axes)
        .strategy(strategy.min_elements(64))
}

const CONFIGURATIONS: &[Configuration] = &[
    Configuration {
        name: "cpu x8, data parallel",
        change: |t| laid_out(t, "dp", [("data", 8)]),
        within: 1e-5,
    },
    Configuration {
        name: "cpu x8, FSDP",
        change: |t| laid_out(t, "fsdp", [("data", 8)]),
        within: 1e-5,
    },
    Configuration {
        name: "cpu 2x4, FSDP in groups",
        change: |t| laid_out(t, "fsdp", [("data", 2), ("fsdp", 4)]),
        within: 1e-5,
    },
    Configuration {
        name: "cpu 2x4, data x tensor",
        change: |t| laid_out(t, "dp+tp", [("data", 2), ("model", 4)]),
        within: 1e-5,
    },
    Configuration {
        name: "cpu 4x2, FSDP x tensor",
        change: |t| laid_out(t, "fsdp+tp", [("data", 4), ("model", 2)]),
        within: 1e-5,
    },
    // With other rounding, single losses of the steep part of the curve differ more: `precision`
    // compares means.
    Configuration {
        name: "cpu x8, FSDP, bf16-mixed",
        change: |t| laid_out(t, "fsdp", [("data", 8)]).precision(DTypePolicy::BF16_MIXED),
        within: 0.3,
    },
    Configuration {
        name: "cpu 2x4, data x tensor, bf16",
        change: |t| laid_out(t, "dp+tp", [("data", 2), ("model", 4)]).precision(DTypePolicy::BF16),
        within: 0.3,
    },
];

/// The loss of each step of an epoch over `data`.
fn losses<K: Task>(
    task: K,
    model: <K::Model as Family>::Of<Param>,
    data: [impl Dataset + 'static; 2],
    trainer: TrainerBuilder,
) -> Vec<f64>
where
    <K::Model as Family>::Of<Param>: Send + Sync,
{
    let dir = tempfile::tempdir().unwrap();
    let trainer = trainer
        .batch_size(BATCH)
        .log_every(1)
        .out(dir.path())
        .build()
        .unwrap();
    let [train, validation] = data;
    trainer
        .fit(task, model, Adam::new(1e-3), train, validation)
        .unwrap_or_else(|error| panic!("{error}"));
    let rows = CsvLog::resume(dir.path().join("metrics.csv"), STEPS as u64)
        .unwrap()
        .rows()
        .unwrap();
    let loss = |row: Row| {
        row.metrics
            .into_iter()
            .find(|(name, _)| name == "loss")
            .expect("every row has a loss")
            .1
    };
    rows.into_iter()
        .filter(|row| row.split == Split::Train)
        .map(loss)
        .collect()
}

fn the_losses_agree<'a, K: Task, D: Dataset + 'static>(
    task: fn() -> K,
    model: fn() -> <K::Model as Family>::Of<Param>,
    data: fn() -> D,
    configurations: impl IntoIterator<Item = &'a Configuration>,
) where
    <K::Model as Family>::Of<Param>: Send + Sync,
{
    let losses = |trainer| losses(task(), model(), [data(), data()], trainer);
    let one = losses(trainer());
    assert_eq!(one.len(), STEPS);
    assert!(one[STEPS - 1] < 0.7 * one[0], "it learns: {one:?}");
    for Configuration {
        name,
        change,
        within,
    } in configurations
    {
        let many = losses(change(trainer()));
        assert_eq!(many.len(), STEPS, "{name}");
        let distances = one.iter().zip(&many).map(|(one, many)| (one - many).abs());
        let (step, worst) = distances
            .enumerate()
            .max_by(|(_, a), (_, b)| a.total_cmp(b))
            .unwrap();
        println!("{name}: {worst:.1e} at step {step}");
        assert!(
            worst <= *within,
            "{name}: step {step}: {} on one device, {} so",
            one[step],
            many[step]
        );
    }
}

fn images() -> impl Dataset {
    digits(true, 0..STEPS * BATCH)
}

/// A multi-layer perceptron with smooth activations.
///
/// Sharding changes the order of sums, as does the number of threads of a machine, by a rounding or
/// two. A ReLU or a maximum that is this close to its kink then takes the other side, and its
/// gradient jumps. Among millions of them some do (losses of [`Cnn`] differed by 6.5e-3 over 24
/// threads). With smooth activations, rounding errors stay small on every machine.
#[derive(Tree)]
struct Smooth<L> {
    hidden: Vec<Linear<L>>,
    out: Linear<L>,
}

impl Smooth<Param> {
    fn new() -> Self {
        Smooth {
            hidden: vec![Linear::new(28 * 28, 128), Linear::new(128, 64)],
            out: Linear::new(64, 10),
        }
    }
}

impl ImageModel for Smooth<()> {
    fn logits<'t>(model: &Smooth<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t> {
        model.out.forward(
            model
                .hidden
                .iter()
                .fold(images.flatten_from(1), |x, layer| layer.forward(x).gelu()),
        )
    }
}

#[test]
fn dense_network_has_the_same_losses_on_every_mesh() {
    the_losses_agree(
        Classify::<Smooth<()>>::new,
        Smooth::new,
        images,
        part(CONFIGURATIONS, &[2, 5]),
    );
}

/// The layers of [`Cnn`], with smooth activations.
#[derive(Tree)]
struct SmoothCnn<L> {
    layers: Cnn<L>,
}

impl ImageModel for SmoothCnn<()> {
    fn logits<'t>(SmoothCnn { layers }: &SmoothCnn<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t> {
        let x = layers
            .conv1
            .forward(images.unsqueeze(3))
            .avg_pool([2, 2], [2, 2], Padding::Valid)
            .gelu();
        let x = layers
            .conv2
            .forward(x)
            .avg_pool([2, 2], [2, 2], Padding::Valid)
            .gelu();
        layers
            .out
            .forward(layers.hidden.forward(x.flatten_from(1)).gelu())
    }
}

#[test]
fn convolutions_have_the_same_losses_on_every_mesh() {
    the_losses_agree(
        Classify::<SmoothCnn<()>>::new,
        || SmoothCnn {
            layers: Cnn::new(28, 10),
        },
        images,
        part(CONFIGURATIONS, &[3]),
    );
}

#[test]
fn networks_with_kinks_have_the_same_losses_but_for_those() {
    let change: fn(TrainerBuilder) -> TrainerBuilder =
        |t| laid_out(t, "fsdp+tp", [("data", 4), ("model", 2)]);
    let configuration = [Configuration {
        name: "cpu 4x2, FSDP x tensor",
        change,
        within: 0.05,
    }];
    the_losses_agree(
        Classify::<Mlp<()>>::new,
        || Mlp::new(&[28 * 28, 128, 64, 10]),
        images,
        &configuration,
    );
    the_losses_agree(
        Classify::<Cnn<()>>::new,
        || Cnn::new(28, 10),
        images,
        &configuration,
    );
}

/// Windows of consecutive numbers, each from another start.
fn counting() -> impl Dataset {
    let tokens: Vec<u32> = (0..STEPS * BATCH)
        .flat_map(|start| (0..9).map(move |at| ((start * 7 + at) % 64) as u32))
        .collect();
    InMemory::new([(
        "tokens",
        HostArray::from_slice(&tokens, [STEPS * BATCH, 9]).unwrap(),
    )])
    .unwrap()
}

#[test]
fn transformer_has_the_same_losses_on_every_mesh() {
    let model = || {
        let config = TransformerConfig {
            hidden_size: 32,
            heads: 4,
            kv_heads: 4,
            ..TransformerConfig::tiny()
        };
        Transformer::new(&config).unwrap()
    };
    the_losses_agree(
        || LanguageModel,
        model,
        counting,
        part(CONFIGURATIONS, &[4]),
    );
}

#[test]
fn each_device_is_given_what_the_layouts_say() {
    let devices: Vec<DeviceId> = client().local_devices();
    let fields = [
        TensorType::new(DType::U8, [64, 28, 28]),
        TensorType::new(DType::U8, [64]),
    ];
    for (strategy, axes, parts) in [
        ("fsdp", [("data", 4), ("fsdp", 2)], 2),
        ("dp+tp", [("data", 2), ("model", 4)], 4),
        ("fsdp+tp", [("data", 4), ("model", 2)], 8),
    ] {
        let mesh = Arc::new(Mesh::new(axes, devices.iter().copied()).unwrap());
        let options = LowerOptions::new(&mesh, strategy.parse().unwrap());
        let step = lower_step(
            Classify::<Cnn<()>>::new(),
            Cnn::new(28, 10),
            Adam::new(1e-3),
            &fields,
            &options,
        )
        .unwrap();
        let loaded = client()
            .compile(
                &step.program,
                &CompileOptions {
                    devices: devices.clone(),
                    ..CompileOptions::default()
                },
            )
            .unwrap();
        let memory = loaded.memory().unwrap();
        let bytes = |types: &[(String, ShardedType)]| -> usize {
            types
                .iter()
                .map(|(_, ty)| ty.shard_type(&mesh).unwrap().bytes())
                .sum()
        };
        assert_eq!(memory.arguments, bytes(&step.inputs) as u64, "{strategy}");
        let state = &step.outputs[..step.outputs.len() - 1];
        assert_eq!(
            memory.aliased,
            bytes(state) as u64,
            "{strategy}: the state takes the place of the old one"
        );
        // The first dense layer and its slots, nearly all of the memory, are sharded over the axes
        // of parameters.
        let whole: usize = step.inputs.iter().map(|(_, spec)| spec.ty.bytes()).sum();
        assert!(
            bytes(&step.inputs) * parts < whole * 11 / 10,
            "{strategy}: {} of {whole}",
            bytes(&step.inputs)
        );
    }
}

/// A run of this many epochs in `dir`, resumed if it exists.
fn epochs(
    count: u64,
    dir: &Path,
    change: impl FnOnce(TrainerBuilder) -> TrainerBuilder,
) -> halite::train::Fitted<Classify<Smooth<()>>> {
    let trainer = change(
        trainer()
            .epochs(count)
            .batch_size(BATCH)
            .seed(3)
            .resume(true)
            .out(dir),
    )
    .build()
    .unwrap();
    let task = Classify::<Smooth<()>>::new();
    trainer
        .fit(
            task,
            Smooth::new(),
            Adam::new(1e-3),
            digits(true, 0..320),
            digits(false, 0..64),
        )
        .unwrap()
}

#[test]
fn checkpoint_resumes_with_another_sharding() {
    let whole = tempfile::tempdir().unwrap();
    let expected = epochs(3, whole.path(), |t| t);
    let dir = tempfile::tempdir().unwrap();
    let first = epochs(1, dir.path(), |t| {
        laid_out(t, "fsdp+tp", [("data", 4), ("model", 2)])
    });
    let saved = values(&first.model);
    let mut checkpoint = latest(dir.path()).unwrap();
    for (path, value) in &saved {
        assert_eq!(
            &checkpoint
                .take(&format!("model.{path}"), value.ty())
                .unwrap(),
            value,
            "a checkpoint holds whole arrays"
        );
    }
    // No step is left: the restored state equals the saved one, bit for bit, with any sharding.
    for change in [(|t| t) as fn(TrainerBuilder) -> TrainerBuilder, |t| {
        laid_out(t, "fsdp", [("fsdp", 8)])
    }] {
        let again = epochs(1, dir.path(), change);
        assert_eq!(again.report.steps, 20);
        assert_eq!(values(&again.model), saved);
    }
    let second = epochs(2, dir.path(), |t| laid_out(t, "dp", [("data", 2)]));
    assert_eq!(
        (second.report.resumed_from_step, second.report.devices),
        (Some(20), 2)
    );
    let third = epochs(3, dir.path(), |t| laid_out(t, "fsdp", [("data", 8)]));
    assert_eq!(
        (third.report.resumed_from_step, third.report.steps),
        (Some(40), 60)
    );
    for (name, value) in &expected.report.metrics {
        let reached = third.report.metrics[name];
        assert!(
            (reached - value).abs() < 1e-5,
            "{name}: {reached}, and {value} on one device throughout"
        );
    }
}

/// A model with sharding constraints.
struct Constrained;

impl Task for Constrained {
    type Model = Smooth<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _cx: &'t Trace,
        model: &Smooth<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let x = (batch.input.convert(DType::F32) / 255.0).flatten_from(1);
        let x = model.hidden.iter().fold(x, |x, layer| {
            layer
                .forward(x)
                .gelu()
                .sharding_constraint([Some("data"), Some("model")])
        });
        // Ten classes over four devices: parts need not be equal inside a program.
        let logits = model
            .out
            .forward(x)
            .sharding_constraint([Some("data"), Some("model")]);
        CrossEntropy::new()
            .weights(batch.weight)
            .loss(logits, batch.target)
    }
}

#[test]
fn sharding_constraints_change_no_losses() {
    let loss = |change: fn(TrainerBuilder) -> TrainerBuilder| {
        let trainer = change(trainer().batch_size(BATCH)).build().unwrap();
        let fitted = trainer
            .fit(
                Constrained,
                Smooth::new(),
                Sgd::new(0.1),
                digits(true, 0..320),
                digits(false, 0..64),
            )
            .unwrap();
        fitted.report.metrics["loss"]
    };
    let one = loss(|t| t);
    // Without the axis `model`, with it, and with another sharding of the parameters.
    let layouts: [fn(TrainerBuilder) -> TrainerBuilder; 3] = [
        |t| laid_out(t, "dp", [("data", 8)]),
        |t| laid_out(t, "dp+tp", [("data", 2), ("model", 4)]),
        |t| laid_out(t, "fsdp+tp", [("data", 4), ("model", 2)]),
    ];
    for layout in layouts {
        assert!(
            (loss(layout) - one).abs() < 1e-5,
            "{} and {one}",
            loss(layout)
        );
    }
}

#[test]
fn indivisible_mesh_is_rejected_with_the_numbers() {
    let error = |trainer: TrainerBuilder| trainer.build().unwrap_err().to_string();
    let devices = |count: usize| client().local_devices()[..count].to_vec();
    let cases = [
        (
            on_all_devices()
                .mesh([("data", 4), ("model", 4)])
                .strategy("dp+tp".parse().unwrap()),
            "mesh: mesh(data=4, model=4) needs 16 devices, but 8 were given",
        ),
        (
            trainer().mesh([("data", 2)]).devices(devices(3)),
            "mesh: mesh(data=2) needs 2 devices, but 3 were given",
        ),
        (
            on_all_devices().mesh([("data", 2), ("model", 4)]),
            "strategy: `dp` splits nothing over the axis `model` of mesh(data=2, model=4): \
             each part of the batch would be on 4 of its 8 devices, which compute the same; `tp` \
             splits parameters over it",
        ),
        (
            laid_out(trainer(), "dp+tp", [("data", 4), ("model", 2)]).batch_size(30),
            "trainer: `batch_size` 30 is not divisible by 4 parts, (data) on mesh(data=4, \
             model=2); 28 and 32 would be",
        ),
        (
            on_all_devices().batch_size(30),
            "trainer: `batch_size` 30 is not divisible by 8 devices; 24 and 32 would be",
        ),
        (
            on_all_devices().strategy("fsdp+tp".parse().unwrap()),
            "trainer: `fsdp+tp` on 8 devices needs a mesh, such as `.mesh([(\"data\", 2), \
             (\"model\", 4)])`, --mesh data=2,model=4",
        ),
    ];
    for (trainer, expected) in cases {
        assert_eq!(error(trainer), expected);
    }
}

#[test]
fn indivisible_parameter_is_rejected_with_the_numbers() {
    let strategy = Strategy::data_parallel()
        .and(Strategy::tensor_parallel())
        .rule("out.weight", "None, model")
        .unwrap();
    let refused = on_all_devices()
        .mesh([("data", 2), ("model", 4)])
        .strategy(strategy)
        .build()
        .unwrap();
    let refused = refused.fit(
        Classify::<Mlp<()>>::new(),
        Mlp::new(&[784, 64, 10]),
        Sgd::new(0.1),
        digits(true, 0..256),
        digits(false, 0..8),
    );
    assert_eq!(
        error_of(refused).to_string(),
        "strategy: `dp+tp` on mesh(data=2, model=4): `out.weight` (f32[64, 10]): rule `out.weight`: dimension 1 of f32[64, 10] is \
         split 4 ways by (None, model) on mesh(data=2, model=4), and 10 is not a multiple of 4"
    );
}
