//! Numbers of values in bytecode.
//!
//! A region numbers its values from the end of the region around it, so that those of an operation
//! share numbers. The regions of an isolated operation start at 0 and cannot use values of others.

use halite_core::Result;

use super::cursor::corrupt;
use crate::ValueId;

/// The values of the region that is being read and of those around it.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    regions: Vec<Scope>,
    /// The first region whose values can be used.
    visible: usize,
}

#[derive(Debug)]
struct Scope {
    /// Number of the first value.
    first: u64,
    /// Number of values that the region declares.
    declared: u64,
    /// Values so far; `None` if not yet computed.
    values: Vec<Option<ValueId>>,
}

/// The scope before [`Scopes::isolate`].
#[must_use]
pub(super) struct Outer(usize);

impl Scopes {
    /// Hides the values of the regions so far, until [`unhide`](Self::unhide).
    pub(super) fn isolate(&mut self) -> Outer {
        Outer(std::mem::replace(&mut self.visible, self.regions.len()))
    }

    pub(super) fn unhide(&mut self, outer: Outer) {
        self.visible = outer.0;
    }

    /// Number of regions in each other.
    pub(super) fn depth(&self) -> usize {
        self.regions.len()
    }

    /// Starts a region that declares this many values.
    pub(super) fn enter(&mut self, declared: u64) {
        let first = match self.regions[self.visible..].last() {
            Some(outer) => outer.first.saturating_add(outer.declared),
            None => 0,
        };
        self.regions.push(Scope {
            first,
            declared,
            values: Vec::new(),
        });
    }

    /// Ends a region.
    pub(super) fn leave(&mut self) {
        self.regions.pop();
    }

    /// Numbers the next `count` values of the region, which are not yet computed; returns the place
    /// of the first.
    pub(super) fn reserve(&mut self, count: usize, position: usize) -> Result<usize> {
        let scope = self.regions.last_mut().expect("values belong to a region");
        let place = scope.values.len();
        if (place + count) as u64 > scope.declared {
            let declared = scope.declared;
            let message = format_args!("more values than the {declared} that the region declares");
            return Err(corrupt(position, message));
        }
        scope.values.resize(place + count, None);
        Ok(place)
    }

    /// Sets the value at a place that was reserved in the region.
    pub(super) fn set(&mut self, place: usize, value: ValueId) {
        let scope = self.regions.last_mut().expect("values belong to a region");
        scope.values[place] = Some(value);
    }

    /// The value with this number.
    pub(super) fn get(&self, number: u64, position: usize) -> Result<ValueId> {
        let visible = self.regions[self.visible..].iter().rev();
        let scope = visible.into_iter().find(|scope| scope.first <= number);
        let value = scope.and_then(|scope| {
            let place = usize::try_from(number - scope.first).ok()?;
            scope.values.get(place).copied().flatten()
        });
        value.ok_or_else(|| {
            let message = format_args!("the value with number {number} is not computed before");
            corrupt(position, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn define(scopes: &mut Scopes, value: u32) {
        let place = scopes.reserve(1, 0).unwrap();
        scopes.set(place, ValueId(value));
    }

    #[test]
    fn regions_of_an_operation_share_numbers() {
        let mut scopes = Scopes::default();
        scopes.enter(2);
        define(&mut scopes, 0);
        for value in [10, 20] {
            scopes.enter(1);
            define(&mut scopes, value);
            assert_eq!(scopes.get(2, 0).unwrap(), ValueId(value));
            assert_eq!(scopes.get(0, 0).unwrap(), ValueId(0));
            scopes.leave();
        }
    }

    #[test]
    fn isolated_region_sees_no_outer_values() {
        let mut scopes = Scopes::default();
        scopes.enter(2);
        define(&mut scopes, 0);
        define(&mut scopes, 1);
        let outer = scopes.isolate();
        scopes.enter(1);
        define(&mut scopes, 7);
        assert_eq!(scopes.get(0, 0).unwrap(), ValueId(7));
        assert!(scopes.get(1, 0).is_err());
        scopes.leave();
        scopes.unhide(outer);
        assert_eq!(scopes.get(1, 0).unwrap(), ValueId(1));
    }

    #[test]
    fn value_is_used_after_it_is_computed() {
        let mut scopes = Scopes::default();
        scopes.enter(1);
        let place = scopes.reserve(1, 0).unwrap();
        let error = scopes.get(0, 9).unwrap_err().to_string();
        assert_eq!(
            error,
            "bytecode: byte 9: the value with number 0 is not computed before"
        );
        scopes.set(place, ValueId(3));
        assert_eq!(scopes.get(0, 9).unwrap(), ValueId(3));
    }
}
