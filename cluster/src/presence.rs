//! What the processes of a job know of each other: each sends the others heartbeats with its step
//! and what it waits for, so that errors name the process that is late, and one that is gone or
//! stuck is noticed by all.

mod deadline;
mod heart;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};

pub(crate) use self::{deadline::Deadline, heart::Heart};
use crate::{
    mpi::{Comm, Sending},
    record::{Record, tell_launcher},
};

/// Tag of heartbeats.
const BEAT: i32 = 3;
/// Tag of the last message of a process that fails.
const FAILED: i32 = 4;

/// Time that a failing process gives its last messages.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// This process among the others.
#[derive(Debug)]
pub(crate) struct Presence {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) host: String,
    /// Communicator of the heartbeats, once there is one.
    comm: OnceLock<Comm>,
    /// Last report of each other process, by rank.
    others: Mutex<Vec<Heard>>,
    waits: Mutex<Waits>,
    /// Optimizer steps so far, and 1; 0 before the first.
    step: AtomicU64,
    /// The newest checkpoint, if there is one.
    checkpoint: Mutex<Option<String>>,
    /// Held while heartbeats are sent; true when there are no more.
    leaving: Mutex<bool>,
    /// Read during each call of MPI; true when no more are allowed.
    finalized: RwLock<bool>,
}

#[derive(Debug, Default)]
struct Waits {
    last: u64,
    now: BTreeMap<u64, Wait>,
}

/// One wait of this process.
#[derive(Debug)]
struct Wait {
    what: String,
    since: Instant,
}

/// The last heartbeat of another process.
#[derive(Clone, Debug)]
struct Heard {
    host: String,
    at: Instant,
    beat: Beat,
}

/// A heartbeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Beat {
    /// Step and state, for people.
    text: String,
    /// Names of all waits.
    waits: Vec<String>,
}

impl Beat {
    fn write(&self) -> Vec<u8> {
        let lines = std::iter::once(&self.text).chain(&self.waits);
        lines
            .map(|line| line.replace('\n', " "))
            .collect::<Vec<_>>()
            .join("\n")
            .into_bytes()
    }

    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines().map(str::to_owned);
        Beat {
            text: lines.next().unwrap_or_default(),
            waits: lines.collect(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Presence {
    pub(crate) fn new(rank: usize, size: usize, host: String) -> Self {
        let heard = Heard {
            host: String::new(),
            at: Instant::now(),
            beat: Beat {
                text: "no heartbeat yet".to_owned(),
                waits: Vec::new(),
            },
        };
        Presence {
            rank,
            size,
            host,
            comm: OnceLock::new(),
            others: Mutex::new(vec![heard; size]),
            waits: Mutex::default(),
            step: AtomicU64::new(0),
            checkpoint: Mutex::default(),
            leaving: Mutex::new(false),
            finalized: RwLock::new(false),
        }
    }

    /// Sets the communicator of heartbeats, and the hosts of all processes.
    pub(crate) fn connect(&self, comm: Comm, hosts: &[String]) {
        for (heard, host) in lock(&self.others).iter_mut().zip(hosts) {
            heard.host.clone_from(host);
            heard.at = Instant::now();
        }
        _ = self.comm.set(comm);
    }

    pub(crate) fn at_step(&self, step: u64) {
        self.step.store(step.saturating_add(1), Relaxed);
    }

    /// Sets the newest checkpoint, which errors name. Process 0 reports it to the launcher.
    pub(crate) fn has_saved(&self, checkpoint: &str) {
        let before = lock(&self.checkpoint).replace(checkpoint.to_owned());
        if self.rank == 0 && before.is_none_or(|before| before != checkpoint) {
            Record::Saved(checkpoint.to_owned()).send();
        }
    }

    /// Sends no more heartbeats.
    pub(crate) fn leave(&self) {
        *lock(&self.leaving) = true;
    }

    /// Keeps MPI initialized while the guard lives; calls of MPI need one.
    ///
    /// # Errors
    /// If this process has left the job.
    pub(crate) fn enter(&self, name: &str) -> Result<RwLockReadGuard<'_, bool>> {
        let finalized = (self.finalized.read()).unwrap_or_else(PoisonError::into_inner);
        if *finalized {
            let message = "the job is finished; call this before `Job::finish`";
            return Err(Error::new(ErrorKind::Unavailable, name, message));
        }
        Ok(finalized)
    }

    /// Waits for the calls of other threads, and lets no more of them reach MPI.
    ///
    /// # Errors
    /// If they do not return within the deadline.
    pub(crate) fn close(&self, patience: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            // Never waits for the lock: readers would wait behind it, those that read twice for
            // ever.
            if let Ok(mut finalized) = self.finalized.try_write() {
                *finalized = true;
                return Ok(());
            }
            if start.elapsed() >= patience {
                let message = format!(
                    "waited {patience:?} for another thread of this process, which was {}",
                    self.activity()
                );
                return Err(Error::new(ErrorKind::DeadlineExceeded, "job", message));
            }
            thread::sleep(crate::mpi::SLEEP);
        }
    }

    fn now(&self) -> Beat {
        let waits = lock(&self.waits);
        let step = match self.step.load(Relaxed) {
            0 => String::new(),
            step => format!("step {}, ", step - 1),
        };
        let text = match waits.now.values().min_by_key(|wait| wait.since) {
            Some(Wait { what, since }) => {
                format!(
                    "{step}waiting for {what} since {:.1} s",
                    since.elapsed().as_secs_f64()
                )
            }
            None => format!("{step}computing"),
        };
        let waits = waits.now.values().map(|wait| wait.what.clone()).collect();
        Beat { text, waits }
    }

    /// What this process does, in a sentence: `at step 5, computing`.
    pub(crate) fn activity(&self) -> String {
        let text = self.now().text;
        if text.starts_with("step ") {
            format!("at {text}")
        } else {
            text
        }
    }

    /// Another process, with its host and its last report.
    pub(crate) fn describe(&self, rank: usize) -> String {
        let heard = &lock(&self.others)[rank];
        let host = if heard.host.is_empty() {
            "an unknown host"
        } else {
            &heard.host
        };
        format!(
            "process {rank} on {host} ({}; heard {:.1} s ago)",
            heard.beat.text,
            heard.at.elapsed().as_secs_f64()
        )
    }

    /// The processes that do not wait for `what` as far as this one has heard, or all others.
    pub(crate) fn not_waiting_for(&self, what: &str) -> Vec<usize> {
        let others = lock(&self.others).clone();
        let ranks = (0..self.size).filter(|&rank| rank != self.rank);
        let late: Vec<usize> = ranks
            .clone()
            .filter(|&rank| !others[rank].beat.waits.iter().any(|wait| wait == what))
            .collect();
        if late.is_empty() {
            ranks.collect()
        } else {
            late
        }
    }

    /// Several processes, as [`describe`](Self::describe) does.
    pub(crate) fn list(&self, ranks: &[usize]) -> String {
        let all: Vec<_> = ranks.iter().map(|&rank| self.describe(rank)).collect();
        all.join(", ")
    }

    /// Prints the error, reports it to the others and the launcher, and ends the process without
    /// destructors: MPI owns buffers that these would free, and other threads may wait for it for
    /// ever.
    pub(crate) fn die(&self, error: &Error) -> ! {
        self.report(error);
        signal_hook::low_level::exit(1)
    }

    /// Prints the error, and reports it to the others and the launcher.
    pub(crate) fn report(&self, error: &Error) {
        eprintln!("error: {}", self.described(error));
        self.report_quietly(error);
    }

    /// Tells an error to the others and the launcher.
    pub(crate) fn report_quietly(&self, error: &Error) {
        tell_launcher(error);
        self.warn_others(&self.described(error));
    }

    /// An error of this process, as others read it.
    pub(crate) fn described(&self, error: &Error) -> String {
        let Presence {
            rank, size, host, ..
        } = self;
        let mut text = format!("process {rank} of {size} on {host}: {error}");
        if let Some(checkpoint) = &*lock(&self.checkpoint)
            && !text.contains(&**checkpoint)
        {
            text += &format!("; the last checkpoint is {checkpoint}");
        }
        text
    }

    /// Tells the others that this process fails.
    pub(crate) fn warn_others(&self, text: &str) {
        let (Some(comm), Ok(_open)) = (self.comm.get(), self.enter("warning")) else {
            return;
        };
        let others = (0..self.size).filter(|&other| other != self.rank);
        let sent = others.map(|other| comm.send(other, FAILED, text.as_bytes().to_vec()));
        let mut sent: Vec<Sending> = sent.flatten().collect();
        let start = Instant::now();
        while !sent.is_empty() && start.elapsed() < LAST_WORDS {
            sent.retain_mut(|message| matches!(message.is_done(), Ok(false)));
            thread::sleep(crate::mpi::SLEEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::Patience;

    #[test]
    fn heartbeats_are_read_as_they_were_written() {
        let presence = Presence::new(0, 2, "node".to_owned());
        assert_eq!(presence.now().text, "computing");
        presence.at_step(41);
        let wait = Deadline::new(&presence, "`save` (call 7)", Duration::from_secs(9));
        let beat = presence.now();
        assert!(
            beat.text
                .starts_with("step 41, waiting for `save` (call 7) since 0."),
            "{beat:?}"
        );
        assert_eq!(Beat::read(&beat.write()), beat);
        drop(wait);
        assert_eq!(presence.now().text, "step 41, computing");
    }

    #[test]
    fn late_process_is_named() {
        let presence = Presence::new(0, 3, "node".to_owned());
        let mut wait = Deadline::new(&presence, "`x` (call 1)", Duration::ZERO);
        let beat = |waits: &[&str], text: &str| Beat {
            text: text.to_owned(),
            waits: waits.iter().map(|wait| (*wait).to_owned()).collect(),
        };
        lock(&presence.others)[1].beat = beat(&["`x` (call 1)"], "waiting");
        lock(&presence.others)[2].beat = beat(&[], "step 3, computing");
        let error = wait.check().unwrap_err().to_string();
        let expected =
            "`x` (call 1): waited 0ns for process 2 on an unknown host (step 3, computing; heard";
        assert!(error.starts_with(expected), "{error}");
    }
}
