//! What every backend must do, as cases that run on any client.
//!
//! A backend that passes can be trained on: its transfers keep every bit, donation gives right
//! results, waits tell every error, wrong arguments are refused and end nothing, launches from many
//! threads and over many devices do not mix. The cases know nothing of PJRT; their programs are a
//! few lines of StableHLO text each.
//!
//! ```
//! use halite_backends::conformance::{self, Subject};
//! use halite_core::{Client, Null};
//!
//! let subject = Subject::opened_by(|| Ok(Client::new(Null::new(2))))?;
//! let outcome = conformance::run(&subject, "errors");
//! assert!(outcome.failed.is_empty(), "{outcome}");
//! # halite_core::Result::<()>::Ok(())
//! ```
//!
//! What a backend need not do stands beside each case, with the reason; what it says it cannot do
//! ([`ErrorKind::Unsupported`](halite_core::ErrorKind::Unsupported)) is skipped where the contract
//! allows it.

mod devices;
mod donation;
mod errors;
mod events;
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

/// One thing that every backend must do.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// `group::a_sentence_with_underscores`.
    pub name: &'static str,
    /// How many local devices it needs at least.
    pub devices: usize,
    /// How long it may take; longer is a hang, and a failure.
    pub deadline: Duration,
    /// Platforms that need not pass it, with the reason.
    pub exceptions: &'static [(&'static str, &'static str)],
    body: fn(&Subject) -> Checked,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The backend does it.
    Passed,
    /// It does not: what was seen, and what was wanted.
    Failed(String),
    /// The case says nothing about this backend, and why.
    Skipped(String),
}

/// How all cases ended. Each entry begins with the case's name.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The cases that passed, and how long each took.
    pub passed: Vec<(&'static str, Duration)>,
    /// The cases that failed, and why.
    pub failed: Vec<(&'static str, String)>,
    /// The cases that did not apply, and why.
    pub skipped: Vec<(&'static str, String)>,
}

/// What the cases run on: a client, and how to open one like it.
#[derive(Clone)]
pub struct Subject {
    client: Client,
    open: Option<Arc<Open>>,
}

type Open = dyn Fn() -> Result<Client> + Send + Sync;

/// Every case, grouped.
pub fn cases() -> Vec<Case> {
    let groups = [
        transfers::CASES,
        programs::CASES,
        donation::CASES,
        events::CASES,
        errors::CASES,
        threads::CASES,
        devices::CASES,
    ];
    groups.concat()
}

/// Runs the cases whose name contains `filter`, one after the other; all of them if it is empty.
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

    /// The group it belongs to: what it is about.
    pub fn group(&self) -> &'static str {
        self.name.split("::").next().unwrap_or_default()
    }

    /// The name as a sentence: `transfers: every type comes back bit for bit`.
    pub fn sentence(&self) -> String {
        self.name.replacen("::", ": ", 1).replace('_', " ")
    }

    /// Runs it on a thread of its own. A case that is late is given up, and its thread left behind.
    pub fn run(&self, subject: &Subject) -> Verdict {
        let platform = &*subject.client.platform().name;
        if let Some((_, reason)) = self.exceptions.iter().find(|(name, _)| *name == platform) {
            return Verdict::Skipped(format!("not asked of {platform}: {reason}"));
        }
        let here = subject.client.local_devices().len();
        if here < self.devices {
            return Verdict::Skipped(format!("needs {} devices, there are {here}", self.devices));
        }
        let (send, receive) = mpsc::channel();
        let (subject, body) = (subject.clone(), self.body);
        let spawned = thread::Builder::new()
            .name(self.name.into())
            .spawn(move || {
                // The panic hook says where it was.
                let caught = catch_unwind(AssertUnwindSafe(|| body(&subject)));
                drop(subject);
                // Nobody listens any more if it is late.
                let _ = send.send(caught.unwrap_or_else(|panic| {
                    Err(Stop::Failed(format!("panicked: {}", words_of(&*panic))))
                }));
            });
        if let Err(error) = spawned {
            return Verdict::Failed(format!("no thread to run it on: {error}"));
        }
        match receive.recv_timeout(self.deadline) {
            Ok(Ok(())) => Verdict::Passed,
            Ok(Err(Stop::Failed(message))) => Verdict::Failed(message),
            Ok(Err(Stop::Skipped(reason))) => Verdict::Skipped(reason),
            Err(_) => Verdict::Failed(format!(
                "hangs: not done after {} s. Its thread is left behind and may disturb what runs after it",
                self.deadline.as_secs()
            )),
        }
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "without words".to_owned())
}

impl Outcome {
    /// Notes how a case ended, and how long it took.
    pub fn add(&mut self, case: &Case, verdict: Verdict, took: Duration) {
        match verdict {
            Verdict::Passed => self.passed.push((case.name, took)),
            Verdict::Failed(message) => self.failed.push((case.name, message)),
            Verdict::Skipped(reason) => self.skipped.push((case.name, reason)),
        }
    }
}

impl fmt::Display for Outcome {
    /// A line for each case that did not pass, and the counts.
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
    /// An open client. Cases that open clients of their own are skipped.
    pub fn new(client: Client) -> Self {
        Subject { client, open: None }
    }

    /// A client opened by `open`, which cases may call to open more: of the same platform, with as
    /// many devices.
    ///
    /// # Errors
    /// What `open` says.
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

    /// Another client.
    fn another(&self) -> Checked<Client> {
        match &self.open {
            Some(open) => Ok(open()?),
            None => Err(Stop::Skipped(
                "needs a way to open another client".to_owned(),
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
    fn names_are_there_once_and_say_their_group() {
        let mut names = HashSet::new();
        for case in cases() {
            assert!(names.insert(case.name), "{} is there twice", case.name);
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
    fn a_case_that_hangs_or_panics_or_lacks_devices_has_a_verdict_and_no_more() {
        let case = |body| Case::new("test::a_case", body);
        let hang = |_: &Subject| -> Checked {
            thread::sleep(Duration::from_secs(30));
            Ok(())
        };
        let late = case(hang).seconds(0).run(&null());
        assert!(
            matches!(&late, Verdict::Failed(message) if message.starts_with("hangs: not done after 0 s")),
            "{late:?}"
        );
        let panics = case(|_| panic!("of {}", 7)).run(&null());
        assert_eq!(panics, Verdict::Failed("panicked: of 7".into()));
        let lacks = case(|_| Ok(())).devices(3).run(&null());
        assert_eq!(
            lacks,
            Verdict::Skipped("needs 3 devices, there are 2".into())
        );
        let excepted = case(|_| Ok(()))
            .except(&[("null", "it is nothing")])
            .run(&null());
        assert_eq!(
            excepted,
            Verdict::Skipped("not asked of null: it is nothing".into())
        );
        let fails = case(|_| Err(Stop::Failed("no".into()))).run(&null());
        assert_eq!(fails, Verdict::Failed("no".into()));
        let alone = case(|subject| subject.another().map(drop))
            .run(&Subject::new(Client::new(Null::new(1))));
        assert_eq!(
            alone,
            Verdict::Skipped("needs a way to open another client".into())
        );
    }

    /// The suite must be able to fail: a backend whose buffers hold zeros is no backend for values.
    #[test]
    fn a_backend_that_loses_values_fails_the_cases_on_values() {
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
