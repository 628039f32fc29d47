//! The training step: forward pass, backward pass, optimizer update and metrics as one function.

use std::sync::Arc;

use halite_core::{
    Capabilities, DTypePolicy, MeshShape, Result,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_nn::{
    Function, Lowered, Optimizer, ShardedType, Tensor, Trace, lower, optim::clip_global_norm,
};

use super::{BatchTypes, ModelParams, Pass, RunState, discover, steps::StateAndWindow};
use crate::{State, Strategy, Task, loss_scale::LOSS_SCALE, strategy::state_specs, window::Window};

/// Inputs of a step: a batch, and the metrics of the steps before.
pub(crate) type StepInputs<K> = (<K as Task>::Batch, Leaf<()>);
/// From a state, a batch and the metrics' window to the next state and window.
pub(crate) type StepFunction<K, O> = Function<RunState<K, O, ()>, StepInputs<K>, Leaf<()>>;

/// Options of a step besides its task, model and optimizer.
#[derive(Clone, Debug)]
pub(crate) struct StepOptions {
    /// Maximum global norm of the gradients.
    pub(crate) clip_norm: Option<f64>,
    pub(crate) precision: DTypePolicy,
    /// Why the last batch of an epoch has rows of padding, if it has some.
    pub(crate) padding: Option<String>,
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
            precision,
        )?;
        let types = Tree::leaf_refs(&***params).map_leaves(|_, param| param.ty.clone());
        let pass = Pass {
            is_training: true,
            padding: options.padding.clone(),
        };
        let metrics = discover(&***task, &types, batch, &pass)?.of_step(precision);
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

    /// Lowers the step for batches of these types.
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
        let loss = self.task.loss(cx, &state.model, batch);
        let gradients = {
            // Mistakes of the loss are reported at the user's line.
            let _site = loss.total.origin().map(|line| cx.called_from(line));
            state.gradients(loss.value())
        };
        if let Some(scale) = &state.scale {
            cx.metric(LOSS_SCALE, scale.metric());
        }
        let gradients = match self.options.clip_norm {
            Some(most) => clip_global_norm(cx, &*self.params, gradients, most).0,
            None => gradients,
        };
        let next = state.update(gradients);
        let window = self.metrics.add(cx, window, loss, step);
        (next, window)
    }
}
