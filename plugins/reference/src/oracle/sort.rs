//! Sorting by a comparator of the program.

use halite_core::Result;

use super::{
    index::{for_each_index, offset, strides},
    reduce::Evaluate,
    tensor::{Tensor, Value, allocate, unexpected},
};

/// Sorts `inputs` together along `dim`. `evaluate` returns whether the left elements come first.
pub(super) fn sort(
    evaluate: &mut Evaluate<'_>,
    inputs: &[&Tensor],
    dim: usize,
) -> Result<Vec<Tensor>> {
    let dims = &inputs[0].ty.dims;
    let mut comes_first = |left: usize, right: usize| -> Result<bool> {
        let pair = |input: &&Tensor| [left, right].map(|at| Value::Tensor(input.scalar_at(at)));
        let results = evaluate(inputs.iter().flat_map(pair).collect())?;
        match results.first() {
            Some(value) => Ok(value.tensor()?.int()? != 0),
            None => Err(unexpected("a boolean", "no result")),
        }
    };
    let steps = strides(dims);
    let mut lines = dims.clone();
    lines[dim] = 1;
    let mut sources = allocate(inputs[0].ty.elements())?;
    sources.resize(inputs[0].ty.elements(), 0);
    if !sources.is_empty() {
        for_each_index(&lines, |index| {
            let first = offset(index, &steps);
            let line: Vec<_> = (0..dims[dim]).map(|at| first + at * steps[dim]).collect();
            for (&at, from) in line.iter().zip(merge_sort(line.clone(), &mut comes_first)?) {
                sources[at] = from;
            }
            Ok(())
        })?;
    }
    let permute = |input: &&Tensor| {
        let mut bytes = allocate(input.bytes.len())?;
        sources
            .iter()
            .for_each(|&from| bytes.extend_from_slice(input.element(from)));
        Ok(Tensor::new(input.ty.clone(), bytes))
    };
    inputs.iter().map(permute).collect()
}

/// Stable, and defined for every comparator, however inconsistent.
fn merge_sort(
    mut items: Vec<usize>,
    comes_first: &mut impl FnMut(usize, usize) -> Result<bool>,
) -> Result<Vec<usize>> {
    if items.len() < 2 {
        return Ok(items);
    }
    let right = items.split_off(items.len() / 2);
    let left = merge_sort(items, comes_first)?;
    let right = merge_sort(right, comes_first)?;
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(&a), Some(&b)) = (left.peek(), right.peek()) {
        merged.extend(if comes_first(b, a)? {
            right.next()
        } else {
            left.next()
        });
    }
    merged.extend(left.chain(right));
    Ok(merged)
}
