//! Questions about recorded operations.

use std::{collections::HashSet, panic::Location, sync::Arc};

use halite_ir::Op;

use super::{Id, Trace};
use crate::Tensor;

impl Trace {
    /// The line that computed a tensor; `None` for inputs.
    pub(crate) fn made_at(&self, id: Id) -> Option<&'static Location<'static>> {
        self.maker(id).map(|node| node.origin)
    }

    /// Name of the input whose elements, all or some, are the elements of a tensor.
    pub(crate) fn input_of(&self, mut id: Id) -> Option<Arc<str>> {
        let recording = self.recording.borrow();
        loop {
            if let Some(name) = &recording.tensor(id).name {
                return Some(name.clone());
            }
            let maker = recording.tensor(id).maker.as_ref()?;
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
        let recording = self.recording.borrow();
        let is_float = |id: Id| recording.tensor(id).ty.dtype().is_float();
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
