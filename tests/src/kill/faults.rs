//! Signals at random moments of a training run, and the ways in which its processes may end.

use std::{collections::BTreeMap, fs, io, path::Path, thread, time::Duration};

use serde::Serialize;

use crate::{
    process::{self, Running},
    random::Random,
    runs::newest_step,
};

/// A signal that a process gets.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(super) enum Fault {
    Kill,
    Terminate,
    HangUp,
    /// Stopped for a while, then continued, like a laptop that sleeps.
    Stop,
}

impl Fault {
    pub(super) const ALL: [Fault; 4] = [Fault::Kill, Fault::Terminate, Fault::HangUp, Fault::Stop];

    pub(super) fn name(self) -> &'static str {
        match self {
            Fault::Kill => "KILL",
            Fault::Terminate => "TERM",
            Fault::HangUp => "HUP",
            Fault::Stop => "STOP",
        }
    }

    fn number(self) -> u32 {
        match self {
            Fault::HangUp => 1,
            Fault::Kill => 9,
            Fault::Terminate => 15,
            Fault::Stop => 19,
        }
    }
}

/// A training run that gets one to three signals.
pub(super) struct Disturbance<'a> {
    /// Starts the command, with `--resume` or without.
    pub(super) start: &'a dyn Fn(bool) -> io::Result<Running>,
    /// Directory of the run.
    pub(super) out: &'a Path,
    /// Duration of an undisturbed run.
    pub(super) took: Duration,
    /// Last step of an undisturbed run.
    pub(super) last_step: u64,
    /// Longest time that a process may take.
    pub(super) deadline: Duration,
    pub(super) random: Random,
    pub(super) record: Record,
}

/// The signals of a run.
#[derive(Default)]
pub(super) struct Record {
    pub(super) faults: Vec<Fault>,
    /// Number of signals to a resumed run.
    pub(super) in_resume: u64,
    /// What of a job the signals met, and how often.
    pub(super) places: BTreeMap<&'static str, u64>,
    /// Descriptions of the signals.
    pub(super) history: Vec<String>,
    /// Signals that ended a process without a checkpoint although their handler was installed.
    pub(super) not_saved: Vec<Wrong>,
}

/// A wrong reaction: a kind that is counted, and a description.
pub(super) struct Wrong {
    pub(super) what: &'static str,
    pub(super) how: String,
}

impl Disturbance<'_> {
    /// Sends the signals, and resumes until the run is complete.
    pub(super) fn run(&mut self) -> Result<(), Wrong> {
        let mut left = 1 + self.random.below(3);
        let mut resumes = false;
        while left > 0 {
            let running = self.started(resumes)?;
            left = self.disturb(running, left, resumes)?;
            resumes = true;
        }
        check_end(&self.started(true)?.end(self.deadline), None)
    }

    fn started(&self, resumes: bool) -> Result<Running, Wrong> {
        (self.start)(resumes).map_err(|error| Wrong {
            what: "not started",
            how: error.to_string(),
        })
    }

    /// Sends signals to a process until it ends, at most `left`. Returns how many are left, 0 if
    /// the run is complete.
    fn disturb(
        &mut self,
        mut running: Running,
        mut left: usize,
        resumes: bool,
    ) -> Result<usize, Wrong> {
        loop {
            let fault = *self.random.pick(&[
                Fault::Kill,
                Fault::Kill,
                Fault::Kill,
                Fault::Terminate,
                Fault::HangUp,
                Fault::Stop,
            ]);
            let moment = self.wait_for_moment(&mut running);
            if running.has_ended() {
                check_end(&running.end(self.deadline), None)?;
                return Ok(0);
            }
            left -= 1;
            self.record(fault, &moment, resumes);
            // A handler may be installed just after the signal, so only an earlier one counts.
            let handled = running.handles(Fault::Terminate.number());
            running.signal(fault.name());
            if fault != Fault::Stop {
                let ended = running.end(self.deadline);
                check_end(&ended, Some(fault))?;
                let by_signal = ended.signal().is_some() && fault != Fault::Kill;
                // After its last step there is nothing left to save.
                if by_signal && handled && newest_step(self.out) < self.last_step {
                    self.record.not_saved.push(Wrong {
                        what: "not saved",
                        how: ended.summary(),
                    });
                }
                return Ok(left);
            }
            thread::sleep(Duration::from_millis(20 + self.random.below(300) as u64));
            running.signal("CONT");
            // The process continues, and may get the next signal too.
            if left == 0 {
                check_end(&running.end(self.deadline), None)?;
                return Ok(0);
            }
        }
    }

    fn record(&mut self, fault: Fault, moment: &str, resumes: bool) {
        let (name, step) = (fault.name(), newest_step(self.out));
        let resumed = if resumes { ", resumed" } else { "" };
        let history = &mut self.record.history;
        history.push(format!(
            "{name} {moment} (checkpoint of step {step}{resumed})"
        ));
        self.record.faults.push(fault);
        self.record.in_resume += u64::from(resumes);
    }

    /// Waits for a random moment, or until a checkpoint is being written; describes the moment.
    fn wait_for_moment(&mut self, running: &mut Running) -> String {
        if self.random.percent(35) {
            running.wait_until(self.took * 2, || half_written(self.out));
            thread::sleep(Duration::from_micros(self.random.below(3000) as u64));
            return "while a checkpoint is written".to_owned();
        }
        let delay = self.took.mul_f64(self.random.below(1050) as f64 / 1000.0);
        running.wait_until(delay, || false);
        format!("after {} ms", delay.as_millis())
    }
}

/// Whether a checkpoint of the run in this directory is being written.
pub(super) fn half_written(out: &Path) -> bool {
    let entries = fs::read_dir(out.join("checkpoints")).into_iter().flatten();
    entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with('.') && entry.path().is_dir())
}

/// What is wrong with this end after any signal.
pub(super) fn unacceptable(ended: &process::Ended) -> Option<&'static str> {
    if ended.timed_out {
        return Some("hung");
    }
    if ended.panicked() {
        return Some("panicked");
    }
    (ended.stderr.contains("cannot be used")).then_some("damaged checkpoint")
}

/// Checks that a process ended as it must after this signal; without one it must succeed.
fn check_end(ended: &process::Ended, fault: Option<Fault>) -> Result<(), Wrong> {
    let wrong = |what| {
        Err(Wrong {
            what,
            how: ended.summary(),
        })
    };
    if let Some(what) = unacceptable(ended) {
        return wrong(what);
    }
    let number = fault.map(Fault::number);
    let by_signal = ended.signal().map(i32::unsigned_abs);
    match fault {
        _ if ended.succeeded() => Ok(()),
        None => wrong("refused"),
        Some(Fault::Kill) if by_signal == number => Ok(()),
        // Saved and ended, with the exit code that a shell expects.
        Some(Fault::Terminate | Fault::HangUp)
            if ended.code() == number.map(|number| 128 + number as i32) =>
        {
            Ok(())
        }
        // Right as long as there is nothing to save.
        Some(Fault::Terminate | Fault::HangUp) if by_signal == number => Ok(()),
        _ => wrong("other exit status"),
    }
}
