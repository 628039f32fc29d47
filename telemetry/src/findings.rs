//! Rules that find what makes a program slow in a client's activity. Each finding names the line or
//! the input.

use std::{fmt, panic::Location, time::Duration};

use halite_core::{InputChange, Reason};

use crate::{
    Activity, CompileRecord, FunctionActivity, InputActivity, SiteActivity,
    text::{count, time},
};

/// Something that makes a program slow, with the line or the input that it comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The kind of problem.
    pub kind: FindingKind,
    /// The problem with its numbers, and what would help.
    pub message: String,
}

/// The kinds of [`Finding`], in the order in which they are reported.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FindingKind {
    /// A function is compiled repeatedly.
    CompilesTooFrequent,
    /// The host waits for the device in (nearly) every step.
    ReadPerStep,
    /// The device waits for batches.
    InputStarves,
    /// Every step makes many small uploads.
    ManyUploads,
    /// Steps are so short that the device is idle while the host queues them.
    TinySteps,
    /// Compiling took most of the time.
    CompileShare,
    /// The device computes an operation in an interpreter.
    Interpreted,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Rules about steps need at least this number of steps.
const FEWEST_STEPS: u64 = 8;
/// Expected number of compilations of one function: the first, and one for a smaller last batch.
const USUAL_COMPILES: u64 = 2;
/// Compilations per call that are too many.
const COMPILES_PER_CALL: f64 = 0.05;
/// Blocking reads of one line per step that are too many.
const READS_PER_STEP: f64 = 0.5;
/// Share of the time of the passes over a source that is too much for waiting for batches.
const INPUT_SHARE: f64 = 0.2;
/// Share of the time in which a device runs that does not starve.
const BUSY_SHARE: f64 = 0.9;
/// Uploads per step and device that are too many: a batch has a few arrays.
const UPLOADS_PER_STEP: f64 = 16.0;
/// Mean time of launches on the device that is as short as queueing them.
const TINY: Duration = Duration::from_micros(100);
/// Share of the time in which the device runs tiny launches, below which a larger batch costs
/// little.
const TINY_BUSY_SHARE: f64 = 0.3;
/// Share of the time that is too much for compiling, in runs of at least [`LONG`].
const COMPILE_SHARE: f64 = 0.5;
/// Share of the device time in an interpreter that is too much.
const INTERPRETED_SHARE: f64 = 0.1;
/// Shorter runs are experiments.
const LONG: Duration = Duration::from_secs(60);

impl Activity {
    /// Problems that are worth fixing; empty if there are none.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self
            .functions
            .iter()
            .filter_map(|f| self.compiles_too_frequent(f))
            .collect();
        findings.extend(
            self.reads
                .iter()
                .filter_map(|site| self.read_per_step(site)),
        );
        findings.extend(
            self.inputs
                .iter()
                .filter_map(|input| self.input_starves(input)),
        );
        findings.extend(self.many_uploads());
        findings.extend(self.tiny_steps());
        findings.extend(self.compile_share());
        findings.extend(self.functions.iter().filter_map(|f| self.interpreted(f)));
        findings
    }

    /// Operations without a kernel that take a share of the device's time.
    fn interpreted(&self, function: &FunctionActivity) -> Option<Finding> {
        let whole = self.device_busy().unwrap_or(self.time);
        let mut slow: Vec<_> = function.interpreted.iter().collect();
        slow.sort_by_key(|it| std::cmp::Reverse(it.took));
        let took: Duration = slow.iter().map(|it| it.took).sum();
        if ratio(took, whole) < INTERPRETED_SHARE {
            return None;
        }
        let named: Vec<_> = (slow.iter().take(3).map(|it| it.operation.as_str())).collect();
        let more = match slow.len().saturating_sub(named.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!(
            "{}{more} of `{}` ran in the exact interpreter: {} of the device time ({}); the \
             embedded executor has no kernel for them; see \"Slow runs\" in \
             docs/how-to-find-what-is-wrong.md",
            named.join(", "),
            function.name,
            percent(ratio(took, whole).min(1.0)),
            time(took),
        );
        Some(Finding {
            kind: FindingKind::Interpreted,
            message,
        })
    }

    fn compiles_too_frequent(&self, function: &FunctionActivity) -> Option<Finding> {
        let FunctionActivity {
            name,
            compiles,
            launches,
            ..
        } = function;
        if *compiles <= USUAL_COMPILES || (*compiles as f64) < COMPILES_PER_CALL * *launches as f64
        {
            return None;
        }
        let records: Vec<&CompileRecord> = self
            .compiles
            .iter()
            .filter(|record| record.function == *name && record.origin == function.origin)
            .collect();
        let line = records
            .iter()
            .rev()
            .find_map(|record| record.called_at)
            .or(function.origin);
        let why = why_compiled(&records, function.origin);
        let message = format!(
            "CompileTime too frequent: `{name}` was compiled {} in {}: {why}{}",
            count(*compiles, "time"),
            count(*launches, "call"),
            line.map_or(String::new(), |line| format!(" ({line})"))
        );
        Some(Finding {
            kind: FindingKind::CompilesTooFrequent,
            message,
        })
    }

    fn read_per_step(&self, site: &SiteActivity) -> Option<Finding> {
        let steps = self.step_count();
        if steps < FEWEST_STEPS || (site.count as f64) < READS_PER_STEP * steps as f64 {
            return None;
        }
        let message = format!(
            "host read per step: {} in {} at {}, where the host waited {} ({}); read every \
             hundredth step, or use `Array::fetch` and take the value later",
            count(site.count, "blocking read"),
            count(steps, "step"),
            site.location,
            time(site.took),
            share(site.took, self.time),
        );
        Some(Finding {
            kind: FindingKind::ReadPerStep,
            message,
        })
    }

    fn input_starves(&self, input: &InputActivity) -> Option<Finding> {
        let active = self.time.saturating_sub(self.compile_time());
        let busy = self.device_busy().map(|busy| ratio(busy, active));
        if input.batches < FEWEST_STEPS
            || ratio(input.waited, input.of) < INPUT_SHARE
            || busy.is_some_and(|busy| busy > BUSY_SHARE)
        {
            return None;
        }
        let InputActivity {
            dataset,
            workers,
            batches,
            ..
        } = input;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let hint = if *workers < 2 * cores {
            format!("try {} workers", (2 * workers).max(4))
        } else {
            "more workers would not help; do less work in `Dataset::read`, or use a faster disk"
                .to_string()
        };
        let message = format!(
            "input pipeline starves the device: waited {} of {} ({}) for the next of {} (loader, \
             dataset {dataset}, workers {workers}); {hint}",
            time(input.waited),
            time(input.of),
            percent(ratio(input.waited, input.of)),
            count(*batches, "batch"),
        );
        Some(Finding {
            kind: FindingKind::InputStarves,
            message,
        })
    }

    fn many_uploads(&self) -> Option<Finding> {
        let steps = self.step_count();
        let devices = self
            .functions
            .iter()
            .map(|function| function.devices)
            .max()
            .unwrap_or(1);
        // Only what lines of the user's code uploaded: nobody can change how loaders upload.
        let uploads: u64 = self.uploads.iter().map(|site| site.count).sum();
        let per_step = uploads as f64 / steps.max(1) as f64;
        let most = self.uploads.iter().max_by_key(|site| site.count)?;
        if steps < FEWEST_STEPS || per_step < UPLOADS_PER_STEP * devices as f64 {
            return None;
        }
        let message = format!(
            "TransferToDevice too frequent: {per_step:.0} uploads per step ({} to {}), {} of them \
             at {}; combine small arrays into one, or make them constants",
            count(uploads, "upload"),
            count(devices, "device"),
            percent(most.count as f64 / uploads as f64),
            most.location
        );
        Some(Finding {
            kind: FindingKind::ManyUploads,
            message,
        })
    }

    fn tiny_steps(&self) -> Option<Finding> {
        let most = self
            .functions
            .iter()
            .max_by_key(|function| function.launches)?;
        let mean = most.execute_mean()?;
        let active = self.time.saturating_sub(self.compile_time());
        let busy = ratio(self.device_busy()?, active);
        if most.launches < 10 * FEWEST_STEPS
            || most.timed < FEWEST_STEPS
            || mean > TINY
            || busy > TINY_BUSY_SHARE
        {
            return None;
        }
        let message = format!(
            "steps are tiny: the device runs {} for a launch of `{}`, and is idle {} of the time; \
             a larger batch, or several steps in one program (`steps_per_execution`, \
             --steps-per-execution), costs little",
            time(mean),
            most.name,
            percent(1.0 - busy),
        );
        Some(Finding {
            kind: FindingKind::TinySteps,
            message,
        })
    }

    fn compile_share(&self) -> Option<Finding> {
        let compiling = self.compile_time();
        if self.time < LONG || ratio(compiling, self.time) < COMPILE_SHARE {
            return None;
        }
        let longest = self
            .compiles
            .iter()
            .max_by_key(|record| record.stages.total())?;
        let message = format!(
            "compiling took {} of {} ({}), longest for `{}`: {}; a longer run makes it small",
            time(compiling),
            time(self.time),
            percent(ratio(compiling, self.time)),
            longest.function,
            time(longest.stages.total()),
        );
        Some(Finding {
            kind: FindingKind::CompileShare,
            message,
        })
    }

    /// Time in which something was traced, printed or compiled, by the recorded compilations.
    /// Programs that compile at once, on several threads, count once.
    pub fn compile_time(&self) -> Duration {
        let mut spans: Vec<(Duration, Duration)> = (self.compiles.iter())
            .map(|record| (record.at.saturating_sub(record.stages.total()), record.at))
            .collect();
        spans.sort_unstable();
        let (mut sum, mut end) = (Duration::ZERO, Duration::ZERO);
        for (from, to) in spans {
            sum += to.saturating_sub(from.max(end));
            end = end.max(to);
        }
        // A compilation that ended after the start of this activity may have begun before it.
        sum.min(self.time)
    }
}

/// Describes the common reason of the compilations of one function.
fn why_compiled(records: &[&CompileRecord], origin: Option<&'static Location<'static>>) -> String {
    let changes: Vec<&InputChange> = (records.iter())
        .filter_map(|record| {
            if let Reason::InputChanged(changes) = &record.reason {
                Some(changes)
            } else {
                None
            }
        })
        .flatten()
        .collect();
    let firsts = records
        .iter()
        .filter(|record| matches!(record.reason, Reason::First))
        .count();
    let made = origin.map_or(String::new(), |line| format!(" at {line}"));
    if firsts > records.len() / 2 {
        return format!("it is created for each call{made}; create it once, outside of the loop");
    }
    let Some(last) = changes.last() else {
        return match records.last().map(|record| &record.reason) {
            Some(Reason::Requested) => {
                "`compile` is called each time; reuse what it returns".to_string()
            }
            Some(reason) => reason.to_string(),
            None => "the records of its compilations were dropped".to_string(),
        };
    };
    let aspect = aspect(last);
    let named = inputs_that_vary(&changes, &aspect, last);
    let verb = if aspect.starts_with("dimensions") {
        "vary"
    } else {
        "varies"
    };
    let (from, to) = last.describe();
    format!(
        "{aspect} of {named} {verb}: {from} -> {to}; use one size: pad (with weight 0) or bucket"
    )
}

/// Lists the inputs of which this aspect varies: dimensions, the type, or the sharding.
fn inputs_that_vary(changes: &[&InputChange], of: &str, last: &InputChange) -> String {
    let mut inputs: Vec<String> = Vec::new();
    for change in changes.iter().filter(|change| aspect(change) == of) {
        let name = change.name();
        if !inputs.contains(&name) {
            inputs.push(name);
        }
    }
    match inputs.as_slice() {
        [] | [_] => last.name(),
        [a, b] => format!("{a} and {b}"),
        [a, b, rest @ ..] => format!("{a}, {b} and {} more", rest.len()),
    }
}

/// The part of an input's type that changed.
fn aspect(change: &InputChange) -> String {
    let (from, to) = (change.from.0.dims(), change.to.0.dims());
    if change.from.0 == change.to.0 {
        return "the sharding".to_string();
    }
    if change.from.0.dtype() != change.to.0.dtype() {
        return "the element type".to_string();
    }
    let varying: Vec<usize> = if from.len() == to.len() {
        (0..to.len()).filter(|&dim| from[dim] != to[dim]).collect()
    } else {
        vec![]
    };
    match varying.as_slice() {
        [] => "the number of dimensions".to_string(),
        [0] => "dimension 0 (batch)".to_string(),
        [dim] => format!("dimension {dim}"),
        dims => format!(
            "dimensions {}",
            dims.iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

fn ratio(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() {
        0.0
    } else {
        part.as_secs_f64() / whole.as_secs_f64()
    }
}

/// The share of waits in the time; those of several threads may be longer than it.
fn share(part: Duration, whole: Duration) -> String {
    if part <= whole {
        format!("{} of the time", percent(ratio(part, whole)))
    } else {
        format!("on several threads, of {}", time(whole))
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}
