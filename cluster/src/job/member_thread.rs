//! The thread that initializes and finalizes MPI, which must be the same one, so that other threads
//! can wait for it with a deadline. In between it sends heartbeats.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use halite_core::{Error, ErrorKind, Result};
use signal_hook::consts::SIGUSR1;

use crate::{
    job::JobOptions,
    mpi::{Comm, Mpi},
    presence::{Heart, Presence},
    record,
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
    pub(super) fn start(
        mpi: &'static Mpi,
        presence: Arc<Presence>,
        options: &JobOptions,
    ) -> Result<Self> {
        let (say_joined, joined) = channel();
        let (leave, told_to_leave) = channel();
        let (say_left, left) = channel();
        let (interval, lost) = (options.interval(), options.lost);
        let warned = Arc::new(AtomicBool::new(false));
        if record::is_launched() {
            signal_hook::flag::register(SIGUSR1, warned.clone())?;
        }
        let run = move || {
            let world = mpi.init();
            let failed = world.is_err();
            if say_joined.send(world).is_err() || failed {
                return;
            }
            let mut heart = Heart::new(&presence, interval, lost);
            loop {
                match told_to_leave.recv_timeout(heart.pause()) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) => {
                        // Receives what the others sent last.
                        _ = heart.beat();
                        drop(heart);
                        _ = say_left.send(mpi.finalize());
                        return;
                    }
                    // Without a finalization the launcher knows that the job is not finished.
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let beat = if warned.load(Relaxed) {
                    Err(heart.warned())
                } else {
                    heart.beat()
                };
                if let Err(error) = beat {
                    presence.die(&error);
                }
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
    pub(super) fn joined(&self, presence: &Presence, patience: Duration) -> Result<Comm> {
        wait(&self.joined, "join", presence, patience)
    }

    /// Leaves the job with all other processes.
    ///
    /// # Errors
    /// MPI's; if they do not within the deadline.
    pub(super) fn leave(self, presence: &Presence, patience: Duration) -> Result<()> {
        _ = self.leave.send(());
        wait(&self.left, "leave", presence, patience)
    }
}

fn wait<T>(
    answer: &Receiver<Result<T>>,
    what: &str,
    presence: &Presence,
    patience: Duration,
) -> Result<T> {
    match answer.recv_timeout(patience) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => {
            let message = format!(
                "process {} on {} waited {patience:?} for the other {} processes to {what}",
                presence.rank,
                presence.host,
                presence.size - 1
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
