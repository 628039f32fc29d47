//! Activity of a client: since it was created, or between two moments.

use std::{panic::Location, sync::Arc, time::Duration};

use halite_core::{Interpreted, ProgramMemory, Reason, Stages};

use crate::CounterSnapshot;

/// Record of one compilation.
#[derive(Clone, Debug)]
pub struct CompileRecord {
    /// Number of the record among those of the client, from 0.
    pub number: u64,
    /// True if the program was loaded from the [cache](halite_core::Client::with_program_cache)
    /// instead of being compiled.
    pub cached: bool,
    /// The name of the function or program.
    pub function: Arc<str>,
    /// Digest of the program without its source lines: 16 hexadecimal digits. Equal programs have
    /// equal digests, in every process and on every machine.
    pub digest: Arc<str>,
    /// The line that made the function.
    pub origin: Option<&'static Location<'static>>,
    /// The line that called it.
    pub called_at: Option<&'static Location<'static>>,
    /// Difference from earlier compilations.
    pub reason: Reason,
    /// Number of arguments.
    pub inputs: usize,
    /// Number of results.
    pub outputs: usize,
    /// Times of the stages.
    pub stages: Stages,
    /// Its memory on each device, where the driver reports it.
    pub memory: Option<ProgramMemory>,
    /// Operations that an interpreter computes, because the backend has no kernel for them.
    pub interpreted: Vec<Interpreted>,
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
    /// Operations that an interpreter computes, because the backend has no kernel for them.
    pub interpreted: Vec<InterpretedActivity>,
}

/// Operations of a function that an interpreter computes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InterpretedActivity {
    /// The name and the type: `` `sort` of f8E4M3FN ``.
    pub operation: String,
    /// Their number in the programs of the function.
    pub count: u64,
    /// Time of launches in them.
    pub took: Duration,
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
    /// Time of the passes after their first batch, the waits included: the whole that `waited` is a
    /// part of.
    pub of: Duration,
}

/// Sums that only grow, of one source among several.
trait Growing: Clone {
    /// True if `other` has the sums of the same source.
    fn is_same(&self, other: &Self) -> bool;

    /// Subtracts the sums of an earlier snapshot of the same source.
    fn subtract(&mut self, earlier: &Self);

    /// True if the source was active at all.
    fn is_active(&self) -> bool;
}

/// Activity of each source that was active since the snapshot `earlier`.
fn each_since<T: Growing>(now: &[T], earlier: &[T]) -> Vec<T> {
    let since = |source: &T| {
        let mut since = source.clone();
        if let Some(before) = earlier.iter().find(|before| before.is_same(source)) {
            since.subtract(before);
        }
        since
    };
    now.iter().map(since).filter(T::is_active).collect()
}

/// Subtracts in place.
macro_rules! subtract {
    ($earlier:expr, from $now:expr, $($sum:ident),*) => {
        $($now.$sum = $now.$sum.saturating_sub($earlier.$sum);)*
    };
}

impl Growing for FunctionActivity {
    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.origin == other.origin
    }

    fn subtract(&mut self, earlier: &Self) {
        subtract!(earlier, from self, compiles, launches, timed, executed);
        for now in &mut self.interpreted {
            let is_same = |before: &&InterpretedActivity| before.operation == now.operation;
            if let Some(before) = earlier.interpreted.iter().find(is_same) {
                now.took = now.took.saturating_sub(before.took);
            }
        }
    }

    fn is_active(&self) -> bool {
        self.compiles + self.launches > 0
    }
}

impl Growing for SiteActivity {
    fn is_same(&self, other: &Self) -> bool {
        self.location == other.location
    }

    fn subtract(&mut self, earlier: &Self) {
        subtract!(earlier, from self, count, bytes, took);
    }

    fn is_active(&self) -> bool {
        self.count > 0
    }
}

impl Growing for InputActivity {
    fn is_same(&self, other: &Self) -> bool {
        self.dataset == other.dataset && self.workers == other.workers
    }

    fn subtract(&mut self, earlier: &Self) {
        subtract!(earlier, from self, batches, waited, waited_first, of);
    }

    fn is_active(&self) -> bool {
        self.batches > 0
    }
}

/// Activity of a client over some time.
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
        let counted = |(name, count): &(Arc<str>, u64)| {
            let before = earlier.counted.iter().find(|(known, _)| known == name);
            let before = before.map_or(0, |(_, count)| *count);
            (name.clone(), count.saturating_sub(before))
        };
        let compiles = (self.compiles.iter()).filter(|record| record.number >= earlier.recorded);
        Activity {
            time: self.time.saturating_sub(earlier.time),
            counters: self.counters.since(&earlier.counters),
            counted: self.counted.iter().map(counted).collect(),
            steps: self.steps.saturating_sub(earlier.steps),
            functions: each_since(&self.functions, &earlier.functions),
            compiles: compiles.cloned().collect(),
            recorded: self.recorded,
            reads: each_since(&self.reads, &earlier.reads),
            uploads: each_since(&self.uploads, &earlier.uploads),
            inputs: each_since(&self.inputs, &earlier.inputs),
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
