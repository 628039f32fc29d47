//! Buffers and events of any backend.

use std::{fmt, panic::Location, sync::Arc, time::Instant};

use super::{
    ClientId, Transfer,
    erased::{AnyBuffer, AnyBuffers, AnyEvent},
    session::Session,
};
use crate::{
    AlignedBytes, Error, OnFetched, OnFilled, OnReady, Pending, Placement, Result, TensorType,
};

/// Data on devices of any backend: one buffer for each device, such as the shards of an
/// [`Array`](crate::Array). Dropping it frees the memory once queued work no longer needs it.
pub struct DeviceBuffers {
    /// Never empty.
    pub(crate) buffers: Box<dyn AnyBuffers>,
    pub(crate) session: Arc<Session>,
}

impl DeviceBuffers {
    /// The number of buffers, at least one.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// The first buffer, and the only one of data on one device.
    pub fn first(&self) -> DeviceBuffer<'_> {
        self.get(0).expect("there is at least one buffer")
    }

    /// The buffer at a position.
    pub fn get(&self, position: usize) -> Option<DeviceBuffer<'_>> {
        Some(DeviceBuffer {
            buffer: self.buffers.get(position)?,
            session: &self.session,
        })
    }

    /// The buffers, in order.
    pub fn iter(&self) -> impl Iterator<Item = DeviceBuffer<'_>> {
        (0..self.len()).filter_map(|position| self.get(position))
    }

    /// The identity of the client that made it. Other clients cannot use it.
    pub fn client_id(&self) -> ClientId {
        self.session.id
    }

    /// All buffers of `parts`, in order.
    ///
    /// ```
    /// use halite_core::{Client, DType, DeviceBuffers, HostBytes, Null, TensorType};
    ///
    /// # fn main() -> halite_core::Result<()> {
    /// let client = Client::new(Null::new(2));
    /// let ty = TensorType::new(DType::F32, [2]);
    /// let upload = |device| client.upload(HostBytes::Borrowed(&[0; 8]), &ty, device);
    /// let [first, second] = [0, 1].map(|index| client.local_devices()[index].into());
    /// let both = DeviceBuffers::join([upload(first)?, upload(second)?])?;
    /// assert_eq!(both.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there are no parts, or they are of several clients.
    pub fn join(parts: impl IntoIterator<Item = DeviceBuffers>) -> Result<Self> {
        let invalid = |message| Error::invalid("join buffers", message);
        let mut parts = parts.into_iter();
        let mut joined = parts.next().ok_or_else(|| invalid("no buffers given"))?;
        for part in parts {
            if part.client_id() != joined.client_id() || !joined.buffers.append(part.buffers) {
                return Err(invalid("the buffers belong to several clients"));
            }
        }
        Ok(joined)
    }

    /// Each buffer for itself, in order: the inverse of [`join`](Self::join).
    pub fn split(self) -> impl Iterator<Item = DeviceBuffers> {
        let session = self.session;
        (self.buffers.split().into_iter()).map(move |buffers| DeviceBuffers {
            buffers,
            session: session.clone(),
        })
    }
}

impl fmt::Debug for DeviceBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// One of [`DeviceBuffers`]: data on one device.
#[derive(Clone, Copy)]
pub struct DeviceBuffer<'a> {
    buffer: &'a dyn AnyBuffer,
    session: &'a Arc<Session>,
}

impl<'a> DeviceBuffer<'a> {
    /// Element type and dimensions of the data on this device.
    pub fn tensor_type(&self) -> &'a TensorType {
        self.buffer.tensor_type()
    }

    /// The device, and the kind of its memory.
    pub fn placement(&self) -> Placement {
        self.buffer.placement()
    }

    /// The completion event of the work that computes the contents.
    ///
    /// # Errors
    /// If the driver cannot provide it.
    pub fn ready(&self) -> Result<DeviceEvent> {
        Ok(DeviceEvent {
            event: self.buffer.ready()?,
            session: self.session.clone(),
        })
    }

    /// Queues a copy to another device or kind of memory, or to the same.
    ///
    /// # Errors
    /// If the device or its memory does not exist.
    pub fn copy_to(&self, place: Placement) -> Result<DeviceBuffers> {
        Ok(DeviceBuffers {
            buffers: self.buffer.copy_to(place)?,
            session: self.session.clone(),
        })
    }

    /// Blocks until the row-major bytes are in `into`.
    ///
    /// # Errors
    /// If `into` has another length than the type, or the computation of the contents failed.
    #[track_caller]
    pub fn read(&self, into: &mut [u8]) -> Result<()> {
        let needed = self.tensor_type().bytes();
        if into.len() != needed {
            return Err(Error::invalid(
                "read",
                format!(
                    "{} bytes to read into, {} needs {needed}",
                    into.len(),
                    self.tensor_type()
                ),
            ));
        }
        let _span = tracing::trace_span!("read", bytes = needed).entered();
        let started = Instant::now();
        let result = self.buffer.read(into);
        let result = result.map_err(|error| self.session.explain_queued(error));
        let transfer =
            Transfer::ending_now(needed, started, Location::caller(), self.placement().device);
        self.session.observe(|observer| observer.read(&transfer));
        result
    }

    /// Queues a copy to the host.
    #[track_caller]
    pub fn fetch(&self) -> Pending<Vec<u8>> {
        let (pending, resolve) = Pending::new("fetch");
        self.fetch_then(Box::new(resolve));
        pending
    }

    /// Queues a copy to the host, and passes the row-major bytes to `then` on any thread.
    #[track_caller]
    pub fn fetch_then(&self, then: OnFetched) {
        let then = self.session.explaining(then);
        match self.observed_fetch() {
            None => self.buffer.fetch(then),
            Some(arrived) => self.buffer.fetch(Box::new(move |bytes| {
                arrived();
                then(bytes);
            })),
        }
    }

    /// Queues a copy to `memory` of the host, of exactly the length of the type, and passes it with
    /// the row-major bytes to `then` on any thread.
    #[track_caller]
    pub fn fetch_into_then(&self, memory: AlignedBytes, then: OnFilled) {
        let (given, ty) = (memory.as_ref().len(), self.tensor_type());
        if given != ty.bytes() {
            let message = format!("{given} bytes to fetch into, {ty} needs {}", ty.bytes());
            return then(Err(Error::invalid("fetch", message)));
        }
        let then = self.session.explaining(then);
        match self.observed_fetch() {
            None => self.buffer.fetch_into(memory, then),
            Some(arrived) => {
                let filled = move |memory| {
                    arrived();
                    then(memory);
                };
                self.buffer.fetch_into(memory, Box::new(filled));
            }
        }
    }

    /// Reports the start of a fetch, and returns a function that reports its end; `None` if nobody
    /// observes the client.
    #[track_caller]
    fn observed_fetch(&self) -> Option<impl FnOnce() + Send + 'static> {
        if self.session.observers.is_empty() {
            return None;
        }
        self.session.observe(|observer| observer.fetch_queued());
        let (session, started, size) = (
            self.session.clone(),
            Instant::now(),
            self.tensor_type().bytes(),
        );
        let (caller, device) = (Location::caller(), self.placement().device);
        Some(move || {
            let transfer = Transfer::ending_now(size, started, caller, device);
            session.observe(|observer| observer.fetched(&transfer));
        })
    }
}

impl fmt::Debug for DeviceBuffer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DeviceBuffer({} on device {})",
            self.tensor_type(),
            self.placement().device.0
        )
    }
}

/// Completion event of asynchronous work on a device of any backend.
pub struct DeviceEvent {
    event: Box<dyn AnyEvent>,
    session: Arc<Session>,
}

impl DeviceEvent {
    /// Returns whether the work is done, successfully or not.
    pub fn is_ready(&self) -> bool {
        self.event.is_ready()
    }

    /// Blocks until the work is done.
    ///
    /// # Errors
    /// The error of the work, however long ago it failed.
    pub fn wait(&self) -> Result<()> {
        let done = self.event.wait();
        done.map_err(|error| self.session.explain_queued(error))
    }

    /// Runs `then` once, on any thread; at once if the work is done.
    pub fn on_ready(&self, then: OnReady) {
        self.event.on_ready(self.session.explaining(then));
    }

    /// Runs a `notify` that only signals: it must neither block, launch nor read. It may run on a
    /// thread that the driver's work needs, which saves a thread switch compared with
    /// [`on_ready`](Self::on_ready).
    pub fn notify_when_ready(&self, notify: OnReady) {
        self.event
            .notify_when_ready(self.session.explaining(notify));
    }

    /// Describes the multi-device launches that are not done, for the error of a wait that timed
    /// out. Empty where the driver does not know.
    pub fn unfinished(&self) -> String {
        self.event.unfinished()
    }

    /// A future of the completion, to wait for with a deadline or to `.await`. `name` is used in
    /// the error of a wait that timed out.
    pub fn pending(&self, name: &'static str) -> Pending<()> {
        let (pending, resolve) = Pending::new(name);
        self.notify_when_ready(Box::new(resolve));
        pending
    }
}

impl fmt::Debug for DeviceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_ready() { "ready" } else { "pending" };
        write!(f, "DeviceEvent({state})")
    }
}
