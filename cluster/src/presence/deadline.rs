//! Deadlines of exchanges with other processes, whose errors name those that are late.

use std::{
    thread,
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};

use super::{Presence, Wait, lock};
use crate::mpi::Patience;

/// A wait with a name and a deadline, which heartbeats report to the other processes.
#[derive(Debug)]
pub(crate) struct Deadline<'a> {
    presence: &'a Presence,
    id: Option<u64>,
    what: String,
    patience: Duration,
    /// `None` if the patience has no end.
    end: Option<Instant>,
    tests: u32,
}

impl<'a> Deadline<'a> {
    /// A wait that heartbeats do not report.
    pub(crate) fn quiet(presence: &'a Presence, patience: Duration) -> Self {
        Deadline {
            presence,
            id: None,
            what: "heartbeats".to_owned(),
            patience,
            end: Instant::now().checked_add(patience),
            tests: 0,
        }
    }

    /// `what` is the same text on all processes: name and number of a call.
    pub(crate) fn new(presence: &'a Presence, what: impl Into<String>, patience: Duration) -> Self {
        let what = what.into();
        let mut waits = lock(&presence.waits);
        waits.last += 1;
        let id = waits.last;
        let wait = Wait {
            what: what.clone(),
            since: Instant::now(),
        };
        waits.now.insert(id, wait);
        Deadline {
            id: Some(id),
            what,
            ..Deadline::quiet(presence, patience)
        }
    }

    /// An error of this wait: `waited 60 s for ..`.
    pub(crate) fn missed(&self, awaited: &str) -> Error {
        let message = format!("waited {:?} for {awaited}", self.patience);
        Error::new(ErrorKind::DeadlineExceeded, self.what.clone(), message)
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Lets other processes run, after some calls that return at once.
    pub(crate) fn pause(&mut self) {
        if self.tests < crate::mpi::TESTS {
            self.tests += 1;
        } else {
            thread::sleep(crate::mpi::SLEEP);
        }
    }
}

impl Drop for Deadline<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            lock(&self.presence.waits).now.remove(&id);
        }
    }
}

impl Patience for Deadline<'_> {
    fn check(&mut self) -> Result<()> {
        if !self.is_over() {
            return Ok(());
        }
        let late = self.presence.not_waiting_for(&self.what);
        Err(self.missed(&self.presence.list(&late)))
    }

    fn abandon(&self, error: &Error) -> ! {
        self.presence.die(error)
    }
}
