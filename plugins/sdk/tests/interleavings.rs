//! Promises under loom: every order in which threads can run, up to a number of preemptions. The
//! file under test is compiled against loom's threads and locks.
#![allow(dead_code, reason = "these tests need a part of each file")]

#[path = "../src/promise.rs"]
mod promise;

/// As `src/sync.rs`, of loom.
mod sync {
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
}

/// The part of `src/status.rs` that promises need, without C.
mod status {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use halite_core::{Error, ErrorKind};

    pub(crate) type Outcome<T = ()> = Result<T, Status>;

    #[derive(Clone, Debug, PartialEq)]
    pub(crate) struct Status(String);

    impl Status {
        pub(crate) fn internal(message: &str) -> Self {
            Status(message.to_owned())
        }
    }

    impl From<Error> for Status {
        fn from(error: Error) -> Self {
            Status(error.to_string())
        }
    }

    impl From<Status> for Error {
        fn from(status: Status) -> Self {
            Error::new(ErrorKind::Internal, "compute", status.0)
        }
    }

    pub(crate) fn guard<T>(run: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(Status("panic".to_owned())))
    }
}

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use loom::{
    sync::{
        Arc,
        atomic::{AtomicUsize as Counter, Ordering::SeqCst},
    },
    thread,
};

use crate::{
    promise::Promise,
    status::{Outcome, Status},
};

/// Runs `body` in every order of its threads with at most three preemptions, and prints the number
/// of orders.
fn every_order(name: &str, body: impl Fn() + Send + Sync + 'static) {
    let orders = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = orders.clone();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        counted.fetch_add(1, Relaxed);
        body();
    });
    println!("{name}: {} orders", orders.load(Relaxed));
}

/// A callback that counts its runs.
fn count(runs: &Arc<Counter>) -> impl FnOnce(Outcome) + Send + 'static {
    let runs = runs.clone();
    move |outcome| {
        assert_eq!(outcome, Ok(()));
        runs.fetch_add(1, SeqCst);
    }
}

#[test]
fn callback_races_with_set() {
    every_order("set and register", || {
        let (promise, event) = Promise::new("dropped");
        let runs = Arc::new(Counter::new(0));
        let setter = thread::spawn(move || promise.set(Ok(())));
        event.on_ready(count(&runs));
        event.on_ready(count(&runs));
        // A caller destroys its event before it is ready.
        drop(event);
        setter.join().unwrap();
        assert_eq!(runs.load(SeqCst), 2, "each callback runs once");
    });
}

#[test]
fn wait_returns_once_set() {
    every_order("set and two waits", || {
        let (promise, event) = Promise::new("dropped");
        let waiter = event.clone();
        let waiter = thread::spawn(move || waiter.wait());
        let setter = thread::spawn(move || promise.set(Ok(())));
        assert_eq!(event.wait(), Ok(()));
        assert_eq!(waiter.join().unwrap(), Ok(()));
        setter.join().unwrap();
    });
}

#[test]
fn dropped_promise_fails_waits() {
    every_order("drop and wait", || {
        let (promise, event) = Promise::new("dropped");
        let dropper = thread::spawn(move || drop(promise));
        assert_eq!(event.wait(), Err(Status::internal("dropped")));
        dropper.join().unwrap();
    });
}
