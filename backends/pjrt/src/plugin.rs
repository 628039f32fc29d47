//! A loaded plugin: its file, its table of functions, what it says of itself.
//!
//! A plugin is loaded once per process and never unloaded: its threads, its registered handlers and
//! every handle made by it point into it.

use std::{
    collections::HashMap,
    ffi::c_int,
    fmt,
    path::{Path, PathBuf},
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};
use halite_pjrt_sys::{
    API_MINOR, Call, GET_PJRT_API, GetPjrtApi, PJRT_Api,
    base::*,
    buffer::*,
    client::*,
    device::*,
    error::*,
    event::*,
    executable::*,
    extension::{
        PJRT_FFI_Extension, PJRT_Layouts_Extension, PJRT_Profiler_Extension,
        PJRT_Shardings_Extension,
    },
};

use crate::{
    CallTime, Pjrt, Profiler, Topology, at_exit,
    call_times::CallTimes,
    environment,
    frame::{Build, identity},
    gate::Gate,
    isolate::{self, Boundary, Isolation},
    key::EnvironmentFlags,
    library_file,
    probe::probe,
    value::{OptionValue, Options, from_named},
};

/// The oldest minor version that is loaded. Before it the table had another order.
pub const OLDEST_MINOR: i32 = 58;

/// A loaded plugin. It stays loaded until the process ends.
pub struct Plugin {
    path: PathBuf,
    /// `path`, for messages.
    shown: &'static str,
    table: Table,
    attributes: Options,
    build: Build,
    environment_flags: EnvironmentFlags,
    /// Passed by those who make or destroy a client.
    gate: Gate,
    /// How long making or destroying a client may take.
    deadline: Duration,
}

/// The versions of StableHLO a plugin takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StableHloVersions {
    /// The oldest portable artefact.
    pub minimum: [i64; 3],
    /// The newest; also what the text is parsed as.
    pub current: [i64; 3],
}

/// An extension that a plugin has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Extension {
    /// The number of its type, as in `PJRT_Extension_Type`.
    pub number: u32,
    /// Its size in bytes, which says which entries it has.
    pub size: usize,
}

impl Extension {
    /// The name of its type in the header, where this crate knows it.
    pub fn name(&self) -> Option<&'static str> {
        PJRT_Extension_Type::VALUES
            .iter()
            .find(|(_, number, _)| *number == self.number)
            .map(|(name, ..)| *name)
    }
}

/// How a plugin is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions<'a> {
    /// Environment variables that are set first, where the user has not set them (on Linux only).
    /// Plugins read them when they are loaded or make their first client, so a plugin that is
    /// loaded already has had its chance.
    pub environment: &'a [(&'a str, &'a str)],
    /// How long it may take. Some plugins ask servers that do not answer. As long may each of their
    /// clients take to be made and to be destroyed.
    pub deadline: Duration,
    /// Whether the library is first loaded in a process of its own (on Linux), about 50 ms. Its
    /// constructors run while it is loaded; one that does not return would block every later load
    /// and the end of this process. Not needed for a library that is known by its digest.
    /// `HALITE_PLUGIN_PROBE=off` turns it off.
    pub probe: bool,
}

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        LoadOptions {
            environment: &[],
            deadline: Duration::from_secs(180),
            probe: true,
        }
    }
}

/// What is known of a file that was to be loaded.
#[derive(Default)]
enum Slot {
    #[default]
    New,
    Loaded(&'static Plugin),
    /// A thread is still in it, and will stay there. After so long it was left alone.
    Stuck(Duration),
}

impl Plugin {
    /// Loads a plugin and initialises it; a file that is loaded already gives the same plugin.
    ///
    /// Plugins read the environment while they are loaded or make their first client, so set it
    /// before: `XLA_FLAGS` (an unknown flag in it ends the process). `TF_CPP_MIN_LOG_LEVEL=3`,
    /// which keeps XLA's own log off stderr, is set here where it is not (on Linux).
    ///
    /// # Errors
    /// If the file is missing, truncated, for another machine or no plugin, if its version is too
    /// old, if it refuses to initialise, or if it takes longer than it may.
    pub fn load(path: impl AsRef<Path>) -> Result<&'static Plugin> {
        Self::load_path(path.as_ref(), &LoadOptions::default())
    }

    /// As [`load`](Self::load), with an environment and a deadline.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions<'_>) -> Result<&'static Plugin> {
        Self::load_path(path.as_ref(), options)
    }

    fn load_path(path: &Path, options: &LoadOptions<'_>) -> Result<&'static Plugin> {
        static KNOWN: Mutex<Option<HashMap<PathBuf, Arc<Mutex<Slot>>>>> = Mutex::new(None);

        at_exit::watch_thread();
        library_file::check(path)?;
        let path = path.canonicalize().map_err(|error| {
            Error::new(
                ErrorKind::Io,
                OP,
                format!("{} cannot be resolved", path.display()),
            )
            .caused_by(error)
        })?;
        let slot = {
            let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
            known
                .get_or_insert_default()
                .entry(path.clone())
                .or_default()
                .clone()
        };
        // Held while loading, so that two threads do not initialise one plugin twice.
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match *slot {
            Slot::Loaded(plugin) => return Ok(plugin),
            Slot::Stuck(waited) => return Err(stuck(&path, waited)),
            Slot::New => {}
        }
        environment::set_missing(&[("TF_CPP_MIN_LOG_LEVEL", "3")]);
        environment::set_missing(options.environment);
        let started = Instant::now();
        if options.probe {
            probe(OP, &path, options.deadline).inspect_err(|error| {
                if error.kind() == ErrorKind::DeadlineExceeded {
                    *slot = Slot::Stuck(options.deadline);
                }
            })?;
        }
        // For messages, also those of the process's end; a file is loaded once.
        let shown: &'static str = String::leak(path.display().to_string());
        let isolation = Isolation {
            thread: "pjrt-load",
            op: OP,
            plugin: shown,
            deadline: options.deadline.saturating_sub(started.elapsed()),
            notice: isolate::first_notice(options.deadline),
        };
        isolate::prepare_to_wait();
        let (file, deadline) = (path.clone(), options.deadline);
        let Some(loaded) = isolate::run(isolation, move || Self::load_now(file, shown, deadline))
        else {
            *slot = Slot::Stuck(options.deadline);
            return Err(stuck(&path, options.deadline));
        };
        let plugin = loaded?;
        *slot = Slot::Loaded(plugin);
        Ok(plugin)
    }

    fn load_now(path: PathBuf, shown: &'static str, deadline: Duration) -> Result<&'static Plugin> {
        let unreadable = |error| {
            Error::new(
                ErrorKind::Io,
                OP,
                format!("{} cannot be read to its end", path.display()),
            )
            .caused_by(error)
        };
        let build = Build::of_file(&path).map_err(unreadable)?;
        let environment_flags = EnvironmentFlags::checked()?;
        let table = Table::of_library(&path)?;
        // SAFETY: initialising has no condition but to be the first call, once, which the caller's
        // lock sees to.
        unsafe { table.call("initialise plugin", &mut PJRT_Plugin_Initialize_Args::new()) }
            .map_err(|error| {
                Error::new(
                    error.kind(),
                    OP,
                    format!("{} refuses to start", path.display()),
                )
                .caused_by(error)
            })?;
        let attributes = table.attributes()?;
        let gate = Gate::new();
        let plugin = Plugin {
            path,
            shown,
            table,
            attributes,
            build,
            environment_flags,
            gate,
            deadline,
        };
        Ok(Box::leak(Box::new(plugin)))
    }

    /// A library whose constructors have not returned, if there is one. While there is, no library
    /// can be loaded, and the process can end by `_exit` or a signal only: `exit`, as at the end of
    /// `main`, waits for the loader.
    pub fn stuck_in_loader() -> Option<PathBuf> {
        IN_LOADER
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .first()
            .cloned()
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor version of the PJRT API it was built with.
    pub fn api_version(&self) -> (i32, i32) {
        self.table.version
    }

    /// What it says of itself.
    pub fn attributes(&self) -> &[(String, OptionValue)] {
        &self.attributes
    }

    /// The versions of StableHLO it takes, where it says so.
    pub fn stablehlo(&self) -> Option<StableHloVersions> {
        let version = |name: &str| match self
            .attributes
            .iter()
            .find(|(attribute, _)| attribute == name)
        {
            Some((_, OptionValue::Ints(numbers))) => numbers[..].try_into().ok(),
            _ => None,
        };
        Some(StableHloVersions {
            minimum: version("stablehlo_minimum_version")?,
            current: version("stablehlo_current_version")?,
        })
    }

    /// Its extensions, in the order of its list.
    pub fn extensions(&self) -> Vec<Extension> {
        self.table
            .extensions()
            .map(|(number, _, size)| Extension { number, size })
            .collect()
    }

    /// Names of the functions of the API that it does not have, of those that this crate knows.
    pub fn missing_functions(&self) -> Vec<&'static str> {
        halite_pjrt_sys::SLOTS
            .iter()
            .filter(|slot| self.table.entry(slot.offset).is_none())
            .map(|slot| slot.name)
            .collect()
    }

    /// Makes a client: a backend on the devices that the plugin finds. Blocks, at most as long as
    /// the plugin's [`LoadOptions::deadline`]; a plugin makes one client at a time.
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
        self.client_within(options, self.deadline)
    }

    /// As [`client`](Self::client), with another deadline.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub fn client_within(&'static self, options: Options, deadline: Duration) -> Result<Pjrt> {
        Pjrt::create(self, options, deadline)
    }

    /// Describes devices that need not be here, to compile for: `v5e:4x4` on a TPU plugin.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the plugin has no topologies by name; what the plugin says
    /// of the name.
    pub fn topology(&'static self, name: &str, options: Options) -> Result<Topology> {
        Topology::create(self, name, options)
    }

    /// A topology that [`Topology::serialize`] wrote.
    ///
    /// # Errors
    /// If the bytes are not a topology of this plugin.
    pub fn deserialize_topology(&'static self, serialized: &[u8]) -> Result<Topology> {
        Topology::deserialize(self, serialized)
    }

    /// The plugin's own profiler, where it has one: those of CUDA and TPUs have, the CPU's do not.
    pub fn profiler(&'static self) -> Option<Profiler> {
        Profiler::of(self)
    }

    /// From now on, counts and times the calls of its functions: see
    /// [`call_times`](Self::call_times).
    ///
    /// It stays on, and takes two looks at the clock for each call: for measurements.
    pub fn time_calls(&self) {
        self.table.times.start();
    }

    /// The functions that were called since [`time_calls`](Self::time_calls), on all threads, in
    /// the order of the table.
    pub fn call_times(&self) -> Vec<CallTime> {
        self.table.times.called()
    }

    /// Whose the programs are that it serializes.
    pub(crate) fn identity(&self, platform: &str) -> String {
        identity(platform, self.api_version(), &self.build)
    }

    /// The compiler's flags in the environment, as they were when it was loaded.
    pub(crate) fn environment_flags(&self) -> &EnvironmentFlags {
        &self.environment_flags
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Its path, for messages.
    pub(crate) fn shown(&self) -> &'static str {
        self.shown
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.api_version();
        write!(f, "Plugin({} {major}.{minor})", self.path.display())
    }
}

const OP: &str = "load plugin";

/// The libraries whose constructors run, in the order of their loads.
static IN_LOADER: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn stuck(path: &Path, waited: Duration) -> Error {
    let why = match Plugin::stuck_in_loader() {
        Some(other) if other != path => {
            format!(
                "the constructors of {} do not return, and block the loading of any other library",
                other.display()
            )
        }
        _ => "it may wait for a server or a device that does not answer".to_owned(),
    };
    let message = format!(
        "{} has not started after {} s, and is not tried again in this process; {why}",
        path.display(),
        waited.as_secs_f32()
    );
    Error::new(ErrorKind::DeadlineExceeded, OP, message)
}

/// The functions of a plugin, each read only if the table is long enough to have it.
pub(crate) struct Table {
    start: NonNull<PJRT_Api>,
    size: usize,
    version: (i32, i32),
    /// For errors: the file's name.
    name: Arc<str>,
    times: CallTimes,
}

// SAFETY: the table is constant after the plugin is initialised, which happens before a `Plugin` is
// handed out.
unsafe impl Send for Table {}
// SAFETY: as above; that its functions can be called from any thread is how JAX uses every plugin.
unsafe impl Sync for Table {}

impl Table {
    fn of_library(path: &Path) -> Result<Table> {
        let shown = path.display();
        let in_loader = || IN_LOADER.lock().unwrap_or_else(PoisonError::into_inner);
        in_loader().push(path.to_owned());
        let opened = open(path);
        in_loader().retain(|other| other != path);
        let library = opened.map_err(|error| {
            let message = format!("{shown} cannot be loaded; install the library it lacks, or fetch it again if it is damaged");
            // The loader's own words stand one level deeper.
            let words = std::error::Error::source(&error).unwrap_or(&error).to_string();
            Error::new(ErrorKind::Unavailable, OP, message).caused_by(words)
        })?;
        // SAFETY: the symbol has this type in every plugin.
        let get = unsafe { library.get::<GetPjrtApi>(GET_PJRT_API) }.map(|symbol| *symbol).map_err(|_| {
            Error::invalid(
                OP,
                format!(
                    "{shown} is a library but no PJRT plugin: it has no `{GET_PJRT_API}`; give the path of the plugin itself"
                ),
            )
        });
        // Its constructors ran and may have started threads: it stays, plugin or not.
        std::mem::forget(library);
        let get = get?;
        let boundary = Boundary {
            plugin: &shown.to_string(),
            function: GET_PJRT_API,
        };
        // SAFETY: the function takes nothing and is the first one called.
        let start = unsafe { get() };
        std::mem::forget(boundary);
        let start = NonNull::new(start.cast_mut()).ok_or_else(|| {
            Error::invalid(
                OP,
                format!("{shown} gave no table of functions; use another build of it"),
            )
        })?;
        // SAFETY: every version of the table begins with its size and, 16 bytes on, the version.
        let (size, major, minor) = unsafe {
            let size = start.cast::<usize>().read();
            if size < std::mem::offset_of!(PJRT_Api, PJRT_Error_Destroy) {
                return Err(Error::invalid(
                    OP,
                    format!("{shown} has a table of {size} bytes, which holds no function"),
                ));
            }
            let version = start
                .cast::<u8>()
                .add(std::mem::offset_of!(PJRT_Api, pjrt_api_version));
            let number = |offset| version.add(offset).cast::<c_int>().read();
            let major = number(std::mem::offset_of!(PJRT_Api_Version, major_version));
            (
                size,
                major,
                number(std::mem::offset_of!(PJRT_Api_Version, minor_version)),
            )
        };
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        let table = Table {
            start,
            size,
            version: (major, minor),
            name: name.into(),
            times: CallTimes::new(),
        };
        table.check_version(path)?;
        table.check_required(path)?;
        Ok(table)
    }

    fn check_version(&self, path: &Path) -> Result<()> {
        let (major, minor) = self.version;
        if major == 0 && minor >= OLDEST_MINOR {
            return Ok(());
        }
        let message = format!(
            "{} speaks PJRT {major}.{minor}; 0.{OLDEST_MINOR} or newer is needed (0.{API_MINOR} is known in full); {}",
            path.display(),
            if major == 0 {
                "install a newer plugin"
            } else {
                "install a newer halite"
            },
        );
        Err(Error::new(ErrorKind::Unsupported, OP, message))
    }

    /// What nothing works without; the rest is asked for when it is used.
    fn check_required(&self, path: &Path) -> Result<()> {
        let required = [
            PJRT_Error_Destroy_Args::SLOT,
            PJRT_Error_Message_Args::SLOT,
            PJRT_Error_GetCode_Args::SLOT,
            PJRT_Plugin_Initialize_Args::SLOT,
            PJRT_Event_Destroy_Args::SLOT,
            PJRT_Event_IsReady_Args::SLOT,
            PJRT_Event_Await_Args::SLOT,
            PJRT_Event_OnReady_Args::SLOT,
            PJRT_Client_Create_Args::SLOT,
            PJRT_Client_Destroy_Args::SLOT,
            PJRT_Client_PlatformName_Args::SLOT,
            PJRT_Client_Devices_Args::SLOT,
            PJRT_Client_Compile_Args::SLOT,
            PJRT_Client_BufferFromHostBuffer_Args::SLOT,
            PJRT_DeviceDescription_Id_Args::SLOT,
            PJRT_Device_GetDescription_Args::SLOT,
            PJRT_Device_IsAddressable_Args::SLOT,
            PJRT_LoadedExecutable_Destroy_Args::SLOT,
            PJRT_LoadedExecutable_GetExecutable_Args::SLOT,
            PJRT_LoadedExecutable_AddressableDevices_Args::SLOT,
            PJRT_LoadedExecutable_Execute_Args::SLOT,
            PJRT_Executable_Destroy_Args::SLOT,
            PJRT_Executable_NumOutputs_Args::SLOT,
            PJRT_Buffer_Destroy_Args::SLOT,
            PJRT_Buffer_ReadyEvent_Args::SLOT,
            PJRT_Buffer_ToHostBuffer_Args::SLOT,
        ];
        let missing: Vec<_> = required
            .iter()
            .filter(|slot| self.entry(slot.offset).is_none())
            .map(|slot| slot.name)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let (major, minor) = self.version;
        let (some, more) = missing.split_at(missing.len().min(4));
        let more = if more.is_empty() {
            String::new()
        } else {
            format!(" and {} more", more.len())
        };
        let message = format!(
            "{} (PJRT {major}.{minor}) lacks {}{more}, without which nothing works; use a complete build of it",
            path.display(),
            some.join(", ")
        );
        Err(Error::new(ErrorKind::Unsupported, OP, message))
    }

    /// Calls the function that takes these arguments.
    ///
    /// # Safety
    ///
    /// * The arguments are valid for that function: handles alive, lengths true.
    #[inline]
    pub(crate) unsafe fn call<A: Call<Return = *mut PJRT_Error>>(
        &self,
        op: &'static str,
        args: &mut A,
    ) -> Result<()> {
        let function = self.function(args).ok_or_else(|| self.lacks::<A>(op))?;
        let boundary = Boundary {
            plugin: &self.name,
            function: A::SLOT.name,
        };
        // SAFETY: the caller's condition.
        let error = self.times.time(&A::SLOT, || unsafe { function(args) });
        std::mem::forget(boundary);
        // SAFETY: the error is new and ours.
        unsafe { self.check(op, error) }
    }

    /// Calls a function that frees something. What it returns cannot be acted upon; a missing one
    /// leaks.
    ///
    /// # Safety
    ///
    /// * As for [`call`](Self::call).
    #[inline]
    pub(crate) unsafe fn free<A: Call<Return = *mut PJRT_Error>>(&self, args: &mut A) {
        // SAFETY: the caller's condition.
        let _ = unsafe { self.call("free", args) };
    }

    /// The plugin's file name, for errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the plugin has the function that takes these arguments.
    pub(crate) fn has<A: Call>(&self) -> bool {
        self.entry(A::SLOT.offset).is_some()
    }

    /// The function that takes these arguments, if the table has it.
    #[inline]
    pub(crate) fn function<A: Call>(
        &self,
        _: &A,
    ) -> Option<unsafe extern "C-unwind" fn(*mut A) -> A::Return> {
        let entry = self.entry(A::SLOT.offset)?;
        // SAFETY: `Call` says that the entry at this offset has this type.
        Some(unsafe {
            std::mem::transmute::<NonNull<()>, unsafe extern "C-unwind" fn(*mut A) -> A::Return>(
                entry,
            )
        })
    }

    #[inline]
    fn entry(&self, offset: usize) -> Option<NonNull<()>> {
        if offset + size_of::<usize>() > self.size {
            return None;
        }
        // SAFETY: the table is `size` bytes long, so the pointer-sized entry at `offset` lies
        // within.
        let entry = unsafe { self.start.cast::<u8>().add(offset).cast::<*mut ()>().read() };
        NonNull::new(entry)
    }

    #[cold]
    fn lacks<A: Call>(&self, op: &'static str) -> Error {
        let (major, minor) = self.version;
        let since = match A::SLOT.since {
            0 => String::new(),
            since => format!(", which came with 0.{since}"),
        };
        let message = format!(
            "{} (PJRT {major}.{minor}) has no {}{since}",
            self.name,
            A::SLOT.name
        );
        Error::new(ErrorKind::Unsupported, op, message)
    }

    /// The plugin's extensions: number, start, size.
    fn extensions(&self) -> impl Iterator<Item = (u32, NonNull<PJRT_Extension_Base>, usize)> {
        // SAFETY: the table has this field, and so have the entries of the list, which ends with
        // null.
        let first = unsafe {
            let field = self
                .start
                .cast::<u8>()
                .add(std::mem::offset_of!(PJRT_Api, extension_start));
            field.cast::<*mut PJRT_Extension_Base>().read()
        };
        let mut next = NonNull::new(first);
        std::iter::from_fn(move || {
            let entry = next?;
            // SAFETY: as above.
            let base = unsafe { entry.read() };
            next = NonNull::new(base.next);
            Some((base.r#type.0, entry, base.struct_size))
        })
        // A list that closes in on itself would never end.
        .take(256)
    }

    /// An entry of an extension, if the plugin has the extension and it is long enough.
    pub(crate) fn extension_entry<X: ExtensionTable>(&self, offset: usize) -> Option<NonNull<()>> {
        let (_, start, size) = self
            .extensions()
            .find(|(number, ..)| *number == X::TYPE.0)?;
        if offset + size_of::<usize>() > size {
            return None;
        }
        // SAFETY: the extension is `size` bytes long.
        NonNull::new(unsafe { start.cast::<u8>().add(offset).cast::<*mut ()>().read() })
    }

    fn attributes(&self) -> Result<Options> {
        let mut args = PJRT_Plugin_Attributes_Args::new();
        // SAFETY: the plugin is initialised, and the list lives as long as the process. A plugin
        // without attributes is allowed.
        unsafe {
            match self.call("plugin attributes", &mut args) {
                Ok(()) => from_named(self.name(), args.attributes, args.num_attributes),
                Err(_) => Ok(Options::new()),
            }
        }
    }
}

/// An extension's struct, by its type.
pub(crate) trait ExtensionTable {
    const TYPE: PJRT_Extension_Type;
}

impl ExtensionTable for PJRT_Layouts_Extension {
    const TYPE: PJRT_Extension_Type = PJRT_Extension_Type::Layouts;
}
impl ExtensionTable for PJRT_Shardings_Extension {
    const TYPE: PJRT_Extension_Type = PJRT_Extension_Type::Shardings;
}
impl ExtensionTable for PJRT_Profiler_Extension {
    const TYPE: PJRT_Extension_Type = PJRT_Extension_Type::Profiler;
}
impl ExtensionTable for PJRT_FFI_Extension {
    const TYPE: PJRT_Extension_Type = PJRT_Extension_Type::FFI;
}

#[cfg(unix)]
fn open(path: &Path) -> Result<libloading::os::unix::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // Local, so that two plugins with the same symbols inside do not meet. SAFETY: loading runs the
    // library's constructors; the caller of `Plugin::load` chose to trust the file.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
}

#[cfg(not(unix))]
fn open(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: loading runs the library's constructors; the caller of `Plugin::load` chose to trust
    // the file.
    unsafe { libloading::Library::new(path) }
}
