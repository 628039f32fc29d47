//! Operations between the devices that run a program, and hints to the compiler.

use halite_core::PartitionSpec;
use halite_ir::{CustomCall, Groups, Op, Reduction};

use crate::{Tensor, Trace};

impl<'t> Tensor<'t> {
    /// Reduces over the devices of each group; empty groups are all devices.
    #[track_caller]
    pub fn all_reduce(self, kind: Reduction, groups: Groups) -> Tensor<'t> {
        self.trace.push_one(Op::AllReduce { kind, groups }, &[self])
    }

    /// Concatenates over the devices of each group along `dim`.
    #[track_caller]
    pub fn all_gather(self, dim: usize, groups: Groups) -> Tensor<'t> {
        self.trace.push_one(Op::AllGather { dim, groups }, &[self])
    }

    /// Reduces over the devices of each group, and gives each its part of `dim`.
    #[track_caller]
    pub fn reduce_scatter(self, kind: Reduction, dim: usize, groups: Groups) -> Tensor<'t> {
        self.trace.push_one(Op::ReduceScatter { kind, dim, groups }, &[self])
    }

    /// Splits along `split`, sends part `i` to member `i` of the group, and concatenates what arrives along `concat`.
    #[track_caller]
    pub fn all_to_all(self, split: usize, concat: usize, groups: Groups) -> Tensor<'t> {
        self.trace.push_one(Op::AllToAll { split, concat, groups }, &[self])
    }

    /// Sends along `(from, to)` pairs of devices; a device that nothing is sent to gets zeros.
    #[track_caller]
    pub fn collective_permute(self, pairs: impl AsRef<[(usize, usize)]>) -> Tensor<'t> {
        self.trace.push_one(Op::CollectivePermute { pairs: pairs.as_ref().to_vec() }, &[self])
    }

    /// This, laid over the program's mesh by `spec`.
    #[track_caller]
    pub fn sharding_constraint(self, spec: PartitionSpec) -> Tensor<'t> {
        self.trace.push_one(Op::ShardingConstraint(spec), &[self])
    }

    /// This, unchanged; the compiler moves nothing across.
    #[track_caller]
    pub fn optimization_barrier(self) -> Tensor<'t> {
        self.trace.push_one(Op::OptimizationBarrier, &[self])
    }
}

impl Trace {
    /// `tensors`, unchanged; the compiler moves nothing across, and none is there before all are.
    #[track_caller]
    pub fn optimization_barrier<'t>(&'t self, tensors: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        if tensors.is_empty() { vec![] } else { self.push_many(Op::OptimizationBarrier, tensors, tensors.len()) }
    }

    /// Calls a function that the backend knows by name.
    #[track_caller]
    pub fn custom_call<'t>(&'t self, call: CustomCall, operands: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let count = call.results.len();
        self.push_many(Op::CustomCall(call), operands, count)
    }

    /// Which partition this device is: a `u32` scalar.
    #[track_caller]
    pub fn partition_id(&self) -> Tensor<'_> {
        self.push_one(Op::PartitionId, &[])
    }

    /// Which replica this device is: a `u32` scalar.
    #[track_caller]
    pub fn replica_id(&self) -> Tensor<'_> {
        self.push_one(Op::ReplicaId, &[])
    }
}
