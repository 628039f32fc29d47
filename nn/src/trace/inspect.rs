//! Questions about recorded operations.

use std::{collections::HashSet, sync::Arc};

use halite_core::Error;
use halite_ir::Op;

use super::{Id, Recorded, Recording};
use crate::Tensor;

impl Recording {
    /// Checks that every value of the program is an input of it or computed in it.
    pub(super) fn check_complete(&self, inputs: &[Id], outputs: &[Id]) -> Result<(), Error> {
        let hyperparameters = self.hyperparameters.iter().map(|one| &one.id);
        let mut known = vec![false; self.tensor_count()];
        for &id in inputs.iter().chain(hyperparameters) {
            known[id as usize] = true;
        }
        for node in self.nodes_in(0) {
            if let Some(&id) = node.operands.iter().find(|&&id| !known[id as usize]) {
                let message = format!(
                    "{} is used at {} and is not an input of the program",
                    self.describe(id),
                    node.origin
                );
                return Err(Error::invalid("trace", message));
            }
            for &id in &node.results {
                known[id as usize] = true;
            }
        }
        match outputs.iter().position(|&id| !known[id as usize]) {
            None => Ok(()),
            Some(output) => {
                let what = self.describe(outputs[output]);
                let message = format!(
                    "output {output}, {what}, is neither an input of the program nor computed by it"
                );
                Err(Error::invalid("trace", message))
            }
        }
    }

    /// The operations of all open scopes, in program order.
    pub(crate) fn visible_nodes(&self) -> Vec<Arc<Recorded>> {
        self.nodes.clone()
    }

    /// The operation that computed a tensor of an open scope; `None` for inputs.
    pub(crate) fn maker(&self, id: Id) -> Option<Arc<Recorded>> {
        self.tensor(id).maker.clone()
    }

    /// The operations by which `of` are computed from tensors numbered `least` or above, in program
    /// order. Nothing that was recorded before is visited: it cannot depend on such a tensor.
    pub(crate) fn computing(
        &self,
        of: impl IntoIterator<Item = Id>,
        least: Id,
    ) -> Vec<Arc<Recorded>> {
        let mut left: Vec<Id> = of.into_iter().collect();
        let (mut seen, mut nodes) = (HashSet::new(), Vec::new());
        while let Some(id) = left.pop() {
            if id >= least
                && let Some(node) = &self.tensor(id).maker
                && seen.insert(node.results[0])
            {
                left.extend(&node.operands);
                nodes.push(node.clone());
            }
        }
        nodes.sort_unstable_by_key(|node| node.results[0]);
        nodes
    }

    /// Name of the input whose elements, all or some, are the elements of a tensor.
    pub(crate) fn input_of(&self, mut id: Id) -> Option<Arc<str>> {
        loop {
            if let Some(name) = &self.tensor(id).name {
                return Some(name.clone());
            }
            let maker = self.tensor(id).maker.as_ref()?;
            let moves = matches!(
                maker.op,
                Op::Convert(_)
                    | Op::Reshape { .. }
                    | Op::Broadcast { .. }
                    | Op::Transpose { .. }
                    | Op::Slice { .. }
                    | Op::StopGradient
            );
            id = *maker.operands.first().filter(|_| moves)?;
        }
    }

    /// Whether the tensor `of` is computed from each of `leaves` through floats alone. Unlike in
    /// the backward pass, an operation whose derivative is zero everywhere, such as `floor`, counts
    /// as a path.
    pub(crate) fn depends_on(&self, of: Id, leaves: &[Tensor<'_>]) -> Vec<bool> {
        let least = leaves.iter().map(|leaf| leaf.id).min();
        let nodes = self.computing([of], least.unwrap_or(Id::MAX));
        let is_float = |id: Id| self.tensor(id).ty.dtype().is_float();
        let mut reached = HashSet::from([of]);
        for node in nodes.iter().rev() {
            let through: Vec<usize> = (0..node.results.len())
                .filter(|&index| reached.contains(&node.results[index]))
                .collect();
            if let Op::StopGradient = node.op {
                continue;
            }
            if let Op::OptimizationBarrier = node.op {
                reached.extend(through.into_iter().map(|index| node.operands[index]));
            } else if through
                .into_iter()
                .any(|index| is_float(node.results[index]))
            {
                reached.extend(node.operands.iter().copied().filter(|&id| is_float(id)));
            }
        }
        leaves
            .iter()
            .map(|leaf| reached.contains(&leaf.id))
            .collect()
    }

    /// Whether the tensor `of` is computed from `from`, through operations of any kind.
    pub(crate) fn is_computed_from(&self, of: Id, from: Id) -> bool {
        let nodes = self.computing([of], from);
        of == from || nodes.iter().any(|node| node.operands.contains(&from))
    }
}
