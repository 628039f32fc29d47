//! The programs of a run: initialization, step, evaluation. Each is one launch; none reads anything
//! back.

mod discover;
mod gather;
mod statistics;
mod step;
mod steps;
#[cfg(test)]
mod tests;
mod update;

use std::{
    collections::{BTreeSet, HashMap},
    panic::Location,
    sync::Arc,
};

use halite_core::{
    Array, Client, DType, Error, Mesh, Result, TensorType,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_nn::{
    ArraySpec, Function, Jit, Optimizer, Param, Processes, ShardedType, Tensor, Trace,
};

use crate::{
    Predict, State, StateOptions, Strategy, Task,
    state::Divided,
    strategy::state_specs,
    window::{ExtraValues, Window},
};

pub(crate) use self::{
    discover::{Pass, discover, discover_evaluation, means_of_pass, padding},
    gather::GatherAverages,
    statistics::Statistics,
    step::{Step, StepInputs, StepOptions, StepParts},
    steps::Steps,
};

/// Name of the loss among the metrics.
pub const LOSS: &str = "loss";

/// Model of a task, as arrays on devices.
pub(crate) type ModelArrays<K> = <<K as Task>::Model as Family>::Of<Array>;
/// Batch of a task, as arrays on devices.
pub(crate) type BatchArrays<K> = <<K as Task>::Batch as Family>::Of<Array>;
/// Types and shardings of the inputs of a step, on devices: the batch, and the window.
pub(crate) type StepSpecs<K> = (BatchSpecs<K>, Leaf<ArraySpec>);
/// Types and shardings of a batch, on devices.
pub(crate) type BatchSpecs<K> = <<K as Task>::Batch as Family>::Of<ArraySpec>;
/// Types and shardings of a batch.
pub(crate) type BatchTypes<K> = <<K as Task>::Batch as Family>::Of<ShardedType>;
/// Description of a task's model.
pub(crate) type ModelParams<K> = <<K as Task>::Model as Family>::Of<Param>;
/// State of a run of this task with this optimizer.
pub(crate) type RunState<K, O, L> = State<<K as Task>::Model, <O as Optimizer>::Slot, L>;

/// From a model, a batch and the window to the next window, and rows that are collected.
pub(crate) type Evaluate<K> = Jit<Empty<()>, EvaluateInputs<K>, (Leaf<()>, Vec<Leaf<()>>)>;
type EvaluateInputs<K> = (<K as Task>::Model, (<K as Task>::Batch, Leaf<()>));

/// The compiled parts of a run.
pub(crate) struct Programs<K: Task, O: Optimizer> {
    /// From the run's key to the first state.
    pub(crate) init: Jit<Empty<()>, Leaf<()>, RunState<K, O, ()>>,
    /// From a state, a batch and the metrics' window to the next state and window.
    pub(crate) step: Jit<RunState<K, O, ()>, StepInputs<K>, Leaf<()>>,
    /// Several steps as one program, if the options have more than one.
    pub(crate) steps: Option<Steps<K, O>>,
    /// The evaluation, if there is validation data.
    pub(crate) evaluation: Option<Evaluation<K>>,
    /// What updates the statistics of averaged weights, if the model has some.
    pub(crate) statistics: Option<Statistics<K>>,
    /// What gathers averages of which each process has a part, if there are some.
    pub(crate) gather: Option<GatherAverages>,
    /// Metrics of a training step, in the order of its window.
    pub(crate) train_metrics: Window,
    /// Types and shardings of the state.
    pub(crate) state: RunState<K, O, ArraySpec>,
    /// Types of the whole arrays of the state, which checkpoints have.
    pub(crate) whole: RunState<K, O, ShardedType>,
    /// Those of which each process has a part of its own.
    pub(crate) divided: Option<Divided>,
    /// Types and shardings of the batch of a step.
    pub(crate) batch: BatchSpecs<K>,
    /// Paths of the arrays of the state that checkpoints leave out.
    pub(crate) left_out: BTreeSet<String>,
}

/// Batches of a validation set.
pub(crate) struct Evaluated<K: Task> {
    /// What the set is in messages.
    pub(crate) which: String,
    pub(crate) batch: BatchSpecs<K>,
    /// Why the last batch has rows of padding, if it has some.
    pub(crate) padding: Option<String>,
}

/// The evaluation of a task.
pub(crate) struct Evaluation<K: Task> {
    /// From a model, a batch and the window to the next window.
    pub(crate) program: Evaluate<K>,
    /// Metrics, in the order of the window.
    pub(crate) metrics: Window,
}

impl<K: Task, O: Optimizer> Programs<K, O> {
    /// Programs for batches of this type, and of the validation data.
    ///
    /// # Errors
    /// All mistakes of the task's code at once.
    pub(crate) fn new(
        client: &Client,
        mesh: &Arc<Mesh>,
        parts: &StepParts<'_, K, O>,
        batch: &BatchSpecs<K>,
        validation: &[Evaluated<K>],
        steps_per_execution: usize,
    ) -> Result<Self> {
        let params = parts.params;
        if !params.leaves().into_iter().any(|param| param.trainable) {
            let message = "the model has no trained parameter: every leaf is state, or `frozen`, \
                           so there is nothing to learn; evaluate it with `validate`";
            return Err(Error::invalid("fit", message));
        }
        let batch_types = batch_types::<K>;
        let step = Step::new(parts, mesh, &batch_types(batch))?;
        let steps = (steps_per_execution > 1).then(|| {
            let types = batch_types(batch);
            Steps::new(client, mesh, parts, &step, &types, steps_per_execution)
        });
        let Step {
            mut function,
            state,
            metrics: train_metrics,
        } = step;
        if steps.is_some() {
            function = function.beside_scanned();
        }
        let evaluation = (!validation.is_empty())
            .then(|| Evaluation::new(client, mesh, parts, batch, validation));
        let step_batch = self::batch_types::<K>(batch)
            .try_map_leaves(|_, ty: ShardedType| parts.options.input(&ty).on(mesh))?;
        let options = parts.options.state(parts.strategy);
        let rank = parts.options.processes.as_ref().map_or(0, Processes::rank);
        let whole = state_specs::<K::Model, O::Slot>(
            mesh,
            parts.strategy,
            params,
            Arc::<O>::clone(parts.optimizer),
            StateOptions {
                shards: None,
                ..options
            },
        )?;
        let averages = whole.average.iter().flat_map(|averages| averages.leaves());
        let averages = averages.map(|leaf| leaf.ty.clone()).collect();
        let statistics = statistics::statistics(client, mesh, parts, parts.strategy, averages);
        let gathered = parts.options.processes.as_ref().zip(whole.average.as_ref());
        let gather = gathered.filter(|_| options.shards.is_some());
        let gather = gather.map(|(processes, averages)| {
            let types = averages.leaves().into_iter().map(|leaf| leaf.ty.clone());
            GatherAverages::new(client, mesh, processes, types.collect())
        });
        Ok(Programs {
            statistics,
            gather,
            whole,
            divided: Divided::new(&**params, &**parts.optimizer, &options, rank),
            init: init_function(parts, &state).jit(client).on(mesh),
            step: function.jit(client).on(mesh),
            steps: steps.transpose()?,
            evaluation: evaluation.transpose()?,
            train_metrics,
            state: state.try_map_leaves(|_, ty| ty.on(mesh))?,
            batch: step_batch,
            left_out: BTreeSet::new(),
        })
    }

    /// Types and shardings of the inputs of a step besides the state.
    pub(crate) fn inputs(&self, mesh: &Arc<Mesh>) -> StepSpecs<K> {
        let batch = Tree::leaf_refs(&self.batch).map_leaves(|_, spec| spec.clone());
        (batch, Leaf(self.train_metrics.spec(mesh)))
    }

    /// Sets the line to name in reports.
    pub(crate) fn of_line(self, line: &'static Location<'static>) -> Self {
        let Programs {
            init,
            step,
            steps,
            evaluation,
            ..
        } = self;
        Programs {
            init: init.of_line(line),
            step: step.of_line(line),
            steps: steps.map(|steps| steps.of_line(line)),
            evaluation: evaluation.map(|evaluation| Evaluation {
                program: evaluation.program.of_line(line),
                ..evaluation
            }),
            ..self
        }
    }
}

impl<K: Task> Evaluation<K> {
    /// The evaluation of batches of these sets, of which there is one; `batch` is one of training.
    fn new<O>(
        client: &Client,
        mesh: &Arc<Mesh>,
        parts: &StepParts<'_, K, O>,
        batch: &BatchSpecs<K>,
        sets: &[Evaluated<K>],
    ) -> Result<Self> {
        let types = Tree::leaf_refs(&**parts.params).map_leaves(|_, param| param.ty.clone());
        let metrics_of = |set: &Evaluated<K>| {
            let pass = Pass {
                is_training: false,
                padding: set.padding.clone(),
                processes: parts.options.processes.clone(),
            };
            let metrics = discover(&**parts.task, &types, &batch_types::<K>(&set.batch), &pass);
            metrics.map_err(|error| {
                // The training batch was accepted, so the difference is the likely cause.
                match differences(batch, &set.batch, &set.which) {
                    different if different.is_empty() => error,
                    different => Error::new(error.kind(), "fit", format!("{different}: {error}")),
                }
            })
        };
        let all: Vec<Window> = sets.iter().map(metrics_of).collect::<Result<_>>()?;
        let metrics = all[0].clone();
        if let Some(at) = all
            .iter()
            .position(|other| other.result_names() != metrics.result_names())
        {
            let message = format!(
                "the task reports {:?} for the {}, and {:?} for the {}; the metrics of all are the \
                 same",
                metrics.result_names(),
                sets[0].which,
                all[at].result_names(),
                sets[at].which
            );
            return Err(Error::invalid("fit", message));
        }
        let processes = parts.options.processes.as_ref();
        let program = evaluate_program(
            client,
            mesh,
            parts.strategy,
            parts.task,
            &metrics,
            processes,
        );
        Ok(Evaluation {
            program: program.precision(parts.options.precision),
            metrics,
        })
    }
}

/// Types of a batch, without the devices it is on.
pub(crate) fn batch_types<K: Task>(batch: &BatchSpecs<K>) -> BatchTypes<K> {
    Tree::leaf_refs(batch).map_leaves(|_, spec| ShardedType::from(spec))
}

/// Initialization, from the run's key to the first state. Its outputs have the shardings of the
/// state, so each device makes only its part.
fn init_function<K: Task, O: Optimizer>(
    parts: &StepParts<'_, K, O>,
    state: &RunState<K, O, ShardedType>,
) -> Function<Empty<()>, Leaf<()>, RunState<K, O, ()>> {
    let (params, optimizer) = (parts.params.clone(), parts.optimizer.clone());
    let options = parts.options.state(parts.strategy);
    let processes = parts.options.processes.clone();
    let types: HashMap<String, ShardedType> = state
        .named()
        .into_iter()
        .map(|(path, ty)| (path, ty.clone()))
        .collect();
    let specs = Arc::new(types);
    let stored = specs.clone();
    Function::stateless(move |cx: &Trace, Leaf(key): Leaf<Tensor<'_>>| {
        if let Some(processes) = processes.as_ref().filter(|_| options.shards.is_some()) {
            cx.set_processes(processes, cx.scalar(0.0, DType::F32));
        }
        State::initialize(cx, &*params, optimizer.clone(), options, key)
    })
    .named("init")
    .runs_once()
    .output_specs(move |path, _| specs[path].spec.clone())
    .output_stored(move |path, _| stored[path].stored)
}

/// The program that evaluates a batch.
pub(crate) fn evaluate_program<K: Task>(
    client: &Client,
    mesh: &Arc<Mesh>,
    strategy: &Strategy,
    task: &Arc<K>,
    metrics: &Window,
    processes: Option<&Processes>,
) -> Evaluate<K> {
    let (task, metrics, processes) = (task.clone(), metrics.clone(), processes.cloned());
    type Given<'t, M, B> = (M, (B, Leaf<Tensor<'t>>));
    Jit::function(
        client,
        move |cx: &Trace, (model, (batch, Leaf(window))): Given<'_, _, _>| {
            cx.set_mode(false, None);
            if let Some(processes) = &processes {
                // It is there when the launch before is done.
                cx.set_processes(processes, window.sum_all());
            }
            let loss = task.loss(cx, &model, &batch);
            let step = cx.scalar(0.0, DType::U32);
            let rows = metrics.collected().outputs(cx).into_iter().map(Leaf);
            let window = metrics.add(cx, window, loss, step, ExtraValues::default());
            (Leaf(window), rows.collect::<Vec<_>>())
        },
    )
    .named("evaluate")
    .axis_roles(strategy.axis_roles(mesh))
    .on(mesh)
}

/// From a model and a batch to the predictions.
pub(crate) type PredictProgram<K> =
    Jit<Empty<()>, (<K as Task>::Model, <K as Task>::Batch), <K as Predict>::Output>;

/// The program that predicts for a batch.
pub(crate) fn predict_program<K: Predict>(
    client: &Client,
    mesh: &Arc<Mesh>,
    strategy: &Strategy,
    task: &Arc<K>,
) -> PredictProgram<K> {
    let task = task.clone();
    Jit::function(client, move |cx: &Trace, (model, batch)| {
        cx.set_mode(false, None);
        K::Output::from_bare(task.predict(cx, &model, &batch))
    })
    .named("predict")
    .axis_roles(strategy.axis_roles(mesh))
    .on(mesh)
}

/// Element type, and dimensions of a sample of a batch.
fn sample(batch: &TensorType) -> (DType, &[usize]) {
    (batch.dtype(), batch.dims().get(1..).unwrap_or_default())
}

/// The differences between samples of the training and of the validation data.
fn differences<T: Tree<Leaf = ArraySpec>>(batch: &T, validation: &T, which: &str) -> String {
    let pairs = batch
        .named()
        .into_iter()
        .zip(validation.leaves())
        .filter(|((_, ours), theirs)| sample(&ours.ty) != sample(&theirs.ty));
    let texts: Vec<String> = pairs
        .map(|((path, ours), theirs)| {
            format!(
                "`{path}` is {} in training and {} in the {which}",
                ours.ty, theirs.ty
            )
        })
        .collect();
    texts.join("; ")
}
