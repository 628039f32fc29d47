//! Collected metrics of an evaluation: rows of its batches on their way from the device, and the
//! results.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use halite_core::{Array, Error, ErrorKind, HostArray, Pending, Result};
use halite_nn::{Processes, Tensor, Trace};
use serde::{Deserialize, Serialize};

use super::{
    collect::SetMetric,
    confusion::ConfusionMatrix,
    set::{DataSet, Finished},
};
use crate::{
    MetricValues,
    waits::{Limits, wait},
};

/// Batches whose rows may be on their way to the host.
const AHEAD: usize = 4;
/// Most classes of a confusion matrix in a report.
const MOST_CLASSES: usize = 100;

/// The metrics that an evaluation collects, with their names.
#[derive(Debug, Default)]
pub(crate) struct CollectedMetrics {
    metrics: Vec<(Arc<str>, SetMetric)>,
    /// Undefined values that were warned about.
    warned: Mutex<BTreeSet<Arc<str>>>,
}

impl CollectedMetrics {
    /// The metrics that the traced loss of a task collects.
    ///
    /// # Errors
    /// If rows were collected by other code than [`Collect`](super::Collect).
    pub(crate) fn of(cx: &Trace) -> Result<Self> {
        let metrics =
            cx.collected_rows().into_iter().map(|rows| {
                let metric = rows.metric.downcast_ref::<SetMetric>().cloned();
                metric.map(|metric| (rows.name.clone(), metric)).ok_or_else(|| {
                let message = format!(
                    "the rows `{}` are of no metric that the trainer knows; collect them by \
                     `Collect::collect`",
                    rows.name
                );
                Error::invalid("fit", message)
            })
            });
        Ok(CollectedMetrics {
            metrics: metrics.collect::<Result<_>>()?,
            warned: Mutex::default(),
        })
    }

    /// Names of the results, in order.
    pub(crate) fn result_names(&self) -> Vec<Arc<str>> {
        let metrics = self.metrics.iter();
        metrics
            .flat_map(|(name, metric)| metric.result_names(name))
            .map(Arc::from)
            .collect()
    }

    /// Outputs of the program of an evaluation: scores, targets and weight of each metric.
    pub(crate) fn outputs<'t>(&self, cx: &'t Trace) -> Vec<Tensor<'t>> {
        let rows = cx.collected_rows().into_iter();
        rows.flat_map(|rows| [rows.scores, rows.targets, rows.weight])
            .collect()
    }

    /// Warns of results of a validation that are undefined, once of each.
    pub(crate) fn warn_undefined(&self, scores: &Scores) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let undefined = scores.undefined.iter();
        let new: Vec<&Arc<str>> = undefined.filter(|name| !warned.contains(*name)).collect();
        if new.is_empty() {
            return;
        }
        let names: Vec<String> = new.iter().map(|name| format!("`{name}`")).collect();
        halite_core::warning!(
            "{} undefined, NaN: the validation data has no samples that the metric compares, such as \
             positive and negative ones of a label; means over labels leave such labels out",
            match &names[..] {
                [name] => format!("{name} is"),
                names => format!("{} are", names.join(", ")),
            }
        );
        warned.extend(new.into_iter().cloned());
    }
}

/// Metrics of a pass over a data set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scores {
    pub(crate) values: MetricValues,
    /// Names of values that are undefined, and NaN.
    pub(crate) undefined: Vec<Arc<str>>,
    pub(crate) confusion: Vec<ConfusionTable>,
}

impl Scores {
    /// Adds the results of one more set, with names that `name` changes.
    pub(crate) fn extend(&mut self, other: Scores, name: impl Fn(&str) -> Arc<str>) {
        let values = other.values.into_iter();
        self.values
            .extend(values.map(|(metric, value)| (name(&metric), value)));
        let undefined = other.undefined.into_iter();
        self.undefined.extend(undefined.map(|metric| name(&metric)));
        let tables = other.confusion.into_iter().map(|table| ConfusionTable {
            name: name(&table.name).to_string(),
            ..table
        });
        self.confusion.extend(tables);
    }
}

/// Rows of batches that the device computes, and the metrics so far.
pub(crate) struct Collecting<'a> {
    metrics: &'a CollectedMetrics,
    sets: Vec<DataSet<'a>>,
    fetched: VecDeque<Vec<Pending<HostArray>>>,
}

impl<'a> Collecting<'a> {
    pub(crate) fn new(metrics: &'a CollectedMetrics) -> Self {
        let sets = metrics.metrics.iter();
        Collecting {
            metrics,
            sets: sets
                .map(|(name, metric)| DataSet::new(name, metric))
                .collect(),
            fetched: VecDeque::new(),
        }
    }

    /// Takes the outputs of a batch, whose copies are queued, and waits for those of an earlier one;
    /// `false` if it is asked to stop first.
    pub(crate) fn push(
        &mut self,
        outputs: &[&Array],
        limits: &Limits,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool> {
        if outputs.is_empty() {
            return Ok(true);
        }
        let copies = outputs.iter().map(|array| array.fetch());
        self.fetched.push_back(copies.collect::<Result<_>>()?);
        if self.fetched.len() > AHEAD {
            self.take_oldest(limits, stop)
        } else {
            Ok(true)
        }
    }

    fn take_oldest(&mut self, limits: &Limits, stop: &dyn Fn() -> bool) -> Result<bool> {
        let Some(copies) = self.fetched.pop_front() else {
            return Ok(true);
        };
        let mut arrays = Vec::with_capacity(copies.len());
        for copy in copies {
            let name = || "rows of a validation batch".to_owned();
            let is_ready = wait(name, limits, stop, |slice| {
                copy.wait_ready(slice).then_some(())
            })?;
            if is_ready.is_none() {
                return Ok(false);
            }
            arrays.push(copy.wait()?);
        }
        let mut arrays = arrays.into_iter();
        for set in &mut self.sets {
            if let (Some(scores), Some(targets), Some(weight)) =
                (arrays.next(), arrays.next(), arrays.next())
            {
                set.add(&[scores, targets, weight]);
            }
        }
        Ok(true)
    }

    /// Waits for the rows that are left; `false` if it is asked to stop first.
    pub(crate) fn settle(&mut self, limits: &Limits, stop: &dyn Fn() -> bool) -> Result<bool> {
        while !self.fetched.is_empty() {
            if !self.take_oldest(limits, stop)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The means of a pass, and the results of what was collected, over all processes.
    ///
    /// # Errors
    /// Rows with invalid values, such as NaN scores.
    pub(crate) fn finish(
        self,
        means: MetricValues,
        processes: Option<&Processes>,
    ) -> Result<Scores> {
        let mut scores = Scores {
            values: means,
            ..Scores::default()
        };
        for (set, (name, metric)) in self.sets.into_iter().zip(&self.metrics.metrics) {
            let Finished { values, matrix } = set.finish(processes)?;
            for (name, value) in values {
                let name: Arc<str> = name.into();
                if value.is_nan() {
                    scores.undefined.push(name.clone());
                }
                scores.values.push((name, value));
            }
            let small = matrix.filter(|matrix| matrix.classes() <= MOST_CLASSES);
            scores.confusion.extend(
                small.map(|matrix| ConfusionTable::new(name, metric.class_names(), &matrix)),
            );
        }
        Ok(scores)
    }
}

/// Metrics of a model over a data set: result of [`Trainer::evaluate`](crate::Trainer::evaluate).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MetricReport {
    /// The values of [`Trainer::validate`](crate::Trainer::validate), by name.
    pub metrics: MetricValues,
    /// Confusion matrices of up to 100 classes, in the order in which the task collects them.
    pub confusion: Vec<ConfusionTable>,
}

/// A confusion matrix in a report. Its text has true classes in rows, predicted classes in columns.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ConfusionTable {
    /// Name of the metric.
    pub name: String,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// For each true class, sums of the weights of its samples by predicted class.
    pub counts: Vec<Vec<f64>>,
}

impl ConfusionTable {
    fn new(name: &str, classes: &[String], matrix: &ConfusionMatrix) -> Self {
        ConfusionTable {
            name: name.to_owned(),
            classes: classes.to_vec(),
            counts: (matrix.counts().chunks(matrix.classes()))
                .map(<[f64]>::to_vec)
                .collect(),
        }
    }

    /// The matrix, for further metrics.
    ///
    /// # Errors
    /// If a row has another length than there are rows.
    pub fn matrix(&self) -> Result<ConfusionMatrix> {
        let classes = self.counts.len();
        let mut matrix = ConfusionMatrix::new(classes);
        for (target, counts) in self.counts.iter().enumerate() {
            if counts.len() != classes {
                let message = format!("{} counts of {classes} classes", counts.len());
                return Err(Error::new(ErrorKind::Corrupt, "confusion", message));
            }
            for (predicted, count) in counts.iter().enumerate() {
                matrix.add(predicted, target, *count)?;
            }
        }
        Ok(matrix)
    }
}
