//! What a client did: since it was created, or between two moments.

use std::{panic::Location, sync::Arc, time::Duration};

use halite_core::{ProgramMemory, Reason, Stages};

use crate::CounterSnapshot;

/// Record of one compilation.
#[derive(Clone, Debug)]
pub struct CompileRecord {
    /// Number of the record among those of the client, from 0.
    pub number: u64,
    /// Whether the program was loaded from the [cache](halite_core::Client::with_program_cache)
    /// instead of being compiled.
    pub cached: bool,
    /// The name of the function or program.
    pub function: Arc<str>,
    /// The line that made the function.
    pub origin: Option<&'static Location<'static>>,
    /// The line that called it.
    pub called_at: Option<&'static Location<'static>>,
    /// What differed from earlier compilations.
    pub reason: Reason,
    /// Number of arguments.
    pub inputs: usize,
    /// Number of results.
    pub outputs: usize,
    /// Times of the stages.
    pub stages: Stages,
    /// Its memory on each device, where the driver reports it.
    pub memory: Option<ProgramMemory>,
    /// When it was done, since the client was created.
    pub at: Duration,
}

/// Activity of a function, over all programs compiled from it.
#[derive(Clone, Debug)]
pub struct FunctionActivity {
    /// Its name.
    pub name: Arc<str>,
    /// The line that made it.
    pub origin: Option<&'static Location<'static>>,
    /// Number of compilations, those from the program cache included.
    pub compiles: u64,
    /// Number of launches.
    pub launches: u64,
    /// Devices of a launch.
    pub devices: u64,
    /// Number of launches that were timed on the device.
    pub timed: u64,
    /// Sum of those times.
    pub executed: Duration,
}

impl FunctionActivity {
    /// Mean time of a launch on the device, where any was timed.
    pub fn execute_mean(&self) -> Option<Duration> {
        self.executed
            .checked_div(u32::try_from(self.timed).unwrap_or(u32::MAX))
    }
}

/// Transfers that one line of the user's code made.
#[derive(Clone, Debug)]
pub struct SiteActivity {
    /// The line.
    pub location: &'static Location<'static>,
    /// Number of transfers.
    pub count: u64,
    /// Sum of their bytes.
    pub bytes: u64,
    /// Sum of the times that the host spent on them.
    pub took: Duration,
}

/// Activity of a source of batches.
#[derive(Clone, Debug, PartialEq)]
pub struct InputActivity {
    /// Name of the dataset.
    pub dataset: String,
    /// Number of threads that read it.
    pub workers: usize,
    /// Number of batches consumed.
    pub batches: u64,
    /// Time waited for batches, without the first of each pass.
    pub waited: Duration,
    /// Time waited for the first batches of all passes.
    pub waited_first: Duration,
}

/// What a client did over some time.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// The length of that time.
    pub time: Duration,
    /// Counters that every client has.
    pub counters: CounterSnapshot,
    /// Custom counters: see [`Metrics::counter`](crate::Metrics::counter).
    pub counted: Vec<(Arc<str>, u64)>,
    /// Number of steps: see [`Metrics::step`](crate::Metrics::step).
    pub steps: u64,
    /// Functions that were compiled or launched.
    pub functions: Vec<FunctionActivity>,
    /// Compilations, oldest first; at most the newest 1024.
    pub compiles: Vec<CompileRecord>,
    /// Number of compilations that the client ever recorded.
    pub recorded: u64,
    /// Blocking reads by line.
    pub reads: Vec<SiteActivity>,
    /// Uploads by line, without batches of a loader and what a trainer uploads by itself.
    pub uploads: Vec<SiteActivity>,
    /// Sources of batches.
    pub inputs: Vec<InputActivity>,
}

impl Activity {
    /// Activity since `earlier`, a snapshot of the same client.
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

    /// The function of this name, created at the line `origin`.
    pub fn function(
        &self,
        name: &str,
        origin: Option<&'static Location<'static>>,
    ) -> Option<&FunctionActivity> {
        let mut functions = self.functions.iter();
        functions.find(|function| *function.name == *name && function.origin == origin)
    }

    /// Number of steps, or the launches of the most launched function where no step was counted.
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

    /// Time on the device of all launches, extrapolated from those that were timed; `None` where
    /// none was.
    pub fn device_busy(&self) -> Option<Duration> {
        let known = self
            .functions
            .iter()
            .filter_map(|f| f.execute_mean().map(|mean| mean.mul_f64(f.launches as f64)));
        known.reduce(|sum, time| sum + time)
    }
}
