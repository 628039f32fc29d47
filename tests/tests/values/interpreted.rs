//! Operations of training steps that the embedded executor has no kernel for, and computes in its
//! exact interpreter: the steps of the benchmarks and of `halite train`, on 1 and 4 devices, in each
//! precision. None is launched.
//!
//! None is left. One that appears became slow: add its kernel.

use std::{collections::BTreeSet, marker::PhantomData};

use halite::{
    DTypePolicy, MeshShape, Param, Result,
    backends::{Accelerator, OpenOptions},
    fetch::Quiet,
    models::{Classify, Cnn, LanguageModel, TrainingOptions, TrainingStep},
    nn::{Mean, Optimizer, Tensor, Trace, TransformerConfig},
    train::{GradientClip, LowerOptions, Strategy, Task, lower_step},
    tree::Family,
};
use halite_benches::{Forward, Visitor, Workload, visit};
use halite_core::{Client, CompileOptions, Program};
use halite_data::Labeled;

const STEPS: [&str; 11] = [
    "digits", "mnist", "text", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8",
];

const PRECISIONS: [DTypePolicy; 3] = [
    DTypePolicy::F32,
    DTypePolicy::BF16_MIXED,
    DTypePolicy::F16_MIXED,
];

/// The loss of a workload of the benchmarks.
struct Benchmark<M>(PhantomData<fn() -> M>);

impl<M: Forward> Task for Benchmark<M> {
    type Model = M;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _cx: &'t Trace,
        model: &M::Of<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        Mean::of(M::loss(model, batch.input, batch.target))
    }
}

/// Lowers a workload of the benchmarks.
struct Lower<'o>(&'o LowerOptions);

impl Visitor for Lower<'_> {
    type Output = Program;

    fn visit<M: Forward, O: Optimizer + Clone>(self, workload: Workload<M, O>) -> Result<Program> {
        let Workload {
            model,
            optimizer,
            x,
            y,
        } = workload;
        let batch = [x.ty().clone(), y.ty().clone()];
        let task = Benchmark::<M>(PhantomData);
        Ok(lower_step(task, model, optimizer, &batch, self.0)?.program)
    }
}

fn built_in<K: Task, O: Optimizer>(
    step: TrainingStep<K, O>,
    samples: usize,
    options: &LowerOptions,
) -> Result<Program>
where
    <K::Model as Family>::Of<Param>: Send + Sync,
{
    let options = LowerOptions {
        clip: step.clip,
        ..options.clone()
    };
    let batch = step.batch(samples);
    Ok(lower_step(step.task, step.model, step.optimizer, &batch, &options)?.program)
}

fn lower(step: &str, options: &LowerOptions) -> Result<Program> {
    let training = TrainingOptions {
        schedule: TrainingOptions::warmup_and_cosine(TrainingOptions::LEARNING_RATE, 100),
        clip: Some(GradientClip::Norm(1.0)),
    };
    let classify = |side| Classify::<Cnn<()>>::step(side, Cnn::new(side, 10), &training);
    match step {
        "digits" => built_in(classify(8), 32, options),
        "mnist" => built_in(classify(28), 64, options),
        "text" => {
            let config = TransformerConfig::gpt2(2, 64)
                .vocab_size(96)
                .context_length(32);
            built_in(LanguageModel::step(&config, &training)?, 8, options)
        }
        other => visit(other, Lower(options)),
    }
}

fn client(devices: usize) -> Client {
    let accelerator: Accelerator = format!("embedded:{devices}").parse().unwrap();
    let opened = accelerator.open_with(&OpenOptions::default(), &mut Quiet);
    opened.unwrap().client
}

/// What of a step is interpreted, by name and type.
fn interpreted(client: &Client, step: &str, precision: DTypePolicy) -> BTreeSet<String> {
    let mesh = MeshShape::new([("data", client.local_devices().len())]).unwrap();
    let options = LowerOptions {
        precision,
        capabilities: client.capabilities(),
        ..LowerOptions::new(&mesh, Strategy::default())
    };
    let program = lower(step, &options).unwrap_or_else(|error| panic!("{step}: {error}"));
    let loaded = client.compile(&program, &CompileOptions::default());
    let loaded = loaded.unwrap_or_else(|error| panic!("{step}: {error}"));
    loaded
        .interpreted()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn steps_have_kernels() {
    let (one, four) = (client(1), client(4));
    let mut found = Vec::new();
    for step in STEPS {
        for precision in PRECISIONS {
            let operations = interpreted(&one, step, precision);
            assert_eq!(
                interpreted(&four, step, precision),
                operations,
                "{step} in {precision} on 4 devices, and on 1"
            );
            for operation in operations {
                found.push(format!("{step} in {precision}: {operation}"));
            }
        }
    }
    assert!(found.is_empty(), "interpreted:\n{}", found.join("\n"));
}
