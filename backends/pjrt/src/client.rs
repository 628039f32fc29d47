//! Clients: a plugin's connection to its devices, as a [`Backend`].

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering::Relaxed},
    },
    time::Duration,
};

use halite_core::{
    Backend, CompileOptions, Device, DeviceId, Error, ErrorKind, HostBytes, MemoryKind, Placement,
    Platform, Program, ProgramKey, Result, Signature, TensorType,
    wait::{Limit, default_limit},
};
use halite_pjrt_sys::{Call, client::*, error::PJRT_Error, memory::PJRT_Memory};

use crate::{
    PjrtBuffer, PjrtDevice, PjrtEvent, PjrtExecutable, Topology,
    at_exit::{self},
    buffer::{failed, upload},
    callbacks::Callbacks,
    compile::{compile, load},
    device::list_devices,
    environment,
    gate::Gate,
    handle::Handle,
    in_flight::{Described, InFlight, Permit},
    key::{self, program_key},
    owned_client::{Alone, OP_CREATE, Owned, alone},
    plugin::{Plugin, StableHloVersions},
    quirks::Quirks,
    table::Table,
    value::{OptionValue, Options, check_options, to_named},
    xla_flags,
};

/// A client of a plugin: the backend that programs use.
///
/// Everything made by it keeps it alive, so that it is the last to be destroyed, in whatever order
/// handles are dropped and on whatever thread.
#[derive(Clone)]
pub struct Pjrt {
    shared: Arc<Shared>,
}

impl Pjrt {
    pub(crate) fn create(
        plugin: &'static Plugin,
        options: Options,
        deadline: Duration,
    ) -> Result<Self> {
        at_exit::watch_thread();
        check_options(OP_CREATE, &options)?;
        let create = move || {
            // Variables that are set while one client is created are not for another. A plugin that
            // takes long is not waited for: most set none.
            static ENVIRONMENT: Gate = Gate::new();
            let _entered = ENVIRONMENT.enter("making a client", Duration::from_secs(5));
            Self::create_now(plugin, options)
        };
        alone(plugin, OP_CREATE, "making a client", deadline, create).map_err(|error| match error {
            Alone::Failed(error) => error,
            Alone::Late(waited) => {
                let message = format!(
                    "{} has been looking for its devices for {} s and was left alone",
                    plugin.shown(),
                    waited.as_secs_f32()
                );
                Error::new(ErrorKind::DeadlineExceeded, OP_CREATE, message)
            }
        })
    }

    fn create_now(plugin: &'static Plugin, options: Options) -> Result<Self> {
        const OP: &str = OP_CREATE;
        let named = to_named(&options);
        let mut args = PJRT_Client_Create_Args {
            create_options: named.as_ptr(),
            num_options: named.len(),
            ..PJRT_Client_Create_Args::new()
        };
        let (mut client, variables) = {
            let variables = key::client_variables(plugin);
            // SAFETY: the options live until the call returns, and no key-value store is given.
            let mut create = || unsafe { plugin.table().call(OP, &mut args) };
            let created =
                xla_flags::with_patient_collectives(plugin, &options, || {
                    match cpu_threads(&options) {
                        Some(threads) => {
                            environment::with_missing("NPROC", &threads.to_string(), create)
                        }
                        None => create(),
                    }
                });
            created.map_err(|error| with_options(error, &options))?;
            // From here on the client is destroyed if anything fails.
            let client = Handle::from_plugin(OP, args.client)?;
            (
                Owned {
                    plugin,
                    client,
                    in_creation: true,
                    stuck: AtomicBool::new(false),
                },
                variables,
            )
        };
        let name = client.platform_name()?;
        let version = described_version(plugin, &name, client.platform_version()?);
        let platform = Platform {
            name: name.into(),
            version,
        };
        let devices = list_devices(plugin.table(), client.client, &platform.name)?;
        if !devices.iter().any(Device::is_local) {
            let what = if devices.is_empty() {
                "lists no device"
            } else {
                "lists only devices of other processes"
            };
            return Err(Error::new(
                ErrorKind::Unavailable,
                OP,
                format!("{} {what}", plugin.shown()),
            ));
        }
        let quirks = Quirks::of(&platform.name, plugin.api_version());
        let in_flight = InFlight::new(plugin, quirks.max_launches);
        let identity = key::client_identity(plugin, &platform, &devices, &options, &variables);
        client.in_creation = false;
        let shared = Shared {
            in_flight,
            callbacks: Callbacks::default(),
            wait_limit: Limit::new(default_limit()),
            client,
            platform,
            quirks,
            devices,
            identity,
            launches: AtomicI32::new(0),
            copies_uploads: AtomicBool::new(false),
        };
        Ok(Pjrt {
            shared: Arc::new(shared),
        })
    }

    /// The plugin behind it.
    pub fn plugin(&self) -> &'static Plugin {
        self.shared.plugin()
    }

    /// Sets the longest time that a wait of this client takes:
    /// [`Event::wait`](halite_core::Event::wait), a read, or a launch over several devices that
    /// waits for earlier ones. The default is [`default_limit`] when the client is created: a day,
    /// or the seconds in `HALITE_WAIT_LIMIT` in a process that opened an accelerator. A wait of more than a minute logs what it waits for, as a warning.
    pub fn set_wait_limit(&self, limit: Duration) {
        self.shared.wait_limit.set(limit);
    }

    /// A buffer whose contents failed to be computed, for tests of what follows from that. Reading
    /// it, waiting for it and launching programs with it fail with this message.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin cannot make one.
    pub fn failed_buffer(
        &self,
        ty: &TensorType,
        to: Placement,
        message: &str,
    ) -> Result<PjrtBuffer> {
        failed(&self.shared, ty, to, message)
    }

    /// The devices that the client runs on, described.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin does not describe
    /// them.
    pub fn topology(&self) -> Result<Topology> {
        Topology::of_client(&self.shared)
    }

    /// The index of this process in the job.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn process(&self) -> Result<u32> {
        let mut args = PJRT_Client_ProcessIndex_Args {
            client: self.shared.raw(),
            ..PJRT_Client_ProcessIndex_Args::new()
        };
        // SAFETY: the client is alive.
        unsafe { self.shared.call("process index", &mut args)? };
        Ok(args.process_index.max(0) as u32)
    }
}

impl fmt::Debug for Pjrt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pjrt({}, {} devices)",
            self.shared.platform.name,
            self.shared.devices.len()
        )
    }
}

impl Backend for Pjrt {
    type Device = PjrtDevice;
    type Buffer = PjrtBuffer;
    type Executable = PjrtExecutable;
    type Event = PjrtEvent;

    fn platform(&self) -> &Platform {
        &self.shared.platform
    }

    fn devices(&self) -> &[PjrtDevice] {
        &self.shared.devices
    }

    fn upload(&self, bytes: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<PjrtBuffer> {
        at_exit::watch_thread();
        upload(&self.shared, bytes, ty, to)
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<PjrtExecutable> {
        compile(&self.shared, program, options)
    }

    fn load(
        &self,
        serialized: &[u8],
        name: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<PjrtExecutable> {
        load(&self.shared, serialized, name, signature, options)
    }

    fn program_key(&self, program: &Program, options: &CompileOptions) -> Option<ProgramKey> {
        program_key(&self.shared, program, options)
    }
}

/// Number of threads for XLA's CPU client, where its default is too small. It starts one per
/// device, and a collective blocks its thread until all devices arrive. A device may run two
/// collectives at once, such as one in a loop and one after it; then no thread is left for the
/// device that the others wait for, and the plugin ends the process.
fn cpu_threads(options: &Options) -> Option<i64> {
    const FOR_EACH_DEVICE: i64 = 2;

    let devices = options.iter().find_map(|(name, value)| match value {
        OptionValue::Int(count) if name == "cpu_device_count" => Some(*count),
        _ => None,
    })?;
    let here = std::thread::available_parallelism().map_or(1, |count| count.get() as i64);
    let threads = devices.saturating_mul(FOR_EACH_DEVICE);
    (devices > 1 && threads > here).then_some(threads)
}

/// State of a client that all its handles share and keep alive.
pub(crate) struct Shared {
    /// Launches over several devices. Before the client, so that its events are destroyed first.
    in_flight: InFlight,
    callbacks: Callbacks,
    wait_limit: Limit,
    client: Owned,
    platform: Platform,
    quirks: Quirks,
    /// In id order.
    devices: Vec<PjrtDevice>,
    /// See [`client_identity`](key::client_identity).
    identity: String,
    launches: AtomicI32,
    /// True if the plugin was seen to use host memory without an event for its end.
    pub(crate) copies_uploads: AtomicBool,
}

impl Shared {
    pub(crate) fn plugin(&self) -> &'static Plugin {
        self.client.plugin
    }

    #[inline]
    pub(crate) fn table(&self) -> &'static Table {
        self.client.plugin.table()
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut PJRT_Client {
        self.client.client.as_ptr()
    }

    pub(crate) fn platform_name(&self) -> &Arc<str> {
        &self.platform.name
    }

    pub(crate) fn quirks(&self) -> Quirks {
        self.quirks
    }

    pub(crate) fn devices(&self) -> &[PjrtDevice] {
        &self.devices
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Calls a function of the table; an error names this platform.
    ///
    /// # Safety
    ///
    /// * As for [`Table::call`].
    #[inline]
    pub(crate) unsafe fn call<A: Call<Return = *mut PJRT_Error>>(
        &self,
        op: &'static str,
        args: &mut A,
    ) -> Result<()> {
        // SAFETY: the caller's condition.
        unsafe { self.table().call(op, args) }.map_err(|error| error.on(&self.platform.name))
    }

    /// An error of the caller's, on this platform.
    #[cold]
    pub(crate) fn invalid(&self, op: &'static str, message: impl Into<String>) -> Error {
        Error::invalid(op, message).on(&self.platform.name)
    }

    pub(crate) fn device(&self, op: &'static str, id: DeviceId) -> Result<&PjrtDevice> {
        match self
            .devices
            .binary_search_by_key(&id, |device| device.device_id())
        {
            Ok(index) => Ok(&self.devices[index]),
            Err(_) => {
                let ids: Vec<_> = self
                    .devices
                    .iter()
                    .map(|device| device.device_id().0)
                    .collect();
                Err(self.invalid(
                    op,
                    format!("unknown device {}; expected one of {ids:?}", id.0),
                ))
            }
        }
    }

    /// The memory at a place that this process can use.
    pub(crate) fn memory(
        &self,
        op: &'static str,
        place: Placement,
    ) -> Result<(&PjrtDevice, *mut PJRT_Memory)> {
        let device = self.device(op, place.device)?;
        if !device.is_addressable() {
            let message = format!(
                "device {} belongs to process {}",
                place.device.0,
                device.process_index()
            );
            return Err(self.invalid(op, message));
        }
        match device.memory_of(place.memory) {
            Some(memory) => Ok((device, memory)),
            // A plugin that lists no memories has only the device's own.
            None if place.memory == MemoryKind::Device => Ok((device, std::ptr::null_mut())),
            None => {
                let message = format!(
                    "device {} has no {:?} memory, only {:?}",
                    place.device.0,
                    place.memory,
                    device.kinds()
                );
                Err(self.invalid(op, message))
            }
        }
    }

    /// Adds the memory statistics of the devices to an out-of-memory error, where available.
    #[cold]
    pub(crate) fn with_memory(&self, error: Error, devices: &[DeviceId]) -> Error {
        let used = devices.iter().filter_map(|id| {
            let stats = self.device("memory", *id).ok()?.memory().ok()?;
            let limit = stats
                .limit
                .map_or("an unknown number".to_owned(), |limit| limit.to_string());
            Some(format!(
                "device {} uses {} of {limit} bytes",
                id.0, stats.in_use
            ))
        });
        let used: Vec<_> = used.collect();
        let error = error.on(&self.platform.name);
        if used.is_empty() {
            error
        } else {
            error.with_note(&used.join(", "))
        }
    }

    /// Blocks until a launch of this program over several devices may be queued.
    pub(crate) fn launch_permit<'a>(&'a self, program: &'a Arc<Described>) -> Result<Permit<'a>> {
        self.in_flight.acquire(self, program)
    }

    /// The launches over several devices that are not done, for messages.
    pub(crate) fn unfinished(&self) -> String {
        self.in_flight.unfinished(self)
    }

    pub(crate) fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    pub(crate) fn wait_limit(&self) -> Duration {
        self.wait_limit.get()
    }

    /// The error of a wait that took as long as it may. From now on nothing waits for the end of
    /// the client's work.
    #[cold]
    pub(crate) fn late(&self, op: &'static str, limit: Duration) -> Error {
        self.client.stuck.store(true, Relaxed);
        let unfinished = self.unfinished();
        let unfinished = if unfinished.is_empty() {
            unfinished
        } else {
            format!("; {unfinished}")
        };
        let message = format!(
            "nothing arrived within {limit:?}{unfinished}; the device is stuck, or HALITE_WAIT_LIMIT \
             must be longer"
        );
        Error::new(ErrorKind::DeadlineExceeded, op, message).on(&self.platform.name)
    }

    /// A number for the next launch over many devices; the same in every process that launches in
    /// the same order.
    pub(crate) fn next_launch(&self) -> i32 {
        self.launches.fetch_add(1, Relaxed).wrapping_add(1) & i32::MAX
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.platform.name)
    }
}

/// A client that is destroyed when this is dropped.
/// Version of a plugin: its own description, unless that repeats the platform's name, and the
/// versions of the interfaces it was built with.
fn described_version(plugin: &Plugin, name: &str, version: String) -> String {
    let (major, minor) = plugin.api_version();
    let mut parts = if version == name || version.is_empty() {
        Vec::new()
    } else {
        vec![version]
    };
    parts.push(format!("PJRT {major}.{minor}"));
    if let Some(StableHloVersions {
        current: [major, minor, patch],
        ..
    }) = plugin.stablehlo()
    {
        parts.push(format!("StableHLO {major}.{minor}.{patch}"));
    }
    parts.join(", ")
}

/// Says which options a client was refused with, because plugins name only the first they dislike.
fn with_options(error: Error, options: &Options) -> Error {
    let given: Vec<_> = options
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if given.is_empty() {
        error
    } else {
        error.with_note(&format!("the options were {}", given.join(", ")))
    }
}
