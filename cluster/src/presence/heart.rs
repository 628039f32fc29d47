//! Heartbeats: each process sends its own and listens for those of the others.

use std::time::{Duration, Instant};

use halite_core::{Error, ErrorKind, Result};

use super::{BEAT, Beat, Deadline, FAILED, Presence, lock};
use crate::mpi::Sending;

/// Sends and receives heartbeats.
pub(crate) struct Heart<'a> {
    presence: &'a Presence,
    interval: Duration,
    lost: Duration,
    sent: Option<Instant>,
    sending: Vec<Sending>,
}

impl<'a> Heart<'a> {
    /// A heartbeat each `interval`; a process of which none comes for `lost` is gone.
    pub(crate) fn new(presence: &'a Presence, interval: Duration, lost: Duration) -> Self {
        Heart {
            presence,
            interval,
            lost,
            sent: None,
            sending: Vec::new(),
        }
    }

    /// Time to the next call of [`beat`](Self::beat).
    pub(crate) fn pause(&self) -> Duration {
        self.interval.min(Duration::from_millis(200))
    }

    /// The error of a process that the launcher notifies of the failure of another one.
    pub(crate) fn warned(&self) -> Error {
        self.stopped("another process failed")
    }

    /// The error of this process because of another one.
    fn stopped(&self, why: &str) -> Error {
        let message = format!("{why}; this process was {}", self.presence.activity());
        Error::new(ErrorKind::Unavailable, "stopped", message)
    }

    /// Sends a heartbeat if it is time, and reads those that have come.
    ///
    /// # Errors
    /// If another process fails or is gone; MPI's.
    pub(crate) fn beat(&mut self) -> Result<()> {
        let presence = self.presence;
        let Some(comm) = presence.comm.get() else {
            return Ok(());
        };
        let others = (0..presence.size).filter(|&rank| rank != presence.rank);
        let leaving = lock(&presence.leaving);
        if !*leaving && self.sent.is_none_or(|sent| sent.elapsed() >= self.interval) {
            self.sending
                .retain_mut(|message| matches!(message.is_done(), Ok(false)));
            // A process that does not read is not sent more and more.
            if self.sending.len() < 4 * presence.size {
                let beat = presence.now().write();
                for rank in others.clone() {
                    self.sending.push(comm.send(rank, BEAT, beat.clone())?);
                }
            }
            self.sent = Some(Instant::now());
        }
        drop(leaving);
        for rank in others {
            let mut deadline = Deadline::quiet(presence, self.lost);
            if let Some(text) = comm.receive(rank, FAILED, &mut deadline)? {
                let text = String::from_utf8_lossy(&text).into_owned();
                return Err(self.stopped(&format!("another process failed ({text})")));
            }
            while let Some(bytes) = comm.receive(rank, BEAT, &mut deadline)? {
                let heard = &mut lock(&presence.others)[rank];
                (heard.at, heard.beat) = (Instant::now(), Beat::read(&bytes));
            }
            let silent = lock(&presence.others)[rank].at.elapsed();
            if silent >= self.lost && !*lock(&presence.leaving) {
                let message = format!(
                    "no heartbeat for {:?}: it was killed or stopped, or its network is gone; this \
                     process was {}",
                    self.lost,
                    presence.activity()
                );
                let op = presence.describe(rank);
                return Err(Error::new(ErrorKind::DeadlineExceeded, op, message));
            }
        }
        Ok(())
    }
}
