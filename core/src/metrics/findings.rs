//! What of a client's activity is worth changing, found by rules. Each finding names the line or
//! the input.

use std::{fmt, panic::Location, time::Duration};

use super::{
    activity::{
        Activity, CompileRecord, FunctionActivity, InputActivity, InputChange, Reason, SiteActivity,
    },
    report::{count, time},
};

/// Something that makes a program slow, in words, with the line or the input it comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// What it is, with its numbers, and what would help.
    pub message: String,
}

/// The kinds of [`Finding`], in the order in which they are told.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FindingKind {
    /// A function is compiled again and again.
    CompilesTooFrequent,
    /// The host waits for the device in (nearly) every step.
    ReadPerStep,
    /// The device waits for its batches.
    InputStarves,
    /// Many small copies to the devices in every step.
    ManyUploads,
    /// Steps are so small that the device is idle while the host queues them.
    TinySteps,
    /// Most of the time was compiling.
    CompileShare,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// With fewer steps nothing is said of what happens per step.
const FEWEST_STEPS: u64 = 8;
/// Compiles of one function that are nothing special: the first, a last batch of another size, an
/// evaluation.
const USUAL_COMPILES: u64 = 2;
/// Compiles per call above which they are too frequent.
const COMPILES_PER_CALL: f64 = 0.05;
/// Reads by one line per step.
const READS_PER_STEP: f64 = 0.5;
/// Share of the time without compiling that may be spent waiting for batches.
const INPUT_SHARE: f64 = 0.2;
/// Share of the time in which a device that works does not starve.
const BUSY_SHARE: f64 = 0.9;
/// Uploads per step and device: a batch has a few arrays.
const UPLOADS_PER_STEP: f64 = 16.0;
/// Launches that are so short on the device that queueing them takes as long.
const TINY: Duration = Duration::from_micros(100);
/// Share of the time in which the device of tiny launches works, below which a larger batch costs
/// little.
const TINY_BUSY_SHARE: f64 = 0.3;
/// Share of the time spent compiling, in runs of at least [`LONG`].
const COMPILE_SHARE: f64 = 0.5;
/// Runs that are shorter are tries.
const LONG: Duration = Duration::from_secs(60);

impl Activity {
    /// What is worth changing; empty when all is well.
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
        findings
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
            "host read per step: {} in {} at {}, where the host waited {} ({}); read every hundredth step, or use \
             `Array::fetch` and look later",
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
            || ratio(input.waited, active) < INPUT_SHARE
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
            format!("try `workers({0})`, --workers {0}", (2 * workers).max(4))
        } else {
            "there are workers enough: less work in `Dataset::read` helps, or a faster disk"
                .to_string()
        };
        let message = format!(
            "input pipeline starves the device: waited {} ({}) for the next of {} (loader, dataset {dataset}, workers {workers}); {hint}",
            time(input.waited),
            share(input.waited, active).replace("of the time", "of the run"),
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
        let uploads: u64 = self.uploads.iter().map(|site| site.count).sum();
        let per_step = uploads as f64 / steps.max(1) as f64;
        let most = self.uploads.iter().max_by_key(|site| site.count)?;
        if steps < FEWEST_STEPS || per_step < UPLOADS_PER_STEP * devices as f64 {
            return None;
        }
        let message = format!(
            "TransferToDevice too frequent: {per_step:.0} uploads per step ({} to {}), {} of them at {}; put small arrays into one, or make \
             constants of them",
            count(uploads, "upload"),
            count(devices, "device"),
            share_of(most.count as f64 / uploads as f64),
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
            "steps are tiny: the device works {} on a launch of `{}`, and is idle {} of the time; a larger batch, or a loop of steps in \
             one program, costs little",
            time(mean),
            most.name,
            share_of(1.0 - busy),
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
            share_of(ratio(compiling, self.time)),
            longest.function,
            time(longest.stages.total()),
        );
        Some(Finding {
            kind: FindingKind::CompileShare,
            message,
        })
    }

    /// Time of the remembered compiles: tracing, printing, compiling.
    pub fn compile_time(&self) -> Duration {
        self.compiles
            .iter()
            .map(|record| record.stages.total())
            .sum()
    }
}

/// What the compiles of one function have in common.
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
        return format!(
            "it is made anew each time{made}; make it once, outside of the loop, and call it there"
        );
    }
    let Some(last) = changes.last() else {
        return match records.last().map(|record| &record.reason) {
            Some(Reason::Asked) => {
                "the program is given to the compiler each time; keep what `compile` returns"
                    .to_string()
            }
            Some(reason) => reason.to_string(),
            None => "the compiles are too long ago to say why".to_string(),
        };
    };
    // What varies, by input: dimensions, or all of the type, or the layout.
    let mut varying: Vec<(String, String)> = Vec::new();
    for change in &changes {
        let aspect = aspect(change);
        if varying
            .iter()
            .all(|(known, what)| *known != aspect || *what != change.what())
        {
            varying.push((aspect, change.what()));
        }
    }
    let aspect = aspect(last);
    let inputs: Vec<&str> = varying
        .iter()
        .filter(|(known, _)| *known == aspect)
        .map(|(_, what)| &**what)
        .collect();
    let named = match inputs.as_slice() {
        [] | [_] => last.what(),
        [a, b] => format!("{a} and {b}"),
        [a, b, rest @ ..] => format!("{a}, {b} and {} more", rest.len()),
    };
    let verb = if aspect.starts_with("dimensions") {
        "vary"
    } else {
        "varies"
    };
    let (from, to) = last.both();
    format!(
        "{aspect} of {named} {verb}: {from} -> {to}; give them one size: pad, with weight 0, or bucket"
    )
}

/// What of an input changed.
fn aspect(change: &InputChange) -> String {
    let (from, to) = (change.from.0.dims(), change.to.0.dims());
    if change.from.0 == change.to.0 {
        return "the layout".to_string();
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

fn share(part: Duration, whole: Duration) -> String {
    format!("{} of the time", share_of(ratio(part, whole)))
}

fn share_of(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}
