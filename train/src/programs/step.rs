//! The training step: forward pass, backward pass, optimizer update and metrics as one function.

use std::sync::Arc;

use halite_core::{
    Capabilities, DTypePolicy, MeshShape, Result,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_nn::{
    Function, Lowered, Mean, Optimizer, Param, ShardedType, Tensor, Trace, lower,
    optim::{WeightAveraging, clip_global_norm, clip_value, global_norm},
};

use super::{BatchTypes, ModelParams, Pass, RunState, discover, steps::StateAndWindow};
use crate::{
    GradientClip, OnNotFinite, State, StateOptions, Strategy, Task,
    loss_scale::{LOSS_SCALE, all_finite},
    strategy::state_specs,
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
        }
    }

    /// Type of the input of a step for batches of this type.
    pub(crate) fn input(&self, ty: &ShardedType) -> ShardedType {
        match self.accumulate {
            1 => ty.clone(),
            batches => ty.stacked(batches),
        }
    }

    /// Options of the state of such a step.
    pub(crate) fn state(&self) -> StateOptions {
        StateOptions {
            precision: self.precision,
            average: self.average,
            has_rate_factor: self.has_rate_factor,
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

impl<K: Task, O: Optimizer> Step<K, O>
where
    ModelParams<K>: Send + Sync,
{
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
            options.state(),
        )?;
        let types = Tree::leaf_refs(&***params).map_leaves(|_, param| param.ty.clone());
        let pass = Pass {
            is_training: true,
            padding: options.padding.clone(),
        };
        let extras = Extras {
            counts_skipped: options.on_not_finite == OnNotFinite::Skip,
            watched: match options.detect_anomaly {
                true => trained_paths(&***params),
                false => Arc::default(),
            },
        };
        let metrics = discover(&***task, &types, batch, &pass)?.of_step(precision, extras);
        let metrics = match options.gradient_norm {
            true => metrics.and(GRADIENT_NORM),
            false => metrics,
        };
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
) -> StepFunction<K, O>
where
    ModelParams<K>: Send + Sync,
{
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
        let (loss, gradients) = self.loss_and_gradients(cx, &state, batch);
        if let Some(scale) = &state.scale {
            cx.metric(LOSS_SCALE, scale.metric());
        }
        let trained = || -> Vec<Tensor<'t>> {
            let trained = gradients.leaves().into_iter().zip(self.params.leaves());
            let trained = trained.filter(|(_, param)| is_trained(param));
            trained.map(|(gradient, _)| *gradient).collect()
        };
        let extras = ExtraValues {
            is_done: (self.options.on_not_finite == OnNotFinite::Skip)
                .then(|| all_finite(cx, &[trained(), vec![loss.total]].concat())),
            gradients: match self.options.detect_anomaly {
                true => trained(),
                false => Vec::new(),
            },
        };
        if self.options.gradient_norm {
            let norm = global_norm(cx, &gradients);
            cx.metric(GRADIENT_NORM, mean_of_finite(norm, state.scale.is_some()));
        }
        let gradients = match self.options.clip {
            Some(GradientClip::Norm(most)) => {
                clip_global_norm(cx, &*self.params, gradients, most).0
            }
            Some(GradientClip::Value(most)) => clip_value(cx, gradients, most),
            None => gradients,
        };
        let next = state.update_if(extras.is_done, gradients);
        let window = self.metrics.add(cx, window, loss, step, extras);
        (next, window)
    }

    /// The mean loss of the batches of a step, and its gradient.
    fn loss_and_gradients<'t, S: Family>(
        &self,
        cx: &'t Trace,
        state: &State<K::Model, S, Tensor<'t>>,
        batch: &<K::Batch as Family>::Of<Tensor<'t>>,
    ) -> (Mean<'t>, <K::Model as Family>::Of<Tensor<'t>>) {
        let of_one = |batch: &<K::Batch as Family>::Of<Tensor<'t>>| {
            let loss = self.task.loss(cx, &state.model, batch);
            // Mistakes of the loss are reported at the user's line.
            let _site = loss.total.origin().map(|line| cx.called_from(line));
            let gradients = state.gradients(loss.value());
            (loss, gradients)
        };
        if self.options.accumulate == 1 {
            return of_one(batch);
        }
        let is_trained: Vec<bool> = self.params.leaves().into_iter().map(is_trained).collect();
        let trained = |leaves: Vec<&Tensor<'t>>| -> Vec<Tensor<'t>> {
            let leaves = leaves.into_iter().zip(&is_trained);
            leaves
                .filter(|(_, kept)| **kept)
                .map(|(leaf, _)| *leaf)
                .collect()
        };
        let batches = Tree::leaf_refs(batch).map_leaves(|_, leaf| *leaf);
        let wrt = trained(state.model.leaves());
        let (loss, sums) = cx.accumulate_gradients(batches, &wrt, |batch| {
            let weights = batch.leaves().into_iter().next_back().copied();
            let weights = weights.filter(|_| self.options.has_weights);
            let present = weights.map(|weights| weights.max([0]).gt(0.0));
            let (loss, gradients) = match present {
                Some(present) => cx.report_if(present, || of_one(&batch)),
                None => of_one(&batch),
            };
            let or_zero = |sum: Tensor<'t>| match present {
                Some(present) => present.select(sum, sum.zeros_like()),
                None => sum,
            };
            let loss = Mean {
                total: or_zero(loss.total),
                weight: or_zero(loss.weight),
            };
            (loss, trained(gradients.leaves()))
        });
        let mut sums = sums.into_iter();
        let leaves = state.model.leaves().into_iter().zip(&is_trained);
        let gradients = leaves.map(|(leaf, is_trained)| match is_trained {
            true => sums.next().expect("a sum for every trained leaf"),
            false => leaf.zeros_like(),
        });
        (loss, state.model.with_leaves(gradients.collect::<Vec<_>>()))
    }
}

/// Whether a step computes the gradient of a parameter.
fn is_trained(param: &Param) -> bool {
    param.trainable && param.ty.dtype().is_float()
}

/// Paths of the parameters whose gradients a step computes.
fn trained_paths<M: Tree<Leaf = Param>>(params: &M) -> Arc<[Arc<str>]> {
    let named = params.named().into_iter();
    let trained = named.filter(|(_, param)| is_trained(param));
    trained.map(|(path, _)| Arc::from(path)).collect()
}

/// The mean over the steps that have a finite norm, under a loss scale, which changes where a norm is
/// not finite; otherwise over all.
fn mean_of_finite<'t>(norm: Tensor<'t>, is_scaled: bool) -> Mean<'t> {
    let weight = norm.ones_like();
    if !is_scaled {
        return Mean {
            total: norm,
            weight,
        };
    }
    let (finite, zero) = (norm.is_finite(), norm.zeros_like());
    Mean {
        total: finite.select(norm, zero),
        weight: finite.select(weight, zero),
    }
}
