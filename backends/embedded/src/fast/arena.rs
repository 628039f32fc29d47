//! Memory of values.

use std::collections::HashMap;

use halite_core::Result;
use halite_stablehlo::RankedType;

use super::{
    place::Base,
    plan::{Plan, Unit},
};
use crate::storage::{Aligned, Storage};

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
            *numbers.entry(ty.bytes()).or_insert(next)
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
pub(crate) struct Arena {
    free: Vec<Vec<Storage>>,
    /// Memory that is only used during a unit.
    scratch: Vec<Storage>,
    /// Number of processes that use it together.
    processes: usize,
}

/// Most buffers of scratch memory.
const MOST_SCRATCH: usize = 16;

impl Arena {
    /// Keeps enough memory for as many processes.
    pub(super) fn serve(&mut self, processes: usize) {
        self.processes = processes;
    }

    /// Memory of unspecified contents for use during a unit.
    pub(super) fn scratch(&mut self, bytes: usize) -> Storage {
        match self.scratch.iter().position(|it| it.len() == bytes) {
            Some(at) => self.scratch.swap_remove(at),
            None => Storage::Aligned(Aligned::zeros(bytes)),
        }
    }

    /// Keeps scratch memory.
    pub(super) fn keep(&mut self, scratch: Storage) {
        if self.scratch.len() < MOST_SCRATCH {
            self.scratch.push(scratch);
        }
    }

    /// Memory for a value that the arena has; `None` if it has none.
    pub(super) fn spare(&mut self, plan: &Plan, base: Base) -> Option<Storage> {
        self.free.get_mut(plan.sizes.of[base])?.pop()
    }

    /// Memory of unspecified contents for a value.
    pub(super) fn take(&mut self, plan: &Plan, base: Base) -> Result<Storage> {
        let free = self.free.get_mut(plan.sizes.of[base]);
        if let Some(storage) = free.and_then(Vec::pop) {
            return Ok(storage);
        }
        let bytes = plan.types[base].bytes();
        Ok(Storage::Aligned(Aligned::zeros(bytes)))
    }

    /// Keeps memory for a value, unless it has another size, or a launch cannot use as much at once.
    pub(super) fn put(&mut self, plan: &Plan, base: Base, storage: Storage) {
        let size = plan.sizes.of[base];
        if self.free.is_empty() {
            self.free.resize_with(plan.sizes.counts.len(), Vec::new);
        }
        let fits =
            matches!(storage, Storage::Aligned(_)) && storage.len() == plan.types[base].bytes();
        if fits && self.free[size].len() < plan.sizes.counts[size] * self.processes {
            self.free[size].push(storage);
        }
    }
}
