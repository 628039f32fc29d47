//! Arrays of which each process has a part of its own, as ZeRO has optimizer states.
//!
//! A shard is a vector: elements of the array in row-major order, and zeros beyond its end. It is
//! split over the local devices, so that what a device exchanges with others is what it has.

use std::{ops::Range, panic::Location};

use halite_core::{DType, PartitionSpec, TensorType};

use super::{Kind, buckets};
use crate::{Processes, Tensor, Trace, special::wide};

/// How the elements of an array are divided among the processes of a job.
///
/// Process `r` has the elements from `r * shard_len` on, of which the last process may have fewer or
/// none:
///
/// ```
/// use halite_nn::ProcessShards;
///
/// let shards = ProcessShards { processes: 4, devices: 1 };
/// assert_eq!(shards.shard_len(10), 3);
/// assert_eq!([0, 1, 2, 3].map(|rank| shards.range(10, rank)), [0..3, 3..6, 6..9, 9..10]);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProcessShards {
    /// Number of processes.
    pub processes: usize,
    /// Devices of one process.
    pub devices: usize,
}

impl ProcessShards {
    /// Length of the vector that each process has of this number of elements, a multiple of its
    /// devices.
    pub fn shard_len(&self, elements: usize) -> usize {
        self.devices * self.of_device(elements)
    }

    /// Length of what one device has of it.
    fn of_device(&self, elements: usize) -> usize {
        elements.div_ceil(self.processes * self.devices)
    }

    /// The elements, of this number, at the beginning of the vector of a process.
    pub fn range(&self, elements: usize, rank: usize) -> Range<usize> {
        let start = |rank: usize| (rank * self.shard_len(elements)).min(elements);
        start(rank)..start(rank + 1)
    }
}

impl Processes {
    /// How they divide arrays.
    pub fn shards(&self) -> ProcessShards {
        ProcessShards {
            processes: self.size(),
            devices: self.local_mesh().size(),
        }
    }
}

/// Sums of [`process_sum_shards`].
pub(super) struct SumShards<'t> {
    /// The shard of this process of the sum of each tensor.
    pub(super) shards: Vec<Tensor<'t>>,
    /// The sum of each scalar, of one floating-point type: the same bits in every process.
    pub(super) scalars: Vec<Tensor<'t>>,
}

impl Trace {
    /// The shards of this process of these tensors; the tensors where there is one process.
    #[track_caller]
    pub fn process_shards<'t>(&'t self, tensors: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let Some(processes) = self.processes() else {
            return tensors.to_vec();
        };
        let _site = self.called_from(Location::caller());
        let rank = self.process_index();
        let first = self.scalar(0.0, DType::S32);
        let shard = |tensor: &Tensor<'t>| {
            // Not split as its shard is, for which it would be gathered.
            let tensor = tensor.sharding_constraint(PartitionSpec::replicated());
            let len = processes.shards().shard_len(tensor.ty().elements());
            let rows = by_device(&processes, tensor).reshape([processes.size(), len]);
            rows.dynamic_slice(&[rank, first], [1, len]).flatten()
        };
        tensors.iter().map(shard).collect()
    }

    /// The arrays of these types, from the shards of all processes; the tensors where there is one
    /// process. `name` is for messages.
    ///
    /// # Panics
    /// If there are not as many types as shards.
    #[track_caller]
    pub fn gather_process_shards<'t>(
        &'t self,
        name: &str,
        shards: &[Tensor<'t>],
        types: &[TensorType],
    ) -> Vec<Tensor<'t>> {
        assert_eq!(shards.len(), types.len(), "a type for each shard");
        let Some(processes) = self.processes() else {
            return shards.to_vec();
        };
        let _site = self.called_from(Location::caller());
        if let Some(error) = shards.iter().find(|tensor| tensor.is_error()) {
            return vec![*error; shards.len()];
        }
        let ProcessShards {
            processes: count,
            devices,
        } = processes.shards();
        let mut whole: Vec<Option<Tensor<'t>>> = vec![None; shards.len()];
        for bucket in buckets(types.iter().cloned()) {
            let parts = bucket.iter().map(|&index| {
                let shard = shards[index];
                shard.reshape([devices, shard.ty().elements() / devices])
            });
            let packed = self.concat(&parts.collect::<Vec<_>>(), 1).flatten();
            let all = super::exchange(self, &processes, Kind::AllGather, name, packed);
            // Once, not for each of the tensors.
            let all = all.sharding_constraint(PartitionSpec::replicated());
            let all = all.reshape([count, devices, packed.ty().elements() / devices]);
            let mut start = 0;
            for index in bucket {
                let (ty, len) = (&types[index], shards[index].ty().elements() / devices);
                let rows = all.slice_dim(2, start..start + len).flatten();
                let elements = rows.slice_dim(0, 0..ty.elements());
                whole[index] = Some(elements.reshape(ty.dims()));
                start += len;
            }
        }
        let whole = whole.into_iter();
        whole
            .map(|tensor| tensor.expect("each shard is in a bucket"))
            .collect()
    }
}

/// The vectors `x` of all processes, `[processes, n]`; `[1, n]` where there is one process.
#[track_caller]
pub(crate) fn gather<'t>(cx: &'t Trace, name: &str, x: Tensor<'t>) -> Tensor<'t> {
    match cx.processes() {
        Some(processes) => super::exchange(cx, &processes, Kind::AllGather, name, x),
        None => x.unsqueeze(0),
    }
}

/// The shards of this process of the sums of tensors, which are floats, and the sums of scalars.
/// All are packed into few exchanges.
#[track_caller]
pub(super) fn process_sum_shards<'t>(
    cx: &'t Trace,
    processes: &Processes,
    name: &str,
    tensors: &[Tensor<'t>],
    scalars: &[Tensor<'t>],
) -> SumShards<'t> {
    let mut rows: Vec<Tensor<'t>> = (tensors.iter())
        .map(|tensor| by_device(processes, tensor.convert(wide(tensor.dtype()))))
        .collect();
    rows.push(for_every_device(cx, processes, scalars));
    let mut sums: Vec<Option<Tensor<'t>>> = vec![None; rows.len()];
    let ProcessShards {
        processes: count,
        devices,
    } = processes.shards();
    for bucket in buckets(rows.iter().map(|row| row.ty())) {
        let parts: Vec<Tensor<'t>> = bucket.iter().map(|&index| rows[index]).collect();
        let packed = cx.concat(&parts, 2);
        let len = packed.dims()[2];
        let packed = packed.reshape([count, devices * len]);
        let sum = super::exchange(cx, processes, Kind::ReduceScatter, name, packed);
        let sum = sum.reshape([devices, len]);
        let mut start = 0;
        for (index, part) in bucket.into_iter().zip(parts) {
            let len = part.dims()[2];
            sums[index] = Some(sum.slice_dim(1, start..start + len));
            start += len;
        }
    }
    let mut sums = sums.into_iter().map(|sum| sum.expect("in a bucket"));
    let shards = sums.by_ref().take(tensors.len());
    let shards = shards.map(|shard| shard.flatten()).collect();
    let all = sums.next().expect("the scalars are last").index(0, 0);
    let all = all.reshape([count, scalars.len()]).sum([0]);
    let scalars = (0..scalars.len()).map(|at| all.index(0, at));
    SumShards {
        shards,
        scalars: scalars.collect(),
    }
}

/// `[processes, devices, processes * scalars]`: the scalars of this process at its place, and
/// zeros at those of others, for every device. Their sum has the scalars of all processes to the
/// bit, which a reduction of the scalars does not promise.
#[track_caller]
fn for_every_device<'t>(
    cx: &'t Trace,
    processes: &Processes,
    scalars: &[Tensor<'t>],
) -> Tensor<'t> {
    let is_f64 = scalars.iter().any(|scalar| scalar.dtype() == DType::F64);
    let dtype = if is_f64 { DType::F64 } else { DType::F32 };
    let scalars: Vec<Tensor<'t>> = (scalars.iter())
        .map(|scalar| scalar.convert(dtype).reshape([1]))
        .collect();
    let ProcessShards {
        processes: count,
        devices,
    } = processes.shards();
    let mine = cx.concat(&scalars, 0);
    let all = mine.broadcast_in_dim([count, scalars.len()], [1]);
    let ranks = cx.iota(&TensorType::new(DType::S32, [count, scalars.len()]), 0);
    let is_mine = ranks.eq(cx.process_index().broadcast_to(ranks.dims()));
    let all = is_mine.select(all, all.zeros_like()).flatten();
    all.broadcast_in_dim([count, devices, count * scalars.len()], [2])
}

/// `[processes, devices, n]`: what each device of each process has of `x`, with zeros at the end.
#[track_caller]
fn by_device<'t>(processes: &Processes, x: Tensor<'t>) -> Tensor<'t> {
    let shards = processes.shards();
    let len = shards.of_device(x.ty().elements());
    let dims = [shards.processes, shards.devices, len];
    super::padded(x.flatten(), dims.iter().product()).reshape(dims)
}
