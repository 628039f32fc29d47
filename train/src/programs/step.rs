//! The training step: forward pass, backward pass, optimizer update and metrics as one function.

use std::sync::Arc;

use halite_core::{
    Capabilities, DTypePolicy, MeshShape, Result,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_nn::{
    Function, Lowered, Mean, Optimizer, Processes, ShardedType, Tensor, Trace, lower,
    optim::{GlobalNorm, WeightAveraging, clip_value},
};

use super::{
    BatchTypes, ModelParams, Pass, RunState, discover, discover::set_samples,
    steps::StateAndWindow, update::StepUpdate,
};
use crate::{
    GradientClip, OnNotFinite, State, StateOptions, Strategy, Task,
    loss_scale::{LOSS_SCALE, all_finite},
    strategy::state_specs,
    task::check_updates,
    window::{ExtraValues, Extras, Window},
};

/// Inputs of a step: a batch, and the metrics of the steps before.
pub(crate) type StepInputs<K> = (<K as Task>::Batch, Leaf<()>);
/// From a state, a batch and the metrics' window to the next state and window.
pub(crate) type StepFunction<K, O> = Function<RunState<K, O, ()>, StepInputs<K>, Leaf<()>>;

/// Options of a step besides its task, model and optimizer.
#[derive(Clone, Debug)]
pub(crate) struct StepOptions {
    pub(crate) clip: Option<GradientClip>,
    pub(crate) precision: DTypePolicy,
    /// Batches of a step, whose gradients are added up.
    pub(crate) accumulate: usize,
    /// Whether the last leaf of a batch has the weights of the samples, which are all 0 in a batch
    /// that is missing at the end of an epoch.
    pub(crate) has_weights: bool,
    pub(crate) on_not_finite: OnNotFinite,
    /// Whether the window has the first step at which each gradient was not finite.
    pub(crate) detect_anomaly: bool,
    /// Rule of the averages of the parameters, if there are any.
    pub(crate) average: Option<WeightAveraging>,
    /// Whether a callback may change the learning rate.
    pub(crate) has_rate_factor: bool,
    /// Why the last batch of an epoch has rows of padding, if it has some.
    pub(crate) padding: Option<String>,
    /// Whether the norm of the gradients is a metric.
    pub(crate) gradient_norm: bool,
    /// The processes that train together, if there are several.
    pub(crate) processes: Option<Processes>,
}

/// Name of the metric that reports the norm of the gradients.
pub(crate) const GRADIENT_NORM: &str = "gradient_norm";

impl StepOptions {
    /// Options of a step of one batch, of a task whose batches have weights.
    pub(crate) fn new(precision: DTypePolicy) -> Self {
        StepOptions {
            clip: None,
            precision,
            accumulate: 1,
            has_weights: true,
            on_not_finite: OnNotFinite::Stop,
            detect_anomaly: false,
            average: None,
            has_rate_factor: false,
            padding: None,
            gradient_norm: false,
            processes: None,
        }
    }

    /// Type of the input of a step for batches of this type.
    pub(crate) fn input(&self, ty: &ShardedType) -> ShardedType {
        match self.accumulate {
            1 => ty.clone(),
            batches => ty.stacked(batches),
        }
    }

    /// Options of the state of such a step under this strategy.
    pub(crate) fn state(&self, strategy: &Strategy) -> StateOptions {
        StateOptions {
            precision: self.precision,
            average: self.average,
            has_rate_factor: self.has_rate_factor,
            counts_skipped: self.on_not_finite == OnNotFinite::Skip,
            shards: (self.processes.as_ref())
                .filter(|_| strategy.shards_state())
                .map(Processes::shards),
        }
    }
}

/// Parts of a training step.
pub(crate) struct StepParts<'a, K: Task, O> {
    pub(crate) task: &'a Arc<K>,
    pub(crate) params: &'a Arc<ModelParams<K>>,
    pub(crate) optimizer: &'a Arc<O>,
    pub(crate) options: StepOptions,
    pub(crate) strategy: &'a Strategy,
}

/// A training step for the devices of a mesh of some shape. The trainer and
/// [`lower_step`](crate::lower_step) both make this, and so lower the same program.
pub(crate) struct Step<K: Task, O: Optimizer> {
    pub(crate) function: StepFunction<K, O>,
    /// Types and shardings of the state.
    pub(crate) state: RunState<K, O, ShardedType>,
    /// Metrics of the task, in the order of the window.
    pub(crate) metrics: Window,
}

impl<K: Task, O: Optimizer> Step<K, O> {
    /// # Errors
    /// All mistakes of the task's code at once; a parameter that the strategy does not divide.
    pub(crate) fn new(
        parts: &StepParts<'_, K, O>,
        mesh: &MeshShape,
        batch: &BatchTypes<K>,
    ) -> Result<Self> {
        let StepParts {
            task,
            params,
            optimizer,
            options,
            strategy,
        } = parts;
        let precision = &options.precision;
        let state = state_specs::<K::Model, O::Slot>(
            mesh,
            strategy,
            params,
            Arc::<O>::clone(optimizer),
            options.state(strategy),
        )?;
        let types = Tree::leaf_refs(&***params).map_leaves(|_, param| param.ty.clone());
        check_updates(&***task, &***params)?;
        let updates = StepUpdate::all(&***task);
        let pass = Pass {
            is_training: true,
            padding: options.padding.clone(),
            processes: options.processes.clone(),
        };
        let extras = Extras {
            counts_skipped: options.on_not_finite == OnNotFinite::Skip,
            watched: if options.detect_anomaly {
                (updates.iter())
                    .flat_map(|update| update.trained_paths(&***params))
                    .collect()
            } else {
                Arc::default()
            },
        };
        let metrics = discover(&***task, &types, batch, &pass)?.of_step(precision, extras);
        let norms = updates.iter().filter(|_| options.gradient_norm);
        let metrics = norms.fold(metrics, |metrics, update| metrics.and(&update.norm_name()));
        Ok(Step {
            function: step_function(parts, &metrics).axis_roles(strategy.axis_roles(mesh)),
            state,
            metrics,
        })
    }

    /// A loop of `length` steps, over stacked batches.
    pub(super) fn repeated(
        &self,
        parts: &StepParts<'_, K, O>,
        mesh: &MeshShape,
        length: usize,
    ) -> Function<StateAndWindow<K, O>, K::Batch, Empty<()>> {
        let body = StepBody::new(parts, &self.metrics);
        Function::new(
            move |cx: &Trace, (state, Leaf(window)): (RunState<K, O, Tensor<'_>>, _), batch| {
                let (next, window) = body.trace(cx, state, &batch, window);
                ((next, Leaf(window)), Empty::new())
            },
        )
        .named("train steps")
        .precision(parts.options.precision)
        .axis_roles(parts.strategy.axis_roles(mesh))
        .scanned(length)
    }

    /// Lowers the step for inputs of these types: batches, stacked if there are several.
    pub(crate) fn lower(
        &self,
        mesh: &MeshShape,
        batch: &BatchTypes<K>,
        capabilities: &Capabilities,
    ) -> Result<Lowered<Leaf<()>>> {
        let batch: BatchTypes<K> =
            Tree::leaf_refs(batch).map_leaves(|_, ty: &ShardedType| ty.clone());
        let inputs = (batch, Leaf(self.metrics.sharded_type()));
        lower(&self.function, &self.state, &inputs, mesh, capabilities)
    }
}

fn step_function<K: Task, O: Optimizer>(
    parts: &StepParts<'_, K, O>,
    metrics: &Window,
) -> StepFunction<K, O> {
    let body = StepBody::new(parts, metrics);
    Function::new(
        move |cx: &Trace, state: RunState<K, O, Tensor<'_>>, (batch, Leaf(window))| {
            let (next, window) = body.trace(cx, state, &batch, window);
            (next, Leaf(window))
        },
    )
    .named("train step")
    .precision(parts.options.precision)
}

/// The traced function of a training step.
struct StepBody<K: Task> {
    task: Arc<K>,
    params: Arc<ModelParams<K>>,
    options: StepOptions,
    metrics: Window,
}

impl<K: Task> StepBody<K> {
    fn new<O>(parts: &StepParts<'_, K, O>, metrics: &Window) -> Self {
        StepBody {
            task: Arc::clone(parts.task),
            params: Arc::clone(parts.params),
            options: parts.options.clone(),
            metrics: metrics.clone(),
        }
    }

    /// Returns the next state, and the window of metrics with those of this step.
    fn trace<'t, S: Family>(
        &self,
        cx: &'t Trace,
        state: State<K::Model, S, Tensor<'t>>,
        batch: &<K::Batch as Family>::Of<Tensor<'t>>,
        window: Tensor<'t>,
    ) -> (State<K::Model, S, Tensor<'t>>, Tensor<'t>) {
        let step = state.step;
        state.set_training_mode(cx);
        if let Some(processes) = &self.options.processes {
            cx.set_processes(processes, step);
        }
        let mut stepping = state.begin_step();
        let (mut losses, mut trained, mut norms) = (Vec::new(), Vec::new(), Vec::new());
        for (number, update) in StepUpdate::all(&*self.task).into_iter().enumerate() {
            if number > 0 {
                stepping = stepping.detached();
            }
            let (turn, state) = (update.turn(), &stepping.state);
            let (loss, gradients) = self.loss_and_gradients(cx, state, &update, batch);
            losses.push(loss);
            let gradients = state.all_gradients(turn, gradients);
            // Those of parameters that are frozen still are zeros: they change nothing.
            trained.extend(state.trained_of(turn.part, &gradients));
            let norm = self.norm(cx, state, &gradients);
            if let Some(norm) = norm.filter(|_| self.options.gradient_norm) {
                norms.push((update.norm_name(), norm.value(), turn.is_due(state.step)));
            }
            stepping = stepping.update(turn, self.clipped(cx, gradients, norm));
        }
        let is_scaled = stepping.state.scale.is_some();
        if let Some(scale) = &stepping.state.scale {
            cx.metric(LOSS_SCALE, scale.metric());
        }
        for (name, norm, due) in norms {
            // A loss scale changes where a norm is not finite.
            let counts = [due, is_scaled.then(|| norm.is_finite())];
            cx.metric(&name, mean_where(norm, counts));
        }
        let totals: Vec<Tensor<'t>> = losses.iter().map(|loss| loss.total).collect();
        let extras = self.extras(cx, &stepping.state, trained, totals);
        let next = stepping.end(extras.is_done);
        let window = self.metrics.add(cx, window, losses[0], step, extras);
        (next, window)
    }

    /// Whether the step is done, and which gradients are finite, as the options have it.
    fn extras<'t, S: Family>(
        &self,
        cx: &'t Trace,
        state: &State<K::Model, S, Tensor<'t>>,
        gradients: Vec<Tensor<'t>>,
        losses: Vec<Tensor<'t>>,
    ) -> ExtraValues<'t> {
        let mut holds = Vec::new();
        if self.options.on_not_finite == OnNotFinite::Skip {
            holds.push(all_finite(cx, &[&gradients[..], &losses].concat()));
        }
        if self.options.detect_anomaly {
            holds.extend(
                gradients
                    .iter()
                    .map(|gradient| all_finite(cx, &[*gradient])),
            );
        }
        let mut holds = state.all_everywhere(&holds).into_iter();
        ExtraValues {
            is_done: (self.options.on_not_finite == OnNotFinite::Skip)
                .then(|| holds.next().expect("the first")),
            are_finite: holds.collect(),
        }
    }

    /// The norm of the gradients of an update, if it is a metric or clips them.
    fn norm<'t, S: Family>(
        &self,
        cx: &'t Trace,
        state: &State<K::Model, S, Tensor<'t>>,
        gradients: &<K::Model as Family>::Of<Tensor<'t>>,
    ) -> Option<GlobalNorm<'t>> {
        let clips = matches!(self.options.clip, Some(GradientClip::Norm(_)));
        (clips || self.options.gradient_norm).then(|| {
            let norm = GlobalNorm::of_trained(cx, &*self.params, gradients);
            match state.shards() {
                Some(_) => norm.over_processes(),
                None => norm,
            }
        })
    }

    fn clipped<'t>(
        &self,
        cx: &'t Trace,
        gradients: <K::Model as Family>::Of<Tensor<'t>>,
        norm: Option<GlobalNorm<'t>>,
    ) -> <K::Model as Family>::Of<Tensor<'t>> {
        match (self.options.clip, norm) {
            (Some(GradientClip::Norm(most)), Some(norm)) => {
                norm.clip(&*self.params, gradients, most)
            }
            (Some(GradientClip::Value(most)), _) => clip_value(cx, gradients, most),
            _ => gradients,
        }
    }

    /// Whether a batch of these weights has samples, in any process.
    fn is_present<'t>(&self, cx: &'t Trace, weights: Tensor<'t>) -> Tensor<'t> {
        let most = weights.max([0]);
        // Without padding, a batch is missing in all processes or in none.
        match self.options.padding {
            Some(_) => cx.process_sums("weights", &[most])[0].gt(0.0),
            None => most.gt(0.0),
        }
    }

    /// The mean loss of the batches of an update, and its gradients by the parameters that it
    /// changes.
    fn loss_and_gradients<'t, S: Family>(
        &self,
        cx: &'t Trace,
        state: &State<K::Model, S, Tensor<'t>>,
        update: &StepUpdate<'_, K>,
        batch: &<K::Batch as Family>::Of<Tensor<'t>>,
    ) -> (Mean<'t>, Vec<Tensor<'t>>) {
        let turn = update.turn();
        let of_step = || match self.options.accumulate {
            1 => of_batch(cx, state, update, batch),
            _ => self.accumulated(cx, state, update, batch),
        };
        let (loss, gradients) = match turn.is_due(state.step) {
            Some(due) => {
                let wrt = state.trained_leaves(turn.part);
                cx.gradients_if(due, &wrt, of_step)
            }
            None => of_step(),
        };
        match state.shards() {
            Some(_) => cx.mean_shards_over_processes(loss, gradients),
            None => cx.mean_over_processes(loss, gradients),
        }
    }

    /// As [`of_batch`], of stacked batches.
    fn accumulated<'t, S: Family>(
        &self,
        cx: &'t Trace,
        state: &State<K::Model, S, Tensor<'t>>,
        update: &StepUpdate<'_, K>,
        batches: &<K::Batch as Family>::Of<Tensor<'t>>,
    ) -> (Mean<'t>, Vec<Tensor<'t>>) {
        let batches = Tree::leaf_refs(batches).map_leaves(|_, leaf| *leaf);
        let wrt = state.trained_leaves(update.turn().part);
        cx.accumulate_gradients(batches, &wrt, |batch| {
            let weights = batch.leaves().into_iter().next_back().copied();
            let weights = weights.filter(|_| self.options.has_weights);
            let present = weights.map(|weights| self.is_present(cx, weights));
            let of_batch = || of_batch(cx, state, update, &batch);
            let (loss, gradients) = match present {
                Some(present) => cx.report_if(present, of_batch),
                None => of_batch(),
            };
            let or_zero = |sum: Tensor<'t>| match present {
                Some(present) => present.select(sum, sum.zeros_like()),
                None => sum,
            };
            let loss = Mean {
                total: or_zero(loss.total),
                weight: or_zero(loss.weight),
            };
            (loss, gradients)
        })
    }
}

/// The loss of a batch, and its gradients by the parameters that the update changes.
fn of_batch<'t, K: Task, S: Family>(
    cx: &'t Trace,
    state: &State<K::Model, S, Tensor<'t>>,
    update: &StepUpdate<'_, K>,
    batch: &<K::Batch as Family>::Of<Tensor<'t>>,
) -> (Mean<'t>, Vec<Tensor<'t>>) {
    let leaves: Vec<Tensor<'t>> = batch.leaves().into_iter().copied().collect();
    set_samples(cx, &leaves);
    let loss = cx.loss_of_process(update.loss(cx, &state.model, batch));
    // Mistakes of the loss are reported at the user's line.
    let _site = loss.total.origin().map(|line| cx.called_from(line));
    let gradients = state.trained_gradients(update.turn().part, loss.value());
    (loss, gradients)
}

/// The mean over the steps in which all of these conditions hold.
fn mean_where<'t>(norm: Tensor<'t>, conditions: [Option<Tensor<'t>>; 2]) -> Mean<'t> {
    let all = Mean {
        total: norm,
        weight: norm.ones_like(),
    };
    let only = |mean: Mean<'t>, holds: Tensor<'t>| Mean {
        total: holds.select(mean.total, norm.zeros_like()),
        weight: holds.select(mean.weight, norm.zeros_like()),
    };
    conditions.into_iter().flatten().fold(all, only)
}
