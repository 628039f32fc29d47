//! Elements that updates are combined with.

use halite_core::Result;

use crate::{
    fast::scalar::{Format, convert, load, store},
    oracle::collect,
    storage::Storage,
};

/// Elements that updates are combined with: in place, or in a copy that is rounded at the end.
pub(super) struct Accumulator<'a> {
    result: &'a mut Storage,
    size: usize,
    narrow: Format,
    wide: Format,
    /// All elements in the wide format, if that is another one.
    copy: Vec<u64>,
}

impl<'a> Accumulator<'a> {
    pub(super) fn new(
        result: &'a mut Storage,
        size: usize,
        narrow: Format,
        wide: Format,
    ) -> Result<Self> {
        let mut copy = Vec::new();
        if narrow != wide {
            let count = result.len() / size;
            copy = collect(count, std::iter::repeat_n(0, count))?;
            load(result, size, 0, 1, &mut copy);
            convert(&mut copy, narrow, wide);
        }
        Ok(Accumulator {
            result,
            size,
            narrow,
            wide,
            copy,
        })
    }

    pub(super) fn load(&self, at: usize, out: &mut [u64]) {
        if self.narrow == self.wide {
            load(self.result, self.size, at, 1, out);
        } else {
            out.copy_from_slice(&self.copy[at..][..out.len()]);
        }
    }

    /// Loads updates as what elements are combined with.
    pub(super) fn load_updates(&self, updates: &[u8], at: usize, out: &mut [u64]) {
        load(updates, self.size, at, 1, out);
        convert(out, self.narrow, self.wide);
    }

    pub(super) fn store(&mut self, at: usize, values: &[u64]) {
        if self.narrow == self.wide {
            store(values, self.result.bytes_mut(), self.size, at);
        } else {
            self.copy[at..][..values.len()].copy_from_slice(values);
        }
    }

    pub(super) fn finish(mut self) {
        if self.narrow != self.wide {
            convert(&mut self.copy, self.wide, self.narrow);
            store(&self.copy, self.result.bytes_mut(), self.size, 0);
        }
    }
}
