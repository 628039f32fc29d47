//! Workloads of the benchmarks: small models trained by a loop over one compiled step, without a
//! trainer. `peers/` has the same workloads for other frameworks.
#![forbid(unsafe_code)]

mod arguments;
mod clock;
mod convnext;
mod networks;
mod pairs;
mod shapes;
mod vae;
mod workloads;

use std::{collections::HashMap, sync::Arc};

pub use arguments::{Arguments, exit_code};
pub use clock::ProcessorClock;
pub use convnext::ConvNext;
use halite::{
    Array, Client, DTypePolicy, HostArray, Mesh, Param, PartitionSpec, Result, Sharding, Tree,
    nn::{ArraySpec, Function, Jit, Optimizer, Tensor, Trace, cross_entropy, grad, rng},
    train::{State, StateOptions, Strategy},
    tree::{Empty, Leaf},
};
pub use networks::{Forward, GptBlock, WideCnn};
pub use pairs::{Ratios, measure_pairs};
pub use shapes::ConvShape;
pub use vae::Vae;
pub use workloads::{Visitor, Workload, visit};

/// Convolutions of a small network, of ResNet-18 for images of 32x32, and of ResNet-50:
/// `[batch, features, size, outputs, kernel, stride]`.
pub const CONVOLUTIONS: [[usize; 6]; 24] = [
    [128, 1, 28, 32, 3, 1],
    [128, 32, 28, 64, 3, 1],
    [64, 3, 32, 64, 3, 1],
    [64, 64, 32, 64, 3, 1],
    [64, 64, 32, 128, 3, 2],
    [64, 64, 32, 128, 1, 2],
    [64, 128, 16, 128, 3, 1],
    [64, 128, 16, 256, 3, 2],
    [64, 256, 8, 256, 3, 1],
    [64, 256, 8, 512, 3, 2],
    [64, 512, 4, 512, 3, 1],
    [8, 3, 224, 64, 7, 2],
    [8, 64, 56, 64, 1, 1],
    [8, 64, 56, 256, 1, 1],
    [8, 256, 56, 64, 1, 1],
    [8, 64, 56, 64, 3, 1],
    [8, 256, 56, 512, 1, 2],
    [8, 128, 28, 128, 3, 1],
    [8, 512, 28, 128, 1, 1],
    [8, 256, 14, 1024, 1, 1],
    [8, 256, 14, 256, 3, 1],
    [8, 512, 7, 512, 3, 1],
    [4, 16, 8, 16, 3, 1],
    [1, 16, 16, 16, 3, 1],
];

type Batch = (Leaf<()>, Leaf<()>);

/// A training step as a compiled function from a state and a batch to the next state and the loss.
pub type Step<M, O> = Jit<State<M, <O as Optimizer>::Slot, ()>, Batch, Leaf<()>>;

/// [`Step`], for any device.
type StepFunction<M, O> = Function<State<M, <O as Optimizer>::Slot, ()>, Batch, Leaf<()>>;

/// The training step of a model.
fn step_function<M: Forward, O: Optimizer>() -> StepFunction<M, O> {
    StepFunction::<M, O>::new(
        |cx: &Trace, state: State<M, O::Slot, Tensor<'_>>, (Leaf(x), Leaf(y))| {
            state.set_training_mode(cx);
            let loss = M::loss(&state.model, x, y);
            let gradients = grad(loss, &state.model);
            let next = state.update(gradients);
            (next, Leaf(loss))
        },
    )
    .named("step")
}

/// A model that is trained repeatedly on one batch.
pub struct Bare<M: Forward, O: Optimizer> {
    /// The compiled step.
    pub step: Step<M, O>,
    state: Option<State<M, O::Slot, Array>>,
    batch: (Leaf<Array>, Leaf<Array>),
    loss: Option<Array>,
    parameters: usize,
    steps_per_launch: usize,
}

impl<M: Forward, O: Optimizer + Clone> Bare<M, O> {
    /// Initializes the parameters and uploads `x` and the labels `y` to the first device. The step
    /// is not compiled yet.
    ///
    /// # Errors
    /// On errors of the device.
    pub fn new(
        client: &Client,
        model: M::Of<Param>,
        optimizer: O,
        x: &HostArray,
        y: &HostArray,
    ) -> Result<Self> {
        let device = Arc::new(Mesh::single(client.local_devices()[0]));
        Self::over(
            &device,
            &Strategy::default(),
            client,
            model,
            optimizer,
            x,
            y,
        )
    }

    /// As [`new`](Self::new), sharded over a mesh.
    ///
    /// # Errors
    /// If the model or the batch cannot be split evenly; on errors of a device.
    pub fn over(
        mesh: &Arc<Mesh>,
        strategy: &Strategy,
        client: &Client,
        model: M::Of<Param>,
        optimizer: O,
        x: &HostArray,
        y: &HostArray,
    ) -> Result<Self> {
        let specs = strategy.state_specs::<M, O>(mesh, &model, &optimizer)?;
        let specs: HashMap<String, PartitionSpec> = specs
            .named()
            .into_iter()
            .map(|(path, spec)| (path, spec.spec.clone()))
            .collect();
        let (params, rule) = (model.clone(), Arc::new(optimizer));
        let first = Jit::<Empty<()>, Leaf<()>, State<M, O::Slot, ()>>::function(
            client,
            move |cx: &Trace, Leaf(key)| {
                State::initialize(cx, &params, rule.clone(), StateOptions::default(), key)
            },
        )
        .output_specs(move |path, _| specs[path].clone());
        let trained = model.leaves().into_iter().filter(|param| param.trainable);
        let parameters = trained.map(|param| param.ty.elements()).sum();
        let step = step_function::<M, O>()
            .axis_roles(strategy.axis_roles(mesh))
            .jit(client);
        let key = Array::upload(
            client,
            &HostArray::from_slice(&rng::key(0), [2])?,
            &Sharding::replicated(mesh),
        )?;
        let by_samples = Sharding::new(mesh, strategy.batch_spec(mesh))?;
        Ok(Bare {
            step,
            state: Some(first.run(&Leaf(key))?),
            batch: (
                Leaf(Array::upload(client, x, &by_samples)?),
                Leaf(Array::upload(client, y, &by_samples)?),
            ),
            loss: None,
            parameters,
            steps_per_launch: 1,
        })
    }

    /// As [`over`](Self::over) an axis `data`, with a step in which each device computes the
    /// gradients of its samples in a `shard_map`, and their means over all devices.
    ///
    /// # Errors
    /// As [`over`](Self::over).
    pub fn by_shard_map(
        mesh: &Arc<Mesh>,
        client: &Client,
        model: M::Of<Param>,
        optimizer: O,
        x: &HostArray,
        y: &HostArray,
    ) -> Result<Self> {
        let strategy = Strategy::default();
        let mut bare = Self::over(mesh, &strategy, client, model, optimizer, x, y)?;
        let mesh = mesh.clone();
        let step = StepFunction::<M, O>::new(
            move |cx: &Trace, state: State<M, O::Slot, Tensor<'_>>, (Leaf(x), Leaf(y))| {
                state.set_training_mode(cx);
                let mut inputs: Vec<_> = state.model.leaves().into_iter().copied().collect();
                let count = inputs.len();
                inputs.extend([x, y]);
                let mut specs = vec![PartitionSpec::replicated(); count];
                specs.extend([PartitionSpec::first("data"), PartitionSpec::first("data")]);
                let outputs = vec![PartitionSpec::replicated(); count + 1];
                let means = cx.shard_map(&mesh, &inputs, &specs, &outputs, |parts| {
                    let model = state.model.with_leaves(parts[..count].iter().copied());
                    let loss = M::logits(&model, parts[count]);
                    let loss = cross_entropy(loss, parts[count + 1]).mean_all();
                    let gradients = grad(loss, &model);
                    let all = [loss].into_iter().chain(gradients.into_leaves());
                    all.map(|each| each.all_reduce_mean("data")).collect()
                });
                let gradients = state.model.with_leaves(means[1..].iter().copied());
                let next = state.update(gradients);
                (next, Leaf(means[0]))
            },
        );
        bare.step = step.named("step by hand").jit(client);
        Ok(bare)
    }

    /// Traces and prints the step without compiling it; returns the length of its program in bytes.
    ///
    /// # Errors
    /// If the model has mistakes.
    pub fn lower(&self) -> Result<usize> {
        let state = self
            .state
            .as_ref()
            .expect("a step that failed ends the benchmark");
        let specs = Tree::leaf_refs(state).map_leaves(|_, array| ArraySpec::of(array));
        let batch = Tree::leaf_refs(&self.batch).map_leaves(|_, array| ArraySpec::of(array));
        Ok(self.step.lower(&specs, &batch)?.program.code.bytes().len())
    }

    /// Sets the precision, before the first step. Parameters stay in `f32`.
    pub fn precision(mut self, policy: DTypePolicy) -> Self {
        self.step = self.step.precision(policy);
        self
    }

    /// Makes each launch a loop of `steps` steps, before the first one; each on the same batch, of
    /// which there is a copy for each step.
    ///
    /// # Errors
    /// On errors of the device.
    pub fn steps_per_launch(mut self, steps: usize) -> Result<Self> {
        let stacked = |array: &Array| {
            let (batch, ty) = (array.read()?, array.ty());
            let ty = ty.with_dims([&[steps], ty.dims()].concat());
            let stacked = HostArray::from_bytes(&batch.bytes().repeat(steps), ty)?;
            let sharding = array.sharding();
            let sharding = Sharding::new(sharding.mesh(), sharding.spec().stacked())?;
            Array::upload(self.step.client(), &stacked, &sharding)
        };
        let (Leaf(x), Leaf(y)) = &self.batch;
        self.batch = (Leaf(stacked(x)?), Leaf(stacked(y)?));
        self.step = self.step.scanned(steps);
        self.steps_per_launch = steps;
        Ok(self)
    }

    /// Number of trained parameters of the model.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Queues `steps` steps, rounded up to whole launches.
    ///
    /// # Errors
    /// If a step cannot be compiled or launched.
    pub fn run(&mut self, steps: usize) -> Result<()> {
        for _ in 0..steps.div_ceil(self.steps_per_launch) {
            let state = self
                .state
                .take()
                .expect("a step that failed ends the benchmark");
            let (state, loss) = self.step.call(state, &self.batch)?;
            (self.state, self.loss) = (Some(state), Some(loss));
        }
        Ok(())
    }

    /// Waits for all queued steps, and reads the last loss.
    ///
    /// # Errors
    /// If a step failed on the device, or no step was queued.
    pub fn loss(&self) -> Result<f32> {
        if let Some(state) = &self.state {
            state.leaves().into_iter().try_for_each(Array::wait)?;
        }
        let loss = self.loss.as_ref().expect("at least one step was run");
        let losses = loss.read()?;
        let losses = losses.as_slice::<f32>()?;
        Ok(*losses.last().expect("a launch has a step or more"))
    }
}

impl<M: Forward, O: Optimizer> std::fmt::Debug for Bare<M, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bare")
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}

/// Deterministic pseudo-random data: `dims`, f32, in (-1.7, 1.7).
pub fn data(dims: &[usize]) -> HostArray {
    let count: usize = dims.iter().product();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 3.4
    };
    let values: Vec<f32> = (0..count).map(|_| next()).collect();
    HostArray::from_slice(&values, dims).expect("as many values as the dimensions say")
}

/// Pixels of images, from 0 to 1: `dims`, f32.
pub fn pixels(dims: &[usize]) -> HostArray {
    let count: usize = dims.iter().product();
    let values: Vec<f32> = (0..count)
        .map(|index| (index * 7919 % 65) as f32 / 64.0)
        .collect();
    HostArray::from_slice(&values, dims).expect("as many values as the dimensions say")
}

/// Labels below `classes`: `dims`, s32.
pub fn labels(dims: impl AsRef<[usize]>, classes: i32) -> HostArray {
    let count: usize = dims.as_ref().iter().product();
    let values: Vec<i32> = (0..count as i32)
        .map(|index| index * 7919 % classes)
        .collect();
    HostArray::from_slice(&values, dims).expect("as many values as the dimensions say")
}
