//! The arrays of a checkpoint, of which other processes may have parts.

use halite_core::{Array, HostArray, PartitionSpec, Result};
use halite_nn::ArrayCollectives;

use crate::waits::{Limits, wait_also_when_stopped};

/// Arrays of the state that are gathered one at a time: no device has more than one of them whole.
/// All processes gather all of them in one order, also those that they write no part of.
pub(super) struct WholeArrays<'a> {
    /// `None` if this process has every array whole.
    all: Option<&'a ArrayCollectives>,
    named: Vec<(String, &'a Array)>,
    /// The first array that was not gathered.
    next: usize,
    limits: Limits,
    stop: &'a dyn Fn() -> bool,
}

impl<'a> WholeArrays<'a> {
    pub(super) fn new(
        all: Option<&'a ArrayCollectives>,
        named: Vec<(String, &'a Array)>,
        limits: Limits,
        stop: &'a dyn Fn() -> bool,
    ) -> Self {
        WholeArrays {
            all,
            named,
            next: 0,
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
    /// increasing order.
    pub(super) fn copy(&mut self, index: usize, memory: Option<HostArray>) -> Result<HostArray> {
        if !self.is_divided(index) {
            return self.fetch(index, self.named[index].1, memory);
        }
        self.skip_to(index)?;
        let gathered = self.gather(index)?;
        self.fetch(index, &gathered, memory)
    }

    /// Gathers what is left, for the other processes.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.skip_to(self.named.len())
    }

    fn skip_to(&mut self, end: usize) -> Result<()> {
        while self.next < end {
            match self.is_divided(self.next) {
                // Dropped before the next one.
                true => self.gather(self.next)?.wait_for(self.limits.limit())?,
                false => self.next += 1,
            }
        }
        Ok(())
    }

    fn gather(&mut self, index: usize) -> Result<Array> {
        self.next = index + 1;
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
