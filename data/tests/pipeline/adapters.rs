//! Adapters and samplers: samples, order, digests, and independence of workers and processes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use halite_core::{DType, HostArray, TensorType};
use halite_data::{
    BalancedSampler, Dataset, DatasetExt, Field, InMemory, LastBatch, Loader, LoaderOptions, Mix,
    Position, Rows, Sampler, Shard, WeightedSampler,
};
use proptest::prelude::*;

fn numbers(range: std::ops::Range<i32>) -> InMemory {
    let values: Vec<i32> = range.collect();
    let array = HostArray::from_slice(&values, [values.len()]).unwrap();
    InMemory::new([("number", array)]).unwrap()
}

/// The numbers of all samples, in order, read with seed 0 and epoch 0.
fn all(dataset: &dyn Dataset) -> Vec<i32> {
    let mut rows = Rows::zeros(dataset.fields(), dataset.len()).unwrap();
    for index in 0..dataset.len() {
        dataset.read(index, &mut rows.sample_mut(index)).unwrap();
    }
    rows.arrays()[0].as_slice().unwrap().to_vec()
}

fn fields() -> [Field; 1] {
    [Field::new("number", TensorType::scalar(DType::S32))]
}

#[test]
fn filter_keeps_samples_by_value() {
    let odd = numbers(10..20)
        .filter(|_, sample| Ok(sample.values::<i32>(0)?[0] % 2 == 1))
        .unwrap();
    assert_eq!(all(&odd), [11, 13, 15, 17, 19]);
    assert_eq!(odd.indices(), [1, 3, 5, 7, 9]);
}

#[test]
fn filter_names_the_sample_that_fails() {
    let error = numbers(0..3).filter(|_, sample| Ok(sample.values::<u8>(0)?[0] > 0));
    assert!(
        error
            .unwrap_err()
            .to_string()
            .starts_with("filter: sample 0: ")
    );
}

#[test]
fn take_shard_repeat() {
    assert_eq!(all(&numbers(0..9).take(3)), [0, 1, 2]);
    assert_eq!(all(&numbers(0..2).take(3)), [0, 1]);
    let part = |index| all(&numbers(0..8).shard(index, 3).unwrap());
    assert_eq!(
        [part(0), part(1), part(2)],
        [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]
    );
    assert!(numbers(0..1).shard(2, 3).unwrap().is_empty());
    assert_eq!(all(&numbers(0..2).repeat(2).unwrap()), [0, 1, 0, 1]);
    assert!(numbers(0..2).shard(3, 3).is_err());
    assert!(numbers(0..2).repeat(usize::MAX).is_err());
}

#[test]
fn zip_has_the_fields_of_both() {
    let labels = HostArray::from_slice(&[5u8, 6, 7], [3]).unwrap();
    let labels = InMemory::new([("label", labels)]).unwrap();
    let pairs = numbers(0..3)
        .zip(labels.clone())
        .unwrap()
        .zip(numbers(7..10))
        .unwrap();
    let mut rows = Rows::zeros(pairs.fields(), 1).unwrap();
    pairs.read(2, &mut rows.sample_mut(0)).unwrap();
    let sample = rows.sample(0);
    assert_eq!(sample.values::<i32>(0).unwrap(), [2]);
    assert_eq!(sample.values::<u8>(1).unwrap(), [7]);
    assert_eq!(sample.values::<i32>(2).unwrap(), [9]);
    assert_eq!(
        numbers(0..4).zip(labels).unwrap_err().to_string(),
        "zip: 4 samples of InMemory and 3 of InMemory; `take` shortens the longer one"
    );
}

#[test]
fn concat_is_one_after_the_other() {
    let both = numbers(0..2).concat(numbers(5..8)).unwrap();
    assert_eq!(all(&both), [0, 1, 5, 6, 7]);
    let other = InMemory::new([("x", HostArray::from_slice(&[0u8], [1]).unwrap())]).unwrap();
    assert_eq!(
        both.concat(other).unwrap_err().to_string(),
        "concat: InMemory and InMemory has (number: s32[]), InMemory has (x: u8[]); `map` changes fields"
    );
}

#[test]
fn cache_reads_what_fits_once() {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let cached = numbers(0..10)
        .map(fields(), move |sample, into| {
            counted.fetch_add(1, Relaxed);
            into.write(0, sample.values::<i32>(0)?)
        })
        .cache(24);
    let first = all(&cached);
    assert_eq!((all(&cached), cached.cached()), (first, 6));
    assert_eq!(reads.load(Relaxed), 14);
}

#[test]
fn random_map_below_a_cache_is_the_same_in_each_run() {
    let random = numbers(0..4)
        .map_random("noise", fields(), |_, random, into| {
            into.write(0, &[random.u64() as i32])
        })
        .cache(1000);
    let options = LoaderOptions::shuffled(4, 1);
    let loader = Loader::new(random, options).unwrap();
    let sorted = |epoch| {
        let batch = loader.read(Position { epoch, batch: 0 }).unwrap();
        let mut values = batch.arrays[0].as_slice::<i32>().unwrap().to_vec();
        values.sort_unstable();
        values
    };
    assert_eq!(sorted(3), sorted(0));
}

fn mixed() -> Mix {
    let of = |range| -> Arc<dyn Dataset> { Arc::new(numbers(range)) };
    Mix::new(
        [(of(0..10), 1.0), (of(100..103), 0.5), (of(200..201), 0.0)],
        15,
    )
    .unwrap()
}

#[test]
fn mix_has_the_proportions_of_its_weights() {
    assert_eq!(mixed().counts().collect::<Vec<_>>(), [10, 5, 0]);
    let mut values = all(&mixed());
    assert_ne!(values[..10].iter().max(), Some(&9), "in order");
    values.sort_unstable();
    assert_eq!(values[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    // Five draws of three samples: each at least once, none more than twice.
    for number in 100..103 {
        let times = values.iter().filter(|&&value| value == number).count();
        assert!((1..=2).contains(&times), "{number}: {times}");
    }
}

#[test]
fn mix_without_positive_weight_is_an_error() {
    let of = |weight| Mix::new([(Arc::new(numbers(0..1)) as Arc<dyn Dataset>, weight)], 3);
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(of(weight).is_err(), "{weight}");
    }
    assert!(Mix::new([], 3).is_err());
}

#[test]
fn weighted_sampler_draws_by_weight() {
    let sampler = WeightedSampler::new(&[1.0, 0.0, 3.0, 0.0], 40_000).unwrap();
    let mut counts = [0u32; 4];
    (0..40_000).for_each(|position| counts[sampler.at(1, 2, position)] += 1);
    assert_eq!((counts[1], counts[3]), (0, 0));
    // Five standard deviations.
    let deviation = 5.0 * (40_000.0 * 0.25 * 0.75f64).sqrt();
    assert!(
        (f64::from(counts[0]) - 10_000.0).abs() < deviation,
        "{counts:?}"
    );
    let first = |epoch| [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|at| sampler.at(1, epoch, at));
    assert_ne!(first(2), first(3));
}

#[test]
fn weights_that_cannot_be_drawn_are_errors() {
    for weights in [
        &[][..],
        &[0.0],
        &[1.0, -1.0],
        &[f64::NAN],
        &[f64::MAX, f64::MAX],
    ] {
        assert!(WeightedSampler::new(weights, 1).is_err(), "{weights:?}");
    }
    let sampler = WeightedSampler::new(&[1.0, 2.0], 5).unwrap();
    let error = numbers(0..3).sampled(sampler).unwrap_err();
    assert_eq!(
        error.to_string(),
        "weighted sampler: made for 2 samples, the dataset has 3"
    );
}

#[test]
fn balanced_sampler_has_each_class_equally_often() {
    let labels = ["cat", "dog", "cat", "cat", "cat", "dog", "cat"];
    let sampler = BalancedSampler::new(&labels, 4).unwrap();
    assert_eq!(sampler.len(7).unwrap(), 8);
    let mut cats = Vec::new();
    for epoch in 0..5 {
        for position in 0..8 {
            let sample = sampler.at(7, epoch, position);
            assert_eq!(labels[sample], ["cat", "dog"][position % 2]);
            if labels[sample] == "cat" {
                cats.push(sample);
            }
        }
    }
    // Twenty draws of five cats, without repetition over the bounds of epochs.
    for pass in cats.chunks(5) {
        let mut pass = pass.to_vec();
        pass.sort_unstable();
        assert_eq!(pass, [0, 2, 3, 4, 6]);
    }
}

#[test]
fn sampler_beyond_the_dataset_is_an_error() {
    struct Beyond;
    impl Sampler for Beyond {
        fn len(&self, samples: usize) -> halite_core::Result<usize> {
            Ok(samples)
        }

        fn at(&self, _: u64, _: u64, position: usize) -> usize {
            position + 1
        }

        fn digest(&self) -> String {
            "beyond".into()
        }
    }
    let data = numbers(0..2).sampled(Beyond).unwrap();
    let mut rows = Rows::zeros(data.fields(), 1).unwrap();
    assert!(data.read(0, &mut rows.sample_mut(0)).is_ok());
    let error = data.read(1, &mut rows.sample_mut(0)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("sample 2 at position 1 of epoch 0, the dataset has 2")
    );
}

#[test]
fn digests_follow_the_pipeline() {
    let digests = [
        numbers(0..4).digest(),
        numbers(0..4).take(3).digest(),
        numbers(0..4).shard(0, 2).unwrap().digest(),
        numbers(0..4).shard(1, 2).unwrap().digest(),
        numbers(0..4).repeat(2).unwrap().digest(),
        numbers(0..4).zip(numbers(1..5)).unwrap().digest(),
        numbers(0..4).concat(numbers(1..5)).unwrap().digest(),
        numbers(1..5).concat(numbers(0..4)).unwrap().digest(),
        mixed().digest(),
        numbers(0..4)
            .sampled(WeightedSampler::new(&[1.0; 4], 4).unwrap())
            .unwrap()
            .digest(),
        numbers(0..4)
            .sampled(WeightedSampler::new(&[1.0, 1.0, 1.0, 2.0], 4).unwrap())
            .unwrap()
            .digest(),
        numbers(0..4)
            .sampled(BalancedSampler::new(&[0, 1, 0, 1], 4).unwrap())
            .unwrap()
            .digest(),
        numbers(0..4)
            .sampled(BalancedSampler::new(&[0, 1, 1, 0], 4).unwrap())
            .unwrap()
            .digest(),
        noisy("a", 1).digest(),
        noisy("b", 1).digest(),
        noisy("a", 2).digest(),
    ];
    let mut different: Vec<String> = digests.into_iter().map(|digest| digest.unwrap()).collect();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 16);
    assert_eq!(noisy("a", 1).digest(), noisy("a", 1).digest());
    assert_eq!(numbers(0..4).cache(9).digest(), numbers(0..4).digest());
}

fn noisy(purpose: &str, scale: i32) -> impl Dataset + use<> {
    numbers(0..4).map_random(purpose, fields(), move |sample, random, into| {
        let noise = random.below(1 << 20) as i32;
        into.write(0, &[sample.values::<i32>(0)?[0] + scale * noise])
    })
}

/// A pipeline of most adapters, with 60 samples.
fn pipeline() -> impl Dataset {
    let mix: Arc<dyn Dataset> = Arc::new(mixed());
    numbers(0..40)
        .cache(100)
        .concat(mix)
        .unwrap()
        .sampled(WeightedSampler::new(&[1.0; 55], 30).unwrap())
        .unwrap()
        .repeat(2)
        .unwrap()
        .map_random("noise", fields(), |sample, random, into| {
            into.write(
                0,
                &[sample.values::<i32>(0)?[0] + 1000 * random.below(1000) as i32],
            )
        })
}

fn batches(workers: usize, start: Position, shard: Shard) -> Vec<Vec<i32>> {
    let options = LoaderOptions {
        workers,
        shard,
        last: LastBatch::Pad,
        ..LoaderOptions::shuffled(8, 3)
    };
    let loader = Loader::new(pipeline(), options).unwrap();
    let batches = loader
        .endless(start)
        .take(16 - (start.epoch as usize * 8 + start.batch));
    batches
        .map(|batch| batch.unwrap().arrays[0].as_slice().unwrap().to_vec())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn resume_equals_the_uninterrupted_run(at in 0usize..15, workers in 0usize..4, parts in 0u32..3) {
        let whole = batches(2, Position::default(), Shard::default());
        let start = Position { epoch: at as u64 / 8, batch: at % 8 };
        let of = 1 << parts;
        let parts: Vec<_> = (0..of).map(|index| batches(workers, start, Shard { index, of })).collect();
        for (number, batch) in whole[at..].iter().enumerate() {
            let joined: Vec<i32> = parts.iter().flat_map(|part| part[number].clone()).collect();
            prop_assert_eq!(&joined, batch);
        }
    }
}
