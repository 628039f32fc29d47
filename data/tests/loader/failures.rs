//! Errors and panics of a dataset, and loaders that are dropped.

use super::*;

#[test]
fn unreadable_sample_is_an_error_in_its_place() {
    let broken = |index| {
        if index == 21 {
            Err(Error::new(ErrorKind::Corrupt, "jpeg", "no end marker"))
        } else {
            Ok(())
        }
    };
    for workers in [0, 1, 3] {
        let loader = Loader::new(
            squares(40, broken),
            LoaderOptions {
                workers,
                ..LoaderOptions::new(8)
            },
        )
        .unwrap();
        let batches: Vec<_> = loader.epoch(0).collect();
        assert_eq!(
            batches.iter().map(Result::is_ok).collect::<Vec<_>>(),
            [true, true, false, true, true]
        );
        let error = batches[2].as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(
            error.to_string(),
            "loader: sample 21 (epoch 0, batch 2): jpeg: no end marker"
        );
    }
}

#[test]
fn panic_in_a_dataset_is_an_error() {
    let panics = |index: usize| {
        if index >= 16 {
            panic!("index {index} is cursed")
        } else {
            Ok(())
        }
    };
    for workers in [0, 1, 4] {
        let loader = Loader::new(
            squares(40, panics),
            LoaderOptions {
                workers,
                ..LoaderOptions::new(8)
            },
        )
        .unwrap();
        let batches: Vec<_> = loader.epoch(0).collect();
        assert_eq!(batches.len(), 5);
        assert!(batches[..2].iter().all(Result::is_ok));
        let error = batches[4].as_ref().unwrap_err().to_string();
        assert!(
            error.contains("sample 32 (epoch 0, batch 4)") && error.contains("index 32 is cursed"),
            "{error}"
        );
    }
}

#[test]
fn dropping_batches_ends_all_workers() {
    let slow = |_| {
        thread::sleep(Duration::from_millis(20));
        Ok(())
    };
    let dataset: Arc<dyn Dataset> = Arc::new(squares(100_000, slow));
    let client = Client::new(Null::new(1));
    let loader = Loader::shared(dataset.clone(), LoaderOptions::new(10_000)).unwrap();
    for prefetch in [false, true] {
        // A batch takes minutes.
        let batches = loader.epoch(0);
        let start = Instant::now();
        if prefetch {
            let sharding = Sharding::single(client.local_devices()[0]);
            let prefetch = Prefetch::new(batches, &client, vec![sharding], 2).unwrap();
            thread::sleep(Duration::from_millis(50));
            drop(prefetch);
        } else {
            thread::sleep(Duration::from_millis(50));
            drop(batches);
        }
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
    drop(loader);
    assert_eq!(
        Arc::strong_count(&dataset),
        1,
        "a worker still has the dataset"
    );
}
