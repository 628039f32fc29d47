//! Several training steps as one program.

use std::{panic::Location, sync::Arc};

use halite_core::{
    Array, Client, Mesh, Result,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_nn::{ArraySpec, Jit, Optimizer, ShardedType};

use super::{BatchArrays, BatchTypes, RunState, Step, StepParts};
use crate::Task;

/// State of a run, and the window of its metrics.
pub(super) type StateAndWindow<K, O> = (RunState<K, O, ()>, Leaf<()>);

/// A loop of training steps: from a state, the metrics' window and stacked batches to the state and
/// window after a step with each batch.
pub(crate) struct Steps<K: Task, O: Optimizer> {
    program: Jit<StateAndWindow<K, O>, K::Batch, Empty<()>>,
    state: (RunState<K, O, ArraySpec>, Leaf<ArraySpec>),
    batches: <K::Batch as Family>::Of<ArraySpec>,
}

impl<K: Task, O: Optimizer> Steps<K, O> {
    /// The program of `length` of these steps.
    pub(super) fn new(
        client: &Client,
        mesh: &Arc<Mesh>,
        parts: &StepParts<'_, K, O>,
        step: &Step<K, O>,
        batch: &BatchTypes<K>,
        length: usize,
    ) -> Result<Self> {
        let on_mesh = |ty: &ShardedType| ty.on(mesh);
        Ok(Steps {
            program: step.repeated(parts, mesh, length).jit(client).on(mesh),
            state: (
                Tree::leaf_refs(&step.state).try_map_leaves(|_, ty| on_mesh(ty))?,
                Leaf(step.metrics.spec(mesh)),
            ),
            batches: Tree::leaf_refs(batch).try_map_leaves(|_, ty: &ShardedType| {
                on_mesh(&parts.options.input(ty).stacked(length))
            })?,
        })
    }

    /// Sets the line to name in reports.
    pub(super) fn of_line(self, line: &'static Location<'static>) -> Self {
        Steps {
            program: self.program.of_line(line),
            ..self
        }
    }

    /// Starts to compile, on a background thread.
    pub(crate) fn prepare_in_background(&self) -> Result<()> {
        self.program
            .prepare_in_background(&self.state, &self.batches)
    }

    /// Waits for the compiler.
    pub(crate) fn prepare(&self) -> Result<()> {
        self.program.prepare(&self.state, &self.batches).map(drop)
    }

    /// Queues a step with each of the stacked batches.
    pub(crate) fn call(
        &self,
        state: RunState<K, O, Array>,
        window: Array,
        batches: &BatchArrays<K>,
    ) -> Result<(RunState<K, O, Array>, Array)> {
        let batches = Tree::leaf_refs(batches);
        let ((state, Leaf(window)), _) = self.program.call_with((state, Leaf(window)), batches)?;
        Ok((state, window))
    }

    /// The compiled function.
    pub(crate) fn program(&self) -> &Jit<StateAndWindow<K, O>, K::Batch, Empty<()>> {
        &self.program
    }
}
