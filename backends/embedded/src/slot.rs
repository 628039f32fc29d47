//! Slots: values that queued work delivers, to any number of waits and callbacks.

use std::{
    fmt,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use halite_core::{
    Result,
    wait::{default_limit, wait_until},
};

use crate::{
    device::Charge,
    failure::{Failure, cancelled},
    oracle::Tensor,
};

/// Callback of a slot, called once.
pub(crate) type OnDelivered = Box<dyn FnOnce(Result<Tensor, Failure>) + Send>;

/// A tensor that queued work delivers.
pub(crate) struct Slot {
    state: Mutex<State>,
    delivered: Condvar,
    /// Threads that wait: without any, a delivery needs no system call.
    waiting: AtomicUsize,
}

enum State {
    Pending(Vec<OnDelivered>),
    /// The tensor, and the memory that it uses.
    Ready(
        Tensor,
        #[allow(dead_code, reason = "released when dropped")] Charge,
    ),
    Failed(Failure),
}

impl State {
    fn result(&self) -> Option<Result<Tensor, Failure>> {
        match self {
            State::Pending(_) => None,
            State::Ready(tensor, _) => Some(Ok(tensor.clone())),
            State::Failed(failure) => Some(Err(failure.clone())),
        }
    }
}

impl Slot {
    /// A slot that is full.
    pub(crate) fn ready(tensor: Tensor, charge: Charge) -> Arc<Self> {
        Arc::new(Slot {
            state: Mutex::new(State::Ready(tensor, charge)),
            delivered: Condvar::new(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// An empty slot, and the promise that fills it.
    pub(crate) fn pending() -> (Arc<Self>, Promise) {
        let slot = Arc::new(Slot {
            state: Mutex::new(State::Pending(Vec::new())),
            delivered: Condvar::new(),
            waiting: AtomicUsize::new(0),
        });
        (slot.clone(), Promise(slot))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_delivered(&self) -> bool {
        !matches!(*self.lock(), State::Pending(_))
    }

    /// Blocks until the tensor is there.
    ///
    /// # Errors
    /// The error of the work;
    /// [`DeadlineExceeded`](halite_core::ErrorKind::DeadlineExceeded) after the default limit.
    pub(crate) fn wait(&self) -> Result<Tensor> {
        if let Some(result) = self.lock().result() {
            return result.map_err(|failure| failure.error());
        }
        let poll = |slice| {
            // Before the lock: a delivery that has it later sees that this thread waits.
            self.waiting.fetch_add(1, Relaxed);
            let is_pending = |state: &mut State| matches!(state, State::Pending(_));
            let waited = self
                .delivered
                .wait_timeout_while(self.lock(), slice, is_pending);
            let result = waited.unwrap_or_else(PoisonError::into_inner).0.result();
            self.waiting.fetch_sub(1, Relaxed);
            result
        };
        let result = wait_until(|| "a result".to_owned(), default_limit(), || false, poll)?;
        result
            .expect("the wait is never cancelled")
            .map_err(|failure| failure.error())
    }

    /// Calls `then` when the tensor is there, on the thread that delivers it; at once if it is.
    pub(crate) fn then(&self, then: OnDelivered) {
        let mut state = self.lock();
        let result = state.result();
        match (&mut *state, result) {
            (State::Pending(callbacks), _) => callbacks.push(then),
            (_, result) => {
                drop(state);
                then(result.expect("a slot that is not pending has a result"));
            }
        }
    }

    fn deliver(&self, delivered: State) {
        let mut state = self.lock();
        let result = delivered.result();
        let before = std::mem::replace(&mut *state, delivered);
        let has_waiting = self.waiting.load(Relaxed) > 0;
        drop(state);
        if has_waiting {
            self.delivered.notify_all();
        }
        if let (State::Pending(callbacks), Some(result)) = (before, result) {
            callbacks
                .into_iter()
                .for_each(|callback| callback(result.clone()));
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self.lock() {
            State::Pending(_) => "pending",
            State::Ready(..) => "ready",
            State::Failed(_) => "failed",
        })
    }
}

/// Write half of a slot. If it is dropped, the slot has the error of cancelled work.
#[derive(Debug)]
pub(crate) struct Promise(Arc<Slot>);

impl Promise {
    pub(crate) fn fulfill(
        self,
        result: Result<Tensor, Failure>,
        charge: impl FnOnce(u64) -> Charge,
    ) {
        self.0.deliver(match result {
            Ok(tensor) => {
                let charge = charge(tensor.bytes.len() as u64);
                State::Ready(tensor, charge)
            }
            Err(failure) => State::Failed(failure),
        });
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if !self.0.is_delivered() {
            self.0.deliver(State::Failed(cancelled().into()));
        }
    }
}
