//! Jobs with the variables of launchers, some of them damaged. With any number of jobs:
//! `cargo run -p halite-tests --bin launchers -- --jobs 1000 --seed 1`.
#![cfg(unix)]

use std::{
    env,
    process::{Command, exit},
    time::Duration,
};

use halite_tests::{
    launchers::{self, Options},
    long::count,
    process,
};

/// Set in the processes of the jobs, which are this test again.
const MEMBER: &str = "HALITE_TEST_MEMBER";

fn member() -> Command {
    let name = "launchers::damaged_variables_are_named --exact --nocapture";
    let mut command = process::command(&env::current_exe().unwrap(), name);
    command.env(MEMBER, "1");
    command
}

#[test]
fn damaged_variables_are_named() {
    if env::var_os(MEMBER).is_some() {
        let Err(error) = launchers::member() else {
            return;
        };
        eprintln!("error: {error}");
        exit(1);
    }
    let summary = launchers::run(Options {
        cases: count(12, 200),
        first: 0,
        seed: 20_261_130,
        parallel: 2,
        // Other tests run beside it.
        named_within: Duration::from_secs(20),
        member,
    });
    assert!(summary.failures.is_empty(), "{summary:#?}");
}
