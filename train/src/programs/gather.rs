//! Averages of which each process has a part, gathered for the validation and the result.

use std::sync::Arc;

use halite_core::{
    Array, Client, Mesh, Result, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::{Jit, Processes, Tensor, Trace, optim::Averages};

/// Averages of the parameters, and the number of steps.
type Inputs = (Averages<()>, Leaf<()>);

/// From the averages that each process has, and the number of steps, to whole ones.
pub(crate) struct GatherAverages {
    program: Jit<Empty<()>, Inputs, Averages<()>>,
}

impl GatherAverages {
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
            move |cx: &Trace, (averages, Leaf(step)): (Averages<Tensor<'_>>, _)| {
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
    pub(crate) fn run(&self, averages: &Averages<Array>, step: &Array) -> Result<Averages<Array>> {
        let inputs = (Tree::leaf_refs(averages), Leaf(step));
        let whole = self.program.run_with(inputs)?;
        whole.leaves().into_iter().try_for_each(Array::wait)?;
        Ok(whole)
    }
}
