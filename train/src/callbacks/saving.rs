//! When a run saves checkpoints, by which metric they are the best, and what they are called.

use halite_core::{Error, Result};
use halite_nn::schedule::Mode;

use crate::{
    ModelCheckpoint,
    callback::Run,
    loggers::{Row, Split},
    monitor::Monitor,
};

const OP: &str = "checkpoint";

/// What sets the direction of the metric.
const MODE: &str = "`ModelCheckpoint::mode` (--monitor-mode min or max)";

/// The rules of a run with metrics that it has.
pub(crate) struct Saving {
    options: ModelCheckpoint,
    /// The metric by which checkpoints are the best, if there is one.
    monitor: Option<Monitor>,
    mode: Mode,
    /// The metrics in the names of checkpoints, by their names in the template.
    named: Vec<(String, Monitor)>,
    /// The last validation.
    validation: Option<Row>,
    /// The step after which the last epoch ended.
    epoch_end: Option<u64>,
    /// Seconds of the run at its start or at the last checkpoint.
    saved: f64,
    /// Checkpoints that had a score, and those that had none.
    ranked: u64,
    unranked: u64,
}

impl Saving {
    /// The rules for a run with these metrics.
    ///
    /// # Errors
    /// If a metric that they name is not one of these; if its direction is not known; if the best should be kept, and there is no
    /// metric.
    pub(crate) fn new(options: &ModelCheckpoint, metrics: &[String]) -> Result<Self> {
        let monitor = match &options.monitor {
            Some(name) => Some(Monitor::resolve(OP, name, metrics)?),
            None => {
                // The loss of the first validation set.
                let prefix = format!("{} ", Split::Validation);
                let first = metrics.iter().find(|name| name.starts_with(&prefix));
                first.and_then(|name| Monitor::find(name, metrics))
            }
        };
        if let (None, Some(option)) = (&monitor, ranks(options)) {
            let message = format!(
                "`{option}` needs a metric by which checkpoints are the best, and the run has no \
                 validation; give `monitor`, such as `train loss`"
            );
            return Err(Error::invalid(OP, message));
        }
        let mode = match &monitor {
            Some(monitor) => Mode::given_or_of(options.mode, &monitor.metric, MODE)?,
            None => Mode::Min,
        };
        let names = options
            .filename
            .iter()
            .flat_map(|filename| filename.names());
        let named = names
            .filter(|name| !["epoch", "step"].contains(name))
            .map(|name| Ok((name.to_string(), Monitor::resolve(OP, name, metrics)?)))
            .collect::<Result<_>>()?;
        Ok(Saving {
            options: options.clone(),
            monitor,
            mode,
            named,
            validation: None,
            epoch_end: None,
            saved: 0.0,
            ranked: 0,
            unranked: 0,
        })
    }

    /// The time to the next checkpoint begins.
    pub(super) fn saved_now(&mut self, run: &Run) {
        self.saved = run.clock();
    }

    /// The steps of an epoch are done.
    pub(super) fn epoch_ends(&mut self, run: &Run) {
        self.epoch_end = Some(run.step());
    }

    /// A validation is done.
    pub(super) fn validated(&mut self, validation: &Row) {
        self.validation = Some(validation.clone());
    }

    /// Best checkpoints to keep.
    pub(super) fn most(&self) -> usize {
        self.options.save_top_k
    }

    /// Whether the best are kept as weights alone.
    pub(super) fn weights_only(&self) -> bool {
        self.options.save_weights_only
    }

    /// Whether a checkpoint is due after a step, whether or not an epoch ends there.
    pub(super) fn is_step_due(&self, run: &Run) -> bool {
        let every = self.options.every_n_train_steps;
        let time = self.options.train_time_interval;
        every.is_some_and(|every| run.step().is_multiple_of(every))
            || time.is_some_and(|time| run.clock() - self.saved >= time.as_secs_f64())
    }

    /// Whether the validations and the end of the epoch with this number, from 1, are saved.
    pub(super) fn is_epoch_due(&self, epoch: u64) -> bool {
        let every = self.options.every_n_epochs;
        every > 0 && epoch.is_multiple_of(every)
    }

    /// The metric of the ranking.
    pub(super) fn metric(&self) -> Option<String> {
        self.monitor.as_ref().map(|monitor| match monitor.split {
            Split::Train => monitor.to_string(),
            _ => monitor.metric.clone(),
        })
    }

    /// The direction in which the metric improves.
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// The value by which the checkpoint of this step is ranked, if it has one; called once.
    pub(super) fn score(&mut self, run: &Run) -> Option<f64> {
        let value = (self.monitor.as_ref()).and_then(|monitor| self.value(monitor, run));
        let score = value.filter(|value| value.is_finite());
        match score {
            Some(_) => self.ranked += 1,
            None => self.unranked += 1,
        }
        score
    }

    /// What is wrong with a ranking that has the end of the run at most, though checkpoints were
    /// saved before.
    pub(super) fn finding(&self) -> Option<String> {
        let option = ranks(&self.options)?;
        let is_between = self.options.every_n_epochs == 0;
        (is_between && self.ranked <= 1 && self.unranked > 0).then(|| {
            format!(
                "`{option}` ranked {} of {} checkpoints: the others were saved at steps without \
                 `{}`; save after validations (`every_n_epochs` 1), or validate at these \
                 steps (`val_check_interval`)",
                self.ranked,
                self.ranked + self.unranked,
                self.metric().unwrap_or_default()
            )
        })
    }

    /// The text in the name of the checkpoint of this step, if its metrics are known.
    pub(super) fn name(&self, run: &Run) -> Option<String> {
        self.options.filename.as_ref()?.text(|name| match name {
            "epoch" => Some(run.epoch() as f64),
            "step" => Some(run.step() as f64),
            _ => {
                let (_, monitor) = self.named.iter().find(|(known, _)| known == name)?;
                self.value(monitor, run)
            }
        })
    }

    /// A metric after the last step, if it is known.
    fn value(&self, monitor: &Monitor, run: &Run) -> Option<f64> {
        let metric = &*monitor.metric;
        match monitor.split {
            Split::Train => {
                let metrics = run.train_metrics().iter();
                let mut metrics = metrics.filter(|_| self.epoch_end == Some(run.step()));
                metrics
                    .find(|(name, _)| **name == *metric)
                    .map(|(_, value)| *value)
            }
            _ => {
                let row = self.validation.as_ref();
                row.filter(|row| row.step == run.step())?.get(metric)
            }
        }
    }
}

/// The first option that asks for a ranking of the checkpoints, beyond the default.
fn ranks(options: &ModelCheckpoint) -> Option<&'static str> {
    let given = [
        ("monitor", options.monitor.is_some()),
        ("save_top_k", options.save_top_k > 1),
        ("mode", options.mode.is_some()),
        ("save_weights_only", options.save_weights_only),
    ];
    let mut given = given.into_iter().filter(|(_, is_given)| *is_given);
    given.next().map(|(option, _)| option)
}
