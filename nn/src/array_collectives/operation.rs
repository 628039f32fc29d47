//! The collectives, and what one device computes for each.

use std::sync::Arc;

use halite_core::{DType, PartitionSpec, ReduceOp, TensorType};
use halite_ir::Reduction;

use crate::{Over, Tensor};

/// Key of a cached program.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Key {
    pub(super) operation: Operation,
    pub(super) axes: Vec<Arc<str>>,
    pub(super) ty: TensorType,
    pub(super) spec: PartitionSpec,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum Operation {
    AllReduce(ReduceOp),
    AllGather { dim: usize },
    ReduceScatter { op: ReduceOp, dim: usize },
    AllToAll { split: usize, concat: usize },
    Permute { pairs: Vec<(usize, usize)> },
    Broadcast { root: usize },
    Reshard(PartitionSpec),
}

impl Operation {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Operation::AllReduce(_) => "all_reduce",
            Operation::AllGather { .. } => "all_gather",
            Operation::ReduceScatter { .. } => "reduce_scatter",
            Operation::AllToAll { .. } => "all_to_all",
            Operation::Permute { .. } => "collective_permute",
            Operation::Broadcast { .. } => "broadcast",
            Operation::Reshard(_) => "reshard",
        }
    }
}

impl Key {
    /// Partition spec of the result.
    pub(super) fn result_spec(&self) -> PartitionSpec {
        let rest = self.spec.without(&self.axes);
        match &self.operation {
            Operation::AllReduce(_) | Operation::AllGather { .. } | Operation::Broadcast { .. } => {
                rest
            }
            // A dimension out of range is reported by the traced operation.
            Operation::ReduceScatter { dim, .. } | Operation::AllToAll { split: dim, .. }
                if *dim >= self.ty.rank() =>
            {
                rest
            }
            Operation::ReduceScatter { dim, .. } | Operation::AllToAll { split: dim, .. } => {
                rest.split(*dim, &self.axes)
            }
            Operation::Permute { .. } => self.spec.clone(),
            Operation::Reshard(spec) => spec.clone(),
        }
    }

    /// The computation of one device on its shard.
    #[track_caller]
    pub(super) fn on_shard<'t>(&self, x: Tensor<'t>) -> Tensor<'t> {
        let over = || Over::Axes(self.axes.clone());
        match &self.operation {
            Operation::AllReduce(ReduceOp::Mean) => x.all_reduce_mean(over()),
            Operation::AllReduce(op) => x.all_reduce(reduction(*op), over()),
            Operation::AllGather { dim } => x.all_gather(*dim, over()),
            Operation::ReduceScatter {
                op: ReduceOp::Mean,
                dim,
            } => x.reduce_scatter_mean(*dim, over()),
            Operation::ReduceScatter { op, dim } => x.reduce_scatter(reduction(*op), *dim, over()),
            Operation::AllToAll { split, concat } => x.all_to_all(*split, *concat, over()),
            Operation::Permute { pairs } => x.collective_permute(pairs, over()),
            Operation::Broadcast { root } => broadcast(x, *root, &over()),
            Operation::Reshard(_) => x,
        }
    }
}

/// The shard of the device at index `root`, as a sum of its bits and zeros: a sum of floats would
/// change -0 to +0.
#[track_caller]
fn broadcast<'t>(x: Tensor<'t>, root: usize, over: &Over) -> Tensor<'t> {
    let dtype = x.dtype();
    let bits = match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    };
    let mine = if dtype == DType::Bool {
        x.convert(bits)
    } else {
        x.bitcast(bits)
    };
    let is_root = x.trace().axis_index(over.clone()).eq(root as f64);
    let sum = is_root
        .select(mine, mine.zeros_like())
        .all_reduce(Reduction::Sum, over.clone());
    if dtype == DType::Bool {
        sum.ne(0)
    } else {
        sum.bitcast(dtype)
    }
}

const fn reduction(op: ReduceOp) -> Reduction {
    match op {
        // A mean is a sum, divided.
        ReduceOp::Sum | ReduceOp::Mean => Reduction::Sum,
        ReduceOp::Product => Reduction::Product,
        ReduceOp::Min => Reduction::Min,
        ReduceOp::Max => Reduction::Max,
        ReduceOp::And => Reduction::And,
        ReduceOp::Or => Reduction::Or,
    }
}
