//! The shuffled order is a bijection, well mixed, and never changes.

use halite_data::Permutation;
use proptest::prelude::*;

fn order(len: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let order = Permutation::new(len, seed, epoch);
    (0..len).map(|position| order.at(position)).collect()
}

fn assert_bijection(len: usize, seed: u64, epoch: u64) {
    let mut seen = vec![false; len];
    for sample in order(len, seed, epoch) {
        assert!(
            !std::mem::replace(&mut seen[sample], true),
            "{sample} of {len} comes twice (seed {seed}, epoch {epoch})"
        );
    }
}

#[test]
fn every_sample_comes_once_for_many_sizes() {
    (1..=300).for_each(|len| assert_bijection(len, 7, 1));
    for len in [
        1021, 1024, 1025, 4096, 4097, 10_007, 60_000, 65_535, 65_536, 65_537, 1_000_003,
    ] {
        assert_bijection(len, u64::MAX, u64::MAX);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sample_comes_once(len in 1usize..20_000, seed: u64, epoch: u64) {
        assert_bijection(len, seed, epoch);
    }

    #[test]
    fn seeds_and_epochs_give_other_orders(len in 50usize..5_000, seed: u64, epoch in 0u64..1_000_000) {
        let one = order(len, seed, epoch);
        prop_assert_ne!(&one, &order(len, seed, epoch + 1));
        prop_assert_ne!(&one, &order(len, seed.wrapping_add(1), epoch));
        prop_assert_ne!(&one, &order(len, epoch, seed));
        prop_assert_ne!(&one, &(0..len).collect::<Vec<_>>());
        prop_assert_eq!(&one, &order(len, seed, epoch));
    }

    #[test]
    fn a_huge_dataset_is_sought_at_once(len in (1usize << 40)..(1 << 50), position in 0usize..(1 << 40)) {
        prop_assert!(Permutation::new(len, 1, 2).at(position) < len);
    }
}

/// Pearson's statistic of `counts` against equal expectation, and its degrees of freedom.
fn chi_square(counts: &[u32]) -> (f64, f64) {
    let expected = counts.iter().sum::<u32>() as f64 / counts.len() as f64;
    let statistic = counts
        .iter()
        .map(|&count| (f64::from(count) - expected).powi(2) / expected)
        .sum();
    (statistic, counts.len() as f64 - 1.0)
}

fn assert_uniform(counts: &[u32], what: &str) {
    let (statistic, freedom) = chi_square(counts);
    // Mean `freedom`, variance twice that: five standard deviations are crossed by chance once in
    // three million.
    assert!(
        (statistic - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(),
        "{what}: {statistic} of {freedom}"
    );
}

#[test]
fn samples_are_uniform_over_positions() {
    for len in [2, 3, 5, 10, 17, 64] {
        let mut counts = vec![0; len * len];
        for epoch in 0..20_000 {
            let order = Permutation::new(len, 3, epoch);
            (0..len).for_each(|position| counts[position * len + order.at(position)] += 1);
        }
        // Rows and columns sum to the same: the statistic has fewer degrees of freedom, by a
        // factor.
        let factor = len as f64 / (len as f64 - 1.0);
        let (statistic, _) = chi_square(&counts);
        let freedom = ((len - 1) * (len - 1)) as f64;
        let deviation =
            (statistic * factor - freedom * factor).abs() / (factor * (2.0 * freedom).sqrt());
        assert!(deviation < 5.0, "{len}: {statistic} of {freedom}");
    }
}

#[test]
fn neighbours_in_the_dataset_are_separated() {
    let order = order(60_000, 0, 0);
    // The step from one sample to the next, in 100 bins around the ring.
    let mut steps = vec![0; 100];
    order
        .windows(2)
        .for_each(|pair| steps[(pair[1] + 60_000 - pair[0]) % 60_000 / 600] += 1);
    assert_uniform(&steps, "steps");
    // Where the samples of the first tenth of the dataset go.
    let mut places = vec![0; 100];
    order
        .iter()
        .enumerate()
        .filter(|(_, sample)| **sample < 6_000)
        .for_each(|(position, _)| places[position / 600] += 1);
    assert_uniform(&places, "places");
}

#[test]
fn epochs_agree_only_by_chance() {
    let mut agreements = 0;
    for epoch in 0..50 {
        let (one, other) = (order(2_000, 9, epoch), order(2_000, 9, epoch + 1));
        agreements += one.iter().zip(&other).filter(|(a, b)| a == b).count();
    }
    // One fixed point is expected for each pair of orders, with variance one.
    assert!(
        (agreements as f64 - 50.0).abs() < 5.0 * 50f64.sqrt(),
        "{agreements}"
    );
}

#[test]
fn order_is_that_of_old_checkpoints() {
    assert_eq!(order(10, 0, 0), GOLDEN_10);
    let order = Permutation::new(60_000, 42, 3);
    assert_eq!(
        [0, 1, 2, 59_999].map(|position| order.at(position)),
        GOLDEN_60000
    );
}

const GOLDEN_10: [usize; 10] = [0, 6, 1, 7, 4, 3, 8, 2, 5, 9];
const GOLDEN_60000: [usize; 4] = [58_572, 30_977, 55_251, 52_168];
