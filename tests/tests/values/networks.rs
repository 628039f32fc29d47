//! Gradients of whole networks. A compiler fuses and rounds otherwise than in tests of one
//! operation, so random networks of blocks are compared with finite differences, with other element
//! types, with barriers, and, for a sample, with JAX.
//!
//! `HALITE_NETWORKS` says how many networks are checked and `HALITE_NETWORKS_SEED` the seed of the
//! first; each following one has the next seed. Compiling takes about one CPU-second for each. One
//! in `HALITE_NETWORKS_VARIANTS` is also compiled with barriers, and one in mixed precision.
//! `HALITE_NETWORKS_SHRINK` limits the attempts to make a failing network smaller.

pub(crate) mod build;
pub(crate) mod description;
mod draw;
mod golden;
mod lowered;
mod run;

use std::time::Instant;

use halite_tests::{long, parallel};

use crate::networks::{
    description::{Block, Network, mix},
    run::{Evaluated, Variants, check},
};

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value}: expected a number")),
        Err(_) => default,
    }
}

#[test]
fn random_networks_have_right_gradients() {
    let count = setting("HALITE_NETWORKS", long::count(16, 200));
    let first = setting("HALITE_NETWORKS_SEED", 1);
    let one_in = setting("HALITE_NETWORKS_VARIANTS", 15).max(1);
    let variants = |seed: u64| Variants {
        barriers: seed.is_multiple_of(one_in),
        mixed: (seed + one_in / 2).is_multiple_of(one_in),
    };
    let started = Instant::now();
    // Compilers use one thread for a part of their time.
    let outcomes = parallel::map(2, first..first + count, |seed| {
        let outcome = check(&Network::draw(seed), variants(seed));
        match &outcome {
            Err(reason) => eprintln!("seed {seed}: {reason}"),
            Ok(passed) if passed.ill_conditioned => eprintln!("seed {seed}: ill-conditioned"),
            Ok(_) => {}
        }
        outcome
    });
    let passed = || outcomes.iter().flatten();
    let kinks = passed().filter(|passed| passed.kink).count();
    let unusable = passed().filter(|passed| passed.unusable).count();
    let ill_conditioned = passed().filter(|passed| passed.ill_conditioned).count();
    let wrong = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    eprintln!(
        "{count} networks from seed {first}: {wrong} wrong, {kinks} beside a kink, {unusable} unusable, \
         {ill_conditioned} ill-conditioned, {:.0?}",
        started.elapsed()
    );
    assert!(
        kinks * 10 <= outcomes.len(),
        "{kinks} of {count} networks are right at another point only"
    );
    assert!(
        unusable * 10 <= outcomes.len(),
        "{unusable} of {count} networks are flat or overflow"
    );
    assert!(
        ill_conditioned * 50 <= outcomes.len().max(50),
        "rounding errors explain the differences of {ill_conditioned} of {count} networks"
    );
    if let Some((seed, reason)) = (first..)
        .zip(&outcomes)
        .find_map(|(seed, outcome)| Some((seed, outcome.as_ref().err()?)))
    {
        let attempts = setting("HALITE_NETWORKS_SHRINK", 30);
        let smallest =
            Network::draw(seed).shrink(attempts, |network| check(network, variants(seed)).is_err());
        let text = serde_json::to_string(&smallest).expect("plain data");
        panic!(
            "gradients of {wrong} of {count} networks are wrong; the first: HALITE_NETWORKS_SEED={seed} \
             HALITE_NETWORKS=1, {reason}; made smaller:\n{text}"
        );
    }
}

#[test]
fn seeds_of_found_bugs_stay_valid() {
    let digest = (1..=200).fold(0, |digest, seed| {
        let text = serde_json::to_string(&Network::draw(seed)).expect("plain data");
        let bytes = text.bytes();
        bytes.fold(digest, |digest, byte| mix(digest ^ u64::from(byte)))
    });
    assert_eq!(
        digest, 0xa981_33c1_06f4_ffc5,
        "the seeds draw other networks"
    );
}

#[test]
fn shrinking_keeps_only_what_fails() {
    let network = (1..)
        .map(Network::draw)
        .find(|network| network.blocks.len() > 8)
        .expect("there are large ones");
    let has_norm = |network: &Network| format!("{network:?}").contains("GroupNorm");
    assert!(has_norm(&network));
    let smallest = network.shrink(1000, has_norm);
    assert!(
        matches!(smallest.blocks[..], [Block::GroupNorm { .. }]),
        "{smallest:?}"
    );
}

#[test]
fn one_wrong_gradient_is_far_from_the_right_ones() {
    let right = Evaluated {
        loss: 1.0,
        gradients: vec![vec![3.0; 100], vec![0.2; 4]],
    };
    let with = |value: f64| {
        let mut wrong = right.clone();
        wrong.gradients[1][2] = value;
        wrong.distance(&right)
    };
    assert_eq!(with(0.2), 0.0);
    assert!(with(0.1) > 0.05);
    assert!(with(f64::NAN).is_nan());
}
