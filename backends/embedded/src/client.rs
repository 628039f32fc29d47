//! The client: its devices, and what all of its handles share.

use std::{
    fmt,
    num::NonZero,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::Sender,
    },
    thread,
};

use halite_core::{
    Device, DeviceId, Error, ErrorKind, Placement, Platform, Result,
    wait::{Work, explain_with},
};
use halite_kernels::Threads;

use crate::{
    EmbeddedDevice, Mode, Options,
    device::{Job, start_queue},
    launch::Running,
    node::Peers,
    oracle::STACK,
};

/// The embedded executor, as a backend.
///
/// All of its handles keep it alive. When the last one is dropped, programs that still run stop.
#[derive(Clone, Debug)]
pub struct Embedded(pub(crate) Arc<Client>);

impl Embedded {
    /// Starts a client with a thread for each device.
    ///
    /// # Errors
    /// If there are no devices, or the system cannot create a thread.
    pub fn new(options: &Options) -> Result<Self> {
        let client = Arc::new(Client::start(options)?);
        let work: Weak<Client> = Arc::downgrade(&client);
        explain_with(work);
        Ok(Embedded(client))
    }
}

/// State that all handles of a client share.
pub(crate) struct Client {
    pub(crate) platform: Platform,
    /// Those of all processes, by id.
    pub(crate) devices: Vec<EmbeddedDevice>,
    /// The other processes, if there are some.
    pub(crate) peers: Option<Arc<Peers>>,
    callbacks: Sender<Job>,
    /// Held while a launch or a copy is queued, so that they have one order on all devices.
    launching: Mutex<()>,
    /// Number of launches so far.
    pub(crate) launches: AtomicU64,
    pub(crate) cancelled: Arc<AtomicBool>,
    /// Jobs that run.
    pub(crate) running: Arc<Mutex<Vec<Arc<Running>>>>,
    /// The threads of [`Mode::Fast`].
    pub(crate) threads: Option<Arc<Threads>>,
}

impl Client {
    /// Starts a thread for each device of this process.
    fn start(options: &Options) -> Result<Self> {
        if options.devices == 0 {
            let message = "the embedded executor needs at least 1 device, 0 are requested";
            return Err(Error::invalid("open", message));
        }
        let devices = match &options.node {
            None => start_devices(0, &[options.devices])?,
            Some(node) => start_devices(node.index, &node.meet(options.devices)?)?,
        };
        let cancelled = Arc::<AtomicBool>::default();
        let peers = options.node.as_ref().filter(|node| node.count > 1);
        Ok(Client {
            platform: Platform {
                name: Arc::from("embedded"),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            devices,
            peers: peers.map(|node| Arc::new(Peers::new(node.clone(), cancelled.clone()))),
            callbacks: start_queue("halite-callback".to_owned())?,
            launching: Mutex::new(()),
            launches: AtomicU64::new(0),
            cancelled,
            running: Arc::default(),
            threads: match options.mode {
                Mode::Fast => Some(Arc::new(start_threads(options.threads)?)),
                Mode::Oracle => None,
            },
        })
    }

    /// The error, on this platform.
    pub(crate) fn on(&self, error: Error) -> Error {
        error.on(&self.platform.name)
    }

    /// The device of a placement in this process.
    pub(crate) fn device(&self, op: &'static str, place: Placement) -> Result<&EmbeddedDevice> {
        let invalid = |message| self.on(Error::invalid(op, message));
        let device = self.devices.get(place.device.0 as usize).ok_or_else(|| {
            let (id, last) = (place.device.0, self.devices.len() - 1);
            invalid(format!("unknown device {id}; expected 0 to {last}"))
        })?;
        if !device.is_local() {
            let (id, process) = (place.device.0, device.process());
            return Err(invalid(format!("device {id} belongs to process {process}")));
        }
        if !device.memories().contains(&place.memory) {
            let message = format!(
                "device {} has no memory {:?}; expected one of {:?}",
                place.device.0,
                place.memory,
                device.memories()
            );
            return Err(invalid(message));
        }
        Ok(device)
    }

    /// The ids of all devices.
    pub(crate) fn device_ids(&self) -> impl Iterator<Item = DeviceId> {
        self.devices.iter().map(Device::id)
    }

    /// Holds other launches and copies back.
    pub(crate) fn launching(&self) -> MutexGuard<'_, ()> {
        self.launching
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a callback on the thread for callbacks.
    pub(crate) fn call_back(&self, callback: Job) {
        let _ = self.callbacks.send(callback);
    }
}

/// Starts the devices of process `own`, and lists those of the others; process `i` has `counts[i]`.
fn start_devices(own: u32, counts: &[u32]) -> Result<Vec<EmbeddedDevice>> {
    let processes = counts.iter().zip(0u32..);
    let of = processes.flat_map(|(&count, process)| (0..count).map(move |_| process));
    of.zip(0u32..)
        .map(|(process, id)| match process == own {
            true => EmbeddedDevice::start(id, process),
            false => Ok(EmbeddedDevice::remote(id, process)),
        })
        .collect()
}

fn start_threads(count: usize) -> Result<Threads> {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    let count = if count == 0 { cores() } else { count };
    Threads::with_stack(count, STACK).map_err(|error| {
        let message = format!("the system cannot start {count} threads: {error}");
        Error::new(ErrorKind::Unavailable, "open", message)
    })
}

impl Work for Client {
    fn progress(&self) -> Option<String> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running: Vec<_> = running.iter().map(ToString::to_string).collect();
        (!running.is_empty()).then(|| running.join(", "))
    }
}

impl Drop for Client {
    /// Stops programs that still run: nothing can observe their results.
    fn drop(&mut self) {
        self.cancelled.store(true, Relaxed);
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({} devices)", self.devices.len())
    }
}
