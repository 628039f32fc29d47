//! The arrays of a checkpoint, of which other processes may have parts.

use std::collections::VecDeque;

use halite_core::{Array, HostArray, PartitionSpec, Result};
use halite_nn::ArrayCollectives;

use crate::waits::{Limits, wait_also_when_stopped};

/// Arrays of the state that are gathered one at a time: no device has more than one of them whole.
/// All processes gather all of them in one order, also those that they write no part of.
pub(super) struct WholeArrays<'a> {
    /// `None` if this process has every array whole.
    all: Option<&'a ArrayCollectives>,
    named: Vec<(String, &'a Array)>,
    /// Indices of the arrays that are left, in the order in which all processes write them.
    left: VecDeque<usize>,
    limits: Limits,
    stop: &'a dyn Fn() -> bool,
}

impl<'a> WholeArrays<'a> {
    pub(super) fn new(
        all: Option<&'a ArrayCollectives>,
        named: Vec<(String, &'a Array)>,
        order: Vec<usize>,
        limits: Limits,
        stop: &'a dyn Fn() -> bool,
    ) -> Self {
        WholeArrays {
            all,
            named,
            left: order.into(),
            limits,
            stop,
        }
    }

    /// Name of the array of an index, and the array, which may be a part.
    pub(super) fn named(&self, index: usize) -> (&str, &'a Array) {
        let (path, array) = &self.named[index];
        (path, array)
    }

    /// Whether other processes have parts of the array.
    pub(super) fn is_divided(&self, index: usize) -> bool {
        let (_, array) = &self.named[index];
        self.all.is_some() && !array.sharding().spec().is_replicated()
    }

    /// A copy of an array on the host, into `memory` if there is some; of those that are divided in
    /// the order of `new`.
    pub(super) fn copy(&mut self, index: usize, memory: Option<HostArray>) -> Result<HostArray> {
        if !self.is_divided(index) {
            return self.fetch(index, self.named[index].1, memory);
        }
        self.skip_to(Some(index))?;
        let gathered = self.gather(index)?;
        self.fetch(index, &gathered, memory)
    }

    /// Gathers what is left, for the other processes.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.skip_to(None)
    }

    /// Gathers those before an array, or all that are left.
    fn skip_to(&mut self, end: Option<usize>) -> Result<()> {
        while let Some(index) = self.left.pop_front() {
            if Some(index) == end {
                break;
            }
            if self.is_divided(index) {
                // Dropped before the next one.
                self.gather(index)?.wait_for(self.limits.limit())?;
            }
        }
        Ok(())
    }

    fn gather(&self, index: usize) -> Result<Array> {
        let all = self.all.expect("an array is divided among processes");
        all.reshard(self.named[index].1, &PartitionSpec::replicated())
    }

    fn fetch(&self, index: usize, array: &Array, memory: Option<HostArray>) -> Result<HostArray> {
        let copy = match memory {
            Some(memory) => array.fetch_into(memory)?,
            None => array.fetch()?,
        };
        let name = || format!("the copy of `{}` for a checkpoint", self.named[index].0);
        wait_also_when_stopped(name, &self.limits, self.stop, |slice| {
            copy.wait_ready(slice).then_some(())
        })?;
        copy.wait()
    }
}
