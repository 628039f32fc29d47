//! What all parts of a job share in one process: who it is, and how it ends when a wait fails.

use std::time::{Duration, Instant};

use halite_core::{Error, ErrorKind, Result};

use crate::{mpi::Patience, record::Record};

/// This process, as errors name it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) host: String,
}

impl Member {
    /// Prints the error and ends the process without destructors: MPI owns buffers that these would
    /// free, and other threads may wait for it for ever.
    pub(crate) fn die(&self, error: &Error) -> ! {
        let Member { rank, size, host } = self;
        let text = format!("process {rank} of {size} on {host}: {error}");
        eprintln!("error: {text}");
        Record::Failed(text).send();
        signal_hook::low_level::exit(1)
    }
}

/// A wait with a name and a deadline.
#[derive(Debug)]
pub(crate) struct Deadline<'a> {
    member: &'a Member,
    what: String,
    patience: Duration,
    /// `None` if the patience has no end.
    end: Option<Instant>,
    tests: u32,
}

impl<'a> Deadline<'a> {
    pub(crate) fn new(member: &'a Member, what: impl Into<String>, patience: Duration) -> Self {
        Deadline {
            member,
            what: what.into(),
            patience,
            end: Instant::now().checked_add(patience),
            tests: 0,
        }
    }

    /// An error of this wait: `waited 60 s for ..`.
    pub(crate) fn missed(&self, whom: &str) -> Error {
        let message = format!("waited {:?} for {whom}", self.patience);
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
            std::thread::sleep(crate::mpi::SLEEP);
        }
    }
}

impl Patience for Deadline<'_> {
    fn check(&mut self) -> Result<()> {
        match self.is_over() {
            true => Err(self.missed("the other processes")),
            false => Ok(()),
        }
    }

    fn abandon(&self, error: &Error) -> ! {
        self.member.die(error)
    }
}
