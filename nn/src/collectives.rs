//! Operations between the devices that run a program, and hints to the compiler.

use std::{panic::Location, sync::Arc};

use halite_core::{DType, PartitionSpec, TensorType, list_axes};
use halite_ir::{Axes, CustomCall, Groups, Op, Reduction};

use crate::{
    Tensor, Trace,
    check::{Checked, check},
    dim::Dim,
    process_group::PROCESS_AXIS,
    shard_map,
};

/// Devices that take part in a collective together.
///
/// In a [`shard_map`](Trace::shard_map), those that differ in their places along mesh axes, by
/// name: `"data"`, `["data", "model"]`. Or lists of devices, each list a group: of places in the
/// mesh, or of replicas. The axis `"process"` is that of the [processes](crate::Processes) of a job,
/// of which each has a program of its own: it is there outside of a `shard_map`, too, and a tensor
/// that devices of a process share is exchanged once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Over {
    /// Axes by name; of several the last is the fastest.
    Axes(Vec<Arc<str>>),
    /// Groups as attributes of the operation.
    Groups(Groups),
}

impl Over {
    /// All devices of the mesh, or all replicas.
    pub const ALL: Over = Over::Groups(Groups::All);

    /// Whether it is the axis of the processes of a job alone.
    fn is_processes(&self) -> bool {
        matches!(self, Over::Axes(axes) if matches!(&axes[..], [axis] if **axis == *PROCESS_AXIS))
    }
}

impl From<&str> for Over {
    fn from(axis: &str) -> Self {
        Over::Axes(vec![axis.into()])
    }
}

impl From<&[&str]> for Over {
    fn from(axes: &[&str]) -> Self {
        Over::Axes(axes.iter().map(|&axis| axis.into()).collect())
    }
}

impl<const N: usize> From<[&str; N]> for Over {
    fn from(axes: [&str; N]) -> Self {
        axes.as_slice().into()
    }
}

impl From<Vec<Vec<usize>>> for Over {
    /// No lists are all devices.
    fn from(lists: Vec<Vec<usize>>) -> Self {
        Over::Groups(lists.into())
    }
}

impl From<Groups> for Over {
    fn from(groups: Groups) -> Self {
        Over::Groups(groups)
    }
}

impl From<Axes> for Over {
    fn from(axes: Axes) -> Self {
        Over::Groups(Groups::Axes(axes))
    }
}

impl<'t> Tensor<'t> {
    /// Reduces over the devices of each group.
    #[track_caller]
    pub fn all_reduce(self, kind: Reduction, over: impl Into<Over>) -> Tensor<'t> {
        let over = over.into();
        if over.is_processes() {
            return self.process_all_reduce(kind);
        }
        let groups = check!(groups(self.trace, "all_reduce", over, self.ty()));
        if is_bitwise(kind, self) && groups != Groups::All {
            return self.unsqueeze(0).all_gather(0, groups).reduce(kind, [0]);
        }
        self.trace.push_one(Op::AllReduce { kind, groups }, &[self])
    }

    /// The mean over the devices of each group, whose size must be known: of axes, or lists. Floats
    /// only; those of 16 bits are sent and added in `f32`, and the mean is rounded once.
    #[track_caller]
    pub fn all_reduce_mean(self, over: impl Into<Over>) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        let (groups, members) = check!(self.mean_groups("all_reduce_mean", over.into()));
        self.widened(|x| x.all_reduce(Reduction::Sum, groups) / members as f64)
    }

    /// The mean over the devices of each group, of which each gets its part of `dim`; as
    /// [`all_reduce_mean`](Self::all_reduce_mean).
    #[track_caller]
    pub fn reduce_scatter_mean(self, dim: impl Dim, over: impl Into<Over>) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        let (groups, members) = check!(self.mean_groups("reduce_scatter_mean", over.into()));
        self.widened(|x| x.reduce_scatter(Reduction::Sum, dim, groups) / members as f64)
    }

    /// Concatenates over the devices of each group along `dim`.
    #[track_caller]
    pub fn all_gather(self, dim: impl Dim, over: impl Into<Over>) -> Tensor<'t> {
        let over = over.into();
        if over.is_processes() {
            return self.process_all_gather(dim);
        }
        let groups = check!(groups(self.trace, "all_gather", over, self.ty()));
        let dim = check!(self.known_dim("all_gather", dim));
        self.trace.push_one(Op::AllGather { dim, groups }, &[self])
    }

    /// Reduces over the devices of each group, and gives each its part of `dim`.
    #[track_caller]
    pub fn reduce_scatter(
        self,
        kind: Reduction,
        dim: impl Dim,
        over: impl Into<Over>,
    ) -> Tensor<'t> {
        let over = over.into();
        if over.is_processes() {
            return self.process_reduce_scatter(kind, dim);
        }
        let groups = check!(groups(self.trace, "reduce_scatter", over, self.ty()));
        let dim = check!(self.known_dim("reduce_scatter", dim));
        if is_bitwise(kind, self) && groups != Groups::All {
            return self
                .unsqueeze(0)
                .all_to_all(dim + 1, 0, groups)
                .reduce(kind, [0]);
        }
        self.trace
            .push_one(Op::ReduceScatter { kind, dim, groups }, &[self])
    }

    /// Splits along `split`, sends part `i` to member `i` of the group, and concatenates what
    /// arrives along `concat`.
    #[track_caller]
    pub fn all_to_all(
        self,
        split: impl Dim,
        concat: impl Dim,
        over: impl Into<Over>,
    ) -> Tensor<'t> {
        let groups = check!(groups(self.trace, "all_to_all", over.into(), self.ty()));
        let split = check!(self.known_dim("all_to_all", split));
        let concat = check!(self.known_dim("all_to_all", concat));
        self.trace.push_one(
            Op::AllToAll {
                split,
                concat,
                groups,
            },
            &[self],
        )
    }

    /// Sends along `(from, to)` pairs of members of each group; a device that nothing is sent to
    /// gets zeros.
    #[track_caller]
    pub fn collective_permute(
        self,
        pairs: impl AsRef<[(usize, usize)]>,
        over: impl Into<Over>,
    ) -> Tensor<'t> {
        let pairs = pairs.as_ref().to_vec();
        let groups = check!(groups(
            self.trace,
            "collective_permute",
            over.into(),
            self.ty()
        ));
        self.trace
            .push_one(Op::CollectivePermute { pairs, groups }, &[self])
    }

    /// This tensor with a sharding constraint:
    /// `x.sharding_constraint([Some("data"), None, Some("model")])`. Dimensions past the end of the
    /// spec are whole. It changes where things are computed, not what.
    ///
    /// A model contains constraints for any mesh it may run on, so an axis that the mesh lacks is
    /// ignored, and so is one that does not divide the dimension; both are logged at level `info`.
    /// Gradients have the sharding of their tensors.
    #[track_caller]
    pub fn sharding_constraint(self, spec: impl Into<PartitionSpec>) -> Tensor<'t> {
        let (spec, manual) = (spec.into(), shard_map::manual_axes(self.trace));
        let is_manual = |axis: &Arc<str>| {
            manual
                .iter()
                .flat_map(|manual| &manual.axes)
                .any(|(name, _)| name == axis)
        };
        if let Some(axis) = spec.all_axes().find(|axis| is_manual(axis)) {
            return self.mistake("sharding_constraint", || {
                format!("{spec} names axis `{axis}`, which is manual in this shard_map; the shard of one device is not split further")
            });
        }
        self.trace.push_one(Op::ShardingConstraint(spec), &[self])
    }

    /// This, unchanged; the compiler moves nothing across.
    #[track_caller]
    pub fn optimization_barrier(self) -> Tensor<'t> {
        self.trace.push_one(Op::OptimizationBarrier, &[self])
    }

    /// The groups that a mean is taken over, and how many members each has.
    #[track_caller]
    fn mean_groups(self, op: &str, over: Over) -> Checked<'t, (Groups, usize)> {
        if !self.dtype().is_float() {
            let message = || format!("takes floats, not {} (convert first)", self.ty());
            return Err(self.mistake(op, message));
        }
        let groups = groups(self.trace, op, over, self.ty())?;
        let members = match &groups {
            Groups::Axes(axes) => axes.iter().map(|(_, size)| size).product(),
            Groups::Lists(lists) => lists.first().map_or(0, Vec::len),
            Groups::All => {
                return Err(self.mistake(op, || {
                    "of how many replicas is not known; name them by lists".to_string()
                }));
            }
        };
        Ok((groups, members))
    }
}

/// Whether a reduction is of the bits of integers: devices reduce those, but not on the way between
/// them.
fn is_bitwise(kind: Reduction, x: Tensor<'_>) -> bool {
    matches!(kind, Reduction::And | Reduction::Or) && x.dtype().is_integer()
}

impl Trace {
    /// `tensors`, unchanged; the compiler moves nothing across, and none is there before all are.
    #[track_caller]
    pub fn optimization_barrier<'t>(&'t self, tensors: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        if tensors.is_empty() {
            vec![]
        } else {
            self.push_many(Op::OptimizationBarrier, tensors, tensors.len())
        }
    }

    /// Calls a function that the backend knows by name. [`CustomOp`](crate::CustomOp) adds shape
    /// inference and a gradient.
    #[track_caller]
    pub fn custom_call<'t>(&'t self, call: CustomCall, operands: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let count = call.results.len();
        self.push_many(Op::CustomCall(call), operands, count)
    }

    /// Where this device is along mesh axes, in a [`shard_map`](Self::shard_map): an `s32` scalar.
    /// The last of several axes varies fastest.
    #[track_caller]
    pub fn axis_index(&self, axes: impl Into<Over>) -> Tensor<'_> {
        const OP: &str = "axis_index";
        match groups(self, OP, axes.into(), TensorType::scalar(DType::S32)) {
            Ok(Groups::Axes(axes)) => self.push_one(Op::AxisIndex(axes), &[]),
            Ok(_) => self.fail(OP, "takes axes by name, in a `shard_map`", None),
            Err(error) => error,
        }
    }

    /// Index of the partition of this device, a `u32` scalar.
    #[track_caller]
    pub fn partition_id(&self) -> Tensor<'_> {
        self.push_one(Op::PartitionId, &[])
    }

    /// Index of the replica of this device, a `u32` scalar.
    #[track_caller]
    pub fn replica_id(&self) -> Tensor<'_> {
        self.push_one(Op::ReplicaId, &[])
    }
}

/// Axes by name get their sizes, and lists are looked through: both are known in a `shard_map`.
/// `like` is for an error tensor.
#[track_caller]
fn groups<'t>(cx: &'t Trace, op: &str, over: Over, like: TensorType) -> Checked<'t, Groups> {
    let manual = shard_map::manual_axes(cx);
    let names = match (over, &manual) {
        (Over::Axes(names), _) => names,
        (Over::Groups(Groups::All), Some(manual)) => {
            return Ok(Groups::Axes(manual.axes.clone()));
        }
        (Over::Groups(groups), None) => return Ok(groups),
        (Over::Groups(groups), Some(manual)) => {
            return match (&groups, manual.devices) {
                (Groups::Lists(_), None) => {
                    let message = format!(
                        "not all axes are manual here; name some of {}",
                        list_axes(&manual.axes)
                    );
                    Err(cx.fail(op, message, Some(like)))
                }
                (Groups::Lists(_), Some(devices)) => match groups.problem(devices) {
                    Some(problem) => Err(cx.fail(op, problem, Some(like))),
                    None => Ok(groups),
                },
                _ => Ok(groups),
            };
        }
    };
    let Some(manual) = manual else {
        let message = format!(
            "{names:?}: mesh axes are known in `shard_map` only; elsewhere the compiler places collectives, and a sharding \
             constraint sets the sharding"
        );
        return Err(cx.fail(op, message, Some(like)));
    };
    let mut axes = Axes::new();
    for name in &names {
        let Some((name, size)) = manual.axes.iter().find(|(axis, _)| axis == name) else {
            let message = format!(
                "no axis `{name}`; the manual axes here are {}",
                list_axes(&manual.axes)
            );
            return Err(cx.fail(op, message, Some(like)));
        };
        axes.push((name.clone(), *size));
    }
    Ok(Groups::Axes(axes))
}
