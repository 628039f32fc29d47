//! Checks of lists in attributes.

use std::fmt;

use super::typed::{Check, ensure};

/// A list in an attribute, with its name for messages.
#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    pub(super) name: &'static str,
    pub(super) items: &'a [usize],
}

/// A list in the attribute of this name.
pub(super) fn list<'a>(name: &'static str, items: &'a [usize]) -> List<'a> {
    List { name, items }
}

impl fmt::Display for List<'_> {
    /// Formats as "`dimensions` is [0, 1]".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}", self.name, Items(self.items))
    }
}

/// The first items of a list, which may be long.
pub(super) struct Items<'a>(pub(super) &'a [usize]);

impl fmt::Display for Items<'_> {
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

impl List<'_> {
    /// Checks that it has `count` items.
    pub(super) fn check_count(self, count: usize) -> Check {
        check_count(self.name, self.items.len(), count)
    }

    /// Checks that it has dimensions of a tensor of rank `rank`, each at most once.
    pub(super) fn check_dims(self, rank: usize) -> Check {
        check_all_dims(&[self], rank)
    }

    /// Checks that its items increase.
    pub(super) fn check_increasing(self) -> Check {
        ensure!(self.items.is_sorted(), "{self}; it must be ascending");
        Ok(())
    }

    /// Checks that its items are at least 1.
    pub(super) fn check_positive(self) -> Check {
        ensure!(
            self.items.iter().all(|&item| item > 0),
            "{self}; each must be at least 1"
        );
        Ok(())
    }
}

/// Checks that the list `name` has `needed` items.
pub(super) fn check_count(name: &str, given: usize, needed: usize) -> Check {
    ensure!(
        given == needed,
        "`{name}` has {given} items; it must have {needed}"
    );
    Ok(())
}

/// Checks that lists have dimensions of a tensor of rank `rank`, each at most once in all of them.
pub(super) fn check_all_dims(lists: &[List<'_>], rank: usize) -> Check {
    let describe = || {
        lists
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut seen = vec![false; rank];
    for &dim in lists.iter().flat_map(|list| list.items) {
        ensure!(
            dim < rank,
            "{}; dimensions must be below the rank, {rank}",
            describe()
        );
        ensure!(!seen[dim], "{}; {dim} occurs twice", describe());
        seen[dim] = true;
    }
    Ok(())
}

/// Checks that the attribute `name` is a dimension of a tensor of rank `rank`.
pub(super) fn check_dim(name: &'static str, dim: usize, rank: usize) -> Check {
    ensure!(
        dim < rank,
        "`{name}` is {dim}; it must be below the rank, {rank}"
    );
    Ok(())
}

/// The items of `items` whose positions are not in `positions`.
pub(super) fn without(items: &[usize], positions: &[usize]) -> Vec<usize> {
    let others = (items.iter().enumerate()).filter(|(position, _)| !positions.contains(position));
    others.map(|(_, &item)| item).collect()
}
