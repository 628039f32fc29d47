//! Futures of device work: to poll, to wait for with a deadline, or to `.await`.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::{
    Error, ErrorKind, Result,
    wait::{default_limit, wait_until},
};

/// A value that a device will deliver.
///
/// [`wait`](Self::wait) and [`is_ready`](Self::is_ready) need no async runtime; with one, it is a
/// [`Future`].
#[must_use = "the value is lost unless it is waited for"]
pub struct Pending<T> {
    name: &'static str,
    slot: Arc<Slot<T>>,
}

struct Slot<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
}

enum State<T> {
    Waiting(Option<Waker>),
    Arrived(Result<T>),
    Taken,
}

impl<T: Send + 'static> Pending<T> {
    /// Creates a pending value and the function that resolves it. If the function is dropped
    /// without being called, waiting returns an error.
    pub fn new(name: &'static str) -> (Self, impl FnOnce(Result<T>) + Send + 'static) {
        let slot = Arc::new(Slot {
            state: Mutex::new(State::Waiting(None)),
            arrived: Condvar::new(),
        });
        let resolver = Resolver {
            name,
            slot: Some(slot.clone()),
        };
        (Pending { name, slot }, move |value| resolver.resolve(value))
    }

    /// A value that is already available.
    pub fn ready(value: Result<T>) -> Self {
        let slot = Slot {
            state: Mutex::new(State::Arrived(value)),
            arrived: Condvar::new(),
        };
        Pending {
            name: "ready",
            slot: Arc::new(slot),
        }
    }
}

impl<T> Pending<T> {
    /// Returns whether the value is available.
    pub fn is_ready(&self) -> bool {
        !matches!(*self.slot.lock(), State::Waiting(_))
    }

    /// Blocks until the value is available. Logs long waits.
    ///
    /// # Errors
    /// The error of the work; [`ErrorKind::DeadlineExceeded`] after
    /// [`wait::default_limit`](crate::wait::default_limit).
    pub fn wait(self) -> Result<T> {
        self.wait_for(default_limit())
    }

    /// Blocks until the value is available, at most for `limit`.
    ///
    /// # Errors
    /// The error of the work; [`ErrorKind::DeadlineExceeded`] after `limit`.
    pub fn wait_for(self, limit: Duration) -> Result<T> {
        let ready = |slice| self.wait_ready(slice).then_some(());
        wait_until(|| self.name.to_string(), limit, || false, ready).map_err(|_| {
            let message = format!(
                "nothing arrived within {limit:?}; the device is stuck, or the work queued on it \
                 takes longer"
            );
            Error::new(ErrorKind::DeadlineExceeded, self.name, message)
        })?;
        match std::mem::replace(&mut *self.slot.lock(), State::Taken) {
            State::Arrived(value) => value,
            State::Waiting(_) => {
                unreachable!("`wait_until` without an error means that the value arrived")
            }
            State::Taken => unreachable!(
                "a value is taken by `wait`, which consumes, or by the future, which is then done"
            ),
        }
    }

    /// Blocks until the value is available, at most for `limit`, and returns whether it is.
    pub fn wait_ready(&self, limit: Duration) -> bool {
        let waiting = |state: &mut State<T>| matches!(state, State::Waiting(_));
        let waited = self
            .slot
            .arrived
            .wait_timeout_while(self.slot.lock(), limit, waiting);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resolve(&self, value: Result<T>) {
        let mut state = self.lock();
        if let State::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Arrived(value);
            drop(state);
            self.arrived.notify_all();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// Resolves with an error when dropped without a value.
struct Resolver<T> {
    name: &'static str,
    slot: Option<Arc<Slot<T>>>,
}

impl<T> Resolver<T> {
    fn resolve(mut self, value: Result<T>) {
        if let Some(slot) = self.slot.take() {
            slot.resolve(value);
        }
    }
}

impl<T> Drop for Resolver<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.resolve(Err(Error::new(
                ErrorKind::Cancelled,
                self.name,
                "the backend dropped the request",
            )));
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    /// # Panics
    /// If polled again after it returned the value, as any future.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let mut state = self.slot.lock();
        if let State::Waiting(waker) = &mut *state {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Arrived(value) => Poll::Ready(value),
            State::Waiting(_) | State::Taken => panic!("`{}` polled after it was ready", self.name),
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pending({}, {})",
            self.name,
            if self.is_ready() { "ready" } else { "waiting" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_arrives_from_another_thread() {
        let (pending, resolve) = Pending::new("test");
        let thread = std::thread::spawn(move || resolve(Ok(7)));
        assert_eq!(pending.wait().unwrap(), 7);
        thread.join().unwrap();
    }

    #[test]
    fn late_value_is_an_error_with_the_name_of_the_wait() {
        let (pending, resolve) = Pending::<u8>::new("loss of step 3");
        let error = pending.wait_for(Duration::from_millis(5)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert!(error.to_string().starts_with("loss of step 3"), "{error}");
        resolve(Ok(1));
    }

    #[test]
    fn dropped_request_cancels_the_wait() {
        let (pending, resolve) = Pending::<u8>::new("test");
        drop(resolve);
        assert_eq!(pending.wait().unwrap_err().kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn last_waker_is_woken() {
        struct Flag(std::sync::atomic::AtomicBool);
        impl std::task::Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let (mut pending, resolve) = Pending::new("test");
        let flag = Arc::new(Flag(false.into()));
        let waker = Waker::from(flag.clone());
        assert!(
            Pin::new(&mut pending)
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        assert!(
            Pin::new(&mut pending)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        resolve(Ok(3));
        assert!(flag.0.load(std::sync::atomic::Ordering::SeqCst));
        assert!(matches!(
            Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)),
            Poll::Ready(Ok(3))
        ));
    }
}
