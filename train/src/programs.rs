//! The programs of a run: initialise, step, evaluate. Each is one launch; none reads anything back.

use std::{collections::HashMap, panic::Location, sync::Arc};

use halite_core::{
    Array, Client, DType, DTypePolicy, Error, HostArray, Mesh, PartitionSpec, Result, Sharding,
    TensorType,
    tree::{Empty, Family, Leaf, Path, Tree},
};
use halite_data::Loader;
use halite_ir::{Literal, Op};
use halite_nn::{
    ArraySpec, ClassTarget, Jit, Mean, Optimizer, Param, Tensor, Trace, Traced, grad, init,
    optim::{self, clip_global_norm},
    rng,
};

use crate::{
    MetricValues, Predict, Scaling, State, Strategy, Task,
    cause::{self, Batches, Cause, Target},
    finite,
    loss_scale::{LOSS_SCALE, all_finite},
    lower::check_sizes,
};

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

/// What a step does besides its task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepOptions {
    /// The most that the global norm of the gradients may be.
    pub(crate) clip_norm: Option<f64>,
    pub(crate) precision: DTypePolicy,
}

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
        options: StepOptions,
    ) -> Result<Self> {
        let precision = options.precision;
        if !params.leaves().into_iter().any(|param| param.trainable) {
            let message = "the model has no trained parameter: every leaf is state, or `frozen`, so nothing would be learned; \
                           score it with `validate`";
            return Err(Error::invalid("fit", message));
        }
        let state = state_specs::<K::Model, O>(mesh, strategy, params, optimizer, &precision)?;
        let types = Tree::as_ref(&**params).map(|_, param| param.ty.clone());
        let train_metrics = discover(&**task, &types, batch, true)?.of_step(&precision);
        let evaluate_metrics = discover(&**task, &types, validation, false).map_err(|error| {
            // What was fine a moment ago is not for other types.
            let different = differences(batch, validation);
            if different.is_empty() {
                error
            } else {
                Error::new(error.kind(), "fit", format!("{different}: {error}"))
            }
        })?;
        Ok(Programs {
            init: init_program::<K, O>(client, mesh, params, optimizer, (&state, precision)),
            step: step_program::<K, O>(
                client,
                mesh,
                task,
                params,
                optimizer,
                options,
                &train_metrics,
            ),
            evaluate: evaluate_program(client, mesh, task, &evaluate_metrics).precision(precision),
            train_metrics,
            evaluate_metrics,
            state,
        })
    }

    /// Names `line` as the one that made them.
    pub(crate) fn of_line(self, line: &'static Location<'static>) -> Self {
        let Programs {
            init,
            step,
            evaluate,
            ..
        } = self;
        Programs {
            init: init.of_line(line),
            step: step.of_line(line),
            evaluate: evaluate.of_line(line),
            ..self
        }
    }
}

/// What every step of a run takes and gives: parameters by the strategy, what the optimizer keeps
/// of a parameter as the parameter, numbers whole on every device.
pub(crate) fn state_specs<F: Family, O: Optimizer>(
    mesh: &Arc<Mesh>,
    strategy: &Strategy,
    params: &F::Of<Param>,
    optimizer: &O,
    precision: &DTypePolicy,
) -> Result<State<F, O::Slot, ArraySpec>> {
    check_sizes(
        "model",
        params
            .named()
            .into_iter()
            .map(|(path, param)| (path, &param.ty)),
    )?;
    let specs = strategy.specs(mesh, params)?;
    let spec_of = |ty: &TensorType, spec: PartitionSpec| {
        Ok::<_, Error>(ArraySpec::new(ty.clone(), &Sharding::new(mesh, spec)?))
    };
    let leaves = params.leaves().into_iter().zip(specs.leaves());
    let model = leaves.map(|(param, spec)| {
        let stored = if param.trainable {
            precision.stored(param.ty.dtype())
        } else {
            param.ty.dtype()
        };
        Ok(spec_of(&param.ty, spec.clone())?.stored_as(stored))
    });
    let model = model.collect::<Result<Vec<_>>>()?;
    let scale = match precision.loss_scale {
        Some(_) => Some(
            Scaling::<()>::types().try_map(&mut Path::default(), &mut |_, ty| {
                spec_of(&ty, PartitionSpec::replicated())
            })?,
        ),
        None => None,
    };
    let described = optim::slots(optimizer, params);
    let mut slots = Vec::new();
    for ((param, spec), slot) in params
        .leaves()
        .into_iter()
        .zip(specs.leaves())
        .zip(described.inner().leaves())
    {
        for kept in slot.iter().flat_map(Tree::leaves) {
            let spec = if kept.ty.dims() == param.ty.dims() {
                spec.clone()
            } else {
                PartitionSpec::replicated()
            };
            slots.push(spec_of(&kept.ty, spec)?);
        }
    }
    Ok(State {
        model: params.rebuild(model),
        slots: described.rebuild(slots),
        step: spec_of(&TensorType::scalar(DType::U32), PartitionSpec::replicated())?,
        key: spec_of(
            &TensorType::new(DType::U32, [2]),
            PartitionSpec::replicated(),
        )?,
        scale,
    })
}

/// Each device makes only its part of the state: the layout is that of the program's results.
fn init_program<K: Task, O: Optimizer>(
    client: &Client,
    mesh: &Arc<Mesh>,
    params: &Arc<ModelParams<K>>,
    optimizer: &Arc<O>,
    (state, precision): (&RunState<K, O, ArraySpec>, DTypePolicy),
) -> Jit<Empty<()>, Leaf<()>, RunState<K, O, ()>>
where
    ModelParams<K>: Send + Sync,
{
    let (params, optimizer) = (params.clone(), optimizer.clone());
    let specs: HashMap<String, PartitionSpec> = state
        .named()
        .into_iter()
        .map(|(path, spec)| (path, spec.sharding.spec().clone()))
        .collect();
    let stored: HashMap<String, DType> = state
        .named()
        .into_iter()
        .map(|(path, spec)| (path, spec.stored))
        .collect();
    Jit::function(client, move |cx: &Trace, Leaf(key): Leaf<Tensor<'_>>| {
        let model = init(cx, &*params, rng::fold_in(key, 0));
        let slots = init(
            cx,
            &optim::slots(&*optimizer, &*params),
            rng::fold_in(key, 1),
        );
        let scale = precision.loss_scale.map(|rule| Scaling::first(cx, rule));
        State {
            model,
            slots,
            step: cx.scalar(0.0, DType::U32),
            key: rng::fold_in(key, 2),
            scale,
        }
    })
    .named("init")
    .on(mesh)
    .output_specs(move |path, _| {
        specs
            .get(path)
            .cloned()
            .expect("the first state has the leaves of the state")
    })
    .output_stored(move |path, _| {
        stored
            .get(path)
            .copied()
            .expect("the first state has the leaves of the state")
    })
}

pub(crate) fn step_program<K: Task, O: Optimizer>(
    client: &Client,
    mesh: &Arc<Mesh>,
    task: &Arc<K>,
    params: &Arc<ModelParams<K>>,
    optimizer: &Arc<O>,
    options: StepOptions,
    metrics: &Window,
) -> Jit<RunState<K, O, ()>, StepInputs<K>, Leaf<()>>
where
    ModelParams<K>: Send + Sync,
{
    let (task, params, optimizer, metrics) = (
        task.clone(),
        params.clone(),
        optimizer.clone(),
        metrics.clone(),
    );
    // Frozen parameters and state need no gradient, and state may be of integers.
    let trained: Vec<bool> = params
        .leaves()
        .into_iter()
        .map(|param| param.trainable && param.ty.dtype().is_float())
        .collect();
    let StepOptions {
        clip_norm,
        precision,
    } = options;
    Jit::new(
        client,
        move |cx: &Trace, state: RunState<K, O, Tensor<'_>>, (batch, Leaf(window))| {
            let before = precision.loss_scale.map(|_| {
                [state.model.leaves(), state.slots.leaves()]
                    .concat()
                    .into_iter()
                    .copied()
            });
            let before: Option<Vec<Tensor<'_>>> = before.map(Iterator::collect);
            let State {
                model,
                slots,
                step,
                key,
                scale,
            } = state;
            cx.set_mode(true, Some(rng::fold_in(key, step)));
            let loss = task.loss(cx, &model, &batch);
            let gradients = gradients_of(cx, loss, &model, &trained, scale.as_ref());
            let finite = scale.as_ref().map(|_| {
                all_finite(
                    cx,
                    &gradients.leaves().into_iter().copied().collect::<Vec<_>>(),
                )
            });
            let gradients = match clip_norm {
                Some(most) => clip_global_norm(cx, &*params, gradients, most).0,
                None => gradients,
            };
            let (next, slots) =
                optim::update(&*optimizer, cx, step, &*params, model, gradients, slots);
            let model = next.map(|_, leaf| cx.updated(leaf));
            if let Some(scale) = &scale {
                cx.metric(LOSS_SCALE, scale.metric());
            }
            let window = metrics.add(cx, window, loss, step);
            let next = State {
                model,
                slots,
                step: step + 1,
                key,
                scale,
            };
            (rescaled(next, before, finite, precision), Leaf(window))
        },
    )
    .named("train step")
    .precision(precision)
    .on(mesh)
}

/// The gradient of the loss by every leaf of the model that is trained, and zeros for the others.
fn gradients_of<'t, M: Tree<Leaf = Tensor<'t>>>(
    cx: &'t Trace,
    loss: Mean<'t>,
    model: &M,
    trained: &[bool],
    scale: Option<&Scaling<Tensor<'t>>>,
) -> M {
    // What is wrong with the loss is wrong at the user's line.
    let _site = loss.total.origin().map(|line| cx.called_from(line));
    let leaves: Vec<Tensor<'t>> = model.leaves().into_iter().copied().collect();
    let wrt: Vec<Leaf<Tensor<'t>>> = leaves
        .iter()
        .zip(trained)
        .filter(|(_, is_trained)| **is_trained)
        .map(|(leaf, _)| Leaf(*leaf))
        .collect();
    let loss = scale.map_or(loss.value(), |scale| scale.scale(loss.value()));
    let mut gradients = grad(loss, &wrt)
        .into_iter()
        .map(|Leaf(gradient)| match scale {
            Some(scale) => scale.unscale(gradient),
            None => gradient,
        });
    let all = leaves.iter().zip(trained).map(|(leaf, is_trained)| {
        if *is_trained {
            gradients.next().expect("a gradient for every leaf")
        } else {
            leaf.zeros_like()
        }
    });
    model.rebuild(all.collect::<Vec<_>>())
}

/// The next state under a scaled loss: where a gradient was not `finite`, what was `before` of the
/// model and the slots stays, and the factor becomes smaller. The number of the step goes on.
fn rescaled<'t, F: Family, S: Family>(
    next: State<F, S, Tensor<'t>>,
    before: Option<Vec<Tensor<'t>>>,
    finite: Option<Tensor<'t>>,
    precision: DTypePolicy,
) -> State<F, S, Tensor<'t>> {
    let (Some(scale), Some(before), Some(finite), Some(rule)) =
        (&next.scale, before, finite, precision.loss_scale)
    else {
        return next;
    };
    let (accepted, scale) = (scale.accepts(finite), scale.next(finite, rule));
    let mut before = before.into_iter();
    let mut chosen = |new: Tensor<'t>| {
        accepted.select(
            new,
            before
                .next()
                .expect("the next state has the leaves of the state"),
        )
    };
    let model = next.model.map(|_, new| chosen(new));
    let slots = next.slots.map(|_, new| chosen(new));
    State {
        model,
        slots,
        scale: Some(scale),
        ..next
    }
}

/// The program that scores a batch.
pub(crate) fn evaluate_program<K: Task>(
    client: &Client,
    mesh: &Arc<Mesh>,
    task: &Arc<K>,
    metrics: &Window,
) -> Evaluate<K> {
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
pub(crate) type PredictProgram<K> =
    Jit<Empty<()>, (<K as Task>::Model, <K as Task>::Batch), <K as Predict>::Output>;

/// The program that answers for a batch.
pub(crate) fn predict_program<K: Predict>(
    client: &Client,
    mesh: &Arc<Mesh>,
    task: &Arc<K>,
) -> PredictProgram<K> {
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
    let pairs = batch
        .named()
        .into_iter()
        .zip(validation.leaves())
        .filter(|((_, ours), theirs)| ours.ty != theirs.ty);
    let texts: Vec<String> = pairs
        .map(|((path, ours), theirs)| {
            format!(
                "`{path}` is {} in training and {} in validation",
                ours.ty, theirs.ty
            )
        })
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
    cx.set_mode(
        training,
        training.then(|| cx.input(TensorType::new(DType::U32, [2]), "key")),
    );
    let model: Traced<'_, K::Model> =
        Tree::as_ref(model).map(|path, ty| cx.input(ty.clone(), path.to_string()));
    let mut batch_names = Vec::new();
    let batch = Tree::as_ref(batch).map(|path, spec| {
        let name = format!("batch.{path}");
        let tensor = cx.input(spec.ty.clone(), name.as_str());
        batch_names.push(name);
        tensor
    });
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
        let message = format!(
            "the task reports a metric `{LOSS}`, which is the name of what it returns; give it another name"
        );
        return Err(Error::invalid("fit", message));
    }
    let names =
        std::iter::once(Arc::from(LOSS)).chain(cx.metrics().into_iter().map(|(name, _)| name));
    let target = |classes: ClassTarget| {
        let field = batch_names
            .iter()
            .position(|name| **name == *classes.input)?;
        Some(Target { field, classes })
    };
    Ok(Window {
        names: names.collect(),
        targets: cx.class_targets().into_iter().filter_map(target).collect(),
    })
}

/// The metrics of several steps in one small array on the device: for each the sum of values, the
/// sum of weights, and the first step at which it was not finite.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    names: Arc<[Arc<str>]>,
    /// Fields of the batch that are classes to a loss.
    targets: Arc<[Target]>,
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
        if self.weight > 0.0 {
            self.total / self.weight
        } else {
            0.0
        }
    }
}

impl Window {
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(names: [&str; N]) -> Self {
        Window {
            names: names.into_iter().map(Arc::from).collect(),
            targets: Arc::default(),
        }
    }

    /// The metrics, in order.
    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The same for a training step under this policy, which has a metric of its own.
    pub(crate) fn of_step(self, precision: &DTypePolicy) -> Self {
        let own = precision.loss_scale.map(|_| Arc::from(LOSS_SCALE));
        Window {
            names: self.names.iter().cloned().chain(own).collect(),
            ..self
        }
    }

    /// A window that nothing was added to.
    pub(crate) fn empty(&self) -> HostArray {
        HostArray::from_slice(&self.start(), [3 * self.names.len()])
            .expect("three numbers a metric")
    }

    /// What it is, and that every device of `mesh` has the whole of it.
    pub(crate) fn spec(&self, mesh: &Arc<Mesh>) -> ArraySpec {
        ArraySpec::new(self.empty().ty().clone(), &Sharding::replicated(mesh))
    }

    /// Puts an empty window on every device of `mesh`.
    pub(crate) fn upload(&self, client: &Client, mesh: &Arc<Mesh>) -> Result<Array> {
        let client = client.unattributed();
        Array::upload(&client, &self.empty(), &Sharding::replicated(mesh))
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

    /// The means of a pass over what `loader` gives, from its window, by name.
    ///
    /// # Errors
    /// If one is not finite, with the cause if the data has it.
    pub(crate) fn means(&self, window: &HostArray, loader: &Loader) -> Result<MetricValues> {
        let metrics = self.read(window)?;
        finite::check_scores(&metrics, || cause::of_pass(loader, &self.targets))?;
        Ok(metrics
            .into_iter()
            .map(|metric| (metric.name.clone(), metric.mean()))
            .collect())
    }

    /// What the batch of a step of a run, or the batch before it, says of a number that is not
    /// finite after it. A gradient that is not finite shows in the loss of the step after.
    pub(crate) fn cause(&self, loader: &Loader, batches: &Batches, step: u64) -> Cause {
        let steps = [step, step.saturating_sub(1)];
        cause::of_steps(loader, batches, &self.targets, steps)
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
    fn add<'t>(
        &self,
        cx: &'t Trace,
        window: Tensor<'t>,
        loss: Mean<'t>,
        step: Tensor<'t>,
    ) -> Tensor<'t> {
        let metrics: Vec<Mean<'t>> = std::iter::once(loss)
            .chain(cx.metrics().into_iter().map(|(_, mean)| mean))
            .collect();
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
        let is_sum: Vec<bool> = (0..parts.len())
            .map(|index| index < 2 * metrics.len())
            .collect();
        let is_sum = Literal::new(&is_sum, [parts.len()]).expect("one flag a number");
        cx.push_one(Op::Constant(is_sum), &[])
            .select(window + now, window.minimum(now))
    }

    fn start(&self) -> Vec<f32> {
        let count = self.names.len();
        (0..3 * count)
            .map(|index| {
                if index < 2 * count {
                    0.0
                } else {
                    f32::INFINITY
                }
            })
            .collect()
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

        fn loss<'t>(
            &self,
            _cx: &'t Trace,
            model: &Linear<Tensor<'t>>,
            Leaf(x): &Leaf<Tensor<'t>>,
        ) -> Mean<'t> {
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
            let state = state_specs::<Linear<()>, Adam>(
                &mesh,
                &strategy,
                &params,
                &*adam,
                &DTypePolicy::F32,
            )
            .unwrap();
            let shards = state
                .leaves()
                .into_iter()
                .map(|spec| spec.sharding.shard_type(&spec.ty).unwrap().bytes() as u64)
                .sum::<u64>();
            let init = init_program::<Fit, Adam>(
                &client,
                &mesh,
                &params,
                &adam,
                (&state, DTypePolicy::F32),
            );
            let key = ArraySpec::new(
                TensorType::new(DType::U32, [2]),
                &Sharding::replicated(&mesh),
            );
            init.prepare(&Empty::new(), &Leaf(key)).unwrap();
            (
                shards,
                init.with_loaded(|loaded| loaded.memory()).unwrap().unwrap(),
            )
        };
        let (shards, memory) = memory_of(Strategy::fsdp());
        assert!(
            shards < 3 * whole / 8 + (1 << 17),
            "parameter and two slots, an eighth each: {shards} of {whole}"
        );
        // What the program gives, and the pointers to it.
        assert!(
            (shards..shards + 4096).contains(&memory.outputs),
            "{shards}: {memory:?}"
        );
        assert!(memory.temporary < whole / 4, "{whole}: {memory:?}");
        // The measure sees what it should: whole parameters are told from split ones.
        let (shards, memory) = memory_of(Strategy::data_parallel());
        assert!(
            shards > 3 * whole && memory.outputs >= shards,
            "{shards}: {memory:?}"
        );
    }
}
