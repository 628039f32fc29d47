//! The values of a launch, and their memory.

use std::sync::Arc;

use bytemuck::Pod;
use halite_core::{Error, ErrorKind, Result};

use super::{arena::Arena, place::Base, plan::Plan};
use crate::{oracle::Tensor, storage::Storage};

/// The values of a process.
pub(super) struct Values<'p> {
    pub(super) plan: &'p Plan,
    pub(super) values: Vec<Option<Arc<Storage>>>,
    /// Whether units after the present one read it, or the program returns it.
    pub(super) is_needed: Vec<bool>,
    /// That of the run, while it runs a unit of this process.
    pub(super) arena: Arena,
}

impl<'p> Values<'p> {
    /// The inputs and constants of a plan.
    pub(super) fn new(plan: &'p Plan, inputs: impl Iterator<Item = Arc<Storage>>) -> Self {
        let mut values = Values {
            plan,
            values: vec![None; plan.types.len()],
            is_needed: vec![true; plan.types.len()],
            arena: Arena::default(),
        };
        values.restart(inputs);
        values
    }

    /// Replaces all values by constants and these inputs.
    pub(super) fn restart(&mut self, inputs: impl Iterator<Item = Arc<Storage>>) {
        self.clear();
        self.is_needed.fill(true);
        for (base, storage) in &self.plan.constants {
            self.values[*base] = Some(storage.clone());
        }
        for (&base, storage) in self.plan.inputs.iter().zip(inputs) {
            self.values[base] = Some(storage);
        }
    }

    /// Drops all values.
    pub(super) fn clear(&mut self) {
        self.values.fill(None);
    }

    pub(super) fn get(&self, base: Base) -> Result<&Arc<Storage>> {
        self.values[base].as_ref().ok_or_else(|| {
            let message = format!("value {base} of the plan is not computed; please report this");
            Error::new(ErrorKind::Internal, "run", message)
        })
    }

    /// The elements of a value, each of the size of its type.
    pub(super) fn elements<T: Pod>(&self, base: Base) -> Result<&[T]> {
        self.get(base)?.elements().ok_or_else(|| {
            let message = format!("value {base} is not aligned; please report this");
            Error::new(ErrorKind::Internal, "run", message)
        })
    }

    pub(super) fn take(&mut self, base: Base) -> Result<Storage> {
        self.arena.take(self.plan, base)
    }

    pub(super) fn set(&mut self, base: Base, storage: Storage) {
        self.values[base] = Some(Arc::new(storage));
    }

    /// The memory of a value for a result of the same type: its own where nothing else reads it.
    pub(super) fn owned(&mut self, base: Base) -> Result<Storage> {
        if !self.is_needed[base]
            && let Some(value) = self.values[base].take()
        {
            match Arc::try_unwrap(value) {
                Ok(storage) => return Ok(storage),
                Err(shared) => self.values[base] = Some(shared),
            }
        }
        self.copy(base)
    }

    /// The memory of a value that nothing else reads, for a result of as many bytes.
    pub(super) fn take_memory(&mut self, base: Base) -> Option<Storage> {
        if self.is_needed[base] {
            return None;
        }
        match Arc::try_unwrap(self.values[base].take()?) {
            Ok(aligned @ Storage::Aligned(_)) => return Some(aligned),
            Ok(other) => self.values[base] = Some(Arc::new(other)),
            Err(shared) => self.values[base] = Some(shared),
        }
        None
    }

    pub(super) fn copy(&mut self, base: Base) -> Result<Storage> {
        let mut copy = self.take(base)?;
        copy.bytes_mut().copy_from_slice(self.get(base)?);
        Ok(copy)
    }

    pub(super) fn tensor(&self, base: Base) -> Result<Tensor> {
        Ok(Tensor {
            ty: self.plan.types[base].clone(),
            bytes: self.get(base)?.clone(),
        })
    }
}
