//! The conformance suite on the backends of this repository: `Null`, the three CPU plugins of the
//! table, the default one with one device and with eight, and the embedded executor as a plugin.
//! The tests of `halite-embedded` run it on the executor without the C API.

use std::time::Instant;

use halite_backends::{Accelerator, Access, CompileCacheOptions, OpenOptions};
use halite_conformance::{Outcome, Subject, Verdict, cases};
use halite_core::{Client, Null, Result};
use halite_fetch::{Bar, Cache};
use halite_tests::embedded;

/// A test for each group of cases, so that a failure has a name and the other groups still run.
macro_rules! on {
    ($module:ident, $subject:expr) => {
        mod $module {
            use super::*;

            on!(@groups $subject; transfers programs donation events errors threads devices custom_calls);
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
on!(cpu_with_one_device, || open("cpu", 1));
on!(cpu_with_eight_devices, || open("cpu", 8));
on!(cpu_alternative_with_eight_devices, || open(
    "cpu-alternative",
    8
));
on!(cpu_old_with_eight_devices, || open("cpu-old", 8));

/// Only the two cases fail whose signatures have other arguments than the program: the C API
/// reports the types of arguments only in an optimized HLO program, which this plugin lacks.
#[test]
fn embedded_as_a_plugin_conforms() {
    let subject = Subject::opened_by(|| embedded::open_plugin(8, false)).unwrap();
    let outcome = halite_conformance::run(&subject, "");
    let failed: Vec<_> = outcome.failed.iter().map(|(name, _)| *name).collect();
    let unreported = [
        "programs::invalid_serialized_executable_is_rejected",
        "errors::wrong_signature_is_rejected",
    ];
    assert_eq!(failed, unreported, "{outcome}");
    println!("{outcome}");
}

/// Opens a plugin of the table, regardless of other installed ones. The compile cache is off: an
/// old plugin cannot always serialize a program that it has loaded.
fn open(plugin: &str, devices: i64) -> Result<Client> {
    let located = halite_backends::install(
        halite_backends::plugin(plugin)?,
        &Cache::open(None)?,
        &mut Bar::default(),
    )?;
    let client = vec![("cpu_device_count".to_owned(), devices.into())];
    let compile_cache = Some(CompileCacheOptions {
        access: Access::Off,
        ..CompileCacheOptions::default()
    });
    let options = OpenOptions {
        client,
        compile_cache,
        ..OpenOptions::default()
    };
    Ok(Accelerator::Plugin(located.path)
        .open_with(&options, &mut Bar::default())?
        .client)
}

/// Runs the cases of a group, prints a line for each, and fails with all failures.
fn check(group: &str, open: fn() -> Result<Client>) {
    let subject = Subject::opened_by(open).unwrap();
    let mut outcome = Outcome::default();
    for case in cases().iter().filter(|case| case.name.starts_with(group)) {
        let started = Instant::now();
        let verdict = case.run(&subject);
        let took = started.elapsed();
        match &verdict {
            Verdict::Passed => {
                println!("passed  {} ({:.2} s)", case.sentence(), took.as_secs_f64())
            }
            Verdict::Failed(message) => println!("FAILED  {}: {message}", case.sentence()),
            Verdict::Skipped(reason) => println!("skipped {}: {reason}", case.sentence()),
        }
        outcome.add(case, verdict, took);
    }
    assert!(outcome.failed.is_empty(), "{outcome}");
    let ran = outcome.passed.len() + outcome.skipped.len();
    assert!(ran > 0, "no case is named {group}");
}
