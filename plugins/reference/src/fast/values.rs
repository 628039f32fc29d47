//! The values of a launch, and their memory.

use std::sync::Arc;

use halite_core::{Error, ErrorKind, Result};

use super::{arena::Arena, place::Base, plan::Plan};
use crate::{oracle::Tensor, storage::Storage};

/// The values of a launch.
pub(super) struct Values<'p> {
    pub(super) plan: &'p Plan,
    pub(super) values: Vec<Option<Arc<Storage>>>,
    /// Whether units after the present one read it, or the program returns it.
    pub(super) is_needed: Vec<bool>,
    pub(super) arena: Arena,
}

impl Values<'_> {
    pub(super) fn get(&self, base: Base) -> Result<&Arc<Storage>> {
        self.values[base].as_ref().ok_or_else(|| {
            let message = format!("value {base} of the plan is not computed; please report this");
            Error::new(ErrorKind::Internal, "run", message)
        })
    }

    pub(super) fn words(&self, base: Base) -> Result<&[u32]> {
        self.get(base)?.words().ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "run",
                format!("value {base} has no words"),
            )
        })
    }

    /// Frees a value for later ones, if this launch alone has it.
    pub(super) fn release(&mut self, base: Base) {
        if let Some(Ok(storage)) = self.values[base].take().map(Arc::try_unwrap) {
            self.arena.put(self.plan, base, storage);
        }
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

    /// The words of a value that nothing else reads.
    pub(super) fn take_words(&mut self, base: Base) -> Option<Vec<u32>> {
        if self.is_needed[base] {
            return None;
        }
        match Arc::try_unwrap(self.values[base].take()?) {
            Ok(Storage::Words(words)) => return Some(words),
            Ok(bytes) => self.values[base] = Some(Arc::new(bytes)),
            Err(shared) => self.values[base] = Some(shared),
        }
        None
    }

    pub(super) fn copy(&mut self, base: Base) -> Result<Storage> {
        let mut copy = self.take(base)?;
        copy.bytes_mut().copy_from_slice(self.get(base)?);
        Ok(copy)
    }

    /// A value that does not share the memory of a larger one.
    pub(super) fn whole(&self, base: Base) -> Result<Tensor> {
        let Tensor { ty, bytes } = self.tensor(base)?;
        let bytes = bytes.whole();
        Ok(Tensor { ty, bytes })
    }

    pub(super) fn tensor(&self, base: Base) -> Result<Tensor> {
        Ok(Tensor {
            ty: self.plan.types[base].clone(),
            bytes: self.get(base)?.clone(),
        })
    }
}
