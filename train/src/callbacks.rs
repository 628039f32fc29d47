//! The callbacks of a run in their order: the trainer's own, and the user's between them.

mod accessory;
mod checkpointing;
mod checks;
mod early_stopping;
mod learning_rate;
mod loss_growth;
mod nan_check;
mod plateau;
mod progress_bar;
mod report_file;
mod saving;
mod table;
mod throughput;

use std::{
    collections::{BTreeMap, HashSet},
    ops::RangeInclusive,
    path::PathBuf,
    sync::MutexGuard,
};

use halite_core::{Error, Result};

pub use self::plateau::ReduceLrOnPlateau;
use self::saving::Saving;
pub(crate) use self::{
    accessory::LoggerCallback,
    checkpointing::Checkpointing,
    loss_growth::{LossGrowth, grown},
    nan_check::NanCheck,
    progress_bar::ProgressBar,
    report_file::ReportFile,
    table::MetricsTable,
};
pub use self::{
    early_stopping::EarlyStopping, learning_rate::LearningRateMonitor,
    throughput::ThroughputMonitor,
};
use crate::{
    Report, TrainerOptions,
    callback::{Callback, Run, Shared},
    checkpoint::{CheckpointStore, RANKING},
    loggers::{CsvLog, Logger, Progress, Row, Split},
    run_files::PLOT,
};

/// Callbacks of the user, which a run has taken.
pub(crate) type CustomCallbacks<'a> = Vec<MutexGuard<'a, dyn Callback + Send + 'static>>;

/// What can be checked before anything is compiled and before a file is opened.
pub(crate) struct Checked<'a> {
    custom: CustomCallbacks<'a>,
    saving: Saving,
}

/// Takes the callbacks of the user for a run with these metrics.
///
/// # Errors
/// If another run uses one of them, two have the same name, or one cannot have these metrics; if
/// the best checkpoint should be by another metric.
pub(crate) fn take_checked<'a>(
    options: &TrainerOptions,
    custom: &'a [Shared<dyn Callback + Send>],
    metrics: &[String],
) -> Result<Checked<'a>> {
    let saving = Saving::new(&options.checkpoint, metrics)?;
    let mut taken: CustomCallbacks<'a> = custom.iter().map(Shared::take).collect::<Result<_>>()?;
    let mut names = HashSet::new();
    for callback in &mut taken {
        let name = callback.name();
        if BUILT_IN.contains(&&*name) || !names.insert(name.clone()) {
            let message = format!(
                "two callbacks are named `{name}`, under which their state is saved; \
                 give one of them another `Callback::name`"
            );
            return Err(Error::invalid("fit", message));
        }
        callback.check(metrics)?;
    }
    Ok(Checked {
        custom: taken,
        saving,
    })
}

/// Every callback of a run. The order of the fields is the order of the calls.
pub(crate) struct Callbacks<'a> {
    pub(crate) nan_check: NanCheck,
    pub(crate) progress_bar: ProgressBar,
    pub(crate) table: Option<MetricsTable>,
    pub(crate) loggers: Vec<LoggerCallback<MutexGuard<'a, dyn Logger + Send + 'static>>>,
    pub(crate) custom: CustomCallbacks<'a>,
    pub(crate) checkpointing: Option<Checkpointing>,
    pub(crate) report_file: Option<ReportFile>,
}

impl<'a> Callbacks<'a> {
    /// The built-in callbacks of a run, whose directory is this one with this table, and has this
    /// store of checkpoints; and those of its user.
    ///
    /// # Errors
    /// If another run uses one of its loggers.
    pub(crate) fn new(
        options: &TrainerOptions,
        loggers: &'a [Shared<dyn Logger + Send>],
        checked: Checked<'a>,
        nan_check: NanCheck,
        files: Option<(PathBuf, CsvLog)>,
        store: Option<CheckpointStore>,
        hyperparameters: Vec<(String, String)>,
    ) -> Result<Self> {
        let batches = nan_check.loader.batches_per_epoch();
        let steps = options.numerics.steps_of(batches) as u64;
        let of_steps = options.max_steps.map(|most| most.div_ceil(steps));
        let epochs = options.epochs().min(of_steps.unwrap_or(u64::MAX));
        let progress = Progress::new(epochs, steps, options.quiet);
        let progress = match options.observing.print_every {
            Some(steps) => progress.each(steps),
            None => progress,
        };
        let of = |logger: &'a Shared<_>| -> Result<_> {
            Ok(LoggerCallback::new(logger.take()?, hyperparameters.clone()))
        };
        let loggers = loggers.iter().map(of).collect::<Result<_>>()?;
        let mut callbacks = Callbacks {
            nan_check,
            progress_bar: ProgressBar::new(progress),
            table: None,
            loggers,
            custom: checked.custom,
            checkpointing: None,
            report_file: None,
        };
        callbacks.checkpointing =
            store.map(|store| Checkpointing::new(store, options.seed, checked.saving));
        if let Some((dir, csv)) = files {
            callbacks.table = Some(MetricsTable::new(csv, dir.join(PLOT)));
            callbacks.report_file = Some(ReportFile {
                dir,
                configuration: hyperparameters,
            });
        }
        Ok(callbacks)
    }

    fn all(&mut self) -> impl Iterator<Item = &mut dyn Callback> {
        fn one<C: Callback>(callback: &mut C) -> &mut dyn Callback {
            callback
        }
        let built_in = [one(&mut self.nan_check), one(&mut self.progress_bar)];
        built_in
            .into_iter()
            .chain(self.table.as_mut().map(one))
            .chain(self.loggers.iter_mut().map(one))
            .chain(self.custom.iter_mut().map(|custom| {
                let callback: &mut dyn Callback = &mut **custom;
                callback
            }))
            .chain(self.checkpointing.as_mut().map(one))
            .chain(self.report_file.as_mut().map(one))
    }

    /// Whether a callback waits for one of these steps.
    pub(crate) fn wait_for(&self, mut steps: RangeInclusive<u64>) -> bool {
        !self.custom.is_empty()
            && steps.any(|step| self.custom.iter().any(|custom| custom.waits_for(step)))
    }

    /// Calls `event` of each in order, up to the first error.
    pub(crate) fn call(
        &mut self,
        event: impl FnMut(&mut dyn Callback) -> Result<()>,
    ) -> Result<()> {
        self.all().try_for_each(event)
    }

    /// Calls `event` of each in order, up to the first error. The first that requests a stop is
    /// named in the run.
    pub(crate) fn notify(
        &mut self,
        run: &mut Run,
        mut event: impl FnMut(&mut dyn Callback, &mut Run) -> Result<()>,
    ) -> Result<()> {
        self.call(|callback| {
            let called = event(callback, run);
            if run.stop_requested && run.stopped_by.is_none() {
                run.stopped_by = Some(callback.name());
            }
            called
        })
    }

    /// Adds the further metrics of each callback to a row. A name that is there already is kept.
    pub(crate) fn complete_row(&mut self, run: &Run, row: &mut Row) -> Result<()> {
        self.call(|callback| {
            let metrics = callback.additional_metrics(run, row)?;
            let known = |name: &str| row.get(name).is_some();
            let new: Vec<_> = metrics
                .into_iter()
                .filter(|(name, _)| !known(name))
                .collect();
            row.metrics.extend(new);
            Ok(())
        })
    }

    /// Gives each callback its saved state.
    pub(crate) fn load_states(
        &mut self,
        mut states: BTreeMap<String, serde_json::Value>,
    ) -> Result<()> {
        self.call(|callback| {
            let name = callback.name();
            let Some(state) = states.remove(&name) else {
                return Ok(());
            };
            callback.load_state(state).map_err(|error| {
                error.with_note(&format!("the saved state is that of the callback `{name}`"))
            })
        })?;
        for name in states.keys().filter(|name| !BUILT_IN.contains(&&***name)) {
            halite_core::warning!(
                "the checkpoint has state of a callback `{name}`, which this run does not have"
            );
        }
        Ok(())
    }

    /// Describes the newest checkpoint on the disk, for error messages.
    pub(crate) fn newest_checkpoint(&self) -> String {
        self.checkpointing
            .as_ref()
            .map_or_else(checkpointing::none, Checkpointing::newest)
    }

    /// Whether the end of the epoch before this position is saved.
    pub(crate) fn saves_epoch(&self, run: &Run) -> bool {
        let checkpointing = self.checkpointing.as_ref();
        checkpointing.is_some_and(|checkpointing| checkpointing.is_epoch_due(run))
    }

    /// Waits until every checkpoint is on the disk.
    pub(crate) fn finish_saving(&mut self) -> Result<()> {
        self.checkpointing
            .as_mut()
            .map_or(Ok(()), Checkpointing::finish)
    }

    /// Completes and writes the report.
    pub(crate) fn finish(&mut self, run: &mut Run, report: &mut Report) -> Result<()> {
        if let Some(checkpointing) = &self.checkpointing {
            checkpointing.complete(report);
        }
        self.call(|callback| callback.on_fit_end(run, report))
    }

    /// Reports the failure of the run.
    pub(crate) fn fail(&mut self, run: &Run, error: &Error) {
        self.all()
            .for_each(|callback| callback.on_error(run, error));
    }
}

/// Names of the trainer's own callbacks that have state.
const BUILT_IN: [&str; 3] = [nan_check::NAME, table::NAME, RANKING];

impl TrainerOptions {
    /// Checks the metrics that these options name against those of a task, such as `["loss",
    /// "accuracy"]`: before its data are downloaded. A run checks them again.
    ///
    /// # Errors
    /// The first option that names another metric.
    pub fn check_metrics(&self, metrics: &[&str]) -> Result<()> {
        let of = |split: Split| metrics.iter().map(move |name| format!("{split} {name}"));
        let names: Vec<String> = of(Split::Train).chain(of(Split::Validation)).collect();
        Saving::new(&self.checkpoint, &names)?;
        let Some(name) = &self.observing.early_stopping else {
            return Ok(());
        };
        let mut stopping = EarlyStopping::new(name);
        if let Some(mode) = self.observing.early_stopping_mode {
            stopping = stopping.mode(mode);
        }
        stopping.check(&names)
    }
}
