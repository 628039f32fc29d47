//! Metrics of a client: how often, how long, and why.
//!
//! Metrics are always counted, so they are cheap: a launch adds to five atomic counters and takes
//! no lock. Rare work (a compile, a blocking read, an upload) is also recorded with the line of the
//! user's code.

mod sites;

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

use halite_core::{Compilation, ExecutableSource, Program, Stages};

pub(crate) use self::sites::Sites;
use crate::{
    Activity, CompileRecord, Counters, InputActivity, TelemetryOptions, Timer, Verbosity, console,
    device_clock::DeviceClock, dump, function::Function, metrics_file::MetricsFile,
    text::program_digest,
};

/// Metrics that a client times.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Metric {
    /// Tracing a function and printing it as StableHLO.
    Trace,
    /// Compiling.
    Compile,
    /// Looking up a program in the cache and loading it.
    Load,
    /// Queueing a launch, on the host.
    Launch,
    /// Running, on the first device of the launch. Launches shorter than 200 µs are sampled every
    /// 10 ms; all are timed with [`Verbosity::Launches`].
    Execute,
    /// Queueing a copy to a device, on the host.
    Upload,
    /// Waiting in a blocking read.
    Read,
    /// Copying to the host without waiting, from queueing to arrival.
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

    /// The name in reports.
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

/// Metrics of one client: see [`ClientMetrics::metrics`](crate::ClientMetrics::metrics).
///
/// When the client, its programs and its buffers are dropped, it prints and writes what its
/// [`TelemetryOptions`] request at the end.
pub struct Metrics {
    started: Instant,
    pub(crate) counters: Counters,
    /// By [`Metric`].
    timers: [Timer; Metric::ALL.len()],
    custom_timers: Mutex<Vec<(Arc<str>, Arc<Timer>)>>,
    custom_counters: Mutex<Vec<(Arc<str>, Arc<AtomicU64>)>>,
    steps: AtomicU64,
    functions: Mutex<Vec<Arc<Function>>>,
    compiles: Mutex<VecDeque<CompileRecord>>,
    recorded: AtomicU64,
    pub(crate) reads: Sites,
    pub(crate) uploads: Sites,
    inputs: Mutex<Vec<Arc<InputSource>>>,
    pub(crate) clock: DeviceClock,
    options: TelemetryOptions,
    file: Option<MetricsFile>,
    /// Activity at the last [`Metrics::clear`].
    cleared: Mutex<Option<Activity>>,
}

impl Metrics {
    /// Number of compile records that are kept: the newest.
    const COMPILES: usize = 1024;

    /// Metrics of a client that was just created.
    pub(crate) fn new(options: TelemetryOptions) -> Self {
        let started = Instant::now();
        Metrics {
            started,
            counters: Counters::default(),
            timers: Metric::ALL.map(|_| Timer::since(started)),
            custom_timers: Mutex::default(),
            custom_counters: Mutex::default(),
            steps: AtomicU64::new(0),
            functions: Mutex::default(),
            compiles: Mutex::default(),
            recorded: AtomicU64::new(0),
            reads: Sites::default(),
            uploads: Sites::default(),
            inputs: Mutex::default(),
            clock: DeviceClock::new(options.verbosity >= Verbosity::Launches),
            file: options.metrics_file.clone().map(MetricsFile::new),
            options,
            cleared: Mutex::default(),
        }
    }

    /// The options that it was created with.
    pub fn options(&self) -> &TelemetryOptions {
        &self.options
    }

    /// Counts since the client was created; [`clear`](Self::clear) does not reset them.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The timer of a metric.
    pub fn timer(&self, metric: Metric) -> &Timer {
        &self.timers[metric as usize]
    }

    /// A custom timer, which reports include. Created on first use.
    pub fn named_timer(&self, name: &str) -> Arc<Timer> {
        get_or_insert(&self.custom_timers, name, || Timer::since(self.started))
    }

    /// A custom counter, which reports include. Created on first use.
    pub fn counter(&self, name: &str) -> Arc<AtomicU64> {
        get_or_insert(&self.custom_counters, name, AtomicU64::default)
    }

    /// Counts a step, for loops that do not launch their most frequent program once per step. Adds
    /// a line to the [metrics file](TelemetryOptions::metrics_file), at most one per second.
    pub fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
        if let Some(file) = &self.file
            && file.is_due(self.started.elapsed())
        {
            file.append(&self.json_line());
        }
    }

    /// The number of [steps](Self::step) so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }

    /// Activity since the client was created, or since [`clear`](Self::clear).
    pub fn activity(&self) -> Activity {
        let all = self.total_activity();
        match &*lock(&self.cleared) {
            Some(cleared) => all.since(cleared),
            None => all,
        }
    }

    /// Resets timers and activity, between epochs or after a warmup. [`Counters`] are not reset.
    pub fn clear(&self) {
        *lock(&self.cleared) = Some(self.total_activity());
        self.timers.iter().for_each(Timer::clear);
        lock(&self.custom_timers)
            .iter()
            .for_each(|(_, timer)| timer.clear());
    }

    /// The source of batches of `dataset` that `workers` threads read. Created on first use.
    pub fn input(&self, dataset: &str, workers: usize) -> Arc<InputSource> {
        let mut inputs = lock(&self.inputs);
        let known =
            |input: &&Arc<InputSource>| &*input.dataset == dataset && input.workers == workers;
        if let Some(known) = inputs.iter().find(known) {
            return known.clone();
        }
        let input = Arc::new(InputSource {
            dataset: dataset.into(),
            workers,
            ..InputSource::default()
        });
        inputs.push(input.clone());
        input
    }

    /// Records the wait for one batch of `input`. `of` is the time since the batch before, the wait
    /// included; `None` for the first batch of a pass, for which the wait cannot be avoided.
    pub fn input_waited(&self, input: &InputSource, waited: Duration, of: Option<Duration>) {
        self.timer(Metric::InputWait).add(waited);
        let add = |sum: &AtomicU64, time: Duration| sum.fetch_add(time.as_nanos() as u64, Relaxed);
        input.batches.fetch_add(1, Relaxed);
        match of {
            None => {
                add(&input.waited_first_nanos, waited);
            }
            Some(of) => {
                add(&input.waited_nanos, waited);
                add(&input.of_nanos, of);
            }
        }
    }

    /// Names and timers of [`named_timer`](Self::named_timer).
    pub(crate) fn custom_timers(&self) -> Vec<(Arc<str>, Arc<Timer>)> {
        lock(&self.custom_timers).clone()
    }

    /// Activity since the client was created.
    fn total_activity(&self) -> Activity {
        Activity {
            time: self.started.elapsed(),
            counters: self.counters.snapshot(),
            counted: lock(&self.custom_counters)
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
            reads: self.reads.activity(),
            uploads: self.uploads.activity(),
            inputs: lock(&self.inputs)
                .iter()
                .map(|input| input.activity())
                .collect(),
        }
    }

    /// The function of this name and origin. Created on first use.
    pub(crate) fn function(
        &self,
        name: &Arc<str>,
        origin: Option<&'static Location<'static>>,
    ) -> Arc<Function> {
        let mut functions = lock(&self.functions);
        let known = |function: &&Arc<Function>| function.name == *name && function.origin == origin;
        if let Some(known) = functions.iter().find(known) {
            return known.clone();
        }
        let function = Arc::new(Function::new(name.clone(), origin));
        functions.push(function.clone());
        function
    }

    /// Records a compilation, prints and dumps it.
    pub(crate) fn record(
        &self,
        function: &Function,
        program: &Program,
        compilation: &Compilation<'_>,
    ) {
        let Compilation {
            loaded,
            cause,
            source,
            duration,
            ..
        } = compilation;
        let cached = matches!(source, ExecutableSource::CacheHit { .. });
        function.compiles.fetch_add(1, Relaxed);
        let metric = if cached {
            Metric::Load
        } else {
            Metric::Compile
        };
        self.timer(metric).add(*duration);
        if !cause.stages.total().is_zero() {
            self.timer(Metric::Trace).add(cause.stages.total());
        }
        let record = CompileRecord {
            number: self.recorded.fetch_add(1, Relaxed),
            cached,
            function: function.name.clone(),
            digest: program_digest(&program.code)[..16].into(),
            origin: function.origin,
            called_at: cause.called_at,
            reason: cause.reason.clone(),
            inputs: program.signature.inputs.len(),
            outputs: program.signature.outputs.len(),
            stages: Stages {
                compile: *duration,
                ..cause.stages
            },
            memory: loaded.memory().ok(),
            interpreted: loaded.interpreted(),
            at: self.started.elapsed(),
        };
        if self.options.verbosity >= Verbosity::Compiles {
            console::print_compile(&record);
        }
        if let Some(dir) = &self.options.dump_dir
            && let Err(error) =
                dump::write_program(dir, &record, program, cause.graph.as_deref(), loaded)
        {
            halite_core::warning!(
                "`{}` cannot be written to {}: {error}",
                program.name,
                dir.display()
            );
        }
        let mut compiles = lock(&self.compiles);
        if compiles.len() == Self::COMPILES {
            compiles.pop_front();
        }
        compiles.push_back(record);
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        let counted = self.counters.snapshot();
        if counted.compiles + counted.launches == 0 {
            return;
        }
        if let Some(file) = &self.file {
            file.append(&self.json_line());
        }
        if self.options.verbosity >= Verbosity::Launches {
            console::print_metrics(&self.report());
        }
        if self.options.verbosity >= Verbosity::Compiles {
            console::print_findings(&self.activity().findings());
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// A source of batches: a dataset and its reader threads.
#[derive(Debug, Default)]
pub struct InputSource {
    dataset: String,
    workers: usize,
    batches: AtomicU64,
    waited_nanos: AtomicU64,
    waited_first_nanos: AtomicU64,
    of_nanos: AtomicU64,
}

impl InputSource {
    fn activity(&self) -> InputActivity {
        InputActivity {
            dataset: self.dataset.clone(),
            workers: self.workers,
            batches: self.batches.load(Relaxed),
            waited: Duration::from_nanos(self.waited_nanos.load(Relaxed)),
            waited_first: Duration::from_nanos(self.waited_first_nanos.load(Relaxed)),
            of: Duration::from_nanos(self.of_nanos.load(Relaxed)),
        }
    }
}

fn get_or_insert<T>(
    all: &Mutex<Vec<(Arc<str>, Arc<T>)>>,
    name: &str,
    make: impl FnOnce() -> T,
) -> Arc<T> {
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
