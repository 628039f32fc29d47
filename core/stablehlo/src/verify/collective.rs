//! Collective operations.

use std::collections::HashSet;

use crate::{
    CollectiveAttributes, ElementType, Module, RankedType, Type,
    rules::{Check, check_dim, ensure},
};

use super::{
    reduce::check_reducer,
    typed::{Typed, scalar, tensor},
};

/// How a channel changes the meaning of ids in groups.
#[derive(Clone, Copy)]
enum Family {
    /// Ids of replicas, of all partitions at once with a channel; or flattened ids.
    Reduction,
    /// Ids of replicas; of partitions with a channel.
    Exchange,
}

/// Processes that ids in groups are for.
struct Ids {
    /// Number of ids.
    count: usize,
    /// Number of processes that one id stands for.
    processes: usize,
}

fn ids(module: &Module, family: Family, collective: &CollectiveAttributes) -> Check<Ids> {
    let (partitions, replicas) = (module.partitions(), module.replicas());
    let channel = collective.channel.is_some();
    let (count, processes) = match (family, collective.global_ids, channel) {
        (Family::Reduction, true, true) => (partitions * replicas, 1),
        (Family::Reduction, false, true) => (replicas, partitions),
        (Family::Exchange, false, true) => (partitions, 1),
        (_, false, false) => (replicas, 1),
        (Family::Reduction, true, false) => {
            return Err("`use_global_device_ids` is set; it needs a channel".into());
        }
        (Family::Exchange, true, _) => {
            return Err("`use_global_device_ids` is set; the operation does not have it".into());
        }
    };
    Ok(Ids { count, processes })
}

/// Checks groups, in which each id may occur once. Returns the number of processes in each group;
/// an error if `same` and they differ.
fn check_groups(ids: &Ids, collective: &CollectiveAttributes, rule: Groups) -> Check<usize> {
    let groups = &collective.groups;
    if groups.is_empty() {
        ensure!(
            !collective.global_ids,
            "`replica_groups` is empty; with `use_global_device_ids` it must have all ids"
        );
        return Ok(ids.count * ids.processes);
    }
    let mut seen = HashSet::new();
    for &id in groups.iter().flatten() {
        ensure!(
            id < ids.count,
            "`replica_groups` has the id {id}; ids must be below {}",
            ids.count
        );
        ensure!(seen.insert(id), "`replica_groups` has the id {id} twice");
    }
    ensure!(
        seen.len() == ids.count || matches!(rule, Groups::Some),
        "`replica_groups` has {} ids; it must have all {}",
        seen.len(),
        ids.count
    );
    ensure!(
        groups.iter().all(|group| !group.is_empty()),
        "`replica_groups` has an empty group"
    );
    let size = groups[0].len();
    ensure!(
        groups.iter().all(|group| group.len() == size) || !matches!(rule, Groups::SameSize),
        "`replica_groups` has groups of different sizes"
    );
    Ok(size * ids.processes)
}

/// Rules for the groups of an operation.
#[derive(Clone, Copy)]
enum Groups {
    /// All ids are in groups of one size.
    SameSize,
    /// All ids are in groups.
    All,
    /// Processes may be in no group.
    Some,
}

pub(super) fn all_reduce(op: &Typed<'_>, collective: &CollectiveAttributes) -> Check<Vec<Type>> {
    let operands = op.some_tensors()?;
    let ids = ids(op.module, Family::Reduction, collective)?;
    check_groups(&ids, collective, Groups::All)?;
    op.check_region_count(1)?;
    for operand in &operands {
        check_reducer(op, 0, &[operand])?;
    }
    Ok(same_types(&operands))
}

fn same_types(operands: &[&RankedType]) -> Vec<Type> {
    operands
        .iter()
        .map(|&ty| Type::Tensor(ty.clone()))
        .collect()
}

pub(super) fn all_gather(
    op: &Typed<'_>,
    dim: usize,
    collective: &CollectiveAttributes,
) -> Check<Vec<Type>> {
    let ids = ids(op.module, Family::Reduction, collective)?;
    let size = check_groups(&ids, collective, Groups::SameSize)?;
    let gathered = |ty: &RankedType| {
        check_dim("gathered dimension", dim, ty)?;
        let mut dims = ty.dims.clone();
        dims[dim] = dims[dim]
            .checked_mul(size)
            .ok_or("the size of the result overflows")?;
        Ok(tensor(ty.element, dims))
    };
    op.some_tensors()?.into_iter().map(gathered).collect()
}

pub(super) fn reduce_scatter(
    op: &Typed<'_>,
    dim: usize,
    collective: &CollectiveAttributes,
) -> Check<Vec<Type>> {
    let [x] = op.take()?;
    let ids = ids(op.module, Family::Reduction, collective)?;
    let size = check_groups(&ids, collective, Groups::SameSize)?;
    check_dim("split dimension", dim, x)?;
    check_multiple(x, dim, size)?;
    op.check_region_count(1)?;
    check_reducer(op, 0, &[x])?;
    let mut dims = x.dims.clone();
    dims[dim] /= size;
    Ok(vec![tensor(x.element, dims)])
}

fn check_multiple(x: &RankedType, dim: usize, parts: usize) -> Check {
    ensure!(
        x.dims[dim].is_multiple_of(parts),
        "dimension {dim} of {x} is split into {parts} parts; it must be a multiple of them"
    );
    Ok(())
}

/// `dims`: those that are split and concatenated.
pub(super) fn all_to_all(
    op: &Typed<'_>,
    dims: [usize; 2],
    parts: usize,
    collective: &CollectiveAttributes,
) -> Check<Vec<Type>> {
    let [split, concat] = dims;
    let ids = ids(op.module, Family::Exchange, collective)?;
    let size = check_groups(&ids, collective, Groups::SameSize)?;
    ensure!(
        parts == size,
        "`split_count` is {parts}; it must be the size of a group, {size}"
    );
    let exchanged = |x: &RankedType| {
        check_dim("split dimension", split, x)?;
        check_dim("concatenated dimension", concat, x)?;
        check_multiple(x, split, parts)?;
        let mut dims = x.dims.clone();
        dims[split] /= parts;
        dims[concat] =
            (dims[concat].checked_mul(parts)).ok_or("the size of the result overflows")?;
        Ok(tensor(x.element, dims))
    };
    op.some_tensors()?.into_iter().map(exchanged).collect()
}

pub(super) fn collective_broadcast(
    op: &Typed<'_>,
    collective: &CollectiveAttributes,
) -> Check<Vec<Type>> {
    let operands = op.some_tensors()?;
    let ids = ids(op.module, Family::Exchange, collective)?;
    check_groups(&ids, collective, Groups::Some)?;
    Ok(same_types(&operands))
}

pub(super) fn collective_permute(
    op: &Typed<'_>,
    pairs: &[(usize, usize)],
    channel: Option<i64>,
) -> Check<Vec<Type>> {
    let [x] = op.take()?;
    let count = match channel {
        Some(_) => op.module.partitions(),
        None => op.module.replicas(),
    };
    let (mut sources, mut targets) = (HashSet::new(), HashSet::new());
    for &(source, target) in pairs {
        ensure!(
            source < count && target < count,
            "`source_target_pairs` has the pair ({source}, {target}); ids must be below {count}"
        );
        ensure!(
            sources.insert(source) && targets.insert(target),
            "`source_target_pairs` has the pair ({source}, {target}), and another with its source \
             or target"
        );
    }
    Ok(vec![Type::Tensor(x.clone())])
}

/// `partition_id` and `replica_id`.
pub(super) fn process_id(op: &Typed<'_>) -> Check<Vec<Type>> {
    let [] = op.take()?;
    Ok(vec![scalar(ElementType::U32)])
}
