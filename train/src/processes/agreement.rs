//! Agreement of the processes on what depends on time and signals: when to stop, and how long the run
//! takes.

use std::time::Instant;

use halite_core::{Error, Result};
use halite_nn::Processes;

use super::{patience, words};
use crate::signals::StopReason;

/// Time between two agreements: signals and limits of time are noticed so late.
const EVERY: f64 = 0.1;
/// Most steps between two agreements.
const MOST: f64 = 1000.0;

/// Words of a message, before the path of a checkpoint.
const WORDS: usize = 5;

/// What the processes agreed on last.
pub(crate) struct Agreement {
    processes: Processes,
    /// The step before which they agree again.
    next: u64,
    /// The steps that were done at the last agreement, and its time.
    last: Option<(u64, Instant)>,
    /// Seconds of the run in process 0.
    seconds: f64,
    stop: Option<StopReason>,
    is_requested: bool,
    /// The newest checkpoint of process 0.
    checkpoint: Option<String>,
}

/// What a process contributes.
pub(crate) struct Wish {
    /// Steps queued.
    pub(crate) step: u64,
    /// Steps that the devices have done.
    pub(crate) done: u64,
    /// Seconds of the run.
    pub(crate) seconds: f64,
    /// Why it should stop, if it should.
    pub(crate) stop: Option<StopReason>,
    /// Whether a callback requested a stop.
    pub(crate) is_requested: bool,
    /// A checkpoint that is complete since the last agreement; that of process 0 counts.
    pub(crate) saved: Option<String>,
}

impl Agreement {
    /// Processes that have not agreed on anything yet.
    pub(crate) fn new(processes: &Processes) -> Self {
        Agreement {
            processes: processes.clone(),
            next: 0,
            last: None,
            seconds: 0.0,
            stop: None,
            is_requested: false,
            checkpoint: None,
        }
    }

    /// Why all stop, if they do.
    pub(crate) fn stop(&self) -> Option<StopReason> {
        self.stop
    }

    /// Whether a callback of a process requested a stop.
    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested
    }

    /// Whether all stop for any reason.
    pub(crate) fn stops(&self) -> bool {
        self.is_requested || self.stop.is_some()
    }

    /// The newest checkpoint, as of the last agreement.
    pub(crate) fn checkpoint(&self) -> Option<&str> {
        self.checkpoint.as_deref()
    }

    /// Seconds of the run at the last agreement.
    pub(crate) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Whether the processes agree before the next step, after this many.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        step >= self.next
    }

    /// Steps until the next agreement. Those that are done count, because an empty queue takes steps
    /// faster than the devices do them; and no more than twice as many as before, because the first
    /// steps after others may be faster.
    fn distance(&self, done: u64) -> u64 {
        let Some((before, since)) = self.last else {
            return 1;
        };
        let steps = done.saturating_sub(before) as f64;
        let pace = steps * EVERY / since.elapsed().as_secs_f64().max(1e-6);
        pace.min(2.0 * steps).clamp(1.0, MOST) as u64
    }

    /// Exchanges wishes: all stop if one wishes to, and have the time of process 0.
    pub(crate) fn agree(&mut self, wish: &Wish) -> Result<()> {
        let words_of_wish: [u64; WORDS] = [
            wish.step,
            wish.stop.map_or(0, StopReason::code),
            u64::from(wish.is_requested),
            wish.seconds.to_bits(),
            self.distance(wish.done),
        ];
        let mut message: Vec<u8> = words_of_wish
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        message.extend(wish.saved.iter().flat_map(|path| path.bytes()));
        let group = self.processes.group();
        group.at_step(wish.step);
        let all = group.all_gather("agreement", &message, patience(&self.processes))?;
        if let Some(path) = all[0].get(8 * WORDS..).filter(|path| !path.is_empty()) {
            let path = String::from_utf8_lossy(path).into_owned();
            group.has_saved(&path);
            self.checkpoint = Some(path);
        }
        let all = all.iter().map(|bytes| words::<WORDS>(bytes, 0));
        let all: Vec<[u64; WORDS]> = all.collect::<Result<_>>()?;
        if let Some(other) = all.iter().position(|words| words[0] != wish.step) {
            let message = format!(
                "process {} has queued {} steps, and process {other} {}",
                group.rank(),
                wish.step,
                all[other][0]
            );
            return Err(Error::invalid("processes", message));
        }
        let [_, _, _, seconds, distance] = all[0];
        self.seconds = f64::from_bits(seconds);
        self.last = Some((wish.done, Instant::now()));
        self.next = wish.step + distance.max(1);
        let reasons = all.iter().filter_map(|words| StopReason::of_code(words[1]));
        self.stop = reasons.min_by_key(|reason| reason.code());
        self.is_requested = all.iter().any(|words| words[2] != 0);
        Ok(())
    }
}
