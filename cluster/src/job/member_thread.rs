//! The thread that initializes and finalizes MPI, which must be the same one, and which other threads
//! can wait for with a deadline.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use halite_core::{Error, ErrorKind, Result};

use crate::{
    deadline::Member,
    mpi::{Comm, Mpi},
};

/// Handle of the thread. If it is dropped, the thread ends without leaving the job.
pub(super) struct MemberThread {
    joined: Receiver<Result<Comm>>,
    leave: Sender<()>,
    left: Receiver<Result<()>>,
}

impl MemberThread {
    /// Starts to join the job.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(super) fn start(mpi: &'static Mpi) -> Result<Self> {
        let (say_joined, joined) = channel();
        let (leave, told_to_leave) = channel();
        let (say_left, left) = channel();
        let run = move || {
            let world = mpi.init();
            let failed = world.is_err();
            if say_joined.send(world).is_err() || failed {
                return;
            }
            // Without a finalization the launcher knows that the job is not finished.
            if told_to_leave.recv().is_ok() {
                _ = say_left.send(mpi.finalize());
            }
        };
        let spawned = thread::Builder::new().name("halite-mpi".into()).spawn(run);
        spawned.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "job", "cannot start a thread").caused_by(error)
        })?;
        Ok(MemberThread {
            joined,
            leave,
            left,
        })
    }

    /// Waits until all processes have joined.
    ///
    /// # Errors
    /// MPI's; if they do not within the deadline.
    pub(super) fn joined(&self, member: &Member, patience: Duration) -> Result<Comm> {
        wait(&self.joined, "join", member, patience)
    }

    /// Leaves the job with all other processes.
    ///
    /// # Errors
    /// MPI's; if they do not within the deadline.
    pub(super) fn leave(self, member: &Member, patience: Duration) -> Result<()> {
        _ = self.leave.send(());
        wait(&self.left, "leave", member, patience)
    }
}

fn wait<T>(
    answer: &Receiver<Result<T>>,
    what: &str,
    member: &Member,
    patience: Duration,
) -> Result<T> {
    match answer.recv_timeout(patience) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => {
            let message = format!(
                "process {} on {} waited {patience:?} for the other {} processes to {what}",
                member.rank,
                member.host,
                member.size - 1
            );
            Err(Error::new(ErrorKind::DeadlineExceeded, "job", message))
        }
        Err(RecvTimeoutError::Disconnected) => Err(Error::new(
            ErrorKind::Internal,
            "job",
            format!("the thread of MPI ended before it could {what}"),
        )),
    }
}
