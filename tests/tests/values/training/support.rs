//! Data, tasks and runs that the tests share.

use std::{
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use halite::{
    data::{DatasetExt, Field, InMemory, Mnist, SampleMut, Subset},
    fetch::{Bar, Cache},
    prelude::*,
    train::{
        Fitted, TrainerBuilder,
        checkpoint::{CheckpointStore, Saved},
    },
    tree::Family,
};
pub(crate) use halite_tests::eval::client;

/// A trainer on the first device, which prints nothing.
pub(crate) fn trainer() -> TrainerBuilder {
    on_all_devices().devices(client().local_devices().into_iter().take(1))
}

/// As [`trainer`], with a client of its own: other tests do not add to its counts.
pub(crate) fn counting() -> TrainerBuilder {
    let client = halite_tests::eval::open();
    let first = client.local_devices().into_iter().take(1);
    Trainer::builder(&client).quiet(true).devices(first)
}

/// A trainer on all eight devices, which prints nothing.
pub(crate) fn on_all_devices() -> TrainerBuilder {
    Trainer::builder(client()).quiet(true)
}

/// A subset of the handwritten digits, from the training data or the test data.
pub(crate) fn digits(
    of_training: bool,
    samples: impl Iterator<Item = usize>,
) -> Subset<Arc<InMemory>> {
    static DIGITS: OnceLock<[Arc<InMemory>; 2]> = OnceLock::new();
    let [train, test] = DIGITS.get_or_init(|| {
        let cache = Cache::open(None).unwrap();
        let load = |data: Result<InMemory>| {
            Arc::new(data.unwrap_or_else(|error| panic!("the tests need the digits: {error}")))
        };
        [
            load(Mnist::Digits.train(&cache, &mut Bar::default())),
            load(Mnist::Digits.test(&cache, &mut Bar::default())),
        ]
    });
    let data = if of_training { train } else { test };
    data.clone().subset(samples.collect::<Vec<_>>()).unwrap()
}

/// Points in the plane, a third of them in each of three spirals: `x: f32[2]`, `arm: u8[]`.
pub(crate) fn spirals(count: usize) -> InMemory {
    let (mut x, mut arm) = (Vec::new(), Vec::new());
    for index in 0..count {
        let along = (index as f32 * 0.618_034).fract();
        let angle = 4.0 * along + (index % 3) as f32 * std::f32::consts::TAU / 3.0;
        x.extend([along * angle.cos(), along * angle.sin()]);
        arm.push((index % 3) as u8);
    }
    in_memory(&x, [count, 2], &arm)
}

/// A dataset of these inputs and labels.
pub(crate) fn in_memory(x: &[f32], dims: impl AsRef<[usize]>, label: &[u8]) -> InMemory {
    let (x, y) = (
        HostArray::from_slice(x, dims).unwrap(),
        HostArray::from_slice(label, [label.len()]).unwrap(),
    );
    InMemory::new([("x", x), ("label", y)]).unwrap()
}

/// A network with everything that has a state of its own: running statistics, and random numbers in
/// every step.
#[derive(Tree, Clone, Debug)]
pub(crate) struct Net<L> {
    pub(crate) hidden: Vec<Linear<L>>,
    pub(crate) norm: BatchNorm<L>,
    dropout: Dropout,
    pub(crate) out: Linear<L>,
}

impl Net<Param> {
    pub(crate) fn new() -> Self {
        let hidden = vec![Linear::new(2, 32)];
        Net {
            hidden,
            norm: BatchNorm::new(32),
            dropout: Dropout::new(0.2),
            out: Linear::new(32, 3),
        }
    }
}

/// Telling the arms of the spirals apart.
pub(crate) struct Arms;

impl Task for Arms {
    type Model = Net<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Net<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let x = model
            .hidden
            .iter()
            .fold(batch.input, |x, layer| layer.forward(x).relu());
        let logits = model
            .out
            .forward(model.dropout.forward(model.norm.forward(x)));
        cx.metric(
            "accuracy",
            Mean::weighted(correct(logits, batch.target), batch.weight),
        );
        CrossEntropy::new()
            .weights(batch.weight)
            .loss(logits, batch.target)
    }
}

/// A dataset that does something when its samples are read.
pub(crate) struct Watched<D, F> {
    inner: D,
    reads: AtomicUsize,
    on_read: F,
}

impl<D: Dataset, F: Fn(usize) -> Result<()> + Send + Sync> Watched<D, F> {
    /// `on_read` gets the number of samples read before.
    pub(crate) fn new(inner: D, on_read: F) -> Self {
        Watched {
            inner,
            reads: AtomicUsize::new(0),
            on_read,
        }
    }
}

impl<D: Dataset, F: Fn(usize) -> Result<()> + Send + Sync> Dataset for Watched<D, F> {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn fields(&self) -> &[Field] {
        self.inner.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        (self.on_read)(self.reads.fetch_add(1, Ordering::Relaxed))?;
        self.inner.read(index, into)
    }
}

/// A model's arrays, by path, on the host.
pub(crate) fn values<M: Tree<Leaf = Array>>(model: &M) -> Vec<(String, HostArray)> {
    model
        .named()
        .into_iter()
        .map(|(path, array)| (path, fetched(array)))
        .collect()
}

/// An array on the host. Not by a blocking read: runs of other tests count those of the client that
/// they share.
pub(crate) fn fetched(array: &Array) -> HostArray {
    array.fetch().unwrap().wait().unwrap()
}

/// The newest checkpoint of a run.
pub(crate) fn latest(out: &Path) -> Option<Saved> {
    CheckpointStore::open_read_only(out.join("checkpoints"))
        .unwrap()
        .latest()
        .unwrap()
}

/// Why the run failed.
pub(crate) fn error_of<K: Task>(result: Result<Fitted<K>>) -> Error
where
    K::Model: Family,
{
    match result {
        Ok(fitted) => panic!("it did not fail: {}", fitted.report),
        Err(error) => error,
    }
}
