//! How a job ended, from the reports of its processes.

use std::{
    fmt,
    time::{Duration, Instant},
};

use signal_hook::consts::SIGUSR1;

use crate::record::Record;

/// The process that failed first, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Failure {
    /// The process.
    pub rank: usize,
    /// Its host, if it had joined the job.
    pub host: Option<String>,
    /// Its id there, if it had joined the job.
    pub pid: Option<u32>,
    /// What happened.
    pub reason: String,
    /// The newest checkpoint that the job reported.
    pub checkpoint: Option<String>,
    /// The signal by which the launcher stopped the job, if there was one: do not start it again.
    pub stopped: Option<i32>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.rank)?;
        if let (Some(host), Some(pid)) = (&self.host, self.pid) {
            write!(f, " on {host} (pid {pid})")?;
        }
        write!(f, ": {}", self.reason)?;
        match &self.checkpoint {
            Some(path) if !self.reason.contains(&**path) => {
                write!(f, "; the last checkpoint is {path}")
            }
            _ => Ok(()),
        }
    }
}

/// What is known of one process.
#[derive(Clone, Debug, Default)]
struct Process {
    joined: Option<(String, u32)>,
    finished: bool,
    /// Status of a signal that stopped it.
    stopped: Option<u8>,
    /// Its own words about its failure.
    reported: Option<(String, Instant)>,
    /// Status of its program.
    exited: Option<(i32, Instant)>,
    /// Nothing more comes from it.
    closed: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Verdict {
    processes: Vec<Process>,
    checkpoint: Option<String>,
}

/// Time by which the words of a process may come before the signal that killed another one, which
/// is the reason then.
const SAME_TIME: Duration = Duration::from_secs(1);

impl Verdict {
    pub(super) fn new(processes: usize) -> Self {
        Verdict {
            processes: vec![Process::default(); processes],
            checkpoint: None,
        }
    }

    pub(super) fn record(&mut self, rank: usize, record: &Record) {
        let process = &mut self.processes[rank];
        let now = Instant::now();
        match record {
            Record::Joined { host, pid } => process.joined = Some((host.clone(), *pid)),
            Record::Finished => process.finished = true,
            Record::Stopped(status) => process.stopped = Some(*status),
            Record::Saved(checkpoint) => self.checkpoint = Some(checkpoint.clone()),
            Record::Failed(text) => {
                process.reported.get_or_insert_with(|| (text.clone(), now));
            }
            Record::Exited(status) => process.exited = Some((*status, now)),
        }
    }

    /// The signal that stopped the processes, if one did and none failed.
    pub(super) fn stopped(&self) -> Option<i32> {
        let statuses = self.processes.iter().filter_map(|process| process.stopped);
        statuses
            .filter(|&status| status > 128)
            .map(|status| i32::from(status) - 128)
            .next()
    }

    /// Whether a process reported that it failed.
    pub(super) fn reported(&self) -> bool {
        self.processes
            .iter()
            .any(|process| process.reported.is_some())
    }

    /// Whether a process has joined the job.
    fn is_job(&self) -> bool {
        self.processes
            .iter()
            .any(|process| process.joined.is_some())
    }

    /// Whether several processes ran, and none joined the job.
    pub(super) fn is_apart(&self) -> bool {
        self.processes.len() > 1 && !self.is_job()
    }

    pub(super) fn closed(&mut self, rank: usize) {
        self.processes[rank].closed.get_or_insert_with(Instant::now);
    }

    pub(super) fn all_ended(&self) -> bool {
        self.processes
            .iter()
            .all(|process| process.closed.is_some())
    }

    /// Time of the first failure.
    pub(super) fn failed_since(&self) -> Option<Instant> {
        self.failures().map(|(_, since, _)| since).min()
    }

    /// The failure of the job, if it has one.
    pub(super) fn failure(&self) -> Option<Failure> {
        let first = self.failed_since()?;
        let mut at_first: Vec<_> = self
            .failures()
            .filter(|(_, since, _)| *since <= first + SAME_TIME)
            .collect();
        at_first.sort_by_key(|(rank, since, _)| (!self.was_killed(*rank), *since));
        let (rank, _, reason) = at_first.swap_remove(0);
        let (host, pid) = self.processes[rank].joined.clone().unzip();
        let missing: Vec<usize> = self.missing(first).collect();
        let reason = if self.is_job() && !missing.is_empty() {
            format!("{reason}; {} not joined", have(&missing))
        } else {
            reason
        };
        Some(Failure {
            rank,
            host,
            pid,
            reason,
            checkpoint: self.checkpoint.clone(),
            stopped: None,
        })
    }

    /// Processes whose program ran at this time, and had not joined the job.
    fn missing(&self, at: Instant) -> impl Iterator<Item = usize> + '_ {
        let processes = self.processes.iter().enumerate();
        let missing = processes.filter(move |(_, one)| {
            one.joined.is_none() && one.exited.is_none_or(|(_, exited)| exited > at)
        });
        missing.map(|(rank, _)| rank)
    }

    fn was_killed(&self, rank: usize) -> bool {
        // By others than the launcher, whose warning of a failure ends programs without a job; a
        // process that has reported an error may crash while it exits.
        let by_others = |status| signal(status).is_some_and(|number| number != SIGUSR1);
        let process = &self.processes[rank];
        process.reported.is_none() && process.exited.is_some_and(|(status, _)| by_others(status))
    }

    /// Processes that failed, with time and reason.
    fn failures(&self) -> impl Iterator<Item = (usize, Instant, String)> + '_ {
        // A program that no process of joins a job has nothing to finish.
        let is_job = self.is_job();
        let processes = self.processes.iter().enumerate();
        processes.filter_map(move |(rank, process)| {
            let (since, reason) = process.failure(is_job)?;
            Some((rank, since, reason))
        })
    }
}

impl Process {
    fn failure(&self, is_job: bool) -> Option<(Instant, String)> {
        if let Some((text, since)) = &self.reported {
            return Some((*since, text.clone()));
        }
        match (self.exited, self.closed) {
            (Some((0, _)), _) if self.finished || !is_job => None,
            (Some((0, since)), _) => {
                let reason = match self.joined {
                    Some(_) => "exited with status 0 before it had finished the job",
                    None => "exited with status 0 and never joined the job",
                };
                Some((since, reason.to_owned()))
            }
            (Some((status, since)), _) => Some((since, describe(status))),
            (None, Some(since)) => {
                let reason =
                    "its shell or ssh ended before it told a status; its output may say why";
                Some((since, reason.to_owned()))
            }
            (None, None) => None,
        }
    }
}

/// `process 3 has`, `processes 1, 2 have`.
fn have(ranks: &[usize]) -> String {
    let list: Vec<String> = ranks.iter().map(usize::to_string).collect();
    match &list[..] {
        [one] => format!("process {one} has"),
        several => format!("processes {} have", several.join(", ")),
    }
}

/// A status as shells report it.
fn describe(status: i32) -> String {
    match status {
        126 => "the program cannot be executed (status 126)".to_owned(),
        127 => "the program was not found (status 127)".to_owned(),
        137 => "killed by SIGKILL, by a user or by the system because memory ran out".to_owned(),
        _ => match signal(status) {
            Some(number) => match signal_hook::low_level::signal_name(number) {
                Some(name) => format!("ended by {name}"),
                None => format!("ended by signal {number}"),
            },
            None => format!("exited with status {status}"),
        },
    }
}

/// The signal of a status as shells report it.
fn signal(status: i32) -> Option<i32> {
    /// The last one on Linux.
    const LAST: i32 = 64;
    Some(status - 128).filter(|number| (1..=LAST).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(verdict: &mut Verdict, rank: usize) {
        let (host, pid) = ("node".to_owned(), 40 + rank as u32);
        verdict.record(rank, &Record::Joined { host, pid });
    }

    #[test]
    fn job_succeeds_when_every_process_finished() {
        let mut verdict = Verdict::new(2);
        for rank in 0..2 {
            joined(&mut verdict, rank);
            verdict.record(rank, &Record::Finished);
            verdict.record(rank, &Record::Exited(0));
            assert!(!verdict.all_ended());
            verdict.closed(rank);
        }
        assert!(verdict.all_ended());
        assert_eq!(verdict.failure(), None);
    }

    #[test]
    fn early_exit_with_0_is_a_failure() {
        let mut verdict = Verdict::new(2);
        joined(&mut verdict, 0);
        verdict.record(1, &Record::Exited(0));
        let reason = verdict.failure().unwrap().to_string();
        assert_eq!(
            reason,
            "process 1: exited with status 0 and never joined the job"
        );
        joined(&mut verdict, 1);
        let reason = verdict.failure().unwrap().to_string();
        let expected = "process 1 on node (pid 41): exited with status 0 before it had finished";
        assert!(reason.starts_with(expected), "{reason}");
    }

    #[test]
    fn killed_process_is_the_reason() {
        let mut verdict = Verdict::new(2);
        joined(&mut verdict, 0);
        joined(&mut verdict, 1);
        verdict.record(0, &Record::Failed("connection lost".to_owned()));
        verdict.record(1, &Record::Exited(137));
        assert_eq!(verdict.failure().unwrap().rank, 1);
    }

    #[test]
    fn crash_after_an_error_is_not_the_reason() {
        let mut verdict = Verdict::new(2);
        joined(&mut verdict, 0);
        joined(&mut verdict, 1);
        verdict.record(1, &Record::Exited(3));
        verdict.record(0, &Record::Failed("another process failed".to_owned()));
        verdict.record(0, &Record::Exited(139));
        assert_eq!(verdict.failure().unwrap().rank, 1);
    }

    #[test]
    fn last_checkpoint_is_named() {
        let mut verdict = Verdict::new(1);
        joined(&mut verdict, 0);
        for step in [10, 20] {
            verdict.record(0, &Record::Saved(format!("run/step-{step}")));
        }
        verdict.record(0, &Record::Exited(3));
        let failure = verdict.failure().unwrap().to_string();
        let expected = "exited with status 3; the last checkpoint is run/step-20";
        assert!(failure.ends_with(expected), "{failure}");
    }

    #[test]
    fn job_is_stopped_by_signals_alone() {
        let mut verdict = Verdict::new(2);
        // A callback ends a run with status 0.
        verdict.record(0, &Record::Stopped(0));
        assert_eq!(verdict.stopped(), None);
        verdict.record(1, &Record::Stopped(143));
        assert_eq!(verdict.stopped(), Some(15));
    }

    #[test]
    fn programs_without_a_job_succeed_by_status() {
        let mut verdict = Verdict::new(2);
        verdict.record(0, &Record::Exited(0));
        verdict.record(1, &Record::Exited(0));
        assert_eq!(verdict.failure(), None);
        verdict.record(1, &Record::Exited(3));
        assert_eq!(verdict.failure().unwrap().reason, "exited with status 3");
        // The launcher warns it of the failure.
        verdict.record(0, &Record::Exited(138));
        assert_eq!(verdict.failure().unwrap().rank, 1);
    }

    #[test]
    fn status_is_a_signal_where_there_is_one() {
        for (status, expected) in [
            (3, "exited with status 3"),
            (128, "exited with status 128"),
            (129, "ended by SIGHUP"),
            (162, "ended by signal 34"),
            (193, "exited with status 193"),
            (255, "exited with status 255"),
        ] {
            assert_eq!(describe(status), expected);
        }
    }

    #[test]
    fn processes_that_join_nothing_are_apart() {
        let mut verdict = Verdict::new(2);
        assert!(verdict.is_apart() && !Verdict::new(1).is_apart());
        joined(&mut verdict, 1);
        assert!(!verdict.is_apart());
    }
}
