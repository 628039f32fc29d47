//! Streams: read once in order by several workers, opened again elsewhere.

use std::sync::Arc;

use halite_core::{DType, Error, ErrorKind, HostArray, Result, TensorType};
use halite_data::{
    BadSample, Dataset, DatasetExt, Field, InMemory, LastBatch, Loader, LoaderOptions, Position,
    SampleMut, Shard, StreamDataset, WeightedSampler,
};

type Items = Box<dyn Iterator<Item = Result<i32>> + Send>;
type Open = Box<dyn Fn(usize) -> Result<Items> + Send + Sync>;
type Write = fn(i32, &mut SampleMut<'_>) -> Result<()>;

/// The numbers from 0 to `items`; number 13 cannot be read if `damaged`.
fn numbers(len: usize, items: usize, damaged: bool) -> StreamDataset<Open, Items, Write> {
    let open: Open = Box::new(move |start: usize| {
        let item = move |index: usize| match index {
            13 if damaged => Err(Error::new(ErrorKind::Corrupt, "record", "wrong checksum")),
            _ => Ok(index as i32),
        };
        Ok(Box::new((start..items).map(item)))
    });
    let field = Field::new("number", TensorType::scalar(DType::S32));
    StreamDataset::new([field], len, open, |number, into| into.write(0, &[number]))
}

fn in_memory(len: i32) -> InMemory {
    let values: Vec<i32> = (0..len).collect();
    let array = HostArray::from_slice(&values, [values.len()]).unwrap();
    InMemory::new([("number", array)]).unwrap()
}

fn options(workers: usize) -> LoaderOptions {
    LoaderOptions {
        workers,
        last: LastBatch::Pad,
        ..LoaderOptions::new(8)
    }
}

/// The rows that count of all batches of two epochs from `start` on.
fn rows(dataset: Arc<dyn Dataset>, options: LoaderOptions, start: Position) -> Vec<i32> {
    let loader = Loader::shared(dataset, options).unwrap();
    let count = 2 * loader.batches_per_epoch() - start.batch;
    let of_batch = |batch: Result<halite_data::HostBatch>| {
        let batch = batch.unwrap();
        let weights = batch.arrays[1].as_slice::<f32>().unwrap();
        let numbers = batch.arrays[0].as_slice::<i32>().unwrap();
        let counted = numbers
            .iter()
            .zip(weights)
            .filter(|(_, weight)| **weight > 0.0);
        counted.map(|(number, _)| *number).collect::<Vec<_>>()
    };
    loader
        .endless(start)
        .take(count)
        .flat_map(of_batch)
        .collect()
}

#[test]
fn two_workers_read_a_stream_once_each_epoch() {
    let stream = Arc::new(numbers(100, 100, false));
    let twice: Vec<i32> = (0..100).chain(0..100).collect();
    assert_eq!(rows(stream.clone(), options(2), Position::default()), twice);
    // Batches ahead may begin a third epoch.
    assert!((2..=3).contains(&stream.opened()), "{}", stream.opened());
}

#[test]
fn stream_batches_do_not_depend_on_workers() {
    let start = Position { epoch: 0, batch: 5 };
    for workers in [0, 1, 4] {
        for shard in [Shard::default(), Shard { index: 1, of: 2 }] {
            let options = LoaderOptions {
                shard,
                ..options(workers)
            };
            let expected = rows(Arc::new(in_memory(100)), options.clone(), start);
            for window in [0, 3, 1000] {
                let stream = Arc::new(numbers(100, 100, false).window(window));
                assert_eq!(
                    rows(stream, options.clone(), start),
                    expected,
                    "window {window}"
                );
            }
        }
    }
}

#[test]
fn padding_does_not_open_a_stream_again() {
    let stream = Arc::new(numbers(20, 20, false));
    let loader = Loader::shared(stream.clone(), options(0)).unwrap();
    let last = loader.epoch(0).last().unwrap().unwrap();
    assert_eq!(
        last.arrays[0].as_slice::<i32>().unwrap(),
        [16, 17, 18, 19, 16, 16, 16, 16]
    );
    assert_eq!((last.count, stream.opened()), (4, 1));
}

#[test]
fn part_of_padding_alone_is_a_real_sample() {
    let options = LoaderOptions {
        shard: Shard { index: 1, of: 2 },
        ..options(0)
    };
    let loader = Loader::new(numbers(20, 20, false), options).unwrap();
    let last = loader.epoch(0).last().unwrap().unwrap();
    assert_eq!(last.arrays[0].as_slice::<i32>().unwrap(), [19; 4]);
    assert_eq!(last.count, 0);
}

#[test]
fn stream_that_ends_early_names_the_sample() {
    let loader = Loader::new(numbers(30, 20, false), options(2)).unwrap();
    let error = loader.epoch(0).find_map(Result::err).unwrap();
    assert_eq!(
        error.to_string(),
        "loader: sample 20 (epoch 0, batch 2): stream: StreamDataset ends before sample 20 of 30; \
         give its number of samples as `len`"
    );
}

#[test]
fn damaged_item_of_a_stream_is_skipped() {
    let options = LoaderOptions {
        bad_samples: BadSample::Skip { at_most: 1 },
        ..options(2)
    };
    let expected: Vec<i32> = (0..20)
        .chain(0..20)
        .filter(|&number| number != 13)
        .collect();
    let stream = Arc::new(numbers(20, 20, true));
    assert_eq!(rows(stream, options, Position::default()), expected);
}

#[test]
fn shuffled_stream_is_an_error() {
    let mapped = numbers(20, 20, false).take(10).cache(8);
    let error = Loader::new(mapped, LoaderOptions::shuffled(4, 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "loader: StreamDataset is a stream, which cannot be shuffled; use `Order::Sequential` and \
         shuffle the source, or read it into an `InMemory`"
    );
    let sampler = WeightedSampler::new(&[1.0; 20], 5).unwrap();
    assert!(numbers(20, 20, false).sampled(sampler).is_err());
}

#[test]
fn stream_digest_is_its_version() {
    assert_eq!(numbers(20, 20, false).digest(), None);
    let digest = numbers(20, 20, false).version("sha256 ab").digest();
    assert_eq!(digest.unwrap(), "stream of 20 samples \"sha256 ab\"");
}
