//! A long run does not grow. With more steps:
//! `cargo run --release -p halite-tests --bin soak -- --steps 200000`.

use halite_tests::soak::{Options, run};

#[test]
fn resources_do_not_grow_in_three_thousand_steps() {
    let _alone = crate::alone();
    let options = Options {
        steps: 3000,
        steps_per_epoch: 100,
        checkpoint_every: 20,
        log_every: 10,
        warm_up: 25,
    };
    let measured = run(options).unwrap();
    println!("{measured}");
    assert!(measured.samples.len() >= 8, "too few samples: {measured}");
    // A leak of 150 checkpoints of 0.3 MB is 45 MB; less than half of it is noise.
    let grew = measured.growth(24 << 20);
    assert!(grew.is_empty(), "{}\n{measured}", grew.join("\n"));
}
