//! Gradients of whole networks. A compiler fuses and rounds otherwise than in tests of one operation, so random networks
//! of blocks are compared with finite differences, with other element types, with barriers, and, for a sample, with JAX.
//!
//! `HALITE_NETWORKS` says how many networks are checked and `HALITE_NETWORKS_SEED` the seed of the first; each following
//! one has the next seed. `HALITE_NETWORKS_BARRIERS` is the share that is also compiled with barriers: one in so many.

mod build;
mod description;
mod run;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use crate::{
    description::Network,
    run::{Passed, check},
};

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name}={value}: expected a number")),
        Err(_) => default,
    }
}

#[test]
fn random_networks_have_right_gradients() {
    let count = setting("HALITE_NETWORKS", 40);
    let first = setting("HALITE_NETWORKS_SEED", 1);
    let one_in = setting("HALITE_NETWORKS_BARRIERS", 10).max(1);
    let started = Instant::now();
    let next = AtomicU64::new(first);
    let outcomes: Mutex<BTreeMap<u64, Result<Passed, String>>> = Mutex::default();
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + count {
                return;
            }
            let outcome = check(&Network::draw(seed), seed % one_in == 0);
            if let Err(reason) = &outcome {
                eprintln!("seed {seed}: {reason}");
            }
            outcomes.lock().expect("no check panics").insert(seed, outcome);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("no check panics"));
    });
    let outcomes = outcomes.into_inner().expect("no check panics");
    let passed = || outcomes.values().flatten();
    let (kinks, unusable) = (passed().filter(|passed| passed.kink).count(), passed().filter(|passed| passed.unusable).count());
    let wrong = outcomes.values().filter(|outcome| outcome.is_err()).count();
    eprintln!(
        "{count} networks from seed {first}: {wrong} wrong, {kinks} beside a kink, {unusable} unusable, {:.0?}",
        started.elapsed()
    );
    assert!(unusable * 10 <= outcomes.len(), "{unusable} of {count} networks are flat or overflow");
    if let Some((seed, reason)) = outcomes.iter().find_map(|(seed, outcome)| Some((*seed, outcome.as_ref().err()?))) {
        let attempts = setting("HALITE_NETWORKS_SHRINK", 30);
        let smallest = Network::draw(seed).shrink(attempts, |network| check(network, seed % one_in == 0).is_err());
        let text = serde_json::to_string(&smallest).expect("plain data");
        panic!(
            "gradients of {wrong} of {count} networks are wrong; the first: HALITE_NETWORKS_SEED={seed} \
             HALITE_NETWORKS=1, {reason}; made smaller:\n{text}"
        );
    }
}
