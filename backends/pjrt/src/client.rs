//! Clients: a plugin's connection to its devices, as a [`Backend`](halite_core::Backend).

mod backend;
mod pinned;

use std::{fmt, sync::Arc, time::Duration};

use halite_core::{
    Device, Error, ErrorKind, KeyValueStore, Placement, Platform, Result, TensorType,
};
use halite_pjrt_sys::client::*;

use crate::{
    PjrtBuffer, PjrtDevice, Topology, at_exit,
    buffer::failed,
    custom_call,
    device::list_devices,
    environment,
    gate::Gate,
    handle::Handle,
    isolate, key,
    key_value::Callbacks as StoreCallbacks,
    owned_client::{Alone, OP_CREATE, Owned, alone},
    plugin::{Plugin, StableHloVersions},
    quirks::Quirks,
    shared_client::Shared,
    value::{OptionValue, Options, check_options, to_named},
    xla_flags,
};

/// A client of a plugin: the backend that programs use.
///
/// All of its handles keep it alive, so that it is destroyed last, in whatever order and on
/// whatever thread they are dropped.
#[derive(Clone)]
pub struct Pjrt {
    shared: Arc<Shared>,
}

impl Plugin {
    /// Makes a client: a backend on the devices that the plugin finds. Blocks, at most as long as
    /// the plugin's [`LoadOptions::deadline`](crate::LoadOptions::deadline); a plugin makes one
    /// client at a time.
    ///
    /// ```no_run
    /// // Needs a plugin: the path of its shared library.
    /// let plugin = halite_pjrt::Plugin::load("pjrt_c_api_cpu_plugin.so")?;
    /// let eight = plugin.client(vec![("cpu_device_count".into(), 8i64.into())])?;
    /// # halite_core::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// If an option has a wrong type or an unknown name, or the plugin finds no device.
    /// [`ErrorKind::DeadlineExceeded`] if the plugin does not return in time; while it does not, it
    /// makes no other client.
    pub fn client(&'static self, options: Options) -> Result<Pjrt> {
        self.client_within(options, self.deadline())
    }

    /// Like [`client`](Self::client), with another deadline.
    ///
    /// # Errors
    /// See [`client`](Self::client).
    pub fn client_within(&'static self, options: Options, deadline: Duration) -> Result<Pjrt> {
        Pjrt::create(self, options, deadline, None)
    }

    /// Like [`client_within`](Self::client_within), for the devices of several processes, each of
    /// which calls it with the same store. The plugin exchanges its topology through it, and what
    /// its collectives need, on any thread and for as long as the process lives. Which options tell
    /// it the number of processes depends on the plugin: `node_id` and `num_nodes` for CUDA.
    ///
    /// # Errors
    /// See [`client`](Self::client); if another process does not come within the deadline.
    pub fn client_with_store(
        &'static self,
        options: Options,
        deadline: Duration,
        store: Arc<dyn KeyValueStore>,
    ) -> Result<Pjrt> {
        Pjrt::create(self, options, deadline, Some(store))
    }
}

impl Pjrt {
    fn create(
        plugin: &'static Plugin,
        options: Options,
        deadline: Duration,
        store: Option<Arc<dyn KeyValueStore>>,
    ) -> Result<Self> {
        at_exit::watch_thread();
        check_options(OP_CREATE, &options)?;
        let store = store.map(|store| StoreCallbacks::of(store, deadline));
        let create = move || {
            // Variables that are set while one client is created are not for another. A plugin that
            // takes long is not waited for, because most clients set no variables.
            static ENVIRONMENT: Gate = Gate::new();
            let _entered = ENVIRONMENT.enter("making a client", Duration::from_secs(5));
            Self::create_now(plugin, options, store)
        };
        let created = isolate::keep_directory(plugin.shown(), || {
            alone(plugin, OP_CREATE, "making a client", deadline, create)
        });
        created.map_err(|error| match error {
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

    fn create_now(
        plugin: &'static Plugin,
        options: Options,
        store: Option<&'static StoreCallbacks>,
    ) -> Result<Self> {
        let variables = key::client_variables(plugin);
        let mut client = create_client(plugin, &options, store)?;
        let name = client.platform_name().clone();
        let version = described_version(plugin, &name, client.platform_version()?);
        let platform = Platform { name, version };
        let devices = list_devices(plugin.table(), client.client, &platform.name)?;
        check_local(plugin, &devices)?;
        let quirks = Quirks::of(&platform.name, plugin.api_version());
        let identity = key::client_identity(plugin, &platform, &devices, &options, &variables);
        client.in_creation = false;
        let shared = Shared::new(client, platform, quirks, devices, identity);
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
    /// waits for earlier ones. The default is [`default_limit`](halite_core::wait::default_limit)
    /// when the client is created: a day, or the seconds in `HALITE_WAIT_LIMIT` in a process that
    /// opened an accelerator. A wait of more than a minute logs what it waits for, as a warning.
    pub fn set_wait_limit(&self, limit: Duration) {
        self.shared.owned().wait_limit.set(limit);
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

    /// Returns whether its programs may call registered functions
    /// ([`custom_call`](halite_core::custom_call)).
    pub fn runs_custom_calls(&self) -> bool {
        custom_call::is_supported(&self.shared)
    }

    /// Returns whether its compiler makes one function of a program that asks for it
    /// ([`Capabilities::one_function`](halite_core::Capabilities::one_function)).
    pub fn compiles_functions(&self) -> bool {
        self.shared.quirks().compiles_functions
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
        let mut args = args!(PJRT_Client_ProcessIndex_Args, client: self.shared.raw());
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
            self.shared.platform_name(),
            self.shared.devices().len()
        )
    }
}

/// Creates a plugin's client, which is destroyed if anything fails before it is used.
fn create_client(
    plugin: &'static Plugin,
    options: &Options,
    store: Option<&'static StoreCallbacks>,
) -> Result<Owned> {
    let named = to_named(options);
    let mut args = PJRT_Client_Create_Args {
        create_options: named.as_ptr(),
        num_options: named.len(),
        ..PJRT_Client_Create_Args::new()
    };
    if let Some(store) = store {
        store.set(&mut args);
    }
    // SAFETY: the options live until the call returns, and the callbacks as long as the process.
    let mut create = || unsafe { plugin.table().call(OP_CREATE, &mut args) };
    let threads = cpu_threads(options);
    let created = xla_flags::with_patient_collectives(plugin, options, || match threads {
        Some(threads) => environment::with_missing("NPROC", &threads.to_string(), create),
        None => create(),
    });
    created.map_err(|error| with_options(error, options))?;
    if let Some(store) = store {
        store.created();
    }
    Owned::new(plugin, Handle::from_plugin(OP_CREATE, args.client)?)
}

/// Checks that this process can use one of the devices at least.
fn check_local(plugin: &Plugin, devices: &[PjrtDevice]) -> Result<()> {
    if devices.iter().any(Device::is_local) {
        return Ok(());
    }
    let lists = if devices.is_empty() {
        "lists no device"
    } else {
        "lists only devices of other processes"
    };
    let message = format!("{} {lists}", plugin.shown());
    Err(Error::new(ErrorKind::Unavailable, OP_CREATE, message))
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

/// Adds the options to the error of a client, because plugins name only the first that they refuse.
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
