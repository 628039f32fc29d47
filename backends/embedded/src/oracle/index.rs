//! Indices of row-major tensors, and operations that move elements by a function of their index.

use halite_core::Result;
use halite_stablehlo::RankedType;

use super::tensor::{Tensor, allocate};

/// Number of elements between neighbors along each dimension.
pub(super) fn strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; dims.len()];
    for dim in (1..dims.len()).rev() {
        strides[dim - 1] = strides[dim] * dims[dim];
    }
    strides
}

/// The position of an index among row-major elements.
pub(super) fn offset(index: &[usize], strides: &[usize]) -> usize {
    index
        .iter()
        .zip(strides)
        .map(|(index, stride)| index * stride)
        .sum()
}

/// Calls `visit` with every index of a tensor of `dims`, row-major.
pub(super) fn for_each_index(
    dims: &[usize],
    mut visit: impl FnMut(&[usize]) -> Result<()>,
) -> Result<()> {
    if dims.contains(&0) {
        return Ok(());
    }
    let mut index = vec![0; dims.len()];
    loop {
        visit(&index)?;
        // The last dimension that has a next index; those after it start over.
        let Some(dim) = (0..dims.len())
            .rev()
            .find(|&dim| index[dim] + 1 < dims[dim])
        else {
            return Ok(());
        };
        index[dim] += 1;
        index[dim + 1..].fill(0);
    }
}

/// The tensor of type `ty` whose element at each index is the element of `source` at the position
/// that `from` returns.
pub(super) fn rearrange(
    source: &Tensor,
    ty: &RankedType,
    mut from: impl FnMut(&[usize]) -> usize,
) -> Result<Tensor> {
    let mut bytes = allocate(ty.bytes())?;
    for_each_index(&ty.dims, |index| {
        bytes.extend_from_slice(source.element(from(index)));
        Ok(())
    })?;
    Ok(Tensor::new(ty.clone(), bytes))
}

/// [`rearrange`], with the scalar `fill` where `from` returns `None`.
pub(super) fn rearrange_or(
    source: &Tensor,
    fill: &Tensor,
    ty: &RankedType,
    mut from: impl FnMut(&[usize]) -> Option<usize>,
) -> Result<Tensor> {
    let mut bytes = allocate(ty.bytes())?;
    for_each_index(&ty.dims, |index| {
        bytes.extend_from_slice(match from(index) {
            Some(at) => source.element(at),
            None => fill.element(0),
        });
        Ok(())
    })?;
    Ok(Tensor::new(ty.clone(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_row_major() {
        let mut seen = Vec::new();
        let strides = strides(&[2, 1, 3]);
        for_each_index(&[2, 1, 3], |index| {
            seen.push(offset(index, &strides));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn scalar_has_one_index() {
        let mut count = 0;
        let mut visit = |dims: &[usize]| {
            for_each_index(dims, |_| {
                count += 1;
                Ok(())
            })
        };
        visit(&[]).unwrap();
        visit(&[3, 0]).unwrap();
        assert_eq!(count, 1);
    }
}
