//! Batches do not depend on the number of workers and processes, or on the start of a run.

mod devices;
mod failures;
mod waiting;

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use halite_core::{
    Array, Client, DType, Error, ErrorKind, HostArray, Mesh, Null, PartitionSpec, Result, Sharding,
    TensorType, tree::Leaf,
};
use halite_data::{
    Dataset, DatasetExt, Field, HostBatch, InMemory, Labeled, LastBatch, Loader, LoaderOptions,
    Order, Position, Prefetch, SampleMut, Shard,
};
use halite_telemetry::{ClientMetrics, FindingKind};

/// Sample `i` is the number `i` and its square. `on_read` is called at each read.
struct Squares<F> {
    len: usize,
    fields: Vec<Field>,
    on_read: F,
}

fn squares<F: Fn(usize) -> Result<()> + Send + Sync + 'static>(
    len: usize,
    on_read: F,
) -> Squares<F> {
    let fields = vec![
        Field::new("number", TensorType::scalar(DType::S32)),
        Field::new("square", TensorType::new(DType::F64, [2])),
    ];
    Squares {
        len,
        fields,
        on_read,
    }
}

impl<F: Fn(usize) -> Result<()> + Send + Sync> Dataset for Squares<F> {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        (self.on_read)(index)?;
        into.write(0, &[index as i32])?;
        let square = (index * index) as f64;
        into.values_mut::<f64>(1)?
            .copy_from_slice(&[square, -square]);
        Ok(())
    }
}

fn loader(len: usize, options: LoaderOptions) -> Loader {
    Loader::new(squares(len, |_| Ok(())), options).unwrap()
}

fn numbers(batch: &HostBatch) -> Vec<i32> {
    batch.arrays[0].as_slice().unwrap().to_vec()
}

fn weights(batch: &HostBatch) -> Vec<f32> {
    batch.arrays[2].as_slice().unwrap().to_vec()
}

type Content = (Position, Vec<i32>, Vec<f64>, Vec<f32>);

fn all(batches: impl Iterator<Item = Result<HostBatch>>) -> Vec<Content> {
    let content = |batch: HostBatch| {
        (
            batch.position,
            numbers(&batch),
            batch.arrays[1].as_slice().unwrap().to_vec(),
            weights(&batch),
        )
    };
    batches.map(|batch| content(batch.unwrap())).collect()
}

#[test]
fn batches_do_not_depend_on_the_number_of_workers() {
    let options = LoaderOptions {
        last: LastBatch::Pad,
        ..LoaderOptions::shuffled(16, 5)
    };
    // Some samples take longer, so that batches come back in another order than they were given
    // out.
    let jumpy = |index: usize| {
        thread::sleep(Duration::from_micros(if index.is_multiple_of(7) {
            300
        } else {
            0
        }));
        Ok(())
    };
    let batches = |workers, ahead| {
        let options = LoaderOptions {
            workers,
            ahead,
            ..options.clone()
        };
        all(Loader::new(squares(500, jumpy), options).unwrap().epoch(3))
    };
    let alone = batches(0, 0);
    assert_eq!(alone.len(), 32);
    for (workers, ahead) in [(1, 1), (1, 8), (2, 2), (3, 1), (7, 5), (4, 100)] {
        assert_eq!(
            batches(workers, ahead),
            alone,
            "{workers} workers, {ahead} ahead"
        );
    }
}

#[test]
fn resumed_epoch_has_the_same_remaining_batches() {
    let loader = loader(100, LoaderOptions::shuffled(8, 1));
    let whole = all(loader.epoch(2));
    for start in 0..=whole.len() {
        let mut batches = loader.epoch_from(Position {
            epoch: 2,
            batch: start,
        });
        let next = batches.next_position();
        assert_eq!(
            next,
            if start < 12 {
                Position {
                    epoch: 2,
                    batch: start,
                }
            } else {
                Position { epoch: 3, batch: 0 }
            }
        );
        assert_eq!(all(&mut batches), whole[start..]);
        assert!(batches.next().is_none(), "it stays at its end");
        assert_eq!(batches.next_position(), Position { epoch: 3, batch: 0 });
    }
}

#[test]
fn padded_epoch_has_each_sample_once_at_weight_one() {
    for len in [1, 7, 16, 17, 100] {
        let options = LoaderOptions {
            last: LastBatch::Pad,
            ..LoaderOptions::shuffled(16, 9)
        };
        let loader = loader(len, options);
        let mut counted = Vec::new();
        for batch in loader.epoch(0) {
            let batch = batch.unwrap();
            assert_eq!(batch.count as f32, weights(&batch).iter().sum::<f32>());
            counted.extend(
                numbers(&batch)
                    .iter()
                    .zip(weights(&batch))
                    .filter(|(_, weight)| *weight == 1.0)
                    .map(|(n, _)| *n),
            );
        }
        counted.sort();
        assert_eq!(counted, (0..len as i32).collect::<Vec<_>>());
        assert_eq!(loader.batches_per_epoch(), len.div_ceil(16));
    }
}

#[test]
fn incomplete_batch_can_be_dropped() {
    let options = LoaderOptions {
        last: LastBatch::Drop,
        ..LoaderOptions::new(16)
    };
    let loader = loader(100, options);
    let batches = all(loader.epoch(0));
    assert_eq!(batches.len(), 6);
    assert!(
        batches
            .iter()
            .all(|(_, _, _, weights)| weights == &[1.0; 16])
    );
    assert_eq!(batches[5].1, (80..96).collect::<Vec<_>>());
}

#[test]
fn parts_of_processes_make_up_the_same_batches() {
    let options = LoaderOptions {
        last: LastBatch::Pad,
        ..LoaderOptions::shuffled(12, 4)
    };
    let whole: Vec<_> = loader(50, options.clone())
        .epoch(1)
        .map(|batch| batch.unwrap())
        .collect();
    for of in [1, 2, 3, 4, 6, 12] {
        let parts: Vec<Vec<HostBatch>> = (0..of)
            .map(|index| {
                let loader = loader(
                    50,
                    LoaderOptions {
                        shard: Shard { index, of },
                        ..options.clone()
                    },
                );
                assert_eq!(loader.rows(), 12 / of);
                assert_eq!(loader.batch_types()[1].dims(), [12 / of, 2]);
                loader.epoch(1).map(|batch| batch.unwrap()).collect()
            })
            .collect();
        for (batch, whole) in whole.iter().enumerate() {
            let joined: Vec<i32> = parts
                .iter()
                .flat_map(|part| numbers(&part[batch]))
                .collect();
            assert_eq!(joined, numbers(whole), "{of} processes");
            let joined: Vec<f32> = parts
                .iter()
                .flat_map(|part| weights(&part[batch]))
                .collect();
            assert_eq!(joined, weights(whole), "{of} processes");
        }
    }
}

#[test]
fn endless_run_concatenates_the_epochs() {
    let loader = loader(40, LoaderOptions::shuffled(8, 6));
    let start = Position { epoch: 1, batch: 3 };
    let run: Vec<_> = loader
        .endless(start)
        .take(9)
        .map(|batch| numbers(&batch.unwrap()))
        .collect();
    let epochs = loader
        .epoch_from(start)
        .chain(loader.epoch(2))
        .chain(loader.epoch(3));
    assert_eq!(
        run,
        epochs
            .take(9)
            .map(|batch| numbers(&batch.unwrap()))
            .collect::<Vec<_>>()
    );
    // The first two batches of epochs 2 and 3.
    assert_ne!(run[2..4], run[7..], "each epoch has an order of its own");
}

#[test]
fn invalid_options_are_rejected_with_their_values() {
    let refused = |len, options| {
        Loader::new(squares(len, |_| Ok(())), options)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(0, LoaderOptions::new(8)).contains("no samples"));
    assert!(refused(9, LoaderOptions::new(0)).contains("batch size of 0"));
    assert!(
        refused(9, LoaderOptions::shuffled(10, 0))
            .contains("9 samples does not fill a batch of 10")
    );
    let shard = |index, of| LoaderOptions {
        shard: Shard { index, of },
        ..LoaderOptions::new(8)
    };
    assert!(refused(9, shard(0, 3)).contains("8 cannot be split into 3"));
    assert!(refused(9, shard(2, 2)).contains("part 2 of 2"));
    assert!(refused(9, LoaderOptions::new(usize::MAX / 2)).contains("address space"));
}

#[test]
fn subsets_and_splits_are_disjoint_and_complete() {
    let [train, validation] = squares(100, |_| Ok(())).split(80, 3).unwrap();
    let sequential = |dataset| Loader::new(dataset, LoaderOptions::new(20)).unwrap();
    let mut seen: Vec<i32> = [sequential(train), sequential(validation)]
        .iter()
        .flat_map(|loader| {
            loader
                .epoch(0)
                .flat_map(|batch| numbers(&batch.unwrap()))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_ne!(seen[..80], (0..80).collect::<Vec<_>>());
    seen.sort();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
    let error = squares(10, |_| Ok(()))
        .subset([3, 10])
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("sample 10 of a dataset of 10"), "{error}");
    assert!(squares(10, |_| Ok(())).split(11, 0).is_err());
}

#[test]
fn arrays_of_different_lengths_are_rejected() {
    let of = |len| HostArray::zeros(TensorType::new(DType::U8, [len, 2]));
    let error = InMemory::new([("image", of(5)), ("label", of(4))])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`label` is u8[4, 2], but `image` has 5 samples"),
        "{error}"
    );
    assert!(
        InMemory::new([("x", HostArray::scalar(1.0f32))])
            .unwrap_err()
            .to_string()
            .contains("scalar")
    );
    assert!(InMemory::new::<&str>([]).is_err());
}
