//! Values of enclosing regions that regions use.

use std::collections::BTreeSet;

use halite_stablehlo::{Operation, Region, ValueId};

/// The values of enclosing regions that the regions of an operation use.
pub(super) fn captures(operation: &Operation) -> Vec<ValueId> {
    let mut captures = BTreeSet::new();
    operation
        .regions
        .iter()
        .for_each(|region| capture(region, &mut captures));
    captures.into_iter().collect()
}

/// As [`captures`], of one region.
pub(super) fn captures_of(region: &Region) -> BTreeSet<ValueId> {
    let mut captures = BTreeSet::new();
    capture(region, &mut captures);
    captures
}

/// Adds the values that a region uses and does not compute.
fn capture(region: &Region, captured: &mut BTreeSet<ValueId>) {
    let mut used = BTreeSet::from_iter(region.results.iter().copied());
    let mut computed = BTreeSet::from_iter(region.arguments.iter().copied());
    for operation in &region.operations {
        used.extend(&operation.operands);
        operation
            .regions
            .iter()
            .for_each(|inner| capture(inner, &mut used));
        computed.extend(&operation.results);
    }
    captured.extend(used.difference(&computed));
}
