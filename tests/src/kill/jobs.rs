//! Signals to the processes of a job and to its launcher, at random moments, and the ways in which the
//! job may end.

use std::{
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::faults::{Fault, Record, Wrong, half_written, unacceptable};

use crate::{
    process::{Ended, Running, signal},
    random::Random,
    runs::newest_step,
};

/// Time in which no process of a job is left after its launcher has ended.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// The moment of a blow to a job whose processes save.
const IN_SAVE: &str = "while a checkpoint is written";

/// What is done to a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Blow {
    /// SIGKILL to one process.
    KillOne,
    /// SIGKILL to several processes at the same time.
    KillSeveral,
    /// SIGKILL to a process while the others wait for one that is stopped.
    KillInWait,
    KillLauncher,
    /// SIGTERM to one process: all save.
    TerminateOne,
    TerminateLauncher,
    /// One process is stopped for a while, and continued.
    StopOne,
}

impl Blow {
    const ALL: [Blow; 9] = [
        Blow::KillOne,
        Blow::KillOne,
        Blow::KillSeveral,
        Blow::KillInWait,
        Blow::KillInWait,
        Blow::KillLauncher,
        Blow::TerminateOne,
        Blow::TerminateLauncher,
        Blow::StopOne,
    ];

    fn fault(self) -> Fault {
        match self {
            Blow::KillOne | Blow::KillSeveral | Blow::KillInWait | Blow::KillLauncher => {
                Fault::Kill
            }
            Blow::TerminateOne | Blow::TerminateLauncher => Fault::Terminate,
            Blow::StopOne => Fault::Stop,
        }
    }

    /// What gets it, for the summary.
    fn place(self) -> &'static str {
        match self {
            Blow::KillOne | Blow::TerminateOne | Blow::StopOne => "one process",
            Blow::KillSeveral => "several processes",
            Blow::KillInWait => "a process while others wait",
            Blow::KillLauncher | Blow::TerminateLauncher => "the launcher",
        }
    }
}

/// A job that gets one to three blows.
pub(super) struct DisturbedJob<'a> {
    /// Starts the launcher, with `--resume` or without, and with this number of `--restarts`.
    pub(super) start: &'a dyn Fn(bool, u32) -> io::Result<Running>,
    /// Directory of the run.
    pub(super) out: &'a Path,
    /// Number of processes.
    pub(super) processes: usize,
    /// Duration of an undisturbed run.
    pub(super) took: Duration,
    /// Longest time that the launcher may take.
    pub(super) deadline: Duration,
    pub(super) random: Random,
    pub(super) record: Record,
}

impl DisturbedJob<'_> {
    /// Deals the blows, and resumes until the run is complete.
    pub(super) fn run(&mut self) -> Result<(), Wrong> {
        let mut left = 1 + self.random.below(3);
        let mut resumes = false;
        while left > 0 {
            // The launcher itself may start the job again.
            let restarts = if self.random.percent(40) { 3 } else { 0 };
            let running = self.started(resumes, restarts)?;
            let dealt = self.disturb(running, left, resumes, restarts)?;
            left -= dealt.min(left);
            if dealt == 0 {
                // It is complete.
                break;
            }
            resumes = true;
        }
        self.check_end(self.started(true, 0)?.end(self.deadline), None)
    }

    fn started(&self, resumes: bool, restarts: u32) -> Result<Running, Wrong> {
        (self.start)(resumes, restarts).map_err(|error| Wrong {
            what: "not started",
            how: error.to_string(),
        })
    }

    /// Deals blows to a job until it ends, at most `left`. Returns how many.
    fn disturb(
        &mut self,
        mut running: Running,
        left: usize,
        resumes: bool,
        restarts: u32,
    ) -> Result<usize, Wrong> {
        let mut last = None;
        for dealt in 0..left {
            let moment = self.wait_for_moment(&mut running);
            let blow = *self.random.pick(&Blow::ALL);
            let ranks = processes_of(self.out);
            if running.has_ended() || ranks.is_empty() {
                self.check_end(running.end(self.deadline), last)?;
                return Ok(dealt);
            }
            self.record(blow, &moment, resumes);
            last = Some(blow);
            self.deal(blow, &running, &ranks);
            // Only such a job continues.
            if blow != Blow::StopOne && (restarts == 0 || blow.fault() != Fault::Kill) {
                break;
            }
            if blow == Blow::KillLauncher {
                break;
            }
        }
        let dealt = usize::from(last.is_some());
        self.check_end(running.end(self.deadline), last)?;
        Ok(dealt.max(1))
    }

    /// Waits for a random moment, or until a checkpoint is being written; describes the moment.
    fn wait_for_moment(&mut self, running: &mut Running) -> String {
        let out = self.out;
        if self.random.percent(40) {
            running.wait_until(self.took * 2, || half_written(out));
            thread::sleep(Duration::from_micros(self.random.below(3000) as u64));
            return IN_SAVE.to_owned();
        }
        let delay = self.took.mul_f64(self.random.below(1000) as f64 / 1000.0);
        running.wait_until(delay, || false);
        format!("after {} ms", delay.as_millis())
    }

    fn deal(&mut self, blow: Blow, launcher: &Running, ranks: &[u32]) {
        let first = self.random.below(ranks.len());
        let pause = Duration::from_millis(20 + self.random.below(300) as u64);
        let other = ranks[(first + 1) % ranks.len()];
        match blow {
            Blow::KillOne => signal("KILL", ranks[first]),
            Blow::KillSeveral => {
                let count = 2 + self.random.below(self.processes.max(2) - 1);
                let some = ranks
                    .iter()
                    .cycle()
                    .skip(first)
                    .take(count.min(ranks.len()));
                some.for_each(|rank| signal("KILL", *rank));
            }
            Blow::KillInWait => {
                signal("STOP", other);
                thread::sleep(pause);
                signal("KILL", ranks[first]);
                thread::sleep(pause);
                signal("CONT", other);
            }
            Blow::KillLauncher => launcher.signal("KILL"),
            Blow::TerminateOne => signal("TERM", ranks[first]),
            Blow::TerminateLauncher => launcher.signal("TERM"),
            Blow::StopOne => {
                signal("STOP", ranks[first]);
                thread::sleep(pause);
                signal("CONT", ranks[first]);
            }
        }
    }

    fn record(&mut self, blow: Blow, moment: &str, resumes: bool) {
        let step = newest_step(self.out);
        let resumed = if resumes { ", resumed" } else { "" };
        let history = &mut self.record.history;
        history.push(format!(
            "{blow:?} {moment} (checkpoint of step {step}{resumed})"
        ));
        self.record.faults.push(blow.fault());
        let places = &mut self.record.places;
        *places.entry(blow.place()).or_default() += 1;
        *places.entry(IN_SAVE).or_default() += u64::from(moment == IN_SAVE);
        self.record.in_resume += u64::from(resumes);
    }

    /// Checks that a launcher ended as it must after its last blow, and left no process.
    fn check_end(&self, ended: Ended, blow: Option<Blow>) -> Result<(), Wrong> {
        let wrong = |what| {
            Err(Wrong {
                what,
                how: ended.summary(),
            })
        };
        if let Some(what) = unacceptable(&ended) {
            return wrong(what);
        }
        let began = Instant::now();
        while !processes_of(self.out).is_empty() {
            if began.elapsed() > GONE_WITHIN {
                return wrong("processes left over");
            }
            thread::sleep(Duration::from_millis(20));
        }
        match (blow, ended.code(), ended.signal()) {
            (_, Some(0), _) => Ok(()),
            (Some(Blow::KillLauncher), None, Some(9)) => Ok(()),
            // The error names the process, or one that MPI aborted because its peer was gone.
            (Some(Blow::KillOne | Blow::KillSeveral | Blow::KillInWait), Some(1), _)
                if ["killed by SIGKILL", "ended by SIGABRT"]
                    .iter()
                    .any(|how| ended.stderr.contains(how)) =>
            {
                Ok(())
            }
            (Some(Blow::TerminateOne | Blow::TerminateLauncher), Some(143), _) => Ok(()),
            // Before their handlers were there.
            (Some(Blow::TerminateLauncher), None, Some(15)) => Ok(()),
            (Some(Blow::TerminateOne | Blow::TerminateLauncher), Some(1), _)
                if ended.stderr.contains("ended by SIGTERM") =>
            {
                Ok(())
            }
            (None, ..) => wrong("refused"),
            _ => wrong("other exit status"),
        }
    }
}

/// Ids of the trainings in the directory `out`, without launchers.
fn processes_of(out: &Path) -> Vec<u32> {
    let out = out.as_os_str().as_encoded_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<u32> = entries
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let mut words = line.split(|byte| *byte == 0);
            let is_training = words.nth(1) == Some(b"train") && words.any(|word| word == out);
            is_training.then_some(id)
        })
        .collect();
    found.sort_unstable();
    found
}
