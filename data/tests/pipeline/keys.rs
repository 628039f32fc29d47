//! Random choices are a pure function of seed, epoch and index.

use halite_core::{DType, Result, TensorType};
use halite_data::{
    Dataset, DatasetExt, Field, Key, Loader, LoaderOptions, Position, Rows, SampleMut, Shard,
};

/// Each sample is its index and the first random number of its key.
struct Keys(Vec<Field>);

fn keys() -> Keys {
    Keys(vec![
        Field::new("index", TensorType::scalar(DType::U32)),
        Field::new("random", TensorType::scalar(DType::U64)),
    ])
}

impl Dataset for Keys {
    fn len(&self) -> usize {
        40
    }

    fn fields(&self) -> &[Field] {
        &self.0
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let random = into.key().random("test").u64();
        into.write(0, &[index as u32])?;
        into.write(1, &[random])
    }
}

fn random_of(seed: u64, epoch: u64, index: usize) -> u64 {
    Key { seed, epoch, index }.random("test").u64()
}

#[test]
fn loader_sets_seed_epoch_index() {
    let mut options = LoaderOptions::shuffled(8, 5);
    options.workers = 3;
    options.shard = Shard { index: 1, of: 2 };
    let loader = Loader::new(keys(), options).unwrap();
    let start = Position { epoch: 2, batch: 3 };
    for batch in loader.epoch_from(start) {
        let batch = batch.unwrap();
        let indices = batch.arrays[0].as_slice::<u32>().unwrap();
        let expected: Vec<u64> = indices
            .iter()
            .map(|&index| random_of(5, 2, index as usize))
            .collect();
        assert_eq!(batch.arrays[1].as_slice::<u64>().unwrap(), expected);
    }
}

#[test]
fn sequential_loader_has_seed_0() {
    let loader = Loader::new(keys(), LoaderOptions::new(40)).unwrap();
    let batch = loader.read(Position { epoch: 1, batch: 0 }).unwrap();
    let expected: Vec<u64> = (0..40).map(|index| random_of(0, 1, index)).collect();
    assert_eq!(batch.arrays[1].as_slice::<u64>().unwrap(), expected);
}

#[test]
fn adapters_pass_the_key_on() {
    let fields = keys().0;
    let mapped = keys().subset([7, 3]).unwrap().map(fields, |sample, into| {
        into.write(0, sample.values::<u32>(0)?)?;
        into.write(1, sample.values::<u64>(1)?)
    });
    let mut rows = Rows::zeros(mapped.fields(), 2).unwrap();
    let key = Key {
        seed: 9,
        epoch: 8,
        index: 1,
    };
    mapped
        .read(1, &mut rows.sample_mut(0).with_key(key))
        .unwrap();
    mapped.read(0, &mut rows.sample_mut(1)).unwrap();
    assert_eq!(rows.sample(0).values::<u32>(0).unwrap(), [3]);
    assert_eq!(
        rows.sample(0).values::<u64>(1).unwrap(),
        [random_of(9, 8, 1)]
    );
    assert_eq!(
        rows.sample(1).values::<u64>(1).unwrap(),
        [random_of(0, 0, 1)]
    );
}

#[test]
fn random_numbers_are_those_of_old_checkpoints() {
    let key = Key {
        seed: 42,
        epoch: 3,
        index: 17,
    };
    let mut random = key.random("crop");
    assert_eq!(random.u64(), 17_880_978_049_366_189_226);
    assert_eq!(random.f64(), 0.011749115410472855);
    assert_eq!(random.below(1000), 801);
    assert_eq!(random.normal(), -0.10072154374353082);
}

#[test]
fn each_part_of_a_key_changes_the_numbers() {
    let key = |seed, epoch, index| Key { seed, epoch, index };
    let streams = [
        (key(0, 0, 0), ""),
        (key(0, 0, 0), "flip"),
        (key(0, 0, 0), "crop"),
        (key(1, 0, 0), ""),
        (key(0, 1, 0), ""),
        (key(0, 0, 1), ""),
        (key(1, 1, 0), ""),
    ];
    let mut first: Vec<u64> = streams
        .map(|(key, purpose)| key.random(purpose).u64())
        .into();
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), streams.len());
}

#[test]
fn distributions_have_their_moments() {
    const COUNT: usize = 100_000;
    let (mut sum, mut square, mut below, mut heads) = (0.0, 0.0, [0u32; 7], 0);
    for index in 0..COUNT {
        let mut random = Key {
            index,
            ..Key::default()
        }
        .random("moments");
        let normal = random.normal();
        (sum, square) = (sum + normal, square + normal * normal);
        below[random.below(7)] += 1;
        heads += u32::from(random.chance(0.3));
    }
    let count = COUNT as f64;
    // Five standard deviations of each estimate.
    assert!((sum / count).abs() < 5.0 / count.sqrt(), "{sum}");
    assert!(
        (square / count - 1.0).abs() < 5.0 * (2.0 / count).sqrt(),
        "{square}"
    );
    let deviation = 5.0 * (count / 7.0 * 6.0 / 7.0).sqrt();
    for number in below {
        assert!(
            (f64::from(number) - count / 7.0).abs() < deviation,
            "{below:?}"
        );
    }
    let deviation = 5.0 * (count * 0.3 * 0.7).sqrt();
    assert!(
        (f64::from(heads) - 0.3 * count).abs() < deviation,
        "{heads}"
    );
}

#[test]
fn certain_chances_are_certain() {
    let mut random = Key::default().random("chance");
    assert!((0..1000).all(|_| random.chance(1.0) && !random.chance(0.0)));
    assert_eq!(random.below(0), 0);
    assert_eq!(random.uniform(2.0, 2.0), 2.0);
}
