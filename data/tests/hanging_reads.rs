//! A dataset whose reads hang, and consumers that give up on it.

#[path = "../../tests/src/hanging.rs"]
mod hanging;

use std::{sync::Arc, task::Poll, time::Duration};

use halite_core::{Client, HostArray, Null, Result, Sharding};
use halite_data::{Dataset, Field, InMemory, Loader, LoaderOptions, Prefetch, SampleMut};
use hanging::{Gate, OpenAtEnd, in_time};

/// Reads hang from the third batch of four on, until the gate opens.
#[derive(Clone)]
struct Hanging {
    inner: Arc<InMemory>,
    gate: Gate,
}

impl Hanging {
    fn new() -> Self {
        let values: Vec<i32> = (0..40).collect();
        let values = HostArray::from_slice(&values, [40]).unwrap();
        let inner = Arc::new(InMemory::new([("value", values)]).unwrap());
        Hanging {
            inner,
            gate: Gate::default(),
        }
    }
}

impl Dataset for Hanging {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn fields(&self) -> &[Field] {
        self.inner.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        if index >= 8 {
            self.gate.pass();
        }
        self.inner.read(index, into)
    }
}

fn loader(dataset: &Hanging, workers: usize) -> Loader {
    Loader::new(
        dataset.clone(),
        LoaderOptions {
            workers,
            ..LoaderOptions::new(4)
        },
    )
    .unwrap()
}

#[test]
fn dropping_batches_leaves_a_reader_that_hangs() {
    let dataset = Hanging::new();
    let _open = OpenAtEnd(dataset.gate.clone());
    let loader = loader(&dataset, 2);
    in_time(move || {
        let mut batches = loader.epoch(0);
        assert!(batches.next().unwrap().is_ok() && batches.next().unwrap().is_ok());
        dataset.gate.reached();
        drop(batches);
        dataset.gate.open();
    });
}

#[test]
fn poll_of_hanging_data_returns_pending() {
    for workers in [0, 2] {
        let dataset = Hanging::new();
        let _open = OpenAtEnd(dataset.gate.clone());
        let loader = loader(&dataset, workers);
        in_time(move || {
            let client = Client::new(Null::new(1));
            let device = Sharding::single(client.local_devices()[0]);
            let mut data = Prefetch::new(loader.epoch(0), &client, vec![device], 2).unwrap();
            for _ in 0..2 {
                assert!(data.next().unwrap().is_ok());
            }
            assert!(matches!(
                data.poll_next(Duration::from_millis(20)),
                Poll::Pending
            ));
            assert_eq!(data.next_position().batch, 2);
            // The late batch comes when the reader continues.
            dataset.gate.open();
            assert_eq!(data.by_ref().map(Result::unwrap).count(), 8);
            assert!(matches!(data.poll_next(Duration::ZERO), Poll::Ready(None)));
        });
    }
}

#[test]
fn dropping_a_prefetch_leaves_a_reader_that_hangs() {
    for workers in [0, 2] {
        let dataset = Hanging::new();
        let _open = OpenAtEnd(dataset.gate.clone());
        let loader = loader(&dataset, workers);
        in_time(move || {
            let client = Client::new(Null::new(1));
            let device = Sharding::single(client.local_devices()[0]);
            let data = Prefetch::new(loader.epoch(0), &client, vec![device], 2).unwrap();
            dataset.gate.reached();
            drop(data);
            dataset.gate.open();
        });
    }
}
