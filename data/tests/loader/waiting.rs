//! Reading ahead, and the time that consumers wait.

use super::*;

#[test]
fn waiting_for_batches_is_measured() {
    let read = Arc::new(Mutex::new(0));
    let count = read.clone();
    let slow = move |_| {
        thread::sleep(Duration::from_millis(5));
        *count.lock().unwrap() += 1;
        Ok(())
    };
    let loader = Loader::new(
        squares(32, slow),
        LoaderOptions {
            workers: 1,
            ..LoaderOptions::new(8)
        },
    )
    .unwrap();
    let start = Instant::now();
    let mut batches = loader.epoch(0);
    batches.by_ref().for_each(|batch| assert!(batch.is_ok()));
    let (slow, whole) = (batches.waited(), start.elapsed());
    assert!(
        slow <= whole && slow > whole / 2,
        "{slow:?} of {whole:?}, in which nothing else was done"
    );

    let mut batches = loader.epoch(0);
    wait_until_read(&read, 64);
    batches.by_ref().for_each(|batch| assert!(batch.is_ok()));
    assert!(
        batches.waited() < slow / 2,
        "{:?} for batches that are there, {slow:?} for others",
        batches.waited()
    );
}

#[test]
fn batches_read_ahead_are_limited() {
    let read = Arc::new(Mutex::new(0));
    let count = read.clone();
    let counting = move |_| {
        *count.lock().unwrap() += 1;
        Ok(())
    };
    let options = LoaderOptions {
        workers: 2,
        ahead: 3,
        ..LoaderOptions::new(10)
    };
    let loader = Loader::new(squares(1000, counting), options).unwrap();
    let mut batches = loader.epoch(0);
    wait_until_read(&read, 30);
    batches.next().unwrap().unwrap();
    wait_until_read(&read, 40);
}

/// Waits until this number of samples was read, and checks that no more are read within 50 ms.
#[track_caller]
fn wait_until_read(read: &Mutex<usize>, samples: usize) {
    let start = Instant::now();
    while *read.lock().unwrap() < samples {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{} of {samples} samples are read",
            read.lock().unwrap()
        );
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(50));
    assert_eq!(*read.lock().unwrap(), samples);
}
