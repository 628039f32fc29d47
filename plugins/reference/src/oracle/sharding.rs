//! Shardings of tensors over the partitions of a program: read from annotations, applied and undone.

use halite_core::{Error, HloSharding, Result};
use halite_stablehlo::{
    Attribute, Attributes, Module, RankedType, ShardyAxis, ShardyMesh, ShardySharding,
};

use super::{
    index::{for_each_index, offset, strides},
    shape::slice,
    tensor::{Tensor, allocate},
};

/// The sharding that the attributes of an input or output give, of a tensor with `rank`
/// dimensions; replicated if they give none.
pub(crate) fn of_attributes(
    module: &Module,
    attributes: &Attributes,
    rank: usize,
    partitions: usize,
) -> Result<HloSharding> {
    if let Some(Attribute::Sharding(sharding)) = attributes.get("sdy.sharding") {
        return of_shardy(module, sharding, rank, partitions, |_| true);
    }
    match attributes.get("mhlo.sharding") {
        Some(Attribute::Str(text)) => of_gspmd(text, rank, partitions),
        _ => Ok(replicated(rank, partitions)),
    }
}

fn replicated(rank: usize, partitions: usize) -> HloSharding {
    HloSharding {
        parts: vec![1; rank],
        of_device: vec![0; partitions],
    }
}

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
        if before * size == 0 || whole % (before * size) != 0 {
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

/// A sharding of GSPMD, as text: `{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}`.
fn of_gspmd(text: &str, rank: usize, partitions: usize) -> Result<HloSharding> {
    let refuse = || {
        invalid(format!(
            "`{text}` does not shard a tensor of {rank} dimensions over {partitions} partitions; \
             such as `{{devices=[2,1]<=[2]}}` or `{{replicated}}` would"
        ))
    };
    let inner = text
        .trim()
        .trim_start_matches('{')
        .trim_end_matches('}')
        .trim();
    let Some(tiles) = inner.strip_prefix("devices=[") else {
        let is_whole = ["replicated", "manual", "maximal"]
            .iter()
            .any(|it| inner.starts_with(it));
        return if is_whole {
            Ok(replicated(rank, partitions))
        } else {
            Err(refuse())
        };
    };
    let (tiles, order) = tiles.split_once(']').ok_or_else(refuse)?;
    let order = order.split_whitespace().next().unwrap_or_default();
    let tiles = numbers(tiles).ok_or_else(refuse)?;
    let devices = device_order(order).ok_or_else(refuse)?;
    let total = tiles
        .iter()
        .try_fold(1usize, |total, &size| total.checked_mul(size));
    if tiles.len() < rank || total != Some(partitions) || devices.len() != partitions {
        return Err(refuse());
    }
    // Dimensions after those of the tensor are replicated.
    let copies: usize = tiles[rank..].iter().product();
    let mut of_device = vec![0; partitions];
    for (place, &device) in devices.iter().enumerate() {
        *of_device.get_mut(device).ok_or_else(refuse)? = place / copies;
    }
    Ok(HloSharding {
        parts: tiles[..rank].to_vec(),
        of_device,
    })
}

fn numbers(list: &str) -> Option<Vec<usize>> {
    list.split(',')
        .map(|number| number.trim().parse().ok())
        .collect()
}

/// Devices in the order of tiles: `0,2,1,3`, or `<=[2,2]T(1,0)`, which counts and transposes.
fn device_order(text: &str) -> Option<Vec<usize>> {
    let Some(iota) = text.strip_prefix("<=[") else {
        return numbers(text);
    };
    let (dims, transposition) = iota.split_once(']')?;
    let dims = numbers(dims)?;
    let count = dims
        .iter()
        .try_fold(1usize, |count, &dim| count.checked_mul(dim))?;
    let permutation = match transposition.strip_prefix("T(") {
        Some(permutation) => numbers(permutation.trim_end_matches(')'))?,
        None => (0..dims.len()).collect(),
    };
    let mut sorted = permutation.clone();
    sorted.sort_unstable();
    if count > 1 << 20 || !sorted.into_iter().eq(0..dims.len()) {
        return None;
    }
    let steps = strides(&dims);
    let steps: Vec<_> = permutation.iter().map(|&dim| steps[dim]).collect();
    let dims: Vec<_> = permutation.iter().map(|&dim| dims[dim]).collect();
    let mut order = Vec::with_capacity(count);
    let visit = |index: &[usize]| {
        order.push(offset(index, &steps));
        Ok(())
    };
    for_each_index(&dims, visit).ok()?;
    Some(order)
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
fn start(sharding: &HloSharding, partition: usize, shard: &RankedType) -> Vec<usize> {
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
        &start(sharding, partition, &ty),
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
        let first = offset(&start(sharding, partition, &shard.ty), &steps);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gspmd_shardings_are_read() {
        let check = |text, parts: &[usize], of_device: &[usize]| {
            let sharding = of_gspmd(text, parts.len(), of_device.len()).unwrap();
            assert_eq!(
                (&sharding.parts[..], &sharding.of_device[..]),
                (parts, of_device)
            );
        };
        check("{replicated}", &[1, 1], &[0, 0]);
        check("{devices=[2,1]<=[2]}", &[2, 1], &[0, 1]);
        check("{devices=[2,2]0,2,1,3}", &[2, 2], &[0, 2, 1, 3]);
        check(
            "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
            &[2, 1],
            &[0, 1, 0, 1],
        );
    }

    #[test]
    fn malformed_gspmd_sharding_is_refused() {
        for text in [
            "",
            "{devices=[2",
            "{devices=[3]<=[3]}",
            "{devices=[2]0,7}",
            "{devices=[2]<=[2]T(3)}",
        ] {
            let error = of_gspmd(text, 1, 2).unwrap_err().to_string();
            assert!(error.contains("over 2 partitions"), "{error}");
        }
    }
}
