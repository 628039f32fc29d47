//! What a client did: all of it, or what is between two moments.

use std::{fmt, panic::Location, sync::Arc, time::Duration};

use crate::{CounterSnapshot, ProgramMemory, Sharding, TensorType};

/// How long it took to make a program runnable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stages {
    /// Running the function to record it.
    pub trace: Duration,
    /// Simplifying the graph and writing it as StableHLO.
    pub print: Duration,
    /// Compiling it for the devices, or taking it out of the client's cache of programs.
    pub compile: Duration,
}

impl Stages {
    /// All of it.
    pub fn total(&self) -> Duration {
        self.trace + self.print + self.compile
    }
}

/// Why something is compiled, said by who asks for it.
#[derive(Clone, Debug, Default)]
pub struct CompileCause {
    /// The line that made the function.
    pub origin: Option<&'static Location<'static>>,
    /// The line that called it.
    pub called_at: Option<&'static Location<'static>>,
    /// What is new.
    pub reason: Reason,
    /// How long it took until there was a program to compile.
    pub stages: Stages,
    /// The graph that the program is made from, as text; only wanted if
    /// [`Client::dumps`](crate::Client::dumps).
    pub graph: Option<String>,
    /// The largest tensors, largest first, for the error when memory does not suffice.
    pub largest: Vec<LargeBuffer>,
}

/// One of a program's largest tensors.
#[derive(Clone, Debug)]
pub struct LargeBuffer {
    /// The path of an input, or the operation that makes it.
    pub what: String,
    /// Its type, as one device sees it where that is known.
    pub ty: TensorType,
    /// The line that it comes from.
    pub line: Option<&'static Location<'static>>,
}

/// What is new about what is compiled.
#[derive(Clone, Debug, Default)]
pub enum Reason {
    /// [`Client::compile`](crate::Client::compile) was called.
    #[default]
    Asked,
    /// The function was not compiled before.
    First,
    /// It is called with arrays of other types or layouts than before.
    InputChanged(Vec<InputChange>),
    /// It is called with trees whose leaves are arranged otherwise, so many before and so many now.
    Arranged {
        /// Arrays before.
        from: usize,
        /// Arrays now.
        to: usize,
    },
}

/// An input of a function that is not what it was.
#[derive(Clone, Debug)]
pub struct InputChange {
    /// Where it is in the tree of inputs; empty for the only one.
    pub path: String,
    /// What it was.
    pub from: (TensorType, Arc<Sharding>),
    /// What it is.
    pub to: (TensorType, Arc<Sharding>),
}

impl InputChange {
    /// The input, in words.
    pub(crate) fn what(&self) -> String {
        if self.path.is_empty() {
            "the input".to_string()
        } else {
            format!("`{}`", self.path)
        }
    }

    /// What it was and what it is, in words: with the layouts, if they are what changed.
    pub(crate) fn both(&self) -> (String, String) {
        let words = |(ty, sharding): &(TensorType, Arc<Sharding>)| match sharding.mesh().size() {
            1 => ty.to_string(),
            _ => format!("{ty} by {sharding}"),
        };
        if self.from.0 == self.to.0 && words(&self.from) == words(&self.to) {
            let devices = |(ty, sharding): &(TensorType, Arc<Sharding>)| {
                format!(
                    "{ty} on devices {:?}",
                    sharding
                        .mesh()
                        .devices()
                        .iter()
                        .map(|device| device.0)
                        .collect::<Vec<_>>()
                )
            };
            return (devices(&self.from), devices(&self.to));
        }
        (words(&self.from), words(&self.to))
    }
}

impl fmt::Display for InputChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.both();
        write!(f, "{} was {from}, is {to}", self.what())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Asked => write!(f, "asked for"),
            Reason::First => write!(f, "first call"),
            Reason::InputChanged(changes) => {
                let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
                f.write_str(&changes.join("; "))
            }
            Reason::Arranged { from, to } if from != to => write!(f, "{to} arrays, not {from}"),
            Reason::Arranged { .. } => write!(f, "its arrays are arranged otherwise"),
        }
    }
}

/// One compile: of what, why, how long, how big.
#[derive(Clone, Debug)]
pub struct CompileRecord {
    /// Counts the records of the client, from 0.
    pub number: u64,
    /// Whether the program was in the [cache](crate::Client::with_program_cache), and so not
    /// compiled.
    pub cached: bool,
    /// The name of the function or program.
    pub function: Arc<str>,
    /// The line that made the function.
    pub origin: Option<&'static Location<'static>>,
    /// The line that called it.
    pub called_at: Option<&'static Location<'static>>,
    /// What was new.
    pub reason: Reason,
    /// How many arguments the program takes.
    pub inputs: usize,
    /// How many results it gives.
    pub outputs: usize,
    /// How long it took.
    pub stages: Stages,
    /// Its sizes on each device, where the plugin says them.
    pub memory: Option<ProgramMemory>,
    /// When it was done, since the client was made.
    pub at: Duration,
}

/// What became of a function, over all programs made from it.
#[derive(Clone, Debug)]
pub struct FunctionActivity {
    /// Its name.
    pub name: Arc<str>,
    /// The line that made it.
    pub origin: Option<&'static Location<'static>>,
    /// Times it was compiled, or taken out of the cache of programs.
    pub compiles: u64,
    /// Times it was launched.
    pub launches: u64,
    /// Devices of a launch.
    pub devices: u64,
    /// Launches whose time on the device is known.
    pub timed: u64,
    /// The sum of those times.
    pub executed: Duration,
}

impl FunctionActivity {
    /// The mean time of a launch on the device, where it is known.
    pub fn execute_mean(&self) -> Option<Duration> {
        self.executed
            .checked_div(u32::try_from(self.timed).unwrap_or(u32::MAX))
    }
}

/// What one line of the user's code asked for.
#[derive(Clone, Debug)]
pub struct SiteActivity {
    /// The line.
    pub location: &'static Location<'static>,
    /// How often.
    pub count: u64,
    /// How many bytes, together.
    pub bytes: u64,
    /// How long the host was busy with it, together.
    pub took: Duration,
}

/// What a source of batches gave.
#[derive(Clone, Debug, PartialEq)]
pub struct InputActivity {
    /// The data.
    pub dataset: String,
    /// Threads that read it.
    pub workers: usize,
    /// Batches taken.
    pub batches: u64,
    /// How long they were waited for, without the first of each pass.
    pub waited: Duration,
    /// How long the first batches of all passes were waited for.
    pub waited_first: Duration,
}

/// What a client did, over some time.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// How long.
    pub time: Duration,
    /// What is counted.
    pub counters: CounterSnapshot,
    /// What else is counted, by [`Metrics::counter`](crate::Metrics::counter).
    pub counted: Vec<(Arc<str>, u64)>,
    /// Steps, where they are [told](crate::Metrics::step).
    pub steps: u64,
    /// What was compiled and launched.
    pub functions: Vec<FunctionActivity>,
    /// The compiles, oldest first; the newest 1024 of them.
    pub compiles: Vec<CompileRecord>,
    /// How many compiles were ever recorded by the client.
    pub recorded: u64,
    /// Lines that read arrays and waited for it.
    pub reads: Vec<SiteActivity>,
    /// Lines that uploaded.
    pub uploads: Vec<SiteActivity>,
    /// Where batches came from.
    pub inputs: Vec<InputActivity>,
}

impl Activity {
    /// What happened after `earlier`, which is of the same client.
    pub fn since(&self, earlier: &Activity) -> Activity {
        let less = |now: Duration, before: Option<Duration>| {
            now.saturating_sub(before.unwrap_or_default())
        };
        let sites = |now: &[SiteActivity], then: &[SiteActivity]| {
            let site = |site: &SiteActivity| {
                let before = then.iter().find(|before| before.location == site.location);
                SiteActivity {
                    location: site.location,
                    count: site
                        .count
                        .saturating_sub(before.map_or(0, |before| before.count)),
                    bytes: site
                        .bytes
                        .saturating_sub(before.map_or(0, |before| before.bytes)),
                    took: less(site.took, before.map(|before| before.took)),
                }
            };
            now.iter().map(site).filter(|site| site.count > 0).collect()
        };
        let function = |function: &FunctionActivity| {
            let same = |before: &&FunctionActivity| {
                before.name == function.name && before.origin == function.origin
            };
            let before = earlier.functions.iter().find(same);
            FunctionActivity {
                compiles: function
                    .compiles
                    .saturating_sub(before.map_or(0, |before| before.compiles)),
                launches: function
                    .launches
                    .saturating_sub(before.map_or(0, |before| before.launches)),
                timed: function
                    .timed
                    .saturating_sub(before.map_or(0, |before| before.timed)),
                executed: less(function.executed, before.map(|before| before.executed)),
                ..function.clone()
            }
        };
        let input = |input: &InputActivity| {
            let same = |before: &&InputActivity| {
                before.dataset == input.dataset && before.workers == input.workers
            };
            let before = earlier.inputs.iter().find(same);
            InputActivity {
                batches: input
                    .batches
                    .saturating_sub(before.map_or(0, |before| before.batches)),
                waited: less(input.waited, before.map(|before| before.waited)),
                waited_first: less(input.waited_first, before.map(|before| before.waited_first)),
                ..input.clone()
            }
        };
        let counted = |(name, count): &(Arc<str>, u64)| {
            let before = earlier.counted.iter().find(|(known, _)| known == name);
            (
                name.clone(),
                count.saturating_sub(before.map_or(0, |(_, count)| *count)),
            )
        };
        Activity {
            time: self.time.saturating_sub(earlier.time),
            counters: self.counters.since(&earlier.counters),
            counted: self.counted.iter().map(counted).collect(),
            steps: self.steps.saturating_sub(earlier.steps),
            functions: self
                .functions
                .iter()
                .map(function)
                .filter(|f| f.compiles + f.launches > 0)
                .collect(),
            compiles: self
                .compiles
                .iter()
                .filter(|record| record.number >= earlier.recorded)
                .cloned()
                .collect(),
            recorded: self.recorded,
            reads: sites(&self.reads, &earlier.reads),
            uploads: sites(&self.uploads, &earlier.uploads),
            inputs: self
                .inputs
                .iter()
                .map(input)
                .filter(|input| input.batches > 0)
                .collect(),
        }
    }

    /// Steps: as told, else launches of what was launched most.
    pub fn step_count(&self) -> u64 {
        if self.steps > 0 {
            self.steps
        } else {
            self.functions
                .iter()
                .map(|function| function.launches)
                .max()
                .unwrap_or(0)
        }
    }

    /// Time on the device of all launches, from the mean of those that were timed; `None` where
    /// none was.
    pub fn device_busy(&self) -> Option<Duration> {
        let known = self
            .functions
            .iter()
            .filter_map(|f| f.execute_mean().map(|mean| mean.mul_f64(f.launches as f64)));
        known.reduce(|sum, time| sum + time)
    }
}
