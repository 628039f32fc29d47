//! The conformance suite on the backends of this repository: nothing at all, and the CPU plugin with one and with eight
//! devices.

use std::time::Instant;

use halite_backends::{
    Accelerator,
    conformance::{Outcome, Subject, Verdict, cases},
};
use halite_core::{Client, Null};

/// The groups of cases, a test each, so that a failure is seen by name and the rest still runs.
macro_rules! on {
    ($module:ident, $subject:expr) => {
        mod $module {
            use super::*;

            on!(@groups $subject; transfers programs donation events errors threads devices);
        }
    };
    (@groups $subject:expr; $($group:ident)*) => {
        $(#[test]
        fn $group() {
            check(concat!(stringify!($group), "::"), $subject);
        })*

        #[test]
        fn every_group_is_a_test() {
            let tests = [$(stringify!($group)),*];
            for case in cases() {
                assert!(tests.contains(&case.group()), "{} runs in no test of this file", case.name);
            }
        }
    };
}

on!(null, || Ok(Client::new(Null::new(8))));
on!(cpu_with_one_device, || Accelerator::cpu().open());
on!(cpu_with_eight_devices, || Accelerator::Cpu { devices: Some(8) }.open());

/// Runs the cases of a group, a line each, and fails with all that failed.
fn check(group: &str, open: fn() -> halite_core::Result<Client>) {
    let subject = Subject::opened_by(open).unwrap();
    let mut outcome = Outcome::default();
    for case in cases().iter().filter(|case| case.name.starts_with(group)) {
        let started = Instant::now();
        let verdict = case.run(&subject);
        let took = started.elapsed();
        match &verdict {
            Verdict::Passed => println!("passed  {} ({:.2} s)", case.sentence(), took.as_secs_f64()),
            Verdict::Failed(message) => println!("FAILED  {}: {message}", case.sentence()),
            Verdict::Skipped(reason) => println!("skipped {}: {reason}", case.sentence()),
        }
        outcome.add(case, verdict, took);
    }
    assert!(outcome.failed.is_empty(), "{outcome}");
    let ran = outcome.passed.len() + outcome.skipped.len();
    assert!(ran > 0, "no case is named {group}");
}
