//! Shardings of tensors over the partitions of a program.

use halite_core::{Error, HloSharding, Result};
use halite_stablehlo::{Module, RankedType, ShardyAxis, ShardyMesh, ShardySharding};

use super::{
    index::{for_each_index, offset, strides},
    shape::slice,
    tensor::{Tensor, allocate},
};

/// A sharding of Shardy, over those of its axes for which `counts` is true.
pub(super) fn of_shardy(
    module: &Module,
    sharding: &ShardySharding,
    rank: usize,
    partitions: usize,
    counts: impl Fn(&ShardyAxis) -> bool,
) -> Result<HloSharding> {
    let mesh = mesh(module, &sharding.mesh)?;
    let mut parts = Vec::with_capacity(rank);
    let mut axes = Vec::new();
    for dim in 0..rank {
        let of_dim: Vec<_> = (sharding
            .dims
            .get(dim)
            .map_or(&[][..], |dim| &dim.axes)
            .iter())
        .filter(|axis| counts(axis))
        .map(|axis| MeshAxis::find(mesh, axis))
        .collect::<Result<_>>()?;
        parts.push(of_dim.iter().map(|axis| axis.size).product());
        axes.extend(of_dim);
    }
    let tile = |partition| {
        let place = place_of(mesh, partition);
        axes.iter()
            .fold(0, |tile, axis| tile * axis.size + axis.coordinate(place))
    };
    Ok(HloSharding {
        parts,
        of_device: (0..partitions).map(tile).collect(),
    })
}

/// The mesh with this name.
pub(super) fn mesh<'m>(module: &'m Module, name: &str) -> Result<&'m ShardyMesh> {
    module
        .meshes
        .iter()
        .find(|mesh| mesh.name == name)
        .ok_or_else(|| {
            let known: Vec<_> = module.meshes.iter().map(|mesh| &mesh.name).collect();
            invalid(format!(
                "a sharding names mesh `{name}`; the program has {known:?}"
            ))
        })
}

fn invalid(message: String) -> Error {
    Error::invalid("sharding", message)
}

/// The place of a partition in a mesh, row-major over its axes.
pub(super) fn place_of(mesh: &ShardyMesh, partition: usize) -> usize {
    let listed = mesh.devices.iter().position(|&device| device == partition);
    listed.unwrap_or(partition)
}

/// The partition at a place in a mesh.
pub(super) fn partition_at(mesh: &ShardyMesh, place: usize) -> usize {
    mesh.devices.get(place).copied().unwrap_or(place)
}

/// An axis of a mesh or a part of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeshAxis {
    pub(super) size: usize,
    /// Difference of the places of neighbors along it.
    pub(super) stride: usize,
}

impl MeshAxis {
    pub(super) fn find(mesh: &ShardyMesh, axis: &ShardyAxis) -> Result<Self> {
        let position = mesh.axes.iter().position(|(name, _)| *name == axis.name);
        let Some(position) = position else {
            let known: Vec<_> = mesh.axes.iter().map(|(name, _)| name).collect();
            let (name, mesh) = (&axis.name, &mesh.name);
            return Err(invalid(format!(
                "mesh `{mesh}` has no axis `{name}`, only {known:?}"
            )));
        };
        let whole = mesh.axes[position].1;
        let inner: usize = mesh.axes[position + 1..]
            .iter()
            .map(|(_, size)| size)
            .product();
        let (before, size) = axis.part.unwrap_or((1, whole));
        if before * size == 0 || !whole.is_multiple_of(before * size) {
            let name = &axis.name;
            let message = format!("axis `{name}` of size {whole} has no part ({before}){size}");
            return Err(invalid(message));
        }
        Ok(MeshAxis {
            size,
            stride: inner * (whole / (before * size)),
        })
    }

    pub(super) fn coordinate(self, place: usize) -> usize {
        place / self.stride % self.size
    }
}

/// The type of the shards of a tensor of type `ty`.
pub(crate) fn shard_type(ty: &RankedType, sharding: &HloSharding) -> Result<RankedType> {
    let mut dims = ty.dims.clone();
    for (dim, (size, parts)) in dims.iter_mut().zip(&sharding.parts).enumerate() {
        if *size % parts != 0 {
            return Err(invalid(format!(
                "dimension {dim} of {ty} is split {parts} ways, and {size} is not a multiple of it"
            )));
        }
        *size /= parts;
    }
    Ok(RankedType::new(ty.element, dims))
}

/// The index of the first element of the shard of a partition.
pub(crate) fn shard_start(
    sharding: &HloSharding,
    partition: usize,
    shard: &RankedType,
) -> Vec<usize> {
    let tile = sharding.of_device[partition];
    let steps = strides(&sharding.parts);
    let sizes = steps.iter().zip(&sharding.parts).zip(&shard.dims);
    sizes
        .map(|((step, parts), size)| tile / step % parts * size)
        .collect()
}

/// The shard of a partition.
pub(super) fn shard(x: &Tensor, sharding: &HloSharding, partition: usize) -> Result<Tensor> {
    let ty = shard_type(&x.ty, sharding)?;
    slice(
        x,
        &shard_start(sharding, partition, &ty),
        &vec![1; ty.rank()],
        &ty,
    )
}

/// The tensor of type `ty` with these shards, as `(partition, shard)`.
pub(super) fn assemble<'t>(
    shards: impl IntoIterator<Item = (usize, &'t Tensor)>,
    sharding: &HloSharding,
    ty: &RankedType,
) -> Result<Tensor> {
    let mut bytes = allocate(ty.bytes())?;
    bytes.resize(ty.bytes(), 0);
    let (steps, size) = (strides(&ty.dims), ty.element.size());
    for (partition, shard) in shards {
        let first = offset(&shard_start(sharding, partition, &shard.ty), &steps);
        let mut from = 0;
        for_each_index(&shard.ty.dims, |index| {
            let at = (first + offset(index, &steps)) * size;
            bytes[at..at + size].copy_from_slice(shard.element(from));
            from += 1;
            Ok(())
        })?;
    }
    Ok(Tensor::new(ty.clone(), bytes))
}
