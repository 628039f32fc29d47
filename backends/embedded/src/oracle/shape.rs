//! Operations that make, move, cut and join elements without a look at their values.

use halite_core::Result;
use halite_stablehlo::RankedType;

use super::{
    index::{for_each_index, offset, rearrange, rearrange_or, strides},
    tensor::{Tensor, allocate, push_count},
};

/// Counts along `dim`.
pub(super) fn iota(dim: usize, ty: &RankedType) -> Result<Tensor> {
    // One by one: decoded, they have up to 16 times the memory of the result.
    let mut bytes = allocate(ty.bytes())?;
    for_each_index(&ty.dims, |index| {
        push_count(ty.element, index[dim], &mut bytes);
        Ok(())
    })?;
    Ok(Tensor::new(ty.clone(), bytes))
}

/// `mapping[i]` is the dimension of the result that dimension `i` becomes.
pub(super) fn broadcast_in_dim(x: &Tensor, mapping: &[usize], ty: &RankedType) -> Result<Tensor> {
    let steps = strides(&x.ty.dims);
    rearrange(x, ty, |index| {
        let at = |dim: usize| {
            if x.ty.dims[dim] == 1 {
                0
            } else {
                index[mapping[dim]]
            }
        };
        (0..mapping.len()).map(|dim| at(dim) * steps[dim]).sum()
    })
}

/// Dimension `i` of the result is dimension `permutation[i]` of `x`.
pub(super) fn transpose(x: &Tensor, permutation: &[usize]) -> Result<Tensor> {
    let own = strides(&x.ty.dims);
    let steps: Vec<_> = permutation.iter().map(|&dim| own[dim]).collect();
    let dims: Vec<_> = permutation.iter().map(|&dim| x.ty.dims[dim]).collect();
    let ty = RankedType::new(x.ty.element, dims);
    rearrange(x, &ty, |index| offset(index, &steps))
}

pub(super) fn reverse(x: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let steps = strides(&x.ty.dims);
    rearrange(x, &x.ty, |index| {
        let at = |dim: usize| match dims.contains(&dim) {
            true => x.ty.dims[dim] - 1 - index[dim],
            false => index[dim],
        };
        (0..index.len()).map(|dim| at(dim) * steps[dim]).sum()
    })
}

pub(super) fn concatenate(parts: &[&Tensor], dim: usize, ty: &RankedType) -> Result<Tensor> {
    // A block is what one part contributes for each index of the dimensions before `dim`.
    let blocks: usize = ty.dims[..dim].iter().product();
    let mut bytes = allocate(ty.bytes())?;
    for block in 0..blocks {
        for part in parts {
            let length = part.bytes.len() / blocks;
            bytes.extend_from_slice(&part.bytes[block * length..(block + 1) * length]);
        }
    }
    Ok(Tensor::new(ty.clone(), bytes))
}

/// The elements from `starts` in these steps; their number is that of `ty`.
pub(super) fn slice(
    x: &Tensor,
    starts: &[usize],
    steps: &[usize],
    ty: &RankedType,
) -> Result<Tensor> {
    let own = strides(&x.ty.dims);
    let first = offset(starts, &own);
    // The step of one element alone may be any number, and is not used.
    let steps: Vec<_> = (own.iter().zip(steps).zip(&ty.dims))
        .map(|((own, step), &size)| if size > 1 { own * step } else { 0 })
        .collect();
    rearrange(x, ty, |index| first + offset(index, &steps))
}

pub(super) fn dynamic_slice(x: &Tensor, starts: &[&Tensor], ty: &RankedType) -> Result<Tensor> {
    let starts = clamped_starts(starts, &x.ty.dims, &ty.dims)?;
    slice(x, &starts, &vec![1; starts.len()], ty)
}

pub(super) fn dynamic_update_slice(
    x: &Tensor,
    update: &Tensor,
    starts: &[&Tensor],
) -> Result<Tensor> {
    let starts = clamped_starts(starts, &x.ty.dims, &update.ty.dims)?;
    let own = strides(&x.ty.dims);
    let first = offset(&starts, &own);
    let size = x.ty.element.size();
    let mut bytes = allocate(x.bytes.len())?;
    bytes.extend_from_slice(&x.bytes);
    let mut from = 0;
    for_each_index(&update.ty.dims, |index| {
        let at = (first + offset(index, &own)) * size;
        bytes[at..at + size].copy_from_slice(update.element(from));
        from += 1;
        Ok(())
    })?;
    Ok(Tensor::new(x.ty.clone(), bytes))
}

/// Start indices, moved so that a slice of `sizes` is inside of `dims`.
fn clamped_starts(starts: &[&Tensor], dims: &[usize], sizes: &[usize]) -> Result<Vec<usize>> {
    let clamp = |((start, dim), size): ((&&Tensor, &usize), &usize)| {
        Ok(start.int()?.clamp(0, dim.saturating_sub(*size) as i128) as usize)
    };
    starts.iter().zip(dims).zip(sizes).map(clamp).collect()
}

/// Puts `interior[d]` values between neighbors, and `low[d]` values before the first.
pub(super) fn pad(
    x: &Tensor,
    value: &Tensor,
    low: &[i64],
    interior: &[usize],
    ty: &RankedType,
) -> Result<Tensor> {
    let own = strides(&x.ty.dims);
    rearrange_or(x, value, ty, |index| {
        let mut at = 0;
        for dim in 0..index.len() {
            // Beyond all sizes where there is one element: it has no neighbors.
            let step = (interior[dim] as i64).saturating_add(1);
            let from = index[dim] as i64 - low[dim];
            if from < 0 || from % step != 0 || from / step >= x.ty.dims[dim] as i64 {
                return None;
            }
            at += (from / step) as usize * own[dim];
        }
        Some(at)
    })
}
