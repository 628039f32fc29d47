//! Positions of elements.

use super::geometry::{MOST_POSITIONS, elements};
use crate::Axis;

/// Strides of all dimensions but the innermost, which has `inner` elements.
pub(super) fn strides(sizes: &[usize], inner: usize) -> Vec<usize> {
    let mut strides = vec![inner];
    for &size in sizes.iter().rev() {
        strides.push(strides[strides.len() - 1].saturating_mul(size));
    }
    strides.reverse();
    strides
}

/// Positions of `count` elements.
pub(super) fn spread(count: usize, stride: usize) -> Vec<usize> {
    (0..count).map(|index| index * stride).collect()
}

/// Positions of all indices of some dimensions, row-major, given those of each. `None` if there are
/// too many.
pub(super) fn positions(dims: &[Vec<usize>]) -> Option<Vec<usize>> {
    let sizes: Vec<usize> = dims.iter().map(Vec::len).collect();
    if elements(sizes.iter().copied()) > MOST_POSITIONS {
        return None;
    }
    let all = dims.iter().fold(vec![0], |outer, inner| {
        let next = |&at: &usize| inner.iter().map(move |position| at + position);
        outer.iter().flat_map(next).collect()
    });
    Some(all)
}

/// [`positions`] as an axis.
pub(super) fn axis(dims: &[Vec<usize>]) -> Option<Axis> {
    let all = positions(dims)?;
    let narrow = all.into_iter().map(|at| u32::try_from(at).ok());
    Some(Axis::new(narrow.collect::<Option<_>>()?))
}
