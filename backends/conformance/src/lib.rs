//! Conformance suite of the contract: cases that run on any client.
//!
//! A backend that passes can train models: its transfers are bit-exact, donation gives correct
//! results, waits report every error, invalid arguments are rejected without side effects, and
//! launches from several threads and over several devices are independent. The cases know nothing
//! of PJRT; their programs are a few lines of StableHLO text each.
//!
//! ```
//! use halite_conformance::{Subject, run};
//! use halite_core::{Client, Null};
//!
//! let subject = Subject::opened_by(|| Ok(Client::new(Null::new(2))))?;
//! let outcome = run(&subject, "errors");
//! assert!(outcome.failed.is_empty(), "{outcome}");
//! # halite_core::Result::<()>::Ok(())
//! ```
//!
//! Platforms that need not pass a case are listed with it, with the reason. Optional operations and
//! programs that a backend does not support
//! ([`ErrorKind::Unsupported`](halite_core::ErrorKind::Unsupported)) are skipped.
#![forbid(unsafe_code)]

mod custom_calls;
mod devices;
mod donation;
mod errors;
mod events;
mod pinned;
mod programs;
mod support;
mod threads;
mod transfers;

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use halite_core::{Client, Result};

use support::{Checked, Stop};

/// A case: one promise of the contract.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name, `group::words_with_underscores`.
    pub name: &'static str,
    /// Minimum number of local devices.
    pub devices: usize,
    /// Time limit; a case that takes longer hangs, and fails.
    pub deadline: Duration,
    /// Platforms that need not pass it, with the reasons.
    pub exceptions: &'static [(&'static str, &'static str)],
    body: fn(&Subject) -> Checked,
}

/// Result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The backend keeps the promise.
    Passed,
    /// The backend does not, with what was observed and expected.
    Failed(String),
    /// The case does not apply to this backend, with the reason.
    Skipped(String),
}

/// Results of all cases, by name.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Cases that passed, with their times.
    pub passed: Vec<(&'static str, Duration)>,
    /// Cases that failed, with what was observed.
    pub failed: Vec<(&'static str, String)>,
    /// Cases that did not apply, with the reasons.
    pub skipped: Vec<(&'static str, String)>,
}

/// Subject of the cases: a client, and a function that opens another one like it.
#[derive(Clone)]
pub struct Subject {
    client: Client,
    open: Option<Arc<Open>>,
}

type Open = dyn Fn() -> Result<Client> + Send + Sync;

/// All cases, by group.
pub fn cases() -> Vec<Case> {
    let groups = [
        transfers::CASES,
        pinned::CASES,
        programs::CASES,
        donation::CASES,
        events::CASES,
        errors::CASES,
        threads::CASES,
        devices::CASES,
        custom_calls::CASES,
    ];
    groups.concat()
}

/// Runs the cases whose names contain `filter` (all if it is empty), one after the other.
pub fn run(subject: &Subject, filter: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for case in cases().iter().filter(|case| case.name.contains(filter)) {
        let started = Instant::now();
        let verdict = case.run(subject);
        outcome.add(case, verdict, started.elapsed());
    }
    outcome
}

impl Case {
    const fn new(name: &'static str, body: fn(&Subject) -> Checked) -> Self {
        Case {
            name,
            devices: 1,
            deadline: Duration::from_secs(120),
            exceptions: &[],
            body,
        }
    }

    const fn devices(mut self, devices: usize) -> Self {
        self.devices = devices;
        self
    }

    const fn seconds(mut self, seconds: u64) -> Self {
        self.deadline = Duration::from_secs(seconds);
        self
    }

    const fn except(mut self, exceptions: &'static [(&'static str, &'static str)]) -> Self {
        self.exceptions = exceptions;
        self
    }

    /// The group, the part of the name before `::`.
    pub fn group(&self) -> &'static str {
        self.name.split("::").next().unwrap_or_default()
    }

    /// The name in words: `transfers: every type round trips bit exactly`.
    pub fn sentence(&self) -> String {
        self.name.replacen("::", ": ", 1).replace('_', " ")
    }

    /// Runs it on a new thread. If it exceeds its limit, the thread is abandoned.
    pub fn run(&self, subject: &Subject) -> Verdict {
        let platform = &*subject.client.platform().name;
        if let Some((_, reason)) = self.exceptions.iter().find(|(name, _)| *name == platform) {
            return Verdict::Skipped(format!("not required of {platform}: {reason}"));
        }
        let here = subject.client.local_devices().len();
        if here < self.devices {
            return Verdict::Skipped(format!("needs {} devices, has {here}", self.devices));
        }
        let (send, receive) = mpsc::channel();
        let (subject, body) = (subject.clone(), self.body);
        let spawned = thread::Builder::new()
            .name(self.name.into())
            .spawn(move || {
                // The panic hook reports where it was.
                let caught = catch_unwind(AssertUnwindSafe(|| body(&subject)));
                drop(subject);
                // The receiver is gone if the limit was exceeded.
                let _ = send.send(caught.unwrap_or_else(|panic| {
                    Err(Stop::Failed(format!(
                        "panicked: {}",
                        panic_message(&*panic)
                    )))
                }));
            });
        if let Err(error) = spawned {
            return Verdict::Failed(format!("cannot create a thread: {error}"));
        }
        match receive.recv_timeout(self.deadline) {
            Ok(Ok(())) => Verdict::Passed,
            Ok(Err(Stop::Failed(message))) => Verdict::Failed(message),
            Ok(Err(Stop::Skipped(reason))) => Verdict::Skipped(reason),
            Err(_) => Verdict::Failed(format!(
                "hangs: not done after {} s. Its thread is abandoned and may disturb later cases",
                self.deadline.as_secs()
            )),
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "without a message".to_owned())
}

impl Outcome {
    /// Adds the result of a case.
    pub fn add(&mut self, case: &Case, verdict: Verdict, took: Duration) {
        match verdict {
            Verdict::Passed => self.passed.push((case.name, took)),
            Verdict::Failed(message) => self.failed.push((case.name, message)),
            Verdict::Skipped(reason) => self.skipped.push((case.name, reason)),
        }
    }
}

impl fmt::Display for Outcome {
    /// Formats a line for each case that did not pass, and the counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, reason) in &self.skipped {
            writeln!(f, "skipped {name}: {reason}")?;
        }
        for (name, message) in &self.failed {
            writeln!(f, "FAILED  {name}: {message}")?;
        }
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed.len(),
            self.failed.len(),
            self.skipped.len()
        )
    }
}

impl Subject {
    /// A subject without a way to open another client; cases that need one are skipped.
    pub fn new(client: Client) -> Self {
        Subject { client, open: None }
    }

    /// A subject opened by `open`, which cases call to open more clients of the same platform with
    /// the same number of devices.
    ///
    /// # Errors
    /// The error of `open`.
    pub fn opened_by(open: impl Fn() -> Result<Client> + Send + Sync + 'static) -> Result<Self> {
        Ok(Subject {
            client: open()?,
            open: Some(Arc::new(open)),
        })
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Opens another client.
    fn another(&self) -> Checked<Client> {
        match &self.open {
            Some(open) => Ok(open()?),
            None => Err(Stop::Skipped(
                "needs a function that opens another client".to_owned(),
            )),
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subject({:?})", self.client)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use halite_core::Null;

    use super::*;

    fn null() -> Subject {
        Subject::opened_by(|| Ok(Client::new(Null::new(2)))).unwrap()
    }

    #[test]
    fn names_are_unique() {
        let mut names = HashSet::new();
        for case in cases() {
            assert!(names.insert(case.name), "{} is duplicated", case.name);
            assert!(
                case.name
                    .split_once("::")
                    .is_some_and(|(group, name)| !group.is_empty() && name.contains('_')),
                "{case:?}"
            );
        }
        assert!(names.len() > 40, "{} cases", names.len());
    }

    #[test]
    fn hang_or_panic_is_a_verdict() {
        let case = |body| Case::new("test::a_case", body);
        let hang = |_: &Subject| -> Checked {
            thread::sleep(Duration::from_secs(30));
            Ok(())
        };
        let late = case(hang).seconds(0).run(&null());
        assert!(
            matches!(&late, Verdict::Failed(message) if message.starts_with("hangs: not done")),
            "{late:?}"
        );
        let panics = case(|_| panic!("of {}", 7)).run(&null());
        assert_eq!(panics, Verdict::Failed("panicked: of 7".into()));
        let lacks = case(|_| Ok(())).devices(3).run(&null());
        assert_eq!(lacks, Verdict::Skipped("needs 3 devices, has 2".into()));
        let excepted = case(|_| Ok(()))
            .except(&[("null", "it is nothing")])
            .run(&null());
        assert_eq!(
            excepted,
            Verdict::Skipped("not required of null: it is nothing".into())
        );
        let fails = case(|_| Err(Stop::Failed("no".into()))).run(&null());
        assert_eq!(fails, Verdict::Failed("no".into()));
        let alone = case(|subject| subject.another().map(drop))
            .run(&Subject::new(Client::new(Null::new(1))));
        assert_eq!(
            alone,
            Verdict::Skipped("needs a function that opens another client".into())
        );
    }

    /// The suite must be able to fail: on a backend whose buffers hold zeros.
    #[test]
    fn backend_that_loses_values_fails() {
        let subject = null();
        let mut lenient = Vec::new();
        for mut case in cases() {
            if case.exceptions.iter().any(|(name, _)| *name == "null") && case.devices <= 2 {
                case.exceptions = &[];
                if !matches!(case.run(&subject), Verdict::Failed(_)) {
                    lenient.push(case.name);
                }
            }
        }
        assert_eq!(
            lenient, [""; 0],
            "these cases pass on a backend that computes nothing"
        );
    }
}
