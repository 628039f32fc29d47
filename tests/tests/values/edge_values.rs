//! Edge values: every public operation of `Tensor`, loss, metric and optimizer step, of every
//! element type that it accepts, on NaN of both signs, zeros, infinities, subnormal numbers, the
//! largest and smallest, and integers at their limits, in sizes of 0, 1, 2, a prime and one beyond
//! a power of 2; forward and gradient.
//!
//! Further rows are of three dimensions and ordinary numbers: products, convolutions, windows, reads
//! and writes. Gradients are also compared with finite differences, all rows with themselves on
//! several devices, and all are compiled for a target.
//!
//! What is expected is in `reference/golden.safetensors`, which `reference/make.py` computes with
//! NumPy in 80 bits; where it has nothing, the oracle of the embedded executor counts.

mod compare;
mod coverage;
mod differences;
mod document;
mod draw;
mod job;
mod judge;
mod rows;
mod slopes;
mod split;
mod table;
mod targets;

use std::{collections::BTreeMap, sync::Mutex};

use halite_core::DType;
use halite_ir::{Graph, Op};
use halite_nn::{Tensor, Trace};
use halite_tests::golden::collect;

use crate::edge_values::{
    draw::Random,
    job::{Executor, Job, every_result},
    judge::Report,
    table::{Form, Row, SIZES, all},
};

/// Environment variable with the number of rounds of the long form.
const ROUNDS: &str = "HALITE_EDGE_VALUES";

/// Environment variable with the seed of the long form.
const SEED: &str = "HALITE_EDGE_VALUES_SEED";

/// Environment variable with the name of the one row to run.
const ONLY: &str = "HALITE_EDGE_VALUES_ONLY";

/// What runs the programs of a size. XLA takes seconds to compile one, so in the short form it has
/// one size of each element type.
fn executors(form: Form, dtype: DType, size: usize, every: bool) -> Vec<Executor> {
    let number = DType::computed().position(|other| other == dtype);
    let turn = SIZES[2 + number.unwrap_or(0) % 3];
    let mut executors = vec![Executor::Embedded, Executor::Oracle];
    let is_compiled = match form {
        Form::Rows => size == turn,
        Form::Cubes => size > 0 || [DType::Bool, DType::S32, DType::F32].contains(&dtype),
        _ => true,
    };
    if every || is_compiled {
        executors.push(Executor::Cpu);
    }
    executors
}

/// Programs of all rows of one form and one element type each.
fn jobs(every: bool) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (form, dtype, rows) in groups() {
        jobs.extend(form.sizes().iter().map(|&size| Job {
            rows: rows.clone(),
            form,
            dtype,
            size,
            on: executors(form, dtype, size, every),
            drawn: None,
        }));
    }
    jobs
}

/// The rows of each form and element type.
fn groups() -> Vec<(Form, DType, Vec<&'static Row>)> {
    let only = std::env::var(ONLY).ok();
    let mut groups = Vec::new();
    for form in Form::ALL {
        for dtype in DType::computed() {
            let accepts = |row: &&Row| row.form == form && row.dtypes.contains(&dtype);
            let named = |row: &&Row| only.as_deref().is_none_or(|only| only == row.name);
            let rows: Vec<_> = all().filter(accepts).filter(named).collect();
            if !rows.is_empty() {
                groups.push((form, dtype, rows));
            }
        }
    }
    groups
}

/// The operations that rows are made of, each once by name.
pub(crate) fn operations() -> BTreeMap<&'static str, Op> {
    let mut seen = BTreeMap::new();
    for row in all() {
        let cx = Trace::new();
        let types = row.form.types(row.dtypes[0]);
        let inputs: Vec<Tensor<'_>> = types.into_iter().map(|ty| cx.input(ty, "x")).collect();
        let graph = cx.graph(&inputs, &(row.build)(&inputs));
        collect(&graph.expect("rows accept their types"), &mut seen);
    }
    seen
}

/// The graphs of all rows of a form, with gradients, of a float and of an integer type.
pub(crate) fn graphs() -> impl Iterator<Item = (String, Graph)> {
    let groups = groups().into_iter();
    let some = groups.filter(|(_, dtype, _)| [DType::F32, DType::S32].contains(dtype));
    some.map(|(form, dtype, rows)| {
        let cx = Trace::new();
        let types = form.types(dtype).into_iter();
        let inputs: Vec<Tensor<'_>> = types.map(|ty| cx.input(ty, "x")).collect();
        let graph = cx.graph(&inputs, &every_result(&rows, &inputs));
        let name = format!("{form:?} {dtype}").to_lowercase();
        (name, graph.expect("rows accept their types"))
    })
}

/// Each row as a program of its own, of every size; then as many rounds of drawn inputs.
fn long_jobs(rounds: u64, seed: u64) -> Vec<Job> {
    let alone = |job: Job| {
        job.rows.clone().into_iter().map(move |row| Job {
            rows: vec![row],
            ..job.clone()
        })
    };
    let mut jobs: Vec<Job> = jobs(true).into_iter().flat_map(alone).collect();
    let mut random = Random(seed);
    for _ in 0..rounds {
        for (form, dtype, rows) in groups() {
            let (inputs, size) = random.inputs(form, dtype);
            jobs.push(Job {
                rows,
                form,
                dtype,
                size,
                on: vec![Executor::Cpu, Executor::Embedded],
                drawn: Some(inputs),
            });
        }
    }
    // The last is run first.
    jobs.reverse();
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
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(
            text.parse()
                .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        )
    };
    let seed = number(SEED).unwrap_or(1);
    let report = run_all(match number(ROUNDS) {
        None => jobs(false),
        Some(rounds) => {
            println!("{rounds} rounds of drawn inputs from seed {seed}");
            long_jobs(rounds, seed)
        }
    });
    report.print();
    let mut wrong = report.wrong.into_inner().unwrap();
    wrong.sort();
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    if std::env::var_os(ONLY).is_some() {
        return;
    }
    let used = report.used.into_inner().unwrap();
    let unused: Vec<String> = differences::STAY
        .iter()
        .enumerate()
        .filter(|(number, _)| !used.contains(number))
        .map(|(_, difference)| format!("{difference:?}"))
        .collect();
    assert!(
        unused.is_empty(),
        "nothing needs these any more; remove them:\n{}",
        unused.join("\n")
    );
}
