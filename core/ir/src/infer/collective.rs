//! Operations over devices.

use std::collections::HashSet;

use halite_core::{DType, PartitionSpec, TensorType, list_axes};
use halite_stablehlo::rules::{self, Check};

use super::{Infer, fail, local::reducible};
use crate::{Axes, Groups, Reduction};

impl Infer<'_> {
    pub(super) fn all_reduce(self, kind: Reduction, groups: &Groups) -> Check<Vec<TensorType>> {
        let [x] = rules::take(self.operands)?;
        reducible(kind, x)?;
        if *groups != Groups::All {
            self.group_size(groups)?;
        }
        Ok(vec![(*x).clone()])
    }

    pub(super) fn all_gather(self, dim: usize, groups: &Groups) -> Check<Vec<TensorType>> {
        let [x] = rules::take(self.operands)?;
        rules::check_dim("dimension", dim, x)?;
        let members = self.group_size(groups)?;
        let mut dims = x.dims().to_vec();
        dims[dim] = grown(dim, dims[dim], members)?;
        Ok(vec![x.with_dims(dims)])
    }

    pub(super) fn reduce_scatter(
        self,
        kind: Reduction,
        dim: usize,
        groups: &Groups,
    ) -> Check<Vec<TensorType>> {
        let [x] = rules::take(self.operands)?;
        reducible(kind, x)?;
        let mut dims = x.dims().to_vec();
        self.divide(x, dim, &mut dims, groups)?;
        Ok(vec![x.with_dims(dims)])
    }

    pub(super) fn all_to_all(
        self,
        split: usize,
        concat: usize,
        groups: &Groups,
    ) -> Check<Vec<TensorType>> {
        let [x] = rules::take(self.operands)?;
        rules::check_dim("concatenated dimension", concat, x)?;
        let mut dims = x.dims().to_vec();
        let members = self.divide(x, split, &mut dims, groups)?;
        dims[concat] = grown(concat, dims[concat], members)?;
        Ok(vec![x.with_dims(dims)])
    }

    pub(super) fn collective_permute(
        self,
        pairs: &[(usize, usize)],
        groups: &Groups,
    ) -> Check<Vec<TensorType>> {
        let [x] = rules::take(self.operands)?;
        let members = if *groups == Groups::All {
            None
        } else {
            Some(self.group_size(groups)?)
        };
        let (mut sources, mut targets) = (HashSet::new(), HashSet::new());
        for &(source, target) in pairs {
            for member in [source, target] {
                self.device(member)?;
                if let Some(members) = members.filter(|&members| member >= members) {
                    return fail(format!(
                        "member {member} in {pairs:?} of a group of {members}, from 0 to {}",
                        members - 1
                    ));
                }
            }
            if !sources.insert(source) {
                return fail(format!("device {source} sends twice in {pairs:?}"));
            }
            if !targets.insert(target) {
                return fail(format!("device {target} is sent to twice in {pairs:?}"));
            }
        }
        Ok(vec![(*x).clone()])
    }

    pub(super) fn device_id(self) -> Check<Vec<TensorType>> {
        let [] = rules::take(self.operands)?;
        Ok(vec![TensorType::scalar(DType::U32)])
    }

    pub(super) fn axis_index(self, axes: &Axes) -> Check<Vec<TensorType>> {
        let [] = rules::take(self.operands)?;
        self.axes(axes)?;
        Ok(vec![TensorType::scalar(DType::S32)])
    }

    pub(super) fn sharding_constraint(self, spec: &PartitionSpec) -> Check<Vec<TensorType>> {
        let [x] = rules::take(self.operands)?;
        if spec.rank() > x.rank() {
            return fail(format!(
                "{spec} has {} dimensions, {x} has {}",
                spec.rank(),
                x.rank()
            ));
        }
        let mut seen = HashSet::new();
        if let Some(axis) = (0..spec.rank())
            .flat_map(|dim| spec.axes(dim))
            .find(|axis| !seen.insert(*axis))
        {
            return fail(format!(
                "{spec} uses axis `{axis}` twice; an axis can split one dimension"
            ));
        }
        Ok(vec![(*x).clone()])
    }

    pub(super) fn unsharded(self, dims: &[usize]) -> Check<Vec<TensorType>> {
        let [x] = rules::take(self.operands)?;
        let ascending = dims.is_sorted_by(|a, b| a < b);
        if !ascending || dims.last().is_some_and(|&dim| dim >= x.rank()) {
            return fail(format!(
                "{dims:?} are not dimensions of {x} in ascending order"
            ));
        }
        Ok(vec![(*x).clone()])
    }

    /// Divides `dims[dim]` by the number of members of a group, which is returned.
    fn divide(
        self,
        x: &TensorType,
        dim: usize,
        dims: &mut [usize],
        groups: &Groups,
    ) -> Check<usize> {
        rules::check_dim("split dimension", dim, x)?;
        let members = self.group_size(groups)?;
        if !dims[dim].is_multiple_of(members) {
            return fail(format!(
                "dimension {dim} of {x} is {}, not a multiple of the {members} members of a group",
                dims[dim]
            ));
        }
        dims[dim] /= members;
        Ok(members)
    }

    /// Number of members of each group.
    fn group_size(self, groups: &Groups) -> Check<usize> {
        let lists = match groups {
            Groups::Axes(axes) => return self.axes(axes),
            Groups::Lists(lists) => lists.as_slice(),
            Groups::All => &[],
        };
        let Some(first) = lists.first() else {
            return fail(
                "the groups are empty, and the result depends on their size: name the devices, such as [[0, 1]]",
            );
        };
        let mut seen = HashSet::new();
        for group in lists {
            if group.is_empty() || group.len() != first.len() {
                return fail(format!(
                    "groups {lists:?} must have equally many members, one or more"
                ));
            }
            for &device in group {
                self.device(device)?;
                if !seen.insert(device) {
                    return fail(format!("device {device} appears twice in groups {lists:?}"));
                }
            }
        }
        Ok(first.len())
    }

    /// Number of devices along the axes together. Checks that there is an axis, without duplicates or
    /// sizes of 0.
    pub(super) fn axes(self, axes: &Axes) -> Check<usize> {
        if axes.is_empty() {
            return fail("no axis is named; name one of the mesh or more");
        }
        let mut members = 1usize;
        for (i, (axis, size)) in axes.iter().enumerate() {
            if axes[..i].iter().any(|(other, _)| other == axis) {
                return fail(format!("axis `{axis}` appears twice in {}", named(axes)));
            }
            members = match members.checked_mul(*size) {
                Some(members @ 1..) => members,
                _ => {
                    return fail(format!(
                        "{} has no devices, or more than can be counted",
                        named(axes)
                    ));
                }
            };
        }
        Ok(members)
    }

    fn device(self, device: usize) -> Check {
        match u32::try_from(device) {
            Ok(_) => Ok(()),
            Err(_) => fail(format!("device {device} is not a valid device number")),
        }
    }
}

/// Size of dimension `dim` with the parts of all members.
fn grown(dim: usize, size: usize, members: usize) -> Check<usize> {
    let grown = size.checked_mul(members);
    grown.ok_or_else(|| format!("dimension {dim} would be larger than any address space"))
}

/// `(data=2, model=4)`
pub(super) fn named(axes: &Axes) -> String {
    format!("({})", list_axes(axes))
}
