//! Memory of values.

use std::collections::HashMap;

use halite_core::Result;
use halite_stablehlo::RankedType;

use super::{
    elementwise::is_word,
    plan::{Plan, Unit},
};
use crate::{oracle::allocate, storage::Storage};

/// Memory that a plan keeps from launch to launch, by size in bytes.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    words: HashMap<usize, Vec<Vec<u32>>>,
    bytes: HashMap<usize, Vec<Vec<u8>>>,
}

impl Arena {
    /// Memory of unspecified contents for a value.
    pub(super) fn take(&mut self, ty: &RankedType) -> Result<Storage> {
        let length = ty.bytes();
        if is_word(ty.element) {
            if let Some(words) = self.words.get_mut(&length).and_then(Vec::pop) {
                return Ok(Storage::Words(words));
            }
            let mut words = allocate(ty.elements())?;
            words.resize(ty.elements(), 0);
            return Ok(Storage::Words(words));
        }
        if let Some(bytes) = self.bytes.get_mut(&length).and_then(Vec::pop) {
            return Ok(Storage::Bytes(bytes));
        }
        let mut bytes = allocate(length)?;
        bytes.resize(length, 0);
        Ok(Storage::Bytes(bytes))
    }

    pub(super) fn put(&mut self, storage: Storage) {
        match storage {
            Storage::Words(words) => {
                self.words.entry(4 * words.len()).or_default().push(words);
            }
            Storage::Bytes(bytes) => self.bytes.entry(bytes.len()).or_default().push(bytes),
        }
    }

    /// Frees what no launch of the plan can use at once.
    pub(super) fn trim(&mut self, plan: &Plan) {
        let mut words: HashMap<usize, usize> = HashMap::new();
        let mut bytes: HashMap<usize, usize> = HashMap::new();
        for base in plan.units.iter().flat_map(Unit::writes) {
            let ty = &plan.types[base];
            let counts = if is_word(ty.element) {
                &mut words
            } else {
                &mut bytes
            };
            *counts.entry(ty.bytes()).or_default() += 1;
        }
        self.words.iter_mut().for_each(|(length, free)| {
            free.truncate(words.get(length).copied().unwrap_or(0));
        });
        self.bytes.iter_mut().for_each(|(length, free)| {
            free.truncate(bytes.get(length).copied().unwrap_or(0));
        });
    }
}
