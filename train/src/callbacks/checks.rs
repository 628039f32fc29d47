//! Checks of the arrays of a checkpoint, before it is written or while it is.

use std::{collections::HashMap, mem::take};

use halite_core::{HostArray, Result};

use crate::{
    callback::{BeforeCommit, BeforeWrite, EachArray, PendingCheckpoint},
    checkpoint::StateStream,
    window::WINDOW,
};

/// The work that callbacks have asked for.
pub(super) struct Checks {
    before_write: Vec<BeforeWrite>,
    each_array: Vec<EachArray>,
    before_commit: Vec<BeforeCommit>,
}

impl Checks {
    pub(super) fn of(checkpoint: &mut PendingCheckpoint) -> Self {
        Checks {
            before_write: take(&mut checkpoint.before_write),
            each_array: take(&mut checkpoint.each_array),
            before_commit: take(&mut checkpoint.before_commit),
        }
    }

    /// Checks arrays that have all arrived.
    pub(super) fn all(mut self, arrays: &[(String, HostArray)]) -> Result<()> {
        self.begin()?;
        // The metrics tell more of a step that has diverged than the arrays do.
        let (window, others): (Vec<_>, Vec<_>) =
            arrays.iter().partition(|(name, _)| name == WINDOW);
        for (name, array) in window.into_iter().chain(others) {
            self.check(name, array)?;
        }
        self.end(arrays)
    }

    /// The arrays of a stream by their index, each checked before it is written. Work that needs
    /// all of them is done first, and has them all in memory.
    pub(super) fn one_by_one(
        mut self,
        stream: StateStream,
    ) -> impl FnMut(usize) -> Result<HostArray> + Send + 'static {
        let mut held: Option<HashMap<usize, HostArray>> = None;
        move |index| {
            let held = match &mut held {
                Some(held) => held,
                None => held.insert(self.first(&stream)?),
            };
            match held.remove(&index) {
                Some(array) => Ok(array),
                None => self.next(&stream, index),
            }
        }
    }

    /// The arrays that are needed before the others.
    fn first(&mut self, stream: &StateStream) -> Result<HashMap<usize, HostArray>> {
        self.begin()?;
        let is_window = |(_, (name, _)): &(usize, &(String, _))| name == WINDOW;
        let types = stream.types().iter().enumerate();
        if self.before_commit.is_empty() {
            let window = types.filter(is_window).map(|(index, _)| index);
            return window
                .map(|index| Ok((index, self.next(stream, index)?)))
                .collect();
        }
        let array =
            |(index, (name, _)): (usize, &(String, _))| Ok((name.clone(), stream.array(index)?));
        let arrays = types.map(array).collect::<Result<Vec<_>>>()?;
        let checks = Checks {
            before_write: Vec::new(),
            each_array: take(&mut self.each_array),
            before_commit: take(&mut self.before_commit),
        };
        checks.all(&arrays)?;
        Ok((arrays.into_iter().map(|(_, array)| array).enumerate()).collect())
    }

    fn next(&mut self, stream: &StateStream, index: usize) -> Result<HostArray> {
        let array = stream.array(index)?;
        self.check(&stream.types()[index].0, &array)?;
        Ok(array)
    }

    fn begin(&mut self) -> Result<()> {
        take(&mut self.before_write)
            .into_iter()
            .try_for_each(|work| work())
    }

    fn check(&mut self, name: &str, array: &HostArray) -> Result<()> {
        self.each_array
            .iter_mut()
            .try_for_each(|check| check(name, array))
    }

    fn end(self, arrays: &[(String, HostArray)]) -> Result<()> {
        self.before_commit
            .into_iter()
            .try_for_each(|work| work(arrays))
    }
}
