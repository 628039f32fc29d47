//! Programs on several devices compute what they compute on one, whatever the shardings.
//!
//! Random programs of public operations with their gradients run under random meshes and shardings,
//! on virtual devices of XLA's CPU plugin and of the embedded executor, and are compared with one
//! device. `HALITE_SPLIT` is the number of programs and `HALITE_SPLIT_SEED` the seed of the first; each
//! following one has the next seed. A failure names the seed and the steps of a smaller program that
//! fails too.

mod by_hand;
mod control;
mod coverage;
mod draw;
mod operations;
mod program;

use std::time::Instant;

use halite_tests::{eval, long, parallel};

use crate::split::program::{Outcome, Program};

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value}: expected a number")),
        Err(_) => default,
    }
}

#[test]
fn split_programs_compute_the_same() {
    let count = setting("HALITE_SPLIT", long::count(10, 100));
    let first = setting("HALITE_SPLIT_SEED", 1);
    let started = Instant::now();
    let client = eval::client();
    let outcomes = parallel::map(2, first..first + count, |seed| {
        let program = Program::new(seed);
        let outcome = program.compare(client);
        if let Outcome::Differs(why) | Outcome::Refused(why) = &outcome {
            eprintln!("seed {seed}: {why}");
        }
        outcome
    });
    let number = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|one| is(one)).count();
    let differ = number(|one| matches!(one, Outcome::Differs(_)));
    let refused = number(|one| matches!(one, Outcome::Refused(_)));
    eprintln!(
        "{count} programs from seed {first}: {differ} differ, {refused} refused, {:.0?}",
        started.elapsed()
    );
    // The partitioner rejects some programs with an error of its own.
    assert!(
        refused * 20 <= outcomes.len().max(20),
        "{refused} of {count} programs are refused"
    );
    let wrong = (first..)
        .zip(&outcomes)
        .find(|(_, outcome)| matches!(outcome, Outcome::Differs(_)));
    if let Some((seed, _)) = wrong {
        let smaller = Program::new(seed).smaller(client);
        panic!(
            "{differ} of {count} programs differ; the first: HALITE_SPLIT=1 HALITE_SPLIT_SEED={seed}, \
             made smaller:\n{smaller}"
        );
    }
}
