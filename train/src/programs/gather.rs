//! Averages of which each process has a part, gathered for the validation and the result.

use std::sync::Arc;

use halite_core::{
    Array, Client, Mesh, Result, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::{
    Jit, Processes, Tensor, Trace,
    optim::{Averages, SlotsFamily},
};

use crate::Task;

/// Averages of the parameters of a task's model.
type AveragesOf<K> = SlotsFamily<<K as Task>::Model, Leaf<()>>;
/// The same, and the number of steps.
type Inputs<K> = (AveragesOf<K>, Leaf<()>);

/// From the averages that each process has, and the number of steps, to whole ones.
pub(crate) struct GatherAverages<K: Task> {
    program: Jit<Empty<()>, Inputs<K>, AveragesOf<K>>,
}

impl<K: Task> GatherAverages<K> {
    /// The program for averages of these types, on the devices of `mesh`.
    pub(super) fn new(
        client: &Client,
        mesh: &Arc<Mesh>,
        processes: &Processes,
        types: Vec<TensorType>,
    ) -> Self {
        let processes = processes.clone();
        let program = Jit::function(
            client,
            move |cx: &Trace, (averages, Leaf(step)): (Averages<K::Model, Tensor<'_>>, _)| {
                cx.set_processes(&processes, step);
                let shards: Vec<Tensor<'_>> = averages.leaves().into_iter().copied().collect();
                let whole = cx.gather_process_shards("averages", &shards, &types);
                averages.with_leaves(whole)
            },
        );
        GatherAverages {
            program: program.named("gather averages").on(mesh),
        }
    }

    /// Gathers the averages after `step`, and waits for them: exchanges of the next step must not mix
    /// with these. All processes call it after the same step.
    pub(crate) fn run(
        &self,
        averages: &Averages<K::Model, Array>,
        step: &Array,
    ) -> Result<Averages<K::Model, Array>> {
        let inputs = (Tree::leaf_refs(averages), Leaf(step));
        let whole = self.program.run_with(inputs)?;
        whole.leaves().into_iter().try_for_each(Array::wait)?;
        Ok(whole)
    }
}
