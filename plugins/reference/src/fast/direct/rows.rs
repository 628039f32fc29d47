//! Gathers and scatters of whole rows: the lookup of an embedding, and its gradient.

use halite_core::Result;
use halite_stablehlo::{ElementType, GatherAttributes, RankedType, ScatterAttributes};

use super::{Call, Direct};
use crate::oracle::collect;

/// Rows of operand 0 at the indices of operand 1.
#[derive(Debug)]
pub(in super::super) struct GatherRows;

impl Direct for GatherRows {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut result = call.take(0)?;
        let row = row_length(call) * call.ty(0).element.size();
        gather(
            call.operand(0)?,
            row,
            &integers(call, 1)?,
            result.bytes_mut(),
        );
        call.set(0, result);
        Ok(())
    }
}

/// Operand 0, with the rows of operand 2 added at the indices of operand 1.
#[derive(Debug)]
pub(in super::super) struct ScatterRows;

impl Direct for ScatterRows {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut result = call.owned(0)?;
        let floats = bytemuck::cast_slice_mut(result.bytes_mut());
        scatter_add(
            floats,
            row_length(call),
            &integers(call, 1)?,
            call.elements(2)?,
        );
        call.set(0, result);
        Ok(())
    }

    fn overwrites(&self) -> usize {
        1
    }
}

/// Number of elements of a row of operand 0.
fn row_length(call: &Call<'_, '_>) -> usize {
    call.ty(0).dims.iter().skip(1).product()
}

/// The elements of an operand, integers of 32 bits.
fn integers(call: &Call<'_, '_>, operand: usize) -> Result<Vec<i64>> {
    let is_signed = call.ty(operand).element == ElementType::S32;
    let integer = |&word: &u32| {
        if is_signed {
            i64::from(word as i32)
        } else {
            word.into()
        }
    };
    let words: &[u32] = call.elements(operand)?;
    collect(words.len(), words.iter().map(integer))
}

/// Returns whether a gather takes rows `x[i]` for all indices `i`.
pub(in super::super) fn gathers_rows(
    attributes: &GatherAttributes,
    x: &RankedType,
    indices: &RankedType,
    result: &RankedType,
) -> bool {
    let Some(batch) = indices_shape(indices, attributes.index_vector_dim) else {
        return false;
    };
    let Some((_, row)) = x.dims.split_first() else {
        return false;
    };
    attributes.collapsed_slice_dims == [0]
        && attributes.start_index_map == [0]
        && attributes.operand_batching_dims.is_empty()
        && attributes.slice_sizes.first() == Some(&1)
        && attributes.slice_sizes[1..] == *row
        && is_behind(&attributes.offset_dims, batch, result.rank())
}

/// Returns whether a scatter combines rows with rows `x[i]` for all indices `i`.
pub(in super::super) fn scatters_rows(
    attributes: &ScatterAttributes,
    x: &RankedType,
    indices: &RankedType,
    updates: &RankedType,
) -> bool {
    let Some(batch) = indices_shape(indices, attributes.index_vector_dim) else {
        return false;
    };
    attributes.inserted_window_dims == [0]
        && attributes.scatter_dims_to_operand_dims == [0]
        && attributes.input_batching_dims.is_empty()
        && x.dims.get(1..) == updates.dims.get(batch..)
        && is_behind(&attributes.update_window_dims, batch, updates.rank())
}

/// The number of dimensions that indices of one component have. `None` if they have more.
fn indices_shape(indices: &RankedType, vector_dim: usize) -> Option<usize> {
    let rank = indices.rank();
    match vector_dim {
        dim if dim == rank => Some(rank),
        dim if dim + 1 == rank && indices.dims[dim] == 1 => Some(dim),
        _ => None,
    }
}

/// Returns whether `dims` are all dimensions from `first` on.
fn is_behind(dims: &[usize], first: usize, rank: usize) -> bool {
    dims.iter().copied().eq(first..rank)
}

/// Copies rows of `x`, each of `row` elements. Indices beyond the ends are moved to the ends.
fn gather(x: &[u8], row: usize, indices: &[i64], out: &mut [u8]) {
    let Some(count) = x.len().checked_div(row).filter(|&count| count > 0) else {
        return;
    };
    for (out, &index) in out.chunks_exact_mut(row).zip(indices) {
        let at = usize::try_from(index).unwrap_or(0).min(count - 1);
        out.copy_from_slice(&x[at * row..][..row]);
    }
}

/// Adds rows to those of `out`, in order. Rows with an index beyond the ends are dropped.
fn scatter_add(out: &mut [f32], row: usize, indices: &[i64], updates: &[f32]) {
    if row == 0 {
        return;
    }
    for (update, &index) in updates.chunks_exact(row).zip(indices) {
        let at = usize::try_from(index)
            .ok()
            .and_then(|index| index.checked_mul(row));
        if let Some(out) = at.and_then(|at| out.get_mut(at..)?.get_mut(..row)) {
            out.iter_mut()
                .zip(update)
                .for_each(|(out, update)| *out += update);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_beyond_the_ends_are_the_last() {
        let mut out = [0; 6];
        gather(&[1, 2, 3, 4], 2, &[1, -1, 9], &mut out);
        assert_eq!(out, [3, 4, 1, 2, 3, 4]);
    }

    #[test]
    fn updates_beyond_the_ends_are_dropped() {
        let mut out = [0.0; 4];
        scatter_add(
            &mut out,
            2,
            &[1, -1, 2, 1],
            &[1.0, 2.0, 9.0, 9.0, 9.0, 9.0, 3.0, 4.0],
        );
        assert_eq!(out, [0.0, 0.0, 4.0, 6.0]);
    }
}
