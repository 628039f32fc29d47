//! Training runs that are killed, stopped and hung up at random moments give the same bits as
//! undisturbed ones. With any number of runs: `cargo run -p halite-tests --bin kill --
//! --runs 1000 --seed 1`.
#![cfg(unix)]

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use halite_tests::kill::{Options, Summary, run};

/// Runs a campaign of which nothing may be wrong; `processes`: of jobs of several processes. One at a
/// time, since faults come within the time that an undisturbed run took.
fn campaign(runs: u64, seed: u64, jobs: usize, processes: bool) -> Summary {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let summary = run(&Options {
        halite: PathBuf::from(env!("CARGO_BIN_EXE_halite")),
        runs,
        seed,
        deadline: Duration::from_secs(300),
        jobs,
        processes,
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
    summary
}

#[test]
fn random_faults_lose_nothing() {
    // Each has one to three faults; `.ci/full` has more runs.
    let summary = campaign(6, 20_260_922, 2, false);
    assert!(summary.faults() >= 6, "{summary}");
    assert!(summary.in_resume() > 0, "{summary}");
}

#[test]
fn killed_jobs_lose_nothing() {
    let summary = campaign(4, 20_261_126, 1, true);
    assert!(summary.faults() >= 4, "{summary}");
}
