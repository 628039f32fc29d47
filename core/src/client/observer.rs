//! The hook through which telemetry sees what a [`Client`](crate::Client) does.
//!
//! An [`Observer`] is attached with [`Client::with_observer`](crate::Client::with_observer) and is
//! called after each upload, read, fetch, compile and launch, with the caller's line and the times.
//! The contract itself counts and prints nothing: metrics, analysis and dumps are one observer, the
//! crate `halite-telemetry`. An observer cannot change what the client does.
//!
//! It is a hook of the client rather than a wrapper that implements [`Backend`](crate::Backend),
//! because a backend does not see the caller's line or why a program is compiled, and a wrapper
//! would have to wrap each buffer of each launch.

use std::{any::Any, fmt, panic::Location, time::Duration, time::Instant};

use super::{DeviceBuffers, Loaded};
use crate::{CompileCause, DeviceId, Error, Program};

/// An observer of the work of one or more clients.
///
/// Every method is called on the thread that did the work, after it was done, and delays it. All
/// have a default that does nothing.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
/// use halite_core::{Array, Client, HostArray, Null, Observer, Transfer, Sharding};
///
/// #[derive(Clone, Debug, Default)]
/// struct UploadedBytes(Arc<AtomicU64>);
///
/// impl Observer for UploadedBytes {
///     fn uploaded(&self, transfer: &Transfer) {
///         self.0.fetch_add(transfer.bytes as u64, Relaxed);
///     }
/// }
///
/// # fn main() -> halite_core::Result<()> {
/// let uploaded = UploadedBytes::default();
/// let client = Client::new(Null::new(1)).with_observer(uploaded.clone());
/// let device = Sharding::single(client.local_devices()[0]);
/// Array::upload(&client, &HostArray::scalar(1.0f32), &device)?;
/// assert_eq!(uploaded.0.load(Relaxed), 4);
/// # Ok(())
/// # }
/// ```
pub trait Observer: Any + fmt::Debug + Send + Sync {
    /// Called when a program was made launchable. The result, if any, observes its launches.
    fn compiled(&self, _compilation: &Compilation<'_>) -> Option<Box<dyn LaunchObserver>> {
        None
    }

    /// Called when the compiler rejected a program. The result, if any, is added to the error's
    /// message.
    fn compile_failed(&self, _program: &Program, _error: &Error) -> Option<String> {
        None
    }

    /// Returns whether callers should put the graph into [`CompileCause::graph`].
    fn wants_graph(&self) -> bool {
        false
    }

    /// Called when a copy to a device was queued.
    fn uploaded(&self, _transfer: &Transfer) {}

    /// Called after a blocking read, also one that failed.
    fn read(&self, _transfer: &Transfer) {}

    /// Called when a copy to the host was queued, for which nobody waits yet.
    fn fetch_queued(&self) {}

    /// Called when a copy to the host arrived, on a thread of the driver: it must not block.
    fn fetched(&self, _transfer: &Transfer) {}
}

/// An observer of one program's launches, made by [`Observer::compiled`].
pub trait LaunchObserver: Send + Sync {
    /// Called when a run was queued. It is on the critical path of every launch.
    fn launched(&self, launch: &QueuedLaunch<'_>);
}

/// A compilation, as [`Observer::compiled`] sees it.
#[derive(Debug)]
pub struct Compilation<'a> {
    /// The program that was compiled. `None` for [`Client::load`](crate::Client::load), which has
    /// serialized bytes only.
    pub program: Option<&'a Program>,
    /// The result.
    pub loaded: &'a Loaded,
    /// The reason, given by the caller.
    pub cause: &'a CompileCause,
    /// Where the executable came from.
    pub source: ExecutableSource,
    /// Time to compile, or to load from the cache.
    pub duration: Duration,
}

/// Where an executable came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExecutableSource {
    /// The backend's compiler; no cache was asked.
    Compiler,
    /// The backend's compiler, after a cache miss.
    CacheMiss,
    /// The [program cache](crate::ProgramCache).
    CacheHit {
        /// Size of the serialized executable.
        bytes: usize,
        /// Compile time of the original compilation, minus the time to load.
        saved: Duration,
    },
    /// Serialized bytes that the caller had.
    Serialized,
}

/// A copy between host and device, as an [`Observer`] sees it.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Size of the data.
    pub bytes: usize,
    /// When the call began.
    pub started: Instant,
    /// When the call returned; for a fetch, when the bytes arrived.
    pub ended: Instant,
    /// The line that called, unless it was inside halite
    /// ([`Client::unattributed`](crate::Client::unattributed)).
    pub caller: Option<&'static Location<'static>>,
    /// The device.
    pub device: DeviceId,
}

impl Transfer {
    /// A transfer that ends now.
    pub(crate) fn ending_now(
        bytes: usize,
        started: Instant,
        caller: &'static Location<'static>,
        device: DeviceId,
    ) -> Self {
        Transfer {
            bytes,
            started,
            ended: Instant::now(),
            caller: Some(caller),
            device,
        }
    }

    /// Time from start to end.
    pub fn duration(&self) -> Duration {
        self.ended.saturating_duration_since(self.started)
    }
}

/// A launch that was queued, as a [`LaunchObserver`] sees it.
#[derive(Debug)]
pub struct QueuedLaunch<'a> {
    /// When the call began.
    pub started: Instant,
    /// When the backend had queued the work.
    pub queued: Instant,
    /// The line that called.
    pub caller: &'static Location<'static>,
    /// The results.
    pub outputs: &'a [DeviceBuffers],
}
