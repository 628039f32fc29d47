//! Memory of values.

use std::collections::HashMap;

use halite_core::Result;
use halite_stablehlo::RankedType;

use super::{
    elementwise::is_word,
    place::Base,
    plan::{Plan, Unit},
};
use crate::{oracle::allocate, storage::Storage};

/// The values of a plan by the size of their memory, which one can have after another.
#[derive(Debug)]
pub(super) struct Sizes {
    /// Number of the size of each value.
    of: Vec<usize>,
    /// Number of values of each size that a launch computes.
    counts: Vec<usize>,
}

impl Sizes {
    pub(super) fn new(types: &[RankedType], units: &[Unit]) -> Self {
        let mut numbers = HashMap::new();
        let mut number = |ty: &RankedType| {
            let next = numbers.len();
            *numbers
                .entry((is_word(ty.element), ty.bytes()))
                .or_insert(next)
        };
        let of: Vec<_> = types.iter().map(&mut number).collect();
        let mut counts = vec![0; numbers.len()];
        for base in units.iter().flat_map(Unit::writes) {
            counts[of[base]] += 1;
        }
        Sizes { of, counts }
    }
}

/// Memory that a plan keeps from launch to launch, by the numbers of its sizes.
#[derive(Debug, Default)]
pub(crate) struct Arena(Vec<Vec<Storage>>);

impl Arena {
    /// Memory of unspecified contents for a value.
    pub(super) fn take(&mut self, plan: &Plan, base: Base) -> Result<Storage> {
        let free = self.0.get_mut(plan.sizes.of[base]);
        if let Some(storage) = free.and_then(Vec::pop) {
            return Ok(storage);
        }
        let ty = &plan.types[base];
        if is_word(ty.element) {
            let mut words = allocate(ty.elements())?;
            words.resize(ty.elements(), 0);
            return Ok(Storage::Words(words));
        }
        let mut bytes = allocate(ty.bytes())?;
        bytes.resize(ty.bytes(), 0);
        Ok(Storage::Bytes(bytes))
    }

    /// Keeps the memory of a value, unless a launch cannot use as much at once.
    pub(super) fn put(&mut self, plan: &Plan, base: Base, storage: Storage) {
        let size = plan.sizes.of[base];
        if self.0.is_empty() {
            self.0.resize_with(plan.sizes.counts.len(), Vec::new);
        }
        let fits = match storage {
            Storage::Words(_) => is_word(plan.types[base].element),
            Storage::Bytes(_) => !is_word(plan.types[base].element),
            Storage::Part(..) => false,
        };
        if fits && self.0[size].len() < plan.sizes.counts[size] {
            self.0[size].push(storage);
        }
    }
}
