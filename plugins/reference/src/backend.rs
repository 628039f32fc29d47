//! The client: devices, uploads and compilation.

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
    AlignedBytes, Backend, CompileOptions, Device, DeviceId, Error, ErrorKind, HostBytes,
    PinnedMemory, Placement, Platform, Program, ProgramKey, Result, Signature, TensorType,
    wait::{Work, explain_with},
};
use halite_kernels::Threads;
use halite_stablehlo::RankedType;

use crate::{
    ReferenceBuffer, ReferenceDevice, ReferenceEvent, ReferenceExecutable,
    compile::{Source, program_key},
    device::{Job, start_queue},
    launch::Running,
    node::{Node, Peers},
    oracle::{STACK, Tensor, allocate},
    serialized,
    slot::Slot,
};

/// Options of a [`Reference`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of virtual devices, at least 1.
    pub devices: u32,
    /// How programs run.
    pub mode: Mode,
    /// Threads that run the kernels of [`Mode::Fast`], for all devices together; 0 for as many as
    /// there are cores. Results do not depend on it.
    pub threads: usize,
    /// This process among several, whose devices the client has together: `devices` are those of
    /// this one.
    pub node: Option<Node>,
}

/// How programs run.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Mode {
    /// By a plan of fused kernels, in `f32` where the program is.
    #[default]
    Fast,
    /// By the interpreter, which rounds once and adds floats in `f64`.
    Oracle,
}

impl Default for Options {
    /// One device, fast, on all cores.
    fn default() -> Self {
        Options {
            devices: 1,
            mode: Mode::default(),
            threads: 0,
            node: None,
        }
    }
}

/// The reference executor, as a backend.
///
/// All of its handles keep it alive. When the last one is dropped, programs that still run stop.
#[derive(Clone, Debug)]
pub struct Reference(Arc<Client>);

impl Reference {
    /// Starts a client with a thread for each device.
    ///
    /// # Errors
    /// If there are no devices, or the system cannot create a thread.
    pub fn new(options: &Options) -> Result<Self> {
        if options.devices == 0 {
            let message = "the reference executor needs at least 1 device, 0 are requested";
            return Err(Error::invalid("open", message));
        }
        let devices = match &options.node {
            None => start_devices(0, &[options.devices])?,
            Some(node) => start_devices(node.index, &node.meet(options.devices)?)?,
        };
        let cancelled = Arc::<AtomicBool>::default();
        let peers = options.node.as_ref().filter(|node| node.count > 1);
        let client = Arc::new(Client {
            platform: Platform {
                name: Arc::from("halite"),
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
        });
        let work: Weak<Client> = Arc::downgrade(&client);
        explain_with(work);
        Ok(Reference(client))
    }
}

/// Starts the devices of process `own`, and lists those of the others; process `i` has `counts[i]`.
fn start_devices(own: u32, counts: &[u32]) -> Result<Vec<ReferenceDevice>> {
    let processes = counts.iter().zip(0u32..);
    let of = processes.flat_map(|(&count, process)| (0..count).map(move |_| process));
    of.zip(0u32..)
        .map(|(process, id)| match process == own {
            true => ReferenceDevice::start(id, process),
            false => Ok(ReferenceDevice::remote(id, process)),
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

impl Backend for Reference {
    type Device = ReferenceDevice;
    type Buffer = ReferenceBuffer;
    type Executable = ReferenceExecutable;
    type Event = ReferenceEvent;

    fn platform(&self) -> &Platform {
        &self.0.platform
    }

    fn devices(&self) -> &[ReferenceDevice] {
        &self.0.devices
    }

    /// Copies the data before it returns.
    fn upload(
        &self,
        bytes: HostBytes<'_>,
        ty: &TensorType,
        to: Placement,
    ) -> Result<ReferenceBuffer> {
        const OP: &str = "upload";
        let client = &self.0;
        let device = client.device(OP, to)?;
        let (bytes, needed) = (
            bytes.as_ref(),
            ty.checked_bytes().map_err(|e| client.on(e))?,
        );
        if bytes.len() != needed {
            let message = format!("{} bytes given, {ty} needs {needed}", bytes.len());
            return Err(client.on(Error::invalid(OP, message)));
        }
        let mut copy = allocate(needed).map_err(|error| client.on(error))?;
        copy.extend_from_slice(bytes);
        let tensor = Tensor::new(RankedType::from(ty), copy);
        Ok(ReferenceBuffer {
            client: client.clone(),
            ty: ty.clone(),
            placement: to,
            slot: Slot::ready(tensor, device.memory.charge(needed as u64)),
        })
    }

    /// Memory of the host, which devices read directly.
    fn pinned_memory(&self, bytes: usize) -> Result<Option<Box<dyn PinnedMemory>>> {
        let memory = AlignedBytes::try_zeroed(bytes).map_err(|error| self.0.on(error))?;
        Ok(Some(Box::new(memory)))
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<ReferenceExecutable> {
        let source = Source {
            name: program.name.clone(),
            code: program.code.clone(),
            replicas: program.replicas,
            partitions: program.partitions,
        };
        source.load("compile", &self.0, &program.signature, options)
    }

    fn load(
        &self,
        serialized: &[u8],
        name: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<ReferenceExecutable> {
        let source = serialized::read(serialized, name).map_err(|error| self.0.on(error))?;
        source.load("load", &self.0, signature, options)
    }

    fn program_key(&self, program: &Program, options: &CompileOptions) -> Option<ProgramKey> {
        Some(program_key(program, options, &self.0.platform.version))
    }
}

/// State that all handles of a client share.
pub(crate) struct Client {
    platform: Platform,
    /// Those of all processes, by id.
    pub(crate) devices: Vec<ReferenceDevice>,
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
    /// The error, on this platform.
    pub(crate) fn on(&self, error: Error) -> Error {
        error.on(&self.platform.name)
    }

    /// The device of a placement in this process.
    pub(crate) fn device(&self, op: &'static str, place: Placement) -> Result<&ReferenceDevice> {
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
