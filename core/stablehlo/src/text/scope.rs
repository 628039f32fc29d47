//! The values of a function by name.

use std::collections::{HashMap, hash_map::Entry};

use crate::{Type, ValueId};

/// The values that are visible at a place in a function.
#[derive(Default)]
pub(super) struct Scope<'a> {
    /// Types of all values so far.
    pub(super) types: Vec<Type>,
    names: HashMap<&'a str, Named>,
    /// Names of the open regions, with what they hid.
    undo: Vec<(&'a str, Option<Named>)>,
    /// Number of open regions.
    regions: usize,
}

/// The values `%name#0`, `%name#1`, ..
#[derive(Clone, Copy)]
struct Named {
    first: ValueId,
    count: u32,
    /// Number of open regions where it was defined.
    region: usize,
}

/// Where a region began; [`Scope::close`] forgets the names since.
pub(super) struct Mark(usize);

impl<'a> Scope<'a> {
    /// Adds a value without a name.
    pub(super) fn add(&mut self, ty: Type) -> ValueId {
        // The text has at most 2^32 bytes, and each value takes more than one.
        let value = ValueId(self.types.len() as u32);
        self.types.push(ty);
        value
    }

    /// Names `count` values that were added one after the other.
    ///
    /// Returns whether the name is new in its region. It may hide one of a region around it.
    #[must_use]
    pub(super) fn name(&mut self, name: &'a str, first: ValueId, count: u32) -> bool {
        let named = Named {
            first,
            count,
            region: self.regions,
        };
        let hidden = match self.names.entry(name) {
            Entry::Occupied(known) if known.get().region == self.regions => return false,
            Entry::Occupied(mut known) => Some(known.insert(named)),
            Entry::Vacant(free) => {
                free.insert(named);
                None
            }
        };
        self.undo.push((name, hidden));
        true
    }

    /// The value `%name#index`, or the number of values with this name (0 if it is not visible).
    pub(super) fn find(&self, name: &str, index: u32) -> Result<ValueId, u32> {
        match self.names.get(name) {
            Some(named) if index < named.count => Ok(ValueId(named.first.0 + index)),
            Some(named) => Err(named.count),
            None => Err(0),
        }
    }

    /// Opens a region, which sees the values around it.
    pub(super) fn open(&mut self) -> Mark {
        self.regions += 1;
        Mark(self.undo.len())
    }

    /// Closes the region that was opened last, whose names are no longer visible.
    pub(super) fn close(&mut self, mark: Mark) {
        self.regions -= 1;
        for (name, hidden) in self.undo.drain(mark.0..).rev() {
            match hidden {
                Some(named) => self.names.insert(name, named),
                None => self.names.remove(name),
            };
        }
    }
}
