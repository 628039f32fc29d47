//! The handle on a backend of any kind, and on what it makes.

mod buffer;
mod compile;
mod erased;
mod loaded;
mod observer;
mod session;

use std::{
    any::Any, collections::BTreeSet, fmt, ops::Range, panic::Location, sync::Arc, time::Instant,
};

pub use self::{
    buffer::{DeviceBuffer, DeviceBuffers, DeviceEvent},
    loaded::Loaded,
    observer::{Compilation, ExecutableSource, LaunchObserver, Observer, QueuedLaunch, Transfer},
    session::ClientId,
};
use self::{erased::AnyBackend, session::Session};
use crate::{
    AlignedBytes, Backend, Capabilities, Device, DeviceId, Error, HostBytes, Launches,
    PinnedMemory, Placement, Platform, ProcessGroup, ProgramCache, Result, Sharding, TensorType,
    host::Pinned,
};

/// A handle on a backend of any kind: cheap to clone, with the same devices underneath.
///
/// It corresponds to `PJRT_Client`, and is what programs hold instead of a [`Backend`]. It adds to
/// the backend what is the same for all: argument checks, the [program cache](ProgramCache), and
/// calls of [observers](Observer). It measures nothing itself and reads no environment variable;
/// `halite_backends::Accelerator` attaches the metrics of `halite-telemetry` as the environment
/// configures them.
///
/// ```
/// use halite_core::{Client, DType, HostBytes, Null, TensorType};
///
/// let client = Client::new(Null::new(1));
/// let device = client.devices()[0].id();
/// let ty = TensorType::new(DType::F32, [2]);
/// let buffer = client.upload(HostBytes::Borrowed(&[0; 8]), &ty, device.into()).unwrap();
/// assert_eq!(buffer.first().tensor_type().to_string(), "f32[2]");
/// ```
#[derive(Clone)]
pub struct Client {
    backend: Arc<dyn AnyBackend>,
    session: Arc<Session>,
    programs: Option<Arc<dyn ProgramCache>>,
    capabilities: Capabilities,
    /// The processes whose devices it has, if there are several.
    launches: Option<Arc<Launches>>,
    /// Uploads are reported to observers without the line that called.
    unattributed: bool,
}

impl Client {
    /// Creates the client of a backend. It has no observers and no program cache.
    pub fn new<B: Backend>(backend: B) -> Self {
        let devices = Backend::devices(&backend).iter();
        let local = devices.clone().filter(|device| device.is_local());
        let local: Vec<DeviceId> = local.map(Device::id).collect();
        let is_alone = local.len() == devices.len();
        Client {
            capabilities: backend.capabilities(),
            backend: Arc::new(backend),
            session: Arc::new(Session {
                id: ClientId::next(),
                observers: Vec::new(),
                blocking_launches: false,
                other_users: None,
                local: (!is_alone).then(|| local.into()),
                producer: None,
            }),
            programs: None,
            launches: None,
            unattributed: false,
        }
    }

    /// Returns the same client with one more observer. Clones, buffers and programs made before are
    /// not observed by it.
    pub fn with_observer(self, observer: impl Observer) -> Self {
        self.with_session(|session| session.observers.push(Arc::new(observer)))
    }

    /// Returns the same client whose launches block until their results are ready, so that an error
    /// of a program is returned by the call that launched it. For debugging, as
    /// `CUDA_LAUNCH_BLOCKING`.
    pub fn with_blocking_launches(self, blocking: bool) -> Self {
        self.with_session(|session| session.blocking_launches = blocking)
    }

    /// Returns the same client, whose out-of-memory errors say what `others` returns then: what else
    /// uses the memory of the devices, such as the processes that have a GPU open.
    pub fn with_other_users(
        self,
        others: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.with_session(|session| session.other_users = Some(Arc::new(others)))
    }

    fn with_session(self, change: impl FnOnce(&mut Session)) -> Self {
        let mut session = (*self.session).clone();
        change(&mut session);
        Client {
            session: Arc::new(session),
            ..self
        }
    }

    /// Returns the same client with a cache of compiled programs, in which it looks before it
    /// compiles. Clones made before have none.
    pub fn with_program_cache(self, cache: Arc<dyn ProgramCache>) -> Self {
        Client {
            programs: Some(cache),
            ..self
        }
    }

    /// Returns the same client, for which programs are lowered by these capabilities; by default by
    /// those that the [backend states](Backend::capabilities). Where
    /// [`kernels`](Capabilities::kernels) are called, the backend must run custom calls, and the
    /// kernels must be registered, as `halite_backends::Accelerator` does.
    pub fn with_capabilities(self, capabilities: Capabilities) -> Self {
        Client {
            capabilities,
            ..self
        }
    }

    /// Returns the same client, which has the devices of the processes of `group`. Before the first
    /// launch of a program on devices of all of them, compiled functions compare the program with
    /// those of the other processes.
    pub fn with_processes(self, group: Arc<dyn ProcessGroup>) -> Self {
        let launches = (group.size() > 1).then(|| Arc::new(Launches::new(group)));
        Client { launches, ..self }
    }

    /// The processes that launch programs on these devices together: those of
    /// [`with_processes`](Self::with_processes), if each of them has one of the devices.
    pub fn launches_on(&self, devices: &[DeviceId]) -> Option<&Arc<Launches>> {
        let launches = self.launches.as_ref()?;
        let used = self.devices().into_iter();
        let used = used.filter(|device| devices.contains(&device.id()));
        let processes: BTreeSet<u32> = used.map(Device::process).collect();
        (processes.len() == launches.group().size()).then_some(launches)
    }

    /// What decides how programs for its devices are lowered.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// A handle to the same client whose uploads are observed without the line that called.
    /// Loaders and trainers upload through it: the lines that telemetry names are those that the
    /// user can change.
    pub fn unattributed(&self) -> Self {
        Client {
            unattributed: true,
            ..self.clone()
        }
    }

    /// The cache of compiled programs, if it has one.
    pub fn program_cache(&self) -> Option<&Arc<dyn ProgramCache>> {
        self.programs.as_ref()
    }

    /// The first observer of type `T`.
    pub fn observer<T: Observer>(&self) -> Option<&T> {
        self.session
            .observers
            .iter()
            .find_map(|observer| (&**observer as &dyn Any).downcast_ref())
    }

    /// Returns whether an observer wants the graph in
    /// [`CompileCause::graph`](crate::CompileCause::graph).
    pub fn wants_graph(&self) -> bool {
        self.session
            .observers
            .iter()
            .any(|observer| observer.wants_graph())
    }

    /// The identity that this client shares with its clones.
    pub fn id(&self) -> ClientId {
        self.session.id
    }

    /// Name and version of the backend.
    pub fn platform(&self) -> &Platform {
        self.backend.platform()
    }

    /// Every device of the job, in id order.
    pub fn devices(&self) -> Vec<&dyn Device> {
        self.backend.devices()
    }

    /// The devices that this process can upload to, in id order.
    pub fn local_devices(&self) -> Vec<DeviceId> {
        self.backend
            .devices()
            .into_iter()
            .filter(|device| device.is_local())
            .map(Device::id)
            .collect()
    }

    /// Whether all of these devices belong to this process.
    pub fn addresses(&self, devices: &[DeviceId]) -> bool {
        devices.iter().all(|&device| self.session.is_local(device))
    }

    /// The part of a tensor that this process addresses: the smallest range in each dimension that
    /// has all shards of its devices.
    ///
    /// # Errors
    /// If a dimension is not divisible by its number of shards; if none of the devices belongs to
    /// this process.
    pub fn addressable_part(
        &self,
        ty: &TensorType,
        sharding: &Sharding,
    ) -> Result<Vec<Range<usize>>> {
        let mut part: Option<Vec<Range<usize>>> = None;
        for (index, &device) in sharding.mesh().devices().iter().enumerate() {
            if !self.addresses(&[device]) {
                continue;
            }
            let ranges = sharding.shard_ranges(ty, index)?;
            match &mut part {
                None => part = Some(ranges),
                Some(part) => part.iter_mut().zip(ranges).for_each(|(part, range)| {
                    *part = part.start.min(range.start)..part.end.max(range.end);
                }),
            }
        }
        part.ok_or_else(|| {
            let message = format!("none of the devices of {sharding} belongs to this process");
            Error::invalid("array", message)
        })
    }

    /// Queues a copy of host data to a device.
    ///
    /// # Errors
    /// If the number of bytes is not that of `ty`, or the device or its memory does not exist.
    #[track_caller]
    pub fn upload(
        &self,
        bytes: HostBytes<'_>,
        ty: &TensorType,
        to: Placement,
    ) -> Result<DeviceBuffers> {
        let _span = tracing::trace_span!("upload", bytes = bytes.as_ref().len()).entered();
        let started = Instant::now();
        let (given, needed) = (bytes.as_ref().len(), ty.checked_bytes()?);
        if given != needed {
            return Err(Error::invalid(
                "upload",
                format!("{given} bytes given, {ty} needs {needed}"),
            )
            .on(&self.platform().name));
        }
        let buffers = self.backend.upload(bytes, ty, to)?;
        if !self.session.observers.is_empty() {
            let caller = Location::caller();
            let transfer = Transfer {
                caller: (!self.unattributed).then_some(caller),
                ..Transfer::ending_now(given, started, caller, to.device)
            };
            self.session
                .observe(|observer| observer.uploaded(&transfer));
        }
        Ok(DeviceBuffers {
            buffers,
            session: self.session.clone(),
        })
    }

    /// Allocates `bytes` zero bytes of page-locked host memory, from which a
    /// [shared](HostBytes::Shared) upload needs no copy by the driver. Blocks, on GPUs for about a
    /// millisecond for 10 MB: a [`PinnedPool`](crate::PinnedPool) reuses it.
    ///
    /// `None` where the backend has no such memory.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if the host has too little
    /// memory; if the driver cannot lock it.
    pub fn pinned_memory(&self, bytes: usize) -> Result<Option<AlignedBytes>> {
        let memory = self.backend.pinned_memory(bytes)?;
        let of_pinned = |memory| AlignedBytes::of_pinned(Pinned::new(memory, None), bytes);
        memory
            .map(of_pinned)
            .transpose()
            .map_err(|error| error.on(&self.platform().name))
    }

    /// Allocates page-locked memory, as the backend gives it.
    pub(crate) fn pinned_block(&self, bytes: usize) -> Result<Option<Box<dyn PinnedMemory>>> {
        self.backend.pinned_memory(bytes)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.platform().name)
    }
}
