//! What the clones of a client and the buffers and programs of a backend share: observers, and what
//! explains an out-of-memory error.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::Observer;
use crate::{
    DeviceId, Error, ErrorKind, LargeBuffer, Result,
    compile_cause::{explain_out_of_memory, explain_queued_out_of_memory},
};

/// The identity of a [`Client`](super::Client), which its clones share. Unique in the process.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ClientId(u64);

impl ClientId {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ClientId(NEXT.fetch_add(1, Relaxed))
    }
}

/// The part of a client that its buffers and programs hold, too.
#[derive(Clone)]
pub(crate) struct Session {
    pub(super) id: ClientId,
    pub(super) observers: Vec<Arc<dyn Observer>>,
    pub(super) blocking_launches: bool,
    /// What else uses the memory of its devices.
    pub(super) other_users: Option<Arc<OtherUsers>>,
    /// The devices of this process, if there are others.
    pub(super) local: Option<Arc<[DeviceId]>>,
    /// The program that returned the buffers, of results.
    pub(super) producer: Option<Arc<Producer>>,
}

/// A program, as out-of-memory errors of its launches and its results name it.
pub(super) struct Producer {
    pub(super) name: Arc<str>,
    pub(super) largest: Vec<LargeBuffer>,
}

/// A function that is called once, on any thread.
type Callback<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// Tells what else uses the memory of the devices, if it can.
type OtherUsers = dyn Fn() -> Option<String> + Send + Sync;

impl Session {
    /// Adds to an out-of-memory error of `program` what is known of the memory.
    #[cold]
    pub(super) fn explain(&self, error: Error, program: &str, largest: &[LargeBuffer]) -> Error {
        if error.kind() != ErrorKind::OutOfMemory {
            return error;
        }
        self.name_users(explain_out_of_memory(error, program, largest))
    }

    /// Adds to an out-of-memory error what else uses the memory.
    fn name_users(&self, error: Error) -> Error {
        match self.other_users.as_ref().and_then(|others| others()) {
            Some(others) => error.with_note(&others),
            None => error,
        }
    }

    /// Adds to an out-of-memory error of queued work, which a buffer or its event reports, what is
    /// known of the memory of the devices.
    #[cold]
    pub(super) fn explain_queued(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::OutOfMemory || error.is_of_host() {
            return error;
        }
        self.name_users(match &self.producer {
            Some(producer) => {
                explain_queued_out_of_memory(error, &producer.name, &producer.largest)
            }
            None => error,
        })
    }

    /// Returns a callback that passes its error on with [`explain_queued`](Self::explain_queued).
    pub(super) fn explaining<T: 'static>(self: &Arc<Self>, then: Callback<T>) -> Callback<T> {
        if self.other_users.is_none() && self.producer.is_none() {
            return then;
        }
        let session = self.clone();
        Box::new(move |result| then(result.map_err(|error| session.explain_queued(error))))
    }

    /// Calls `notify` with each observer.
    pub(super) fn observe(&self, notify: impl Fn(&dyn Observer)) {
        self.observers
            .iter()
            .for_each(|observer| notify(&**observer));
    }

    /// Whether a device is one of this process; of a client with the devices of one process, each is.
    pub(crate) fn is_local(&self, device: DeviceId) -> bool {
        self.local
            .as_ref()
            .is_none_or(|local| local.contains(&device))
    }
}
