//! Meshes, shardings and manual computations.

use std::collections::HashSet;

use crate::{
    Attribute, Attributes, ManualAttributes, Module, RankedType, ShardyAxis, ShardyDim, ShardyMesh,
    ShardySharding, Type,
    rules::{Check, ensure},
};

use super::typed::Typed;

/// Checks the meshes of a module.
pub(super) fn check_meshes(module: &Module) -> Check {
    let mut names = HashSet::new();
    for mesh in &module.meshes {
        let name = &mesh.name;
        ensure!(names.insert(&**name), "mesh `{name}` is defined twice");
        let mut axes = HashSet::new();
        for (axis, size) in &mesh.axes {
            ensure!(
                axes.insert(&**axis),
                "mesh `{name}` has axis `{axis}` twice"
            );
            ensure!(*size > 0, "axis `{axis}` of mesh `{name}` has the size 0");
        }
        let size = (mesh.axes.iter()).try_fold(1usize, |size, (_, axis)| size.checked_mul(*axis));
        let size = size
            .filter(|&size| size <= Module::MAX_DEVICES)
            .ok_or_else(|| {
                format!(
                    "mesh `{name}` has more than {} devices",
                    Module::MAX_DEVICES
                )
            })?;
        // A mesh without axes places a tensor on its one device.
        let placed = mesh.axes.is_empty() && mesh.devices.len() == 1;
        ensure!(
            placed || mesh.devices.is_empty() || is_permutation(&mesh.devices, size),
            "the devices of mesh `{name}` must be the numbers below {size}, in any order"
        );
    }
    Ok(())
}

fn is_permutation(numbers: &[usize], count: usize) -> bool {
    let unique: HashSet<_> = numbers.iter().filter(|&&number| number < count).collect();
    numbers.len() == count && unique.len() == count
}

/// Stands for the results of an operation that has none, and a sharding that places it on a device.
const PLACED: &[&Type] = &[&Type::Token];

/// Checks the attribute `sdy.sharding` of values of these types.
pub(super) fn check_attributes(module: &Module, attributes: &Attributes, types: &[&Type]) -> Check {
    let shardings = match attributes.get("sdy.sharding") {
        None => return Ok(()),
        Some(Attribute::Sharding(sharding)) => std::slice::from_ref(sharding),
        Some(Attribute::Shardings(shardings)) => &**shardings,
        Some(other) => {
            return Err(format!(
                "`sdy.sharding` is {other:?}; it must be a sharding"
            ));
        }
    };
    let placed = types.is_empty() && shardings.len() == 1;
    let types = if placed { PLACED } else { types };
    ensure!(
        shardings.len() == types.len(),
        "`sdy.sharding` has {} shardings; it must have {}",
        shardings.len(),
        types.len()
    );
    for (sharding, ty) in shardings.iter().zip(types) {
        check(module, sharding, ty).map_err(|error| format!("`sdy.sharding`: {error}"))?;
    }
    Ok(())
}

/// Checks a sharding of a value of type `ty`. Returns its mesh.
pub(crate) fn check<'a>(
    module: &'a Module,
    sharding: &ShardySharding,
    ty: &Type,
) -> Check<&'a ShardyMesh> {
    let mesh = (module.meshes.iter().find(|mesh| mesh.name == sharding.mesh))
        .ok_or_else(|| format!("the module has no mesh `{}`", sharding.mesh))?;
    let rank = ty.as_tensor().map_or(0, RankedType::rank);
    ensure!(
        sharding.dims.len() == rank,
        "the sharding has {} dimensions; it must have those of {ty}",
        sharding.dims.len()
    );
    let dims = sharding.dims.iter().flat_map(|dim| &dim.axes);
    let mut used: Vec<&ShardyAxis> = Vec::new();
    for axis in dims.chain(&sharding.replicated).chain(&sharding.unreduced) {
        check_axis(mesh, axis)?;
        ensure!(
            !used.iter().any(|other| overlap(axis, other)),
            "the sharding uses axis `{}` twice",
            axis.name
        );
        used.push(axis);
    }
    Ok(mesh)
}

fn check_axis(mesh: &ShardyMesh, axis: &ShardyAxis) -> Check {
    let size = mesh
        .axis_size(&axis.name)
        .ok_or_else(|| format!("mesh `{}` has no axis `{}`", mesh.name, axis.name))?;
    let Some((before, part)) = axis.part else {
        return Ok(());
    };
    let product = before.checked_mul(part).filter(|&product| product > 0);
    ensure!(
        product.is_some_and(|product| size.is_multiple_of(product)),
        "({before}){part} of axis `{}` does not divide its size, {size}",
        axis.name
    );
    Ok(())
}

/// Returns whether two parts of axes have devices in common. Both must fit their axes.
fn overlap(a: &ShardyAxis, b: &ShardyAxis) -> bool {
    if a.name != b.name {
        return false;
    }
    match (a.part, b.part) {
        (Some(a), Some(b)) => {
            let (first, second) = if a.0 <= b.0 { (a, b) } else { (b, a) };
            !second.0.is_multiple_of(first.0 * first.1)
        }
        _ => true,
    }
}

pub(super) fn constraint(op: &Typed<'_>, sharding: &ShardySharding) -> Check<Vec<Type>> {
    let operand = operand(op)?;
    check(op.module, sharding, &operand)?;
    Ok(vec![operand])
}

pub(super) fn barrier(op: &Typed<'_>) -> Check<Vec<Type>> {
    Ok(vec![operand(op)?])
}

/// The type of the only operand.
fn operand(op: &Typed<'_>) -> Check<Type> {
    let operands = op.operands();
    match &*operands {
        [operand] => Ok((*operand).clone()),
        _ => Err(format!("operand count is {}; it must be 1", operands.len())),
    }
}

pub(super) fn manual_computation(op: &Typed<'_>, manual: &ManualAttributes) -> Check<Vec<Type>> {
    op.check_region_count(1)?;
    let takes = local_types(op, manual, "in_shardings", &manual.inputs, &op.operands())?;
    let returns = local_types(op, manual, "out_shardings", &manual.outputs, &op.results())?;
    op.check_region(0, &takes, &returns)?;
    Ok(op.results().into_iter().cloned().collect())
}

/// The types of one device's shards of values of these types.
fn local_types(
    op: &Typed<'_>,
    manual: &ManualAttributes,
    name: &str,
    shardings: &[ShardySharding],
    types: &[&Type],
) -> Check<Vec<Type>> {
    ensure!(
        shardings.len() == types.len(),
        "`{name}` has {} shardings; it must have {}",
        shardings.len(),
        types.len()
    );
    let local = |(sharding, ty): (&ShardySharding, &&Type)| {
        let mesh = check(op.module, sharding, ty).map_err(|error| format!("`{name}`: {error}"))?;
        check_manual_mesh(op.module, manual, mesh)?;
        let Type::Tensor(ty) = ty else {
            return Ok((*ty).clone());
        };
        let dims = (ty.dims.iter().zip(&sharding.dims)).map(|(&size, dim)| {
            let parts = manual_parts(mesh, manual, dim)?;
            ensure!(
                size.is_multiple_of(parts),
                "`{name}` splits a dimension of {ty} into {parts} parts; it must be a multiple"
            );
            Ok(size / parts)
        });
        Ok(Type::Tensor(RankedType::new(
            ty.element,
            dims.collect::<Check<Vec<_>>>()?,
        )))
    };
    shardings.iter().zip(types).map(local).collect()
}

/// Checks that a mesh has the manual axes, and a device for each partition.
fn check_manual_mesh(module: &Module, manual: &ManualAttributes, mesh: &ShardyMesh) -> Check {
    let devices = mesh.size();
    ensure!(
        devices == module.partitions() || manual.axes.is_empty(),
        "mesh `{}` has {devices} devices; the module has {} partitions",
        mesh.name,
        module.partitions()
    );
    for (index, axis) in manual.axes.iter().enumerate() {
        check_axis(mesh, axis)?;
        ensure!(
            !manual.axes[..index]
                .iter()
                .any(|other| other.name == axis.name),
            "`manual_axes` has axis `{}` twice",
            axis.name
        );
        ensure!(
            axis.part.is_none(),
            "axis `{}` of `manual_axes` must be whole",
            axis.name
        );
    }
    Ok(())
}

/// Number of parts that manual axes split a dimension into. They come before other axes.
fn manual_parts(mesh: &ShardyMesh, manual: &ManualAttributes, dim: &ShardyDim) -> Check<usize> {
    let is_manual = |axis: &&ShardyAxis| manual.axes.iter().any(|other| other.name == axis.name);
    let count = dim.axes.iter().take_while(is_manual).count();
    ensure!(
        !dim.axes[count..].iter().any(|axis| is_manual(&axis)),
        "a manual axis splits a dimension after other axes; it must come before them"
    );
    if let Some(axis) = dim.axes[..count].iter().find(|axis| axis.part.is_some()) {
        return Err(format!(
            "a dimension has a part of the manual axis `{}`",
            axis.name
        ));
    }
    Ok(dim.axes[..count]
        .iter()
        .map(|axis| mesh.parts(axis))
        .product())
}
