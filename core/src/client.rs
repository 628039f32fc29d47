//! A handle on a backend of any kind.

use std::{
    fmt,
    panic::Location,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{
    Backend, CompileCause, CompileOptions, Compiled, Device, DeviceId, Error, ErrorKind, HostBytes,
    LargeBuffer, Launch, Launched, Metric, Metrics, OnFetched, OnReady, Pending, Placement,
    Platform, Program, ProgramCache, ProgramMemory, Result, Sharding, Signature, TensorType,
    Tiling,
    debug::{Settings, explain_memory},
    erased::{AnyBackend, AnyBuffer, AnyEvent, AnyExecutable},
    metrics::{Function, device_clock::TimedLaunch},
};

/// A handle on a backend of any kind: cheap to clone, same devices underneath.
///
/// It counts and times what it does, so that a run can prove that it does not wait: see
/// [`Counters`] and [`Metrics`]. With `HALITE_DEBUG=1` it says on stderr why each program is
/// compiled, and at its end what is worth changing; with 2 also each launch. With `HALITE_DUMP_DIR`
/// it writes each program there; with `HALITE_METRICS_FILE` it adds lines of metrics there; with
/// `HALITE_SYNC=1` it waits for each launch.
///
/// ```
/// use halite_core::{Client, DType, HostBytes, Null, TensorType};
///
/// let client = Client::new(Null::new(1));
/// let device = client.devices()[0].id();
/// let buffer = client.upload(HostBytes::Borrowed(&[0; 8]), &TensorType::new(DType::F32, [2]), device.into()).unwrap();
/// assert_eq!(buffer.tensor_type().to_string(), "f32[2]");
/// assert_eq!(client.counters().snapshot().uploads, 1);
/// ```
#[derive(Clone)]
pub struct Client {
    backend: Arc<dyn AnyBackend>,
    metrics: Arc<Metrics>,
    programs: Option<Arc<dyn ProgramCache>>,
}

impl Client {
    /// Hides which backend it is.
    pub fn new<B: Backend>(backend: B) -> Self {
        Client {
            backend: Arc::new(backend),
            metrics: Arc::new(Metrics::new(Settings::of_environment())),
            programs: None,
        }
    }

    /// As [`new`](Self::new), writing every program that is compiled into `dir`, as
    /// `HALITE_DUMP_DIR` does.
    pub fn dumping<B: Backend>(backend: B, dir: impl Into<PathBuf>) -> Self {
        let settings = Settings {
            dump: Some(dir.into()),
            ..Settings::of_environment()
        };
        Client {
            metrics: Arc::new(Metrics::new(settings)),
            ..Client::new(backend)
        }
    }

    /// The same client, which keeps compiled programs in `cache` and looks there before it
    /// compiles. Clones made before do not.
    pub fn with_program_cache(self, cache: Arc<dyn ProgramCache>) -> Self {
        Client {
            programs: Some(cache),
            ..self
        }
    }

    /// Where compiled programs are kept, if they are.
    pub fn program_cache(&self) -> Option<&Arc<dyn ProgramCache>> {
        self.programs.as_ref()
    }

    /// What is behind it.
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

    /// What this client did so far.
    pub fn counters(&self) -> &Counters {
        &self.metrics.counters
    }

    /// What this client did so far, how long it took, and why.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Whether programs are written to a directory, with the graph that they are made from if
    /// [`CompileCause::graph`] says it.
    pub fn dumps(&self) -> bool {
        self.metrics.settings().dump.is_some()
    }

    /// Queues a copy of host data to a device.
    ///
    /// # Errors
    /// If the number of bytes is not that of `ty`, or there is no such place.
    #[track_caller]
    pub fn upload(
        &self,
        bytes: HostBytes<'_>,
        ty: &TensorType,
        to: Placement,
    ) -> Result<DeviceBuffer> {
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
        let buffer = self.backend.upload(bytes, ty, to)?;
        self.metrics
            .was_uploaded(Location::caller(), started, given);
        Ok(DeviceBuffer {
            buffer,
            metrics: self.metrics.clone(),
        })
    }

    /// Compiles for the devices that `options` names, or takes the program out of the
    /// [cache](Self::with_program_cache) if it is there. Blocks until it can be launched.
    ///
    /// # Errors
    /// What the compiler says, and with `HALITE_DUMP_DIR` the file that the program was written to.
    #[track_caller]
    pub fn compile(&self, program: &Program, options: &CompileOptions) -> Result<Loaded> {
        let line = Some(Location::caller());
        self.compile_because(
            program,
            options,
            CompileCause {
                origin: line,
                called_at: line,
                ..CompileCause::default()
            },
        )
    }

    /// As [`compile`](Self::compile), for those who know better why: for reports, dumps and errors.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub fn compile_because(
        &self,
        program: &Program,
        options: &CompileOptions,
        cause: CompileCause,
    ) -> Result<Loaded> {
        let _span = tracing::trace_span!("compile", program = %program.name).entered();
        let counters = &self.metrics.counters;
        let started = Instant::now();
        let kept = self
            .programs
            .as_deref()
            .and_then(|cache| Some((cache, self.backend.program_key(program, options)?)));
        if let Some((cache, key)) = &kept {
            if let Some(found) = cache.find(key) {
                match self.backend.load(
                    &found.serialized,
                    &program.name,
                    &program.signature,
                    options,
                ) {
                    Ok(executable) => {
                        cache.loaded(key);
                        counters.hit(
                            found.serialized.len(),
                            found.compile_time.saturating_sub(started.elapsed()),
                        );
                        return Ok(self.loaded(
                            program,
                            cause,
                            started.elapsed(),
                            true,
                            executable,
                        ));
                    }
                    Err(reason) => cache.refused(key, &reason),
                }
            }
            counters.cache_misses.fetch_add(1, Relaxed);
        }
        let started = Instant::now();
        let executable = match self.backend.compile(program, options) {
            Ok(executable) => executable,
            Err(error) => {
                let error = explain_memory(error, &program.name, &cause.largest);
                return Err(self.metrics.settings().keep_refused(program, error));
            }
        };
        let compile_time = started.elapsed();
        counters.compiles.fetch_add(1, Relaxed);
        if let Some((cache, key)) = &kept {
            let compiled = Compiled {
                name: &program.name,
                platform: &self.platform().name,
                compile_time,
            };
            cache.keep(key, &compiled, &|| executable.serialize());
        }
        Ok(self.loaded(program, cause, compile_time, false, executable))
    }

    /// What was compiled, or taken out of the cache, in this time.
    fn loaded(
        &self,
        program: &Program,
        cause: CompileCause,
        took: Duration,
        cached: bool,
        executable: Box<dyn AnyExecutable>,
    ) -> Loaded {
        let metrics = &self.metrics;
        let function = metrics.function(&program.name, cause.origin);
        function
            .devices
            .store(executable.devices().len() as u64, Relaxed);
        let largest = cause.largest.clone();
        metrics.compiled(&function, program, cause, took, cached, &*executable);
        Loaded {
            executable,
            function,
            largest,
            metrics: metrics.clone(),
        }
    }

    /// Loads what [`Loaded::serialize`] returned on this platform and version, for a program of
    /// this signature.
    ///
    /// Serialized programs hold machine code. Backends refuse what is damaged, and what another
    /// driver or version wrote or was written for another processor; none can tell what somebody
    /// forged. So load only bytes that you would run.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the bytes are damaged;
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if they are no serialized
    /// program, of another platform or version, or of another signature.
    pub fn load(
        &self,
        serialized: &[u8],
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<Loaded> {
        let name = Arc::from("loaded program");
        let executable = self.backend.load(serialized, &name, signature, options)?;
        let function = self.metrics.function(&name, None);
        function
            .devices
            .store(executable.devices().len() as u64, Relaxed);
        Ok(Loaded {
            executable,
            function,
            largest: Vec::new(),
            metrics: self.metrics.clone(),
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.platform().name)
    }
}

/// What a client did since it was made. All counts only grow.
#[derive(Debug, Default)]
pub struct Counters {
    uploads: AtomicU64,
    uploaded_bytes: AtomicU64,
    blocking_reads: AtomicU64,
    fetches: AtomicU64,
    compiles: AtomicU64,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    cached_bytes: AtomicU64,
    saved_nanos: AtomicU64,
    launches: AtomicU64,
}

/// [`Counters`] at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CounterSnapshot {
    /// Copies from host to device.
    pub uploads: u64,
    /// Bytes of those copies.
    pub uploaded_bytes: u64,
    /// Reads that made a host thread wait for the device.
    pub blocking_reads: u64,
    /// Copies from device to host that are queued, and waited for later or never.
    pub fetches: u64,
    /// Programs compiled.
    pub compiles: u64,
    /// Programs taken out of the [cache](Client::with_program_cache) instead of being compiled.
    pub cache_hits: u64,
    /// Programs that were looked for in the cache in vain, and compiled.
    pub cache_misses: u64,
    /// Serialized bytes of the programs taken out of the cache.
    pub cached_bytes: u64,
    /// How much longer compiling took, when it was done, than loading did now.
    pub compile_time_saved: Duration,
    /// Programs launched.
    pub launches: u64,
}

impl CounterSnapshot {
    /// What was counted after `earlier`, which is of the same client.
    pub fn since(&self, earlier: &CounterSnapshot) -> CounterSnapshot {
        CounterSnapshot {
            uploads: self.uploads - earlier.uploads,
            uploaded_bytes: self.uploaded_bytes - earlier.uploaded_bytes,
            blocking_reads: self.blocking_reads - earlier.blocking_reads,
            fetches: self.fetches - earlier.fetches,
            compiles: self.compiles - earlier.compiles,
            cache_hits: self.cache_hits - earlier.cache_hits,
            cache_misses: self.cache_misses - earlier.cache_misses,
            cached_bytes: self.cached_bytes - earlier.cached_bytes,
            compile_time_saved: self.compile_time_saved - earlier.compile_time_saved,
            launches: self.launches - earlier.launches,
        }
    }

    /// The counts with their names in reports.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("Compiles", self.compiles),
            ("CacheHits", self.cache_hits),
            ("CacheMisses", self.cache_misses),
            ("CachedBytes", self.cached_bytes),
            ("Launches", self.launches),
            ("Uploads", self.uploads),
            ("UploadedBytes", self.uploaded_bytes),
            ("BlockingReads", self.blocking_reads),
            ("Fetches", self.fetches),
        ]
    }
}

impl Counters {
    pub(crate) fn uploaded(&self, bytes: usize) {
        self.uploads.fetch_add(1, Relaxed);
        self.uploaded_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// The counts now.
    pub fn snapshot(&self) -> CounterSnapshot {
        CounterSnapshot {
            uploads: self.uploads.load(Relaxed),
            uploaded_bytes: self.uploaded_bytes.load(Relaxed),
            blocking_reads: self.blocking_reads.load(Relaxed),
            fetches: self.fetches.load(Relaxed),
            compiles: self.compiles.load(Relaxed),
            cache_hits: self.cache_hits.load(Relaxed),
            cache_misses: self.cache_misses.load(Relaxed),
            cached_bytes: self.cached_bytes.load(Relaxed),
            compile_time_saved: Duration::from_nanos(self.saved_nanos.load(Relaxed)),
            launches: self.launches.load(Relaxed),
        }
    }

    fn hit(&self, bytes: usize, saved: Duration) {
        self.cache_hits.fetch_add(1, Relaxed);
        self.cached_bytes.fetch_add(bytes as u64, Relaxed);
        self.saved_nanos
            .fetch_add(u64::try_from(saved.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// Bytes on one device of any backend. Dropping frees them once queued work no longer needs them.
pub struct DeviceBuffer {
    pub(crate) buffer: Box<dyn AnyBuffer>,
    pub(crate) metrics: Arc<Metrics>,
}

impl DeviceBuffer {
    /// Element type and dimensions of what this device holds.
    pub fn tensor_type(&self) -> &TensorType {
        self.buffer.tensor_type()
    }

    /// Where it is.
    pub fn placement(&self) -> Placement {
        self.buffer.placement()
    }

    /// Whether it was made by this client: no other can use it.
    pub(crate) fn is_of(&self, client: &Client) -> bool {
        Arc::ptr_eq(&self.metrics, &client.metrics)
    }

    /// Happens when the contents are computed.
    ///
    /// # Errors
    /// If the driver cannot tell.
    pub fn ready(&self) -> Result<DeviceEvent> {
        Ok(DeviceEvent(self.buffer.ready()?))
    }

    /// Queues a copy to another device or kind of memory, or to the same.
    ///
    /// # Errors
    /// If there is no such place.
    pub fn copy_to(&self, place: Placement) -> Result<Self> {
        Ok(DeviceBuffer {
            buffer: self.buffer.copy_to(place)?,
            metrics: self.metrics.clone(),
        })
    }

    /// Blocks until the row-major bytes are in `into`. Counted as a blocking read.
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
        self.metrics.counters.blocking_reads.fetch_add(1, Relaxed);
        let result = self.buffer.read(into);
        self.metrics.was_read(Location::caller(), started, needed);
        result
    }

    /// Queues a copy to the host.
    pub fn fetch(&self) -> Pending<Vec<u8>> {
        let (pending, resolve) = Pending::new("fetch");
        self.fetch_then(Box::new(resolve));
        pending
    }

    /// Queues a copy to the host, and hands the row-major bytes to `then` on any thread.
    pub fn fetch_then(&self, then: OnFetched) {
        self.metrics.counters.fetches.fetch_add(1, Relaxed);
        let (metrics, started, size) = (
            self.metrics.clone(),
            Instant::now(),
            self.tensor_type().bytes(),
        );
        let device = self.placement().device.0;
        self.buffer.fetch(Box::new(move |bytes| {
            let took = metrics.timer(Metric::Fetch).add_since(started);
            tracing::trace!(
                target: "halite::device",
                bytes = size,
                device,
                nanos = took.as_nanos() as u64,
                "fetch"
            );
            then(bytes);
        }));
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DeviceBuffer({} on device {})",
            self.tensor_type(),
            self.placement().device.0
        )
    }
}

/// Something that will have happened on a device.
pub struct DeviceEvent(Box<dyn AnyEvent>);

impl DeviceEvent {
    /// Whether it has happened, well or not.
    pub fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    /// Blocks until it has happened.
    ///
    /// # Errors
    /// The error of the work, also when it is long past.
    pub fn wait(&self) -> Result<()> {
        self.0.wait()
    }

    /// Runs `then` once, on any thread; at once if it has happened.
    pub fn on_ready(&self, then: OnReady) {
        self.0.on_ready(then);
    }

    /// As [`on_ready`](Self::on_ready), for a `notify` that only signals: it must neither block,
    /// launch nor read. It may run on a thread that the driver's work needs, which saves a switch
    /// of threads.
    pub fn notify_when_ready(&self, notify: OnReady) {
        self.0.notify_when_ready(notify);
    }

    /// The launches over several devices that are not done, for the message of a wait that is late.
    /// Empty where the driver does not know.
    pub fn unfinished(&self) -> String {
        self.0.unfinished()
    }

    /// The same as something to wait for with a deadline, or to `.await`. `name` is for the error
    /// of a wait that is late.
    pub fn pending(&self, name: &'static str) -> Pending<()> {
        let (pending, resolve) = Pending::new(name);
        self.0.notify_when_ready(Box::new(resolve));
        pending
    }
}

impl fmt::Debug for DeviceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DeviceEvent({})",
            if self.is_ready() { "ready" } else { "pending" }
        )
    }
}

/// A compiled program of any backend, ready to launch.
pub struct Loaded {
    executable: Box<dyn AnyExecutable>,
    function: Arc<Function>,
    largest: Vec<LargeBuffer>,
    metrics: Arc<Metrics>,
}

impl Loaded {
    /// Types of arguments and results, as one device sees them.
    pub fn signature(&self) -> &Signature {
        self.executable.signature()
    }

    /// The devices it runs on, in the order of launches.
    pub fn devices(&self) -> &[DeviceId] {
        self.executable.devices()
    }

    /// Queues one run. Arguments are `[device][input]`.
    ///
    /// # Errors
    /// If an argument is of another type, device or backend than the program wants.
    #[track_caller]
    pub fn launch(&self, launch: Launch<'_, DeviceBuffer>) -> Result<Launched<DeviceBuffer>> {
        let Loaded {
            executable,
            function,
            metrics,
            ..
        } = self;
        let _span = tracing::trace_span!("launch", program = %function.name).entered();
        let started = Instant::now();
        let launched = match executable.launch(launch, metrics) {
            Ok(launched) => launched,
            Err(error) => return Err(explain_memory(error, &function.name, &self.largest)),
        };
        let number = metrics.counters.launches.fetch_add(1, Relaxed);
        let before = function.launched();
        let now = Instant::now();
        metrics.timer(Metric::Launch).add_at(now, now - started);
        if metrics.clock().is_due(now) {
            let outputs = &launched.outputs;
            metrics.time_launch(
                function,
                &TimedLaunch {
                    number,
                    started,
                    queued: now,
                    outputs,
                },
            );
        }
        if metrics.settings().watches_launches() {
            self.watch(before, Location::caller(), now - started, &launched)?;
        }
        Ok(launched)
    }

    /// Says what is launched, or waits for it, if the settings want it.
    #[cold]
    fn watch(
        &self,
        before: u64,
        at: &Location<'_>,
        queued: Duration,
        launched: &Launched<DeviceBuffer>,
    ) -> Result<()> {
        let settings = self.metrics.settings();
        settings.launched(&self.function, before, at, self.signature(), queued);
        if settings.sync {
            launched
                .outputs
                .iter()
                .flatten()
                .try_for_each(|output| output.ready()?.wait())?;
        }
        Ok(())
    }

    /// Bytes for [`Client::load`].
    ///
    /// # Errors
    /// Where the driver cannot.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        self.executable.serialize()
    }

    /// Memory the program needs on each device, as the compiler planned it.
    ///
    /// # Errors
    /// Where the driver does not say.
    pub fn memory(&self) -> Result<ProgramMemory> {
        self.executable.memory()
    }

    /// The program as the compiler made it: the name of its form, such as `hlo_with_config`, and
    /// its bytes.
    ///
    /// # Errors
    /// Where the driver does not give it.
    pub fn optimized(&self) -> Result<(String, Vec<u8>)> {
        self.executable.optimized()
    }

    /// The compiler's own estimates, as (name, value).
    ///
    /// # Errors
    /// Where the driver does not say.
    pub fn cost(&self) -> Result<Vec<(String, f64)>> {
        self.executable.cost()
    }

    /// Which part of each result the devices have, as the compiler laid them. `None` is what the
    /// driver cannot say of one.
    ///
    /// # Errors
    /// Where the driver does not say.
    pub fn output_tilings(&self) -> Result<Vec<Option<Tiling>>> {
        self.executable.output_tilings()
    }

    /// That the compiler laid each result as asked for: its name, its type as a whole, and how it
    /// is to lie. What the driver cannot say is taken to be right.
    ///
    /// # Errors
    /// Which result lies otherwise, and how.
    pub fn check_outputs<'a>(
        &self,
        wanted: impl IntoIterator<Item = (&'a str, &'a TensorType, &'a Arc<Sharding>)>,
    ) -> Result<()> {
        let given = match self.output_tilings() {
            Ok(given) => given,
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
            Err(error) => return Err(error),
        };
        for (i, ((name, ty, sharding), given)) in wanted.into_iter().zip(given).enumerate() {
            let wanted = sharding.tiling(ty.rank());
            if let Some(given) = given.filter(|given| *given != wanted) {
                let name = if name.is_empty() {
                    String::new()
                } else {
                    format!(" (`{name}`)")
                };
                let message = format!(
                    "output {i}{name}, {ty}: asked for {sharding}, which is {wanted}; the compiler laid it {given}. Please report it"
                );
                return Err(Error::new(ErrorKind::Internal, "check outputs", message));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signature = self.signature();
        write!(
            f,
            "Loaded({} inputs, {} outputs, {} devices)",
            signature.inputs.len(),
            signature.outputs.len(),
            self.devices().len()
        )
    }
}
