//! Edge values: every public operation of `Tensor`, loss, metric and optimizer step, of every
//! element type that it accepts, on NaN of both signs, zeros, infinities, subnormal numbers, the
//! largest and smallest, and integers at their limits, in sizes of 0, 1, 2, a prime and one beyond
//! a power of 2; forward and gradient.
//!
//! What is expected is in `reference/golden.safetensors`, which `reference/make.py` computes with
//! NumPy in 80 bits; where it has nothing, the oracle of the embedded executor counts.

mod compare;
mod differences;
mod known;
mod rows;
mod run;
mod table;

use std::sync::{Mutex, atomic::Ordering};

use halite_core::DType;

use crate::{
    run::{Executor, Job, Report},
    table::{Form, SIZES, all},
};

/// Environment variable with the name of the one row to run.
const ONLY: &str = "HALITE_EDGE_VALUES_ONLY";

/// What runs the programs of a size. XLA takes seconds to compile one, so in the short form it has
/// one size of each element type.
fn executors(form: Form, dtype: DType, size: usize, every: bool) -> Vec<Executor> {
    let number = DType::computed().position(|other| other == dtype);
    let turn = SIZES[2 + number.unwrap_or(0) % 3];
    let mut executors = vec![Executor::Embedded, Executor::Oracle];
    if every || form != Form::Rows || size == turn {
        executors.push(Executor::Cpu);
    }
    executors
}

/// Programs of all rows of one form and one element type each.
fn jobs(every: bool) -> Vec<Job> {
    let mut jobs = Vec::new();
    for form in [
        Form::Each,
        Form::Pairs,
        Form::Rows,
        Form::Indices,
        Form::Labels,
    ] {
        for dtype in DType::computed() {
            let accepts =
                |row: &&'static table::Row| row.form == form && row.dtypes.contains(&dtype);
            let rows: Vec<_> = all().filter(accepts).collect();
            let sizes = if form == Form::Rows { &SIZES[..] } else { &[0] };
            let job = |&size: &usize| Job {
                rows: rows.clone(),
                form,
                dtype,
                size,
                on: executors(form, dtype, size, every),
            };
            jobs.extend(sizes.iter().map(job).filter(|job| !job.rows.is_empty()));
        }
    }
    jobs
}

/// Runs all jobs on two threads.
fn run_all(jobs: Vec<Job>) -> Report {
    let report = Report::default();
    let queue = Mutex::new(jobs);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(job) = queue.lock().unwrap().pop() else {
                        break;
                    };
                    job.run(&report);
                }
            });
        }
    });
    report
}

#[test]
fn edge_values_are_right() {
    let only = std::env::var(ONLY).ok();
    let mut all = jobs(false);
    for job in &mut all {
        job.rows
            .retain(|row| only.as_deref().is_none_or(|only| only == row.name));
    }
    all.retain(|job| !job.rows.is_empty());
    let report = run_all(all);
    let mut wrong = report.wrong.into_inner().unwrap();
    wrong.sort();
    println!(
        "{} results with {} elements",
        report.results.load(Ordering::Relaxed),
        report.elements.load(Ordering::Relaxed)
    );
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let used = report.used.into_inner().unwrap();
    let unused: Vec<String> = differences::all()
        .enumerate()
        .filter(|(number, _)| only.is_none() && !used.contains(number))
        .map(|(_, difference)| format!("{difference:?}"))
        .collect();
    assert!(
        unused.is_empty(),
        "nothing needs these any more; remove them:\n{}",
        unused.join("\n")
    );
}
