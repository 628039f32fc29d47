//! Shards of tensors. What is replicated, or consists of parts of one buffer, is not copied.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use halite_core::{HloSharding, Result};
use halite_stablehlo::RankedType;

use crate::{
    oracle::{Tensor, shard_start, shard_type},
    slice::Slice,
    storage::{Aligned, Storage},
};

/// The shards of these partitions. Those of the same elements share their memory, and parts of
/// neighboring elements that of the tensor.
pub(crate) fn shards(
    x: &Tensor,
    sharding: &HloSharding,
    partitions: &[usize],
) -> Result<Vec<Tensor>> {
    if is_replicated(sharding) {
        return Ok(vec![x.clone(); partitions.len()]);
    }
    let mut tiles = BTreeMap::new();
    let mut shards = Vec::with_capacity(partitions.len());
    for &partition in partitions {
        let tile = sharding.of_device[partition];
        let shard = match tiles.entry(tile) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(shard(x, sharding, partition)?),
        };
        shards.push(shard.clone());
    }
    Ok(shards)
}

fn shard(x: &Tensor, sharding: &HloSharding, partition: usize) -> Result<Tensor> {
    let ty = shard_type(&x.ty, sharding)?;
    let slice = slice(&x.ty, sharding, partition, &ty);
    let bytes = match slice.range() {
        Some(range) => Storage::Part(x.bytes.clone(), range),
        None => {
            let mut copy = Storage::Aligned(Aligned::zeros(ty.bytes()));
            slice.read(&x.bytes, copy.bytes_mut());
            copy
        }
    };
    let bytes = Arc::new(bytes);
    Ok(Tensor { ty, bytes })
}

/// The tensor of type `ty` with these shards, as `(partition, shard)`. Of several shards of the
/// same elements, it has the last. `take` allocates memory for it.
pub(crate) fn assemble(
    shards: Vec<(usize, Tensor)>,
    sharding: &HloSharding,
    ty: &RankedType,
    take: impl FnOnce() -> Result<Storage>,
) -> Result<Tensor> {
    let tensor = |bytes| {
        let ty = ty.clone();
        Tensor { ty, bytes }
    };
    let tile =
        |(partition, shard): (usize, Tensor)| (sharding.of_device[partition], (partition, shard));
    let mut tiles: BTreeMap<_, _> = shards.into_iter().map(tile).collect();
    if is_replicated(sharding)
        && let Some((_, (_, shard))) = tiles.pop_last()
    {
        return Ok(tensor(shard.bytes));
    }
    let mut parts = Vec::with_capacity(tiles.len());
    for (partition, shard) in tiles.into_values() {
        let of_shard = shard_type(ty, sharding)?;
        parts.push((slice(ty, sharding, partition, &of_shard), shard.bytes));
    }
    if let Some(whole) = common(&parts, ty.bytes()) {
        return Ok(tensor(whole));
    }
    let mut whole = take()?;
    let bytes = whole.bytes_mut();
    if parts.len() != sharding.parts.iter().product::<usize>() {
        bytes.fill(0);
    }
    for (slice, part) in &parts {
        slice.write(part, bytes);
    }
    Ok(tensor(Arc::new(whole)))
}

/// The buffer of `length` bytes of which each slice is a part at its place.
fn common(parts: &[(Slice, Arc<Storage>)], length: usize) -> Option<Arc<Storage>> {
    let whole_of = |(slice, bytes): &(Slice, Arc<Storage>)| match &**bytes {
        Storage::Part(whole, range) if slice.range().as_ref() == Some(range) => Some(whole.clone()),
        _ => None,
    };
    let whole = whole_of(parts.first()?)?;
    let is_part = |part| whole_of(part).is_some_and(|of| Arc::ptr_eq(&of, &whole));
    (whole.len() == length && parts.iter().all(is_part)).then_some(whole)
}

fn is_replicated(sharding: &HloSharding) -> bool {
    sharding.parts.iter().all(|&parts| parts == 1)
}

/// The place of a partition's shard of type `shard` in a tensor.
fn slice(
    whole: &RankedType,
    sharding: &HloSharding,
    partition: usize,
    shard: &RankedType,
) -> Slice {
    let start = shard_start(sharding, partition, shard);
    Slice::new(&whole.dims, &shard.dims, &start, whole.element.size())
}
