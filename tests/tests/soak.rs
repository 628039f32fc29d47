//! A long run does not grow. By hand:
//! `cargo run --release -p halite-tests --bin soak -- --steps 200000`.
//!
//! The only test here: it looks at its process, in which no other may run.
#![cfg(target_os = "linux")]

use halite_tests::soak::{Options, run};

#[test]
fn three_thousand_steps_do_not_grow() {
    let options = Options {
        steps: 3000,
        steps_per_epoch: 100,
        checkpoint_every: 20,
        log_every: 10,
        warm_up: 25,
    };
    let seen = run(options).unwrap();
    println!("{seen}");
    assert!(seen.samples.len() >= 8, "too few samples to tell: {seen}");
    // 150 checkpoints of 0.3 MB each: one that leaks is 45 MB; what is not a leak is noise.
    let grew = seen.growth(24 << 20);
    assert!(grew.is_empty(), "{}\n{seen}", grew.join("\n"));
}
