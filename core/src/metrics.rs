//! What a client measures of itself: how often, how long, and why.
//!
//! Everything here is counted all the time, so it is cheap: a launch takes two looks at the clock
//! and no lock. What is rare anyway (a compile, a blocking read, an upload) also remembers the line
//! of the user's code that asked for it.

use std::{
    collections::VecDeque,
    fmt,
    panic::Location,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{
    CompileCause, Counters, Program, Stages,
    debug::Settings,
    erased::AnyExecutable,
    metrics::{
        activity::{Activity, CompileRecord, FunctionActivity, InputActivity, SiteActivity},
        device_clock::DeviceClock,
        timer::Timer,
    },
};

pub(crate) mod activity;
pub(crate) mod device_clock;
pub(crate) mod findings;
pub(crate) mod report;
pub(crate) mod timer;

/// What every client times.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Metric {
    /// Recording a function and writing it as StableHLO.
    Trace,
    /// Compiling.
    Compile,
    /// Looking for a program in the cache, and loading it.
    Load,
    /// Queueing a run, on the host.
    Launch,
    /// Running, on the first device of the launch. Of launches that take less than 200 µs a sample,
    /// every 10 ms; of all at `HALITE_DEBUG=2`.
    Execute,
    /// Queueing a copy to a device, on the host.
    Upload,
    /// Waiting in a blocking read.
    Read,
    /// From queueing a copy to the host until it is there; nobody waits meanwhile.
    Fetch,
    /// Waiting for the next batch.
    InputWait,
}

impl Metric {
    /// All of them, in the order of a report.
    pub const ALL: [Metric; 9] = [
        Metric::Trace,
        Metric::Compile,
        Metric::Load,
        Metric::Launch,
        Metric::Execute,
        Metric::Upload,
        Metric::Read,
        Metric::Fetch,
        Metric::InputWait,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Trace => "TraceTime",
            Metric::Compile => "CompileTime",
            Metric::Load => "CacheLoadTime",
            Metric::Launch => "LaunchTime",
            Metric::Execute => "ExecuteTime",
            Metric::Upload => "TransferToDevice",
            Metric::Read => "TransferFromDevice",
            Metric::Fetch => "FetchTime",
            Metric::InputWait => "InputWait",
        }
    }
}

/// What a client measures of itself. Get it from [`Client::metrics`](crate::Client::metrics).
///
/// ```
/// use halite_core::{Array, Client, HostArray, Metric, Null, Sharding};
///
/// # fn main() -> halite_core::Result<()> {
/// let client = Client::new(Null::new(1));
/// let device = Sharding::single(client.local_devices()[0]);
/// for _ in 0..3 {
///     Array::upload(&client, &HostArray::scalar(1.0f32), &device)?.read()?;
/// }
/// assert_eq!(client.metrics().timer(Metric::Read).timing().count, 3);
/// let activity = client.metrics().activity();
/// assert_eq!(activity.reads[0].count, 3);
/// assert!(activity.reads[0].location.file().ends_with(".rs")); // this file, at the line of `read`
/// println!("{}", client.metrics().report());
/// # Ok(())
/// # }
/// ```
pub struct Metrics {
    started: Instant,
    pub(crate) counters: Counters,
    timers: [Timer; Metric::ALL.len()],
    named: Mutex<Vec<(Arc<str>, Arc<Timer>)>>,
    counted: Mutex<Vec<(Arc<str>, Arc<AtomicU64>)>>,
    steps: AtomicU64,
    /// The second in which a line was last added to the file of metrics.
    appended: AtomicU64,
    functions: Mutex<Vec<Arc<Function>>>,
    compiles: Mutex<VecDeque<CompileRecord>>,
    recorded: AtomicU64,
    reads: Sites,
    uploads: Sites,
    inputs: Mutex<Vec<Arc<Input>>>,
    clock: DeviceClock,
    settings: Settings,
    /// What had happened at the last [`clear`](Metrics::clear).
    cleared: Mutex<Option<Activity>>,
}

impl Metrics {
    /// Compiles that are remembered; the newest of them.
    const COMPILES: usize = 1024;

    pub(crate) fn new(settings: Settings) -> Self {
        let started = Instant::now();
        Metrics {
            started,
            counters: Counters::default(),
            timers: Metric::ALL.map(|_| Timer::since(started)),
            named: Mutex::default(),
            counted: Mutex::default(),
            steps: AtomicU64::new(0),
            appended: AtomicU64::new(u64::MAX),
            functions: Mutex::default(),
            compiles: Mutex::default(),
            recorded: AtomicU64::new(0),
            reads: Sites::default(),
            uploads: Sites::default(),
            inputs: Mutex::default(),
            clock: DeviceClock::new(settings.level >= 2),
            settings,
            cleared: Mutex::default(),
        }
    }

    /// What every client times.
    pub fn timer(&self, metric: Metric) -> &Timer {
        &self.timers[metric as usize]
    }

    /// A timer of your own, which then is in the reports; made when it is first asked for.
    pub fn named_timer(&self, name: &str) -> Arc<Timer> {
        named(&self.named, name, || Timer::since(self.started))
    }

    /// A counter of your own, which then is in the reports; made when it is first asked for.
    pub fn counter(&self, name: &str) -> Arc<AtomicU64> {
        named(&self.counted, name, AtomicU64::default)
    }

    /// Says that a step is done, for loops whose most launched program is not launched once a step.
    /// With `HALITE_METRICS_FILE` it adds a line to that file, at most one a second.
    pub fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
        if self.settings.metrics_file.is_some() {
            let now = self.started.elapsed().as_secs();
            if self.appended.swap(now, Relaxed) != now {
                self.settings.append(self);
            }
        }
    }

    /// What happened since the client was made, or since [`clear`](Self::clear).
    pub fn activity(&self) -> Activity {
        let all = self.everything();
        match &*lock(&self.cleared) {
            Some(cleared) => all.since(cleared),
            None => all,
        }
    }

    /// Forgets what happened until now: between epochs, or after warming up. [`Counters`] go on.
    pub fn clear(&self) {
        *lock(&self.cleared) = Some(self.everything());
        self.timers.iter().for_each(Timer::clear);
        lock(&self.named)
            .iter()
            .for_each(|(_, timer)| timer.clear());
    }

    /// Where the batches of `dataset` come from, read by so many `workers`; made when it is first
    /// asked for.
    pub fn input(&self, dataset: &str, workers: usize) -> Arc<Input> {
        let mut inputs = lock(&self.inputs);
        if let Some(known) = inputs
            .iter()
            .find(|input| &*input.dataset == dataset && input.workers == workers)
        {
            return known.clone();
        }
        inputs.push(Arc::new(Input {
            dataset: dataset.into(),
            workers,
            ..Input::default()
        }));
        inputs[inputs.len() - 1].clone()
    }

    /// One batch of `input` was waited for; the `first` of a pass always is.
    pub fn input_waited(&self, input: &Input, waited: Duration, first: bool) {
        self.timer(Metric::InputWait).add(waited);
        let nanos = waited.as_nanos() as u64;
        input.batches.fetch_add(1, Relaxed);
        (if first { &input.first } else { &input.waited }).fetch_add(nanos, Relaxed);
    }

    /// What happened since the client was made.
    fn everything(&self) -> Activity {
        Activity {
            time: self.started.elapsed(),
            counters: self.counters.snapshot(),
            counted: lock(&self.counted)
                .iter()
                .map(|(name, count)| (name.clone(), count.load(Relaxed)))
                .collect(),
            steps: self.steps.load(Relaxed),
            functions: lock(&self.functions)
                .iter()
                .map(|function| function.activity())
                .collect(),
            compiles: lock(&self.compiles).iter().cloned().collect(),
            recorded: self.recorded.load(Relaxed),
            reads: self.reads.all(),
            uploads: self.uploads.all(),
            inputs: lock(&self.inputs)
                .iter()
                .map(|input| input.activity())
                .collect(),
        }
    }

    /// The function of this name, made at this line.
    pub(crate) fn function(
        &self,
        name: &Arc<str>,
        origin: Option<&'static Location<'static>>,
    ) -> Arc<Function> {
        let mut functions = lock(&self.functions);
        if let Some(known) = functions
            .iter()
            .find(|function| function.name == *name && function.origin == origin)
        {
            return known.clone();
        }
        functions.push(Arc::new(Function::new(name.clone(), origin)));
        functions[functions.len() - 1].clone()
    }

    /// A program was compiled, or taken out of the cache, in this time.
    pub(crate) fn compiled(
        &self,
        function: &Function,
        program: &Program,
        cause: CompileCause,
        took: Duration,
        cached: bool,
        executable: &dyn AnyExecutable,
    ) {
        function.compiles.fetch_add(1, Relaxed);
        self.timer(if cached {
            Metric::Load
        } else {
            Metric::Compile
        })
        .add(took);
        if !cause.stages.total().is_zero() {
            self.timer(Metric::Trace).add(cause.stages.total());
        }
        let record = CompileRecord {
            number: self.recorded.fetch_add(1, Relaxed),
            cached,
            function: function.name.clone(),
            origin: function.origin,
            called_at: cause.called_at,
            reason: cause.reason,
            inputs: program.signature.inputs.len(),
            outputs: program.signature.outputs.len(),
            stages: Stages {
                compile: took,
                ..cause.stages
            },
            memory: executable.memory().ok(),
            at: self.started.elapsed(),
        };
        self.settings
            .compiled(&record, program, cause.graph.as_deref(), executable);
        let mut compiles = lock(&self.compiles);
        if compiles.len() == Self::COMPILES {
            compiles.pop_front();
        }
        compiles.push_back(record);
    }

    /// A blocking read of so many bytes, begun at `started`, is done.
    pub(crate) fn was_read(&self, at: &'static Location<'static>, started: Instant, bytes: usize) {
        let waited = self.timer(Metric::Read).add_since(started);
        self.reads.add(at, waited, bytes);
    }

    /// An upload of so many bytes, begun at `started`, is queued.
    pub(crate) fn was_uploaded(
        &self,
        at: &'static Location<'static>,
        started: Instant,
        bytes: usize,
    ) {
        self.counters.uploaded(bytes);
        let took = self.timer(Metric::Upload).add_since(started);
        self.uploads.add(at, took, bytes);
    }

    pub(crate) fn clock(&self) -> &DeviceClock {
        &self.clock
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.settings.ended(self);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// What is known of a function that was compiled, over all programs made from it.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: Arc<str>,
    pub(crate) origin: Option<&'static Location<'static>>,
    compiles: AtomicU64,
    launches: AtomicU64,
    /// Devices of a launch, as last compiled.
    pub(crate) devices: AtomicU64,
    /// Runs whose time on the device is known, and the sum of it.
    executed: AtomicU64,
    execute_nanos: AtomicU64,
}

impl Function {
    fn new(name: Arc<str>, origin: Option<&'static Location<'static>>) -> Self {
        Function {
            name,
            origin,
            compiles: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            devices: AtomicU64::new(1),
            executed: AtomicU64::new(0),
            execute_nanos: AtomicU64::new(0),
        }
    }

    /// Counts a launch, and returns how many there were before.
    pub(crate) fn launched(&self) -> u64 {
        self.launches.fetch_add(1, Relaxed)
    }

    fn executed(&self, took: Duration) {
        self.executed.fetch_add(1, Relaxed);
        self.execute_nanos
            .fetch_add(took.as_nanos() as u64, Relaxed);
    }

    fn activity(&self) -> FunctionActivity {
        FunctionActivity {
            name: self.name.clone(),
            origin: self.origin,
            compiles: self.compiles.load(Relaxed),
            launches: self.launches.load(Relaxed),
            devices: self.devices.load(Relaxed),
            timed: self.executed.load(Relaxed),
            executed: Duration::from_nanos(self.execute_nanos.load(Relaxed)),
        }
    }
}

/// A source of batches.
#[derive(Debug, Default)]
pub struct Input {
    dataset: String,
    workers: usize,
    batches: AtomicU64,
    waited: AtomicU64,
    first: AtomicU64,
}

impl Input {
    fn activity(&self) -> InputActivity {
        InputActivity {
            dataset: self.dataset.clone(),
            workers: self.workers,
            batches: self.batches.load(Relaxed),
            waited: Duration::from_nanos(self.waited.load(Relaxed)),
            waited_first: Duration::from_nanos(self.first.load(Relaxed)),
        }
    }
}

/// What lines of the user's code asked for.
#[derive(Debug, Default)]
struct Sites(Mutex<Vec<SiteActivity>>);

impl Sites {
    fn add(&self, location: &'static Location<'static>, took: Duration, bytes: usize) {
        let mut sites = lock(&self.0);
        // One line may have several addresses, but mostly it has one.
        let known = |site: &SiteActivity| {
            std::ptr::eq(site.location, location) || site.location == location
        };
        let index = sites.iter().position(known).unwrap_or_else(|| {
            sites.push(SiteActivity {
                location,
                count: 0,
                bytes: 0,
                took: Duration::ZERO,
            });
            sites.len() - 1
        });
        let site = &mut sites[index];
        site.count += 1;
        site.bytes += bytes as u64;
        site.took += took;
    }

    fn all(&self) -> Vec<SiteActivity> {
        lock(&self.0).clone()
    }
}

fn named<T>(all: &Mutex<Vec<(Arc<str>, Arc<T>)>>, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
    let mut all = lock(all);
    if let Some((_, known)) = all.iter().find(|(known, _)| **known == *name) {
        return known.clone();
    }
    let new = Arc::new(make());
    all.push((name.into(), new.clone()));
    new
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
