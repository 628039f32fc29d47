//! The compile half of every conformance case: it runs on the CPU, and its programs are compiled
//! for the targets.

use halite_backends::conformance::{Outcome, Subject, cases};

#[test]
fn every_program_of_the_conformance_suite_compiles_for_every_target() {
    let subject = Subject::opened_by(crate::also::open).unwrap();
    let mut outcome = Outcome::default();
    for case in cases() {
        let started = std::time::Instant::now();
        let verdict = case.run(&subject);
        outcome.add(&case, verdict, started.elapsed());
    }
    println!("{outcome}");
    assert!(outcome.failed.is_empty(), "{outcome}");
}
