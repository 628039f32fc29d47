//! Training runs that are killed, stopped and hung up at random moments give the same bits as
//! undisturbed ones. With any number of runs: `cargo run -p halite-tests --bin kill --
//! --runs 1000 --seed 1`.
#![cfg(unix)]

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use halite_tests::kill::{Options, run};

/// One campaign at a time: faults come within the time that an undisturbed run took.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn twenty_faults_lose_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let summary = run(&Options {
        halite: PathBuf::from(env!("CARGO_BIN_EXE_halite")),
        // Each has one to three faults.
        runs: 14,
        seed: 20_260_922,
        deadline: Duration::from_secs(300),
        jobs: 2,
        processes: false,
        only: Vec::new(),
        keep: false,
    })
    .unwrap();
    println!("{summary}");
    assert!(
        summary.failures.is_empty(),
        "{}\n{summary}",
        summary.failures.join("\n")
    );
    // A run that ends before its fault counts none.
    assert!(summary.faults() >= 20, "{summary}");
    assert!(summary.in_resume() > 0, "{summary}");
}

#[test]
fn killed_jobs_lose_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let summary = run(&Options {
        halite: PathBuf::from(env!("CARGO_BIN_EXE_halite")),
        runs: 4,
        seed: 20_261_126,
        deadline: Duration::from_secs(300),
        jobs: 1,
        processes: true,
        only: Vec::new(),
        keep: false,
    })
    .unwrap();
    println!("{summary}");
    assert!(
        summary.failures.is_empty(),
        "{}\n{summary}",
        summary.failures.join("\n")
    );
    assert!(summary.faults() >= 4, "{summary}");
}
