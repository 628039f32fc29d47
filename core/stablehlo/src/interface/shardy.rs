//! Shardings of Shardy, without names of axes.

use halite_core::HloSharding;

use super::{Check, Fault};
use crate::{Module, ShardyAxis, ShardyMesh, ShardySharding, Type, verify::check_sharding};

/// The shards of each partition of a tensor of type `ty`. The meshes of the module must be valid.
pub(super) fn hlo_sharding(
    module: &Module,
    sharding: &ShardySharding,
    ty: &Type,
) -> Check<HloSharding> {
    let mesh = check_sharding(module, sharding, ty)
        .map_err(|error| Fault::invalid(format!("`sdy.sharding`: {error}")))?;
    let partitions = module.partitions();
    if !sharding.unreduced.is_empty() {
        return Err(Fault::unsupported(
            "`sdy.sharding` has unreduced axes".into(),
        ));
    }
    let axes = || sharding.dims.iter().flat_map(|dim| &dim.axes);
    if axes().next().is_none() {
        let placed = mesh.axes.is_empty() && !mesh.devices.is_empty();
        if placed && partitions > 1 {
            return Err(Fault::unsupported(format!(
                "mesh `{}` has one device; it must have all {partitions} partitions",
                mesh.name
            )));
        }
        return Ok(HloSharding {
            parts: vec![1; sharding.dims.len()],
            of_device: vec![0; partitions].into(),
        });
    }
    if mesh.size() != partitions {
        return Err(Fault::unsupported(format!(
            "mesh `{}` has {} devices; it must have all {partitions} partitions",
            mesh.name,
            mesh.size()
        )));
    }
    let parts = |axes: &[ShardyAxis]| axes.iter().map(|axis| mesh.parts(axis)).product();
    let splits: Vec<Split> = axes().filter_map(|axis| Split::by(mesh, axis)).collect();
    let mut of_device = vec![0; partitions];
    for place in 0..partitions {
        let device = mesh.devices.get(place).copied().unwrap_or(place);
        of_device[device] = splits.iter().fold(0, |shard, split| {
            shard * split.parts + place / split.stride % split.parts
        });
    }
    Ok(HloSharding {
        parts: sharding.dims.iter().map(|dim| parts(&dim.axes)).collect(),
        of_device: of_device.into(),
    })
}

/// Parts along an axis of a mesh, or along a part of one.
struct Split {
    parts: usize,
    /// Difference of the places of neighbors, row-major.
    stride: usize,
}

impl Split {
    /// `None` if there is one part, so that the work does not grow with the number of such axes.
    fn by(mesh: &ShardyMesh, axis: &ShardyAxis) -> Option<Self> {
        let parts = mesh.parts(axis);
        if parts <= 1 {
            return None;
        }
        let position = mesh.axes.iter().position(|(name, _)| *name == axis.name)?;
        let inner = mesh.axes[position + 1..].iter().map(|(_, size)| size);
        let within = axis
            .part
            .map_or(1, |(before, part)| mesh.axes[position].1 / (before * part));
        Some(Split {
            parts,
            stride: inner.product::<usize>() * within,
        })
    }
}
