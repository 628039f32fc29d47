//! The conformance suite on the exported plugin, and on the backend directly.

use std::path::PathBuf;

use halite_conformance::{Outcome, Subject};
use halite_core::{Client, Result};
use halite_null_plugin::Null;
use halite_pjrt::Plugin;
use halite_plugin::{Options, Value};

/// The shared library, which cargo builds beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let name = format!(
        "{}halite_null_plugin{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    test.with_file_name(name)
}

fn exported(platform: &'static str) -> Result<Client> {
    let options = vec![
        ("devices".into(), 2i64.into()),
        ("platform_name".into(), platform.into()),
    ];
    Ok(Client::new(Plugin::load(library())?.client(options)?))
}

fn direct(platform: &'static str) -> Result<Client> {
    let mut options = Options::new([
        ("devices".to_owned(), Value::Int(2)),
        ("platform_name".to_owned(), Value::Text(platform.to_owned())),
    ]);
    Ok(Client::new(Null::open(&mut options)?))
}

fn run(open: fn(&'static str) -> Result<Client>, platform: &'static str, only: &str) -> Outcome {
    let subject = Subject::opened_by(move || open(platform)).unwrap();
    halite_conformance::run(&subject, only)
}

/// Failures that a change of the plugin could prevent.
fn failures(outcome: &Outcome) -> Vec<&'static str> {
    const EXPECTED: &[&str] = &[
        // The C API reports the types of results, but of arguments only in an optimized HLO
        // program, which this backend does not have.
        "a serialized program with a signature of another element type is accepted",
    ];
    // It compares results, which a backend that computes nothing does not have.
    const COMPUTES: &str = "programs::executable_survives_serialization";
    let failed = outcome.failed.iter();
    let failed = failed.filter(|(name, message)| {
        *name != COMPUTES && !EXPECTED.iter().any(|it| message.contains(it))
    });
    failed.map(|(name, _)| *name).collect()
}

#[test]
fn exported_backend_conforms() {
    let outcome = run(exported, "null", "");
    assert_eq!(failures(&outcome), [""; 0], "{outcome}");
    assert!(outcome.passed.len() > 15, "{outcome}");
}

/// Under this name no case is excepted, and only those fail that compute.
#[test]
fn exported_transfers_conform() {
    let outcome = run(exported, "memory", "transfers");
    let computes = ["transfers::copy_on_the_same_device_is_independent"];
    assert_eq!(failures(&outcome), computes, "{outcome}");
}

/// Programs of both return zeros, so that the same cases fail.
#[test]
fn exported_backend_agrees_with_it() {
    let (direct, exported) = (run(direct, "memory", ""), run(exported, "memory", ""));
    let only = |failed: &[&str]| failures(&exported).iter().all(|name| failed.contains(name));
    assert!(
        only(&failures(&direct)),
        "direct: {direct}\nexported: {exported}"
    );
}
