//! Families of operations, for passes that treat many of them alike.

use super::Op;

/// Family of an operation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Family {
    /// Computes each result from the operands on one device, without regions.
    Local,
    /// Identity that carries a fact for differentiation or the compiler.
    Marker,
    /// Contains graphs.
    Region,
    /// Communicates between devices.
    Collective,
    /// Index of the device it runs on.
    DeviceIndex,
    /// Function of the backend.
    CustomCall,
}

/// Pattern of [`Family::Local`].
macro_rules! local_op {
    () => {
        $crate::Op::Constant(_)
            | $crate::Op::Iota { .. }
            | $crate::Op::Unary(_)
            | $crate::Op::Binary(_)
            | $crate::Op::Compare(_)
            | $crate::Op::Select
            | $crate::Op::Clamp
            | $crate::Op::Convert(_)
            | $crate::Op::BitcastConvert(_)
            | $crate::Op::ReducePrecision { .. }
            | $crate::Op::Broadcast { .. }
            | $crate::Op::Reshape { .. }
            | $crate::Op::Transpose { .. }
            | $crate::Op::Reverse { .. }
            | $crate::Op::Concatenate { .. }
            | $crate::Op::Slice { .. }
            | $crate::Op::DynamicSlice { .. }
            | $crate::Op::DynamicUpdateSlice
            | $crate::Op::Pad { .. }
            | $crate::Op::Gather(_)
            | $crate::Op::Scatter(..)
            | $crate::Op::Dot(..)
            | $crate::Op::Convolution(..)
            | $crate::Op::Reduce { .. }
            | $crate::Op::ArgReduce { .. }
            | $crate::Op::ReduceWindow { .. }
            | $crate::Op::SelectAndScatter { .. }
            | $crate::Op::Sort { .. }
            | $crate::Op::Cholesky { .. }
            | $crate::Op::TriangularSolve(_)
    };
}

/// Pattern of [`Family::Marker`].
macro_rules! marker_op {
    () => {
        $crate::Op::StopGradient
            | $crate::Op::OptimizationBarrier
            | $crate::Op::ShardingConstraint(_)
            | $crate::Op::Unsharded { .. }
            | $crate::Op::PropagationBarrier
    };
}

/// Pattern of [`Family::Collective`].
macro_rules! collective_op {
    () => {
        $crate::Op::AllReduce { .. }
            | $crate::Op::AllGather { .. }
            | $crate::Op::ReduceScatter { .. }
            | $crate::Op::AllToAll { .. }
            | $crate::Op::CollectivePermute { .. }
    };
}

/// Pattern of [`Family::DeviceIndex`].
macro_rules! device_index_op {
    () => {
        $crate::Op::PartitionId | $crate::Op::ReplicaId | $crate::Op::AxisIndex(_)
    };
}

pub(crate) use {collective_op, device_index_op, local_op, marker_op};

impl Op {
    /// Family of the operation.
    pub const fn family(&self) -> Family {
        match self {
            local_op!() => Family::Local,
            marker_op!() => Family::Marker,
            collective_op!() => Family::Collective,
            device_index_op!() => Family::DeviceIndex,
            Op::CustomCall(call) if call.decomposition.is_none() => Family::CustomCall,
            Op::While { .. }
            | Op::Scan { .. }
            | Op::Checkpoint { .. }
            | Op::CustomCall(_)
            | Op::Case { .. }
            | Op::ShardMap(_) => Family::Region,
        }
    }
}
