//! A dataset whose reads hang, and consumers that no longer want it.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::Poll,
    thread,
    time::Duration,
};

use halite_core::{Client, HostArray, Null, Result, Sharding};
use halite_data::{Dataset, Field, InMemory, Loader, LoaderOptions, Prefetch, SampleMut};

const GENEROUS: Duration = Duration::from_secs(60);

/// Reads hang from the third batch of four on, until `open`.
#[derive(Clone)]
struct Hanging {
    inner: Arc<InMemory>,
    open: Arc<(Mutex<bool>, Condvar)>,
    hangs: Arc<AtomicBool>,
}

impl Hanging {
    fn new() -> Self {
        let values: Vec<i32> = (0..40).collect();
        let values = HostArray::from_slice(&values, [40]).unwrap();
        let inner = Arc::new(InMemory::new([("value", values)]).unwrap());
        Hanging {
            inner,
            open: Arc::default(),
            hangs: Arc::default(),
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
            self.hangs.store(true, Ordering::SeqCst);
            let open = self.open.0.lock().unwrap();
            drop(self.open.1.wait_while(open, |open| !*open).unwrap());
        }
        self.inner.read(index, into)
    }
}

/// Runs `work` on a thread of its own; panics if that takes too long.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(work()));
    receive.recv_timeout(GENEROUS).expect("it hangs")
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
    let loader = loader(&dataset, 2);
    in_time(move || {
        let mut batches = loader.epoch(0);
        assert!(batches.next().unwrap().is_ok() && batches.next().unwrap().is_ok());
        while !dataset.hangs.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        drop(batches);
        *dataset.open.0.lock().unwrap() = true;
        dataset.open.1.notify_all();
    });
}

#[test]
fn consumer_of_hanging_data_gets_its_turn() {
    for workers in [0, 2] {
        let dataset = Hanging::new();
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
            // The batch that was late comes when the reader goes on.
            *dataset.open.0.lock().unwrap() = true;
            dataset.open.1.notify_all();
            assert_eq!(data.by_ref().map(Result::unwrap).count(), 8);
            assert!(matches!(data.poll_next(Duration::ZERO), Poll::Ready(None)));
        });
    }
}

#[test]
fn dropping_a_prefetch_leaves_a_reader_that_hangs() {
    for workers in [0, 2] {
        let dataset = Hanging::new();
        let loader = loader(&dataset, workers);
        in_time(move || {
            let client = Client::new(Null::new(1));
            let device = Sharding::single(client.local_devices()[0]);
            let data = Prefetch::new(loader.epoch(0), &client, vec![device], 2).unwrap();
            while !dataset.hangs.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            drop(data);
            *dataset.open.0.lock().unwrap() = true;
            dataset.open.1.notify_all();
        });
    }
}
