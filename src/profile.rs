//! Device traces of some steps of a run, for TensorBoard's profiler.

mod xplane;

use std::{cell::RefCell, fs, ops::Range, path::Path, str::FromStr, time::SystemTime};

use self::xplane::Steps;
use crate::{
    Error, ErrorKind, Result,
    backends::pjrt::{Profiler, Profiling},
    core::{files, warning},
    train::{Callback, Report, callback::Run},
};

const OP: &str = "profile steps";

thread_local! {
    /// The recording of the run on this thread: a plugin's profiler is stopped on the thread that
    /// started it.
    static RECORDING: RefCell<Option<(Profiling, Steps)>> = const { RefCell::new(None) };
}

/// Steps of a run, counted from 1: `10..15` are the steps 10 to 14.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StepRange(Range<u64>);

impl FromStr for StepRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split_once("..").and_then(|(first, end)| {
            let (first, end) = (first.parse::<u64>().ok()?, end.parse::<u64>().ok()?);
            (first > 0 && first < end).then_some(StepRange(first..end))
        });
        parsed.ok_or_else(|| {
            let message = format!(
                "`{text}`; expected the first step, from 1, and the one after the last: 10..15 are \
                 the steps 10 to 14"
            );
            Error::invalid("steps", message)
        })
    }
}

/// Callback that records what the devices do in some steps, by the profiler of their plugin, and
/// writes it below the run's directory, where TensorBoard's profiler and XProf find it:
/// `plugins/profile/steps-10-14/HOST.xplane.pb`. A line of the trace, `halite`, marks the steps.
///
/// The host waits for the step before the first and for the last one, which also end a launch of
/// several steps, so that the trace has these steps alone. Where nothing is recorded, because the
/// plugin has no profiler, as those for CPUs, the run no directory or not these steps, a warning says
/// so, and the run continues.
///
/// ```
/// use halite::{prelude::*, profile::ProfileSteps};
///
/// # fn main() -> Result<()> {
/// let opened = Accelerator::cpu().open_with(&Default::default(), &mut halite::fetch::Quiet)?;
/// let profiler = opened.driver.plugin().and_then(|plugin| plugin.profiler());
/// let trainer = Trainer::builder(&opened.client)
///     .out("runs/profiled")
///     .callback(ProfileSteps::new(profiler, "10..15".parse()?))
///     .build()?;
/// # let _ = trainer;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ProfileSteps {
    profiler: Option<Profiler>,
    steps: Range<u64>,
    /// The step before the first of the run, as long as the run may still begin to record.
    waiting_from: Option<u64>,
}

impl ProfileSteps {
    /// Records these steps by this profiler, if there is one.
    pub fn new(profiler: Option<Profiler>, StepRange(steps): StepRange) -> Self {
        ProfileSteps {
            profiler,
            steps,
            waiting_from: None,
        }
    }

    /// Begins to record before the first of the steps.
    fn begin(&mut self, run: &Run) {
        let next = run.step() + 1;
        let (true, Some(profiler)) = (self.steps.contains(&next), self.profiler) else {
            return;
        };
        if self.waiting_from.take().is_none() {
            return;
        }
        match profiler.start() {
            Ok(profiling) => RECORDING.set(Some((profiling, Steps::starting_at(next)))),
            Err(error) => warning!("no device trace of the steps: {error}"),
        }
    }

    /// Ends the recording, if there is one, and writes it.
    fn end(&mut self, run: &Run) {
        let Some((profiling, steps)) = RECORDING.take() else {
            return;
        };
        let name = format!("steps-{}-{}", self.steps.start, self.steps.end - 1);
        let recorded = profiling.stop().and_then(|mut space| {
            space.extend(steps.encoded());
            write(run.out(), &name, &space)
        });
        // The run is worth more than its trace.
        if let Err(error) = recorded {
            warning!("no device trace of the steps: {error}");
        }
    }
}

impl Callback for ProfileSteps {
    fn waits_for(&self, step: u64) -> bool {
        [self.steps.start, self.steps.end].contains(&(step + 1))
    }

    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        // A recording of an earlier run that failed.
        RECORDING.take();
        self.waiting_from = None;
        let missing = match (self.profiler, run.out()) {
            (None, _) => "the devices' plugin has no profiler",
            (_, None) => "the run has no directory (`out`)",
            _ => {
                self.waiting_from = Some(run.step());
                return Ok(());
            }
        };
        warning!("no device trace of the steps: {missing}");
        Ok(())
    }

    fn on_epoch_start(&mut self, run: &mut Run) -> Result<()> {
        self.begin(run);
        Ok(())
    }

    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        RECORDING.with_borrow_mut(|recording| {
            if let Some((_, steps)) = recording {
                steps.end(run.step());
            }
        });
        if run.step() + 1 >= self.steps.end {
            self.end(run);
        }
        self.begin(run);
        Ok(())
    }

    fn on_fit_end(&mut self, run: &mut Run, _: &mut Report) -> Result<()> {
        self.end(run);
        if let Some(from) = self.waiting_from.take() {
            let did = match run.step() - from {
                0 => "no step".to_owned(),
                _ => format!("the steps {} to {}", from + 1, run.step()),
            };
            let (first, last) = (self.steps.start, self.steps.end - 1);
            warning!("no device trace of the steps {first} to {last}: the run did {did}");
        }
        Ok(())
    }

    fn on_error(&mut self, run: &Run, _: &Error) {
        self.end(run);
    }
}

/// Writes a trace below the directory of a run.
fn write(out: Option<&Path>, name: &str, space: &[u8]) -> Result<()> {
    let Some(out) = out else { return Ok(()) };
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "localhost",
        host => host,
    };
    let folder = out.join("plugins/profile").join(name);
    let path = folder.join(format!("{host}.xplane.pb"));
    let written = fs::create_dir_all(&folder).and_then(|()| files::write_output(&path, space));
    written.map_err(|error| {
        let message = format!("cannot write {}", path.display());
        Error::new(ErrorKind::Io, OP, message).caused_by(error)
    })
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    time.map_or(0, |time| time.as_nanos() as u64)
}
