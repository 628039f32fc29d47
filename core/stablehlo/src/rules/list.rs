//! Checks of lists in attributes.

use std::fmt;

use super::{Check, TensorLike, ensure};

/// The first items of a list, which may be long.
pub(super) struct Items<'a, T>(pub(super) &'a [T]);

impl<T: fmt::Debug> fmt::Display for Items<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 16;
        match self.0.split_at_checked(MOST) {
            Some((first, rest)) if !rest.is_empty() => {
                write!(f, "{first:?} and {} more", rest.len())
            }
            _ => write!(f, "{:?}", self.0),
        }
    }
}

/// Checks that `dim` is a dimension of `ty`.
///
/// # Errors
/// With the dimensions that `ty` has; `what` says what `dim` is.
pub fn check_dim<T: TensorLike>(what: &str, dim: usize, ty: &T) -> Check {
    match ty.rank() {
        rank if dim < rank => Ok(()),
        0 => Err(format!("{what} {dim} of {ty}, which has no dimensions")),
        1 => Err(format!("{what} {dim} of {ty}, whose only dimension is 0")),
        rank => Err(format!(
            "{what} {dim} of {ty}, whose dimensions are 0 to {}",
            rank - 1
        )),
    }
}

/// Checks that `dims` are dimensions of `ty` without duplicates.
pub(super) fn check_dims<T: TensorLike>(what: &str, dims: &[usize], ty: &T) -> Check {
    for (at, &dim) in dims.iter().enumerate() {
        check_dim(what, dim, ty)?;
        ensure!(
            !dims[..at].contains(&dim),
            "{what} {dim} of {ty} appears twice in {}",
            Items(dims)
        );
    }
    Ok(())
}

/// Checks that `dims` are dimensions of `ty` in ascending order.
pub(super) fn check_ascending<T: TensorLike>(what: &str, dims: &[usize], ty: &T) -> Check {
    check_dims(what, dims, ty)?;
    ensure!(
        dims.is_sorted(),
        "{what}s {} of {ty} must be in ascending order",
        Items(dims)
    );
    Ok(())
}

/// Checks that `list` has an item for each dimension of `ty`.
pub(super) fn check_each<T: TensorLike>(what: &str, list: &[impl fmt::Debug], ty: &T) -> Check {
    ensure!(
        list.len() == ty.rank(),
        "{} {what} {} for {ty}, which has {} dimensions",
        list.len(),
        Items(list),
        ty.rank()
    );
    Ok(())
}

/// Checks that all items are `least` or more, and fit the attributes of programs.
pub(super) fn check_items(what: &str, list: &[usize], least: usize) -> Check {
    for (at, &item) in list.iter().enumerate() {
        let is_large = i64::try_from(item).is_err();
        ensure!(
            item >= least && !is_large,
            "{what} {}: number {at} is {item}, it must be {}",
            Items(list),
            if is_large {
                format!("at most {}", i64::MAX)
            } else {
                format!("{least} or more")
            }
        );
    }
    Ok(())
}

/// The items of `items` whose positions are not in `positions`.
pub(super) fn without(items: &[usize], positions: &[usize]) -> Vec<usize> {
    let others = (items.iter().enumerate()).filter(|(position, _)| !positions.contains(position));
    others.map(|(_, &item)| item).collect()
}
