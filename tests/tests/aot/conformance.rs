//! Conformance cases run on the CPU, with their programs also compiled for the targets.

use halite_conformance::{Case, Outcome, Subject, cases};

#[test]
fn conformance_programs_compile_for_every_target() {
    let subject = Subject::opened_by(halite_tests::targets::open).unwrap();
    let mut outcome = Outcome::default();
    // Functions of this process run on the host only.
    let compiled = |case: &Case| !case.name.starts_with("custom_calls::");
    for case in cases().into_iter().filter(compiled) {
        let started = std::time::Instant::now();
        let verdict = case.run(&subject);
        outcome.add(&case, verdict, started.elapsed());
    }
    println!("{outcome}");
    assert!(outcome.failed.is_empty(), "{outcome}");
}
