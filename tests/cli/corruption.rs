//! Damaged files of runs and of the cache lead to an error, a recovery, or the same bits as without
//! the damage. With any number of cases: `cargo run -p halite-tests --bin corrupt -- --cases 5000
//! --seed 1`.
#![cfg(unix)]

use std::{path::PathBuf, time::Duration};

use halite_tests::{
    corrupt::{Options, run},
    long::count,
};

#[test]
fn damaged_files_never_give_another_result() {
    let summary = run(&Options {
        halite: PathBuf::from(env!("CARGO_BIN_EXE_halite")),
        cases: count(20, 200),
        first: 0,
        seed: 20_260_922,
        deadline: Duration::from_secs(120),
        // More than cores: a case waits for the disk a part of its time.
        jobs: 3,
        verbose: false,
    })
    .unwrap();
    println!("{summary}");
    assert!(
        summary.failures.is_empty(),
        "{}\n{summary}",
        summary.failures.join("\n")
    );
    // Else the damage is not in files that the command reads.
    assert!(
        summary.outcomes().iter().all(|count| *count > 1),
        "{summary}"
    );
}
