//! Environment variables that opening an accelerator applies to the process, observed in a child.

use std::{env, process::Command, time::Duration};

use halite_backends::Accelerator;
use halite_core::wait::default_limit;

const CHILD: &str = "HALITE_TEST_IS_CHILD";

/// The program: it prints the default limit, and warns.
#[test]
fn child_opens_the_cpu() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    assert_eq!(default_limit(), Duration::from_secs(24 * 3600));
    Accelerator::cpu().open().unwrap();
    eprintln!("limit {:?}", default_limit());
    halite_core::warning!("a warning of the test");
}

/// Runs [`child_opens_the_cpu`] with these variables, and returns its stderr.
fn run(variables: &[(&str, &str)]) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "environment::child_opens_the_cpu", "--nocapture"])
        .env_remove("HALITE_LOG")
        .env_remove("HALITE_WAIT_LIMIT")
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    stderr
}

#[test]
fn opening_applies_the_wait_limit() {
    assert!(run(&[]).contains("limit 86400s"));
    assert!(run(&[("HALITE_WAIT_LIMIT", "90")]).contains("limit 90s"));
}

#[test]
fn opening_applies_the_filter_of_warnings() {
    assert!(run(&[]).contains("WARN a warning of the test"));
    assert!(!run(&[("HALITE_LOG", "off")]).contains("a warning of the test"));
}
