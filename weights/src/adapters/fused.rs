//! Adapters of fused layers. A layer that is several parameters here, such as a projection to queries,
//! keys and values, is one in files of peft, with one adapter: the rows of its `lora_B` are those of
//! the parts, one after the other.
//!
//! A [`NameMap`](crate::NameMap) of adapters names those of a part `LAYER.part0of3.lora_A.weight`,
//! which no file has. Here they become one adapter, and the other way round: inputs are multiplied
//! with the `lora_A` of all parts together, so that its rank is the sum of theirs, and `lora_B` is
//! zero outside of the blocks of the parts. An adapter of peft is read as one for each part, of the
//! same `lora_A`.

use std::collections::BTreeMap;

use halite_core::{Error, ErrorKind, HostArray, Result, TensorType};

use crate::{
    TensorInfo, TensorSource,
    names::{Part, part_segment},
};

const A: &str = "lora_A.weight";
const B: &str = "lora_B.weight";

/// A name without the segment of a part, and the part.
pub(super) fn of_layer(name: &str) -> (String, Option<Part>) {
    let parts = name
        .split('.')
        .map(|segment| (segment, part_segment(segment)));
    let found = parts.clone().find_map(|(_, part)| part);
    let rest: Vec<&str> = parts
        .filter(|(_, part)| part.is_none())
        .map(|(segment, _)| segment)
        .collect();
    (rest.join("."), found)
}

/// The tensors of adapters by name, those of parts by their layer and part.
struct Layers<T> {
    whole: BTreeMap<String, T>,
    parts: BTreeMap<String, BTreeMap<usize, T>>,
    counts: BTreeMap<String, usize>,
}

impl<T> Layers<T> {
    fn new(tensors: impl IntoIterator<Item = (String, T)>) -> Self {
        let mut layers = Layers {
            whole: BTreeMap::new(),
            parts: BTreeMap::new(),
            counts: BTreeMap::new(),
        };
        for (name, tensor) in tensors {
            match of_layer(&name) {
                (name, Some(part)) => {
                    layers.counts.insert(name.clone(), part.count);
                    let parts = layers.parts.entry(name).or_default();
                    parts.insert(part.number, tensor);
                }
                (name, None) => drop(layers.whole.insert(name, tensor)),
            }
        }
        layers
    }

    /// # Errors
    /// If a layer lacks some of its parts.
    fn check(&self) -> Result<()> {
        for (name, parts) in &self.parts {
            let (found, count) = (parts.len(), self.counts[name]);
            if found != count {
                let message = format!(
                    "`{name}` is of {count} parts, {found} of which have adapters; expected all or none"
                );
                return Err(Error::invalid("save adapters", message));
            }
        }
        Ok(())
    }
}

/// Checks that [`joined`] can join adapters of these tensors.
///
/// # Errors
/// If a layer lacks some of its parts.
pub(super) fn check<'i>(infos: impl IntoIterator<Item = &'i TensorInfo>) -> Result<()> {
    let tensors = infos.into_iter().map(|info| (info.name.clone(), ()));
    Layers::new(tensors).check()
}

/// The tensors of a file of peft, by those of each part.
///
/// # Errors
/// If a layer lacks some of its parts.
pub(super) fn joined(
    tensors: impl IntoIterator<Item = (String, HostArray)>,
) -> Result<BTreeMap<String, HostArray>> {
    let layers = Layers::new(tensors);
    layers.check()?;
    let mut joined = layers.whole;
    for (name, parts) in layers.parts {
        let parts: Vec<HostArray> = parts.into_values().collect();
        let is_a = name.ends_with(A);
        joined.insert(
            name,
            if is_a {
                stacked(&parts)?
            } else {
                blocks(&parts)?
            },
        );
    }
    Ok(joined)
}

/// Matrices of one width, one below the other.
fn stacked(parts: &[HostArray]) -> Result<HostArray> {
    let [_, width] = dims(&parts[0])?;
    let rows = parts.iter().map(|part| part.ty().dims()[0]).sum();
    let bytes: Vec<u8> = parts
        .iter()
        .flat_map(|part| part.bytes())
        .copied()
        .collect();
    HostArray::from_bytes(&bytes, parts[0].ty().with_dims([rows, width]))
}

/// A matrix of these blocks, each right of and below the one before.
fn blocks(parts: &[HostArray]) -> Result<HostArray> {
    let sizes = parts.iter().map(dims).collect::<Result<Vec<_>>>()?;
    let rows = sizes.iter().map(|[rows, _]| rows).sum();
    let columns: usize = sizes.iter().map(|[_, columns]| columns).sum();
    let size = parts[0].ty().dtype().size();
    let mut matrix = HostArray::try_zeros(parts[0].ty().with_dims([rows, columns]))?;
    let mut at = 0;
    for (part, [rows, width]) in parts.iter().zip(sizes) {
        for row in part.bytes().chunks(width.max(1) * size).take(rows) {
            matrix.bytes_mut()[at * size..][..row.len()].copy_from_slice(row);
            at += columns;
        }
        at += width;
    }
    Ok(matrix)
}

fn dims(matrix: &HostArray) -> Result<[usize; 2]> {
    let dims = <[usize; 2]>::try_from(matrix.ty().dims());
    dims.map_err(|_| Error::invalid("adapters", format!("{} is no matrix", matrix.ty())))
}

/// The tensors of each part, by those of a file of peft; `wanted` are the parts, with their types.
/// Tensors that are of no part are as in the file.
///
/// # Errors
/// If a tensor cannot be read, or has not the rows of its parts.
pub(super) fn split(
    file: &dyn TensorSource,
    wanted: &[TensorInfo],
) -> Result<BTreeMap<String, HostArray>> {
    let wanted = wanted.iter().map(|info| (info.name.clone(), info));
    let layers = Layers::new(wanted);
    let mut tensors = BTreeMap::new();
    for info in file.tensors() {
        let tensor = file.read(&info.name)?;
        let Some(parts) = layers.parts.get(&info.name) else {
            tensors.insert(info.name.clone(), tensor);
            continue;
        };
        if info.name.ends_with(A) {
            let copies = parts
                .values()
                .map(|part| (part.name.clone(), tensor.clone()));
            tensors.extend(copies);
            continue;
        }
        let [rows, width] = dims(&tensor)?;
        let rows_of = |part: &&TensorInfo| part.ty.dims().first().copied().unwrap_or(0);
        let expected: usize = parts.values().map(rows_of).sum();
        if rows != expected || !info.name.ends_with(B) {
            let message = format!(
                "{}: `{}` is {}; its layer has {expected} outputs",
                file.origin(),
                info.name,
                tensor.ty()
            );
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "load adapters",
                message,
            ));
        }
        let row = width * tensor.ty().dtype().size();
        let mut bytes = tensor.bytes();
        for part in parts.values() {
            let rows = rows_of(part);
            let (own, rest) = bytes.split_at(rows * row);
            bytes = rest;
            let ty: TensorType = tensor.ty().with_dims([rows, width]);
            tensors.insert(part.name.clone(), HostArray::from_bytes(own, ty)?);
        }
    }
    Ok(tensors)
}
