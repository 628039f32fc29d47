//! The programs of a run: initialise, step, evaluate. Each is one launch; none reads anything back.

use std::{collections::HashMap, panic::Location, sync::Arc};

use halite_core::{
    Array, Client, DType, Error, HostArray, Mesh, PartitionSpec, Result, Sharding, TensorType,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_ir::{Literal, Op};
use halite_nn::{
    ArraySpec, Jit, Mean, Optimizer, Param, Tensor, Trace, Traced, grad, init,
    optim::{self, clip_global_norm},
    rng,
};

use crate::{Metrics, Predict, State, Strategy, Task, finite};

/// The name under which the loss is reported.
pub const LOSS: &str = "loss";

/// Model family of a task, as arrays on devices.
pub(crate) type ModelArrays<K> = <<K as Task>::Model as Family>::Of<Array>;
/// Batch family of a task, as arrays on devices.
pub(crate) type BatchArrays<K> = <<K as Task>::Batch as Family>::Of<Array>;
/// A model's description.
pub(crate) type ModelParams<K> = <<K as Task>::Model as Family>::Of<Param>;
/// State of a run of this task with this optimizer.
pub(crate) type RunState<K, O, L> = State<<K as Task>::Model, <O as Optimizer>::Slot, L>;

type StepInputs<K> = (<K as Task>::Batch, Leaf<()>);
/// From a model, a batch and the window to the next window.
pub(crate) type Evaluate<K> = Jit<Empty<()>, EvaluateInputs<K>, Leaf<()>>;
type EvaluateInputs<K> = (<K as Task>::Model, (<K as Task>::Batch, Leaf<()>));

/// The compiled parts of a run.
pub(crate) struct Programs<K: Task, O: Optimizer> {
    /// From the run's key to the first state.
    pub(crate) init: Jit<Empty<()>, Leaf<()>, RunState<K, O, ()>>,
    /// From a state, a batch and the metrics' window to the next state and window.
    pub(crate) step: Jit<RunState<K, O, ()>, StepInputs<K>, Leaf<()>>,
    /// From a model, a batch and the window to the next window.
    pub(crate) evaluate: Evaluate<K>,
    /// Metrics of a training step and of an evaluation, in the order of the window.
    pub(crate) train_metrics: Window,
    pub(crate) evaluate_metrics: Window,
    /// Types and layouts of the state, in its shape.
    pub(crate) state: RunState<K, O, ArraySpec>,
}

impl<K: Task, O: Optimizer> Programs<K, O>
where
    ModelParams<K>: Send + Sync,
{
    /// # Errors
    /// All mistakes of the task's code at once.
    pub(crate) fn new(
        client: &Client,
        (mesh, strategy): (&Arc<Mesh>, &Strategy),
        task: &Arc<K>,
        params: &Arc<ModelParams<K>>,
        optimizer: &Arc<O>,
        [batch, validation]: [&<K::Batch as Family>::Of<ArraySpec>; 2],
        clip: Option<f64>,
    ) -> Result<Self> {
        let state = state_specs::<K::Model, O>(mesh, strategy, params, optimizer)?;
        let types = Tree::as_ref(&**params).map(|_, param| param.ty.clone());
        let train_metrics = discover(&**task, &types, batch, true)?;
        let evaluate_metrics = discover(&**task, &types, validation, false).map_err(|error| {
            // What was fine a moment ago is not for other types.
            let different = differences(batch, validation);
            if different.is_empty() { error } else { Error::new(error.kind(), "fit", format!("{different}: {error}")) }
        })?;
        Ok(Programs {
            init: init_program::<K, O>(client, mesh, params, optimizer, &state),
            step: step_program::<K, O>(client, mesh, task, params, optimizer, clip, &train_metrics),
            evaluate: evaluate_program(client, mesh, task, &evaluate_metrics),
            train_metrics,
            evaluate_metrics,
            state,
        })
    }

    /// Names `line` as the one that made them.
    pub(crate) fn of_line(self, line: &'static Location<'static>) -> Self {
        let Programs { init, step, evaluate, .. } = self;
        Programs { init: init.of_line(line), step: step.of_line(line), evaluate: evaluate.of_line(line), ..self }
    }
}

/// What every step of a run takes and gives: parameters by the strategy, what the optimizer keeps of a parameter as the
/// parameter, numbers whole on every device.
pub(crate) fn state_specs<F: Family, O: Optimizer>(
    mesh: &Arc<Mesh>,
    strategy: &Strategy,
    params: &F::Of<Param>,
    optimizer: &O,
) -> Result<State<F, O::Slot, ArraySpec>> {
    let specs = strategy.specs(mesh, params)?;
    let spec_of = |ty: &TensorType, spec: PartitionSpec| Ok::<_, Error>(ArraySpec::new(ty.clone(), &Sharding::new(mesh, spec)?));
    let leaves = params.leaves().into_iter().zip(specs.leaves());
    let model = leaves.map(|(param, spec)| spec_of(&param.ty, spec.clone())).collect::<Result<Vec<_>>>()?;
    let described = optim::slots(optimizer, params);
    let mut slots = Vec::new();
    for ((param, spec), slot) in params.leaves().into_iter().zip(specs.leaves()).zip(described.inner().leaves()) {
        for kept in slot.iter().flat_map(Tree::leaves) {
            let spec = if kept.ty.dims() == param.ty.dims() { spec.clone() } else { PartitionSpec::replicated() };
            slots.push(spec_of(&kept.ty, spec)?);
        }
    }
    Ok(State {
        model: params.rebuild(model),
        slots: described.rebuild(slots),
        step: spec_of(&TensorType::scalar(DType::U32), PartitionSpec::replicated())?,
        key: spec_of(&TensorType::new(DType::U32, [2]), PartitionSpec::replicated())?,
    })
}

/// Each device makes only its part of the state: the layout is that of the program's results.
fn init_program<K: Task, O: Optimizer>(
    client: &Client,
    mesh: &Arc<Mesh>,
    params: &Arc<ModelParams<K>>,
    optimizer: &Arc<O>,
    state: &RunState<K, O, ArraySpec>,
) -> Jit<Empty<()>, Leaf<()>, RunState<K, O, ()>>
where
    ModelParams<K>: Send + Sync,
{
    let (params, optimizer) = (params.clone(), optimizer.clone());
    let specs: HashMap<String, PartitionSpec> =
        state.named().into_iter().map(|(path, spec)| (path, spec.sharding.spec().clone())).collect();
    Jit::function(client, move |cx: &Trace, Leaf(key): Leaf<Tensor<'_>>| {
        let model = init(cx, &*params, rng::fold_in(key, 0));
        let slots = init(cx, &optim::slots(&*optimizer, &*params), rng::fold_in(key, 1));
        State { model, slots, step: cx.scalar(0.0, DType::U32), key: rng::fold_in(key, 2) }
    })
    .named("init")
    .on(mesh)
    .output_specs(move |path, _| specs.get(path).cloned().expect("the first state has the leaves of the state"))
}

pub(crate) fn step_program<K: Task, O: Optimizer>(
    client: &Client,
    mesh: &Arc<Mesh>,
    task: &Arc<K>,
    params: &Arc<ModelParams<K>>,
    optimizer: &Arc<O>,
    clip: Option<f64>,
    metrics: &Window,
) -> Jit<RunState<K, O, ()>, StepInputs<K>, Leaf<()>>
where
    ModelParams<K>: Send + Sync,
{
    let (task, params, optimizer, metrics) = (task.clone(), params.clone(), optimizer.clone(), metrics.clone());
    let trained: Vec<bool> = params.leaves().into_iter().map(|param| param.trainable).collect();
    Jit::new(client, move |cx: &Trace, state: RunState<K, O, Tensor<'_>>, (batch, Leaf(window))| {
        let State { model, slots, step, key } = state;
        cx.set_mode(true, Some(rng::fold_in(key, step)));
        let loss = task.loss(cx, &model, &batch);
        let gradients = grad(loss.value(), &model);
        // What is not trained has no part in the norm.
        let mut trained = trained.iter();
        let gradients = gradients.map(|_, gradient| {
            let is_trained = *trained.next().expect("a gradient for every leaf of the model");
            if is_trained { gradient } else { gradient.zeros_like() }
        });
        let gradients = match clip {
            Some(most) => clip_global_norm(cx, gradients, most).0,
            None => gradients,
        };
        let (next, slots) = optim::update(&*optimizer, cx, step, &*params, model, gradients, slots);
        let model = next.map(|_, leaf| cx.updated(leaf));
        let window = metrics.add(cx, window, loss, step);
        (State { model, slots, step: step + 1, key }, Leaf(window))
    })
    .named("train step")
    .on(mesh)
}

/// The program that scores a batch.
pub(crate) fn evaluate_program<K: Task>(client: &Client, mesh: &Arc<Mesh>, task: &Arc<K>, metrics: &Window) -> Evaluate<K> {
    let (task, metrics) = (task.clone(), metrics.clone());
    Jit::function(client, move |cx: &Trace, (model, (batch, Leaf(window)))| {
        cx.set_mode(false, None);
        let loss = task.loss(cx, &model, &batch);
        Leaf(metrics.add(cx, window, loss, cx.scalar(0.0, DType::U32)))
    })
    .named("evaluate")
    .on(mesh)
}

/// From a model and a batch to what the model answers.
pub(crate) type PredictProgram<K> = Jit<Empty<()>, (<K as Task>::Model, <K as Task>::Batch), <K as Predict>::Output>;

/// The program that answers for a batch.
pub(crate) fn predict_program<K: Predict>(client: &Client, mesh: &Arc<Mesh>, task: &Arc<K>) -> PredictProgram<K> {
    let task = task.clone();
    Jit::function(client, move |cx: &Trace, (model, batch)| {
        cx.set_mode(false, None);
        task.predict(cx, &model, &batch)
    })
    .named("predict")
    .on(mesh)
}

/// How batches of the validation data differ from those of the training data.
fn differences<T: Tree<Leaf = ArraySpec>>(batch: &T, validation: &T) -> String {
    let pairs = batch.named().into_iter().zip(validation.leaves()).filter(|((_, ours), theirs)| ours.ty != theirs.ty);
    let texts: Vec<String> = pairs
        .map(|((path, ours), theirs)| format!("`{path}` is {} in training and {} in validation", ours.ty, theirs.ty))
        .collect();
    texts.join("; ")
}

/// Which metrics a task reports, found by tracing it without running.
pub(crate) fn discover<K: Task>(
    task: &K,
    model: &<K::Model as Family>::Of<TensorType>,
    batch: &<K::Batch as Family>::Of<ArraySpec>,
    training: bool,
) -> Result<Window> {
    let cx = Trace::new();
    cx.set_mode(training, training.then(|| cx.input(TensorType::new(DType::U32, [2]), "key")));
    let model: Traced<'_, K::Model> = Tree::as_ref(model).map(|path, ty| cx.input(ty.clone(), path.to_string()));
    let batch = Tree::as_ref(batch).map(|path, spec| cx.input(spec.ty.clone(), format!("batch.{path}")));
    let loss = task.loss(&cx, &model, &batch);
    // Mistakes are told here, before anything is compiled.
    cx.check()?;
    if loss.total.rank() != 0 || loss.weight.rank() != 0 {
        let message = format!(
            "the loss is the mean of a total {} and a weight {}; both are to be scalars, as `Mean::of` and `Mean::weighted` make them",
            loss.total.ty(),
            loss.weight.ty()
        );
        return Err(Error::invalid("fit", message));
    }
    if cx.metrics().iter().any(|(name, _)| **name == *LOSS) {
        let message = format!("the task reports a metric `{LOSS}`, which is the name of what it returns; give it another name");
        return Err(Error::invalid("fit", message));
    }
    let names = std::iter::once(Arc::from(LOSS)).chain(cx.metrics().into_iter().map(|(name, _)| name));
    Ok(Window { names: names.collect() })
}

/// The metrics of several steps in one small array on the device: for each the sum of values, the sum of weights, and
/// the first step at which it was not finite.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    names: Arc<[Arc<str>]>,
}

/// What a window says of one metric.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WindowMetric {
    pub(crate) name: Arc<str>,
    pub(crate) total: f64,
    pub(crate) weight: f64,
    /// The first step, counted from 1, at which its value was not finite.
    pub(crate) bad_step: Option<u64>,
}

impl WindowMetric {
    /// The weighted mean; 0 if nothing counts.
    pub(crate) fn mean(&self) -> f64 {
        if self.weight > 0.0 { self.total / self.weight } else { 0.0 }
    }
}

impl Window {
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(names: [&str; N]) -> Self {
        Window { names: names.into_iter().map(Arc::from).collect() }
    }

    /// The metrics, in order.
    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// A window that nothing was added to.
    pub(crate) fn empty(&self) -> HostArray {
        HostArray::from_slice(&self.start(), [3 * self.names.len()]).expect("three numbers a metric")
    }

    /// What it is, and that every device of `mesh` has the whole of it.
    pub(crate) fn spec(&self, mesh: &Arc<Mesh>) -> ArraySpec {
        ArraySpec::new(self.empty().ty().clone(), &Sharding::replicated(mesh))
    }

    /// Puts an empty window on every device of `mesh`.
    pub(crate) fn upload(&self, client: &Client, mesh: &Arc<Mesh>) -> Result<Array> {
        Array::upload(client, &self.empty(), &Sharding::replicated(mesh))
    }

    /// The window of a task's evaluation, for a model that is on devices.
    pub(crate) fn discover_for<K: Task>(
        task: &K,
        model: &ModelArrays<K>,
        batch: &<K::Batch as Family>::Of<ArraySpec>,
    ) -> Result<Self> {
        let types = Tree::as_ref(model).map(|_, array| array.ty().clone());
        discover(task, &types, batch, false)
    }

    /// The means of a pass over a dataset, from its window, by name.
    ///
    /// # Errors
    /// If one is not finite.
    pub(crate) fn means(&self, window: &HostArray) -> Result<Metrics> {
        let metrics = self.read(window)?;
        finite::check_scores(&metrics)?;
        Ok(metrics.into_iter().map(|metric| (metric.name.clone(), metric.mean())).collect())
    }

    /// What a window that was read back says.
    pub(crate) fn read(&self, window: &HostArray) -> Result<Vec<WindowMetric>> {
        let values = window.as_slice::<f32>()?;
        let count = self.names.len();
        let metric = |(index, name): (usize, &Arc<str>)| {
            let bad = values[2 * count + index];
            WindowMetric {
                name: name.clone(),
                total: values[index].into(),
                weight: values[count + index].into(),
                bad_step: bad.is_finite().then(|| bad as u64 + 1),
            }
        };
        Ok(self.names.iter().enumerate().map(metric).collect())
    }

    /// The window with this step's loss and metrics.
    fn add<'t>(&self, cx: &'t Trace, window: Tensor<'t>, loss: Mean<'t>, step: Tensor<'t>) -> Tensor<'t> {
        let metrics: Vec<Mean<'t>> = std::iter::once(loss).chain(cx.metrics().into_iter().map(|(_, mean)| mean)).collect();
        let scalar = |value: Tensor<'t>| value.convert(DType::F32).reshape([1]);
        let totals = metrics.iter().map(|mean| scalar(mean.total));
        let weights = metrics.iter().map(|mean| scalar(mean.weight));
        let fine = cx.scalar(f64::INFINITY, DType::F32);
        let is_fine = |value: Tensor<'t>| value.convert(DType::F32).is_finite();
        let bad = metrics.iter().map(|mean| {
            let both = is_fine(mean.total).and(is_fine(mean.weight));
            scalar(both.select(fine, step.convert(DType::F32)))
        });
        let parts: Vec<Tensor<'t>> = totals.chain(weights).chain(bad).collect();
        let now = cx.push_one(Op::Concatenate { dim: 0 }, &parts);
        let is_sum: Vec<bool> = (0..parts.len()).map(|index| index < 2 * metrics.len()).collect();
        let is_sum = Literal::new(&is_sum, [parts.len()]).expect("one flag a number");
        cx.push_one(Op::Constant(is_sum), &[]).select(window + now, window.minimum(now))
    }

    fn start(&self) -> Vec<f32> {
        let count = self.names.len();
        (0..3 * count).map(|index| if index < 2 * count { 0.0 } else { f32::INFINITY }).collect()
    }
}

#[cfg(test)]
mod tests {
    use halite_backends::Accelerator;
    use halite_nn::{Adam, Linear};

    use super::*;

    struct Fit;

    impl Task for Fit {
        type Model = Linear<()>;
        type Batch = Leaf<()>;

        fn loss<'t>(&self, _cx: &'t Trace, model: &Linear<Tensor<'t>>, Leaf(x): &Leaf<Tensor<'t>>) -> Mean<'t> {
            Mean::of(model.forward(*x))
        }
    }

    #[test]
    fn no_device_ever_holds_a_parameter_that_is_split() {
        let client = Accelerator::Cpu { devices: Some(8) }.open().unwrap();
        let mesh = Arc::new(Mesh::new([("data", 8)], client.local_devices()).unwrap());
        let (params, adam) = (Arc::new(Linear::new(2048, 4096)), Arc::new(Adam::new(1e-3)));
        let whole: u64 = params.weight.ty.bytes() as u64;
        let memory_of = |strategy: Strategy| {
            let state = state_specs::<Linear<()>, Adam>(&mesh, &strategy, &params, &*adam).unwrap();
            let shards =
                state.leaves().into_iter().map(|spec| spec.sharding.shard_type(&spec.ty).unwrap().bytes() as u64).sum::<u64>();
            let init = init_program::<Fit, Adam>(&client, &mesh, &params, &adam, &state);
            let key = ArraySpec::new(TensorType::new(DType::U32, [2]), &Sharding::replicated(&mesh));
            init.prepare(&Empty::new(), &Leaf(key)).unwrap();
            (shards, init.with_loaded(|loaded| loaded.memory()).unwrap().unwrap())
        };
        let (shards, memory) = memory_of(Strategy::fsdp());
        assert!(shards < 3 * whole / 8 + (1 << 17), "parameter and two slots, an eighth each: {shards} of {whole}");
        // What the program gives, and the pointers to it.
        assert!((shards..shards + 4096).contains(&memory.outputs), "{shards}: {memory:?}");
        assert!(memory.temporary < whole / 4, "{whole}: {memory:?}");
        // The measure sees what it should: whole parameters are told from split ones.
        let (shards, memory) = memory_of(Strategy::data_parallel());
        assert!(shards > 3 * whole && memory.outputs >= shards, "{shards}: {memory:?}");
    }
}
