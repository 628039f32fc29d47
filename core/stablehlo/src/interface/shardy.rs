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
            of_device: vec![0; partitions],
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
    let mut of_device = vec![0; partitions];
    for place in 0..partitions {
        let device = mesh.devices.get(place).copied().unwrap_or(place);
        of_device[device] = axes().fold(0, |shard, axis| {
            shard * mesh.parts(axis) + part(mesh, axis, place)
        });
    }
    Ok(HloSharding {
        parts: sharding.dims.iter().map(|dim| parts(&dim.axes)).collect(),
        of_device,
    })
}

/// The part along an axis that belongs to the device at a place of the mesh, row-major.
fn part(mesh: &ShardyMesh, axis: &ShardyAxis, place: usize) -> usize {
    let mut rest = place;
    let mut coordinate = 0;
    for (name, size) in mesh.axes.iter().rev() {
        if *name == axis.name {
            coordinate = rest % size;
        }
        rest /= size;
    }
    let Some((before, part)) = axis.part else {
        return coordinate;
    };
    let whole = mesh.axis_size(&axis.name).unwrap_or(1);
    coordinate / (whole / (before * part)) % part
}
