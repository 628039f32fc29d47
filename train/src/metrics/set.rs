//! Sums and rows of collected metrics over a data set, and their results.

use halite_core::{Error, ErrorKind, HostArray, Result};
use halite_nn::Processes;

use super::{
    ClassCounts, ConfusionMatrix,
    collect::{Kind, SetMetric},
    macro_average, micro_average, ranking,
};
use crate::{values::values_of, waits::patience};

/// Bytes of a row of a label.
const ROW_BYTES: u64 = 16;

/// A metric over the batches so far.
pub(crate) struct DataSet<'a> {
    name: &'a str,
    metric: &'a SetMetric,
    sums: Sums,
    batches: u64,
    /// The first error; nothing is added after it.
    error: Option<Error>,
}

enum Sums {
    /// For each label, the score and weight of each row; negative samples have negative weights.
    Rows(Vec<Vec<[f64; 2]>>),
    Counts(Vec<ClassCounts>),
    Matrix(ConfusionMatrix),
}

/// A metric of the counts of a class.
type Fraction = fn(ClassCounts) -> f64;

/// Precision, recall and F1 by name.
const FRACTIONS: [(&str, Fraction); 3] = [
    ("precision", ClassCounts::precision),
    ("recall", ClassCounts::recall),
    ("f1", ClassCounts::f1),
];

impl SetMetric {
    /// Names of the results of this metric with this name, in order.
    pub(crate) fn result_names(&self, name: &str) -> Vec<String> {
        let empty = DataSet::new(name, self);
        empty.results().into_iter().map(|(name, _)| name).collect()
    }
}

impl<'a> DataSet<'a> {
    pub(crate) fn new(name: &'a str, metric: &'a SetMetric) -> Self {
        let width = metric.width();
        let sums = match metric.kind {
            Kind::RocAuc | Kind::AveragePrecision => Sums::Rows(vec![Vec::new(); width]),
            Kind::PrecisionRecall { .. } => Sums::Counts(vec![ClassCounts::default(); width]),
            Kind::Confusion { .. } => Sums::Matrix(ConfusionMatrix::new(width)),
        };
        DataSet {
            name,
            metric,
            sums,
            batches: 0,
            error: None,
        }
    }

    /// Adds the rows of a batch. An error is reported by [`finish`](Self::finish), after those of
    /// the means.
    pub(crate) fn add(&mut self, rows: &[HostArray; 3]) {
        self.batches += 1;
        if self.error.is_none() {
            self.error = self.try_add(rows).err();
        }
    }

    fn try_add(&mut self, rows: &[HostArray; 3]) -> Result<()> {
        let [scores, targets, weights] = rows;
        let (scores, targets, weights) =
            (values_of(scores)?, values_of(targets)?, values_of(weights)?);
        let targets_a_weight = targets.len() / weights.len().max(1);
        let scores_a_target = scores.len() / targets.len().max(1);
        for (index, &target) in targets.iter().enumerate() {
            let weight = weights[index / targets_a_weight];
            if weight == 0.0 {
                continue;
            }
            if !(weight.is_finite() && weight > 0.0) {
                let message = format!("the weight {weight}; expected 0 or more");
                return Err(self.failed(ErrorKind::InvalidArgument, index, &message));
            }
            let scores = &scores[index * scores_a_target..(index + 1) * scores_a_target];
            self.add_row(index, scores, target, weight)?;
        }
        self.check_size()
    }

    /// Adds the row of the target `index` of a batch.
    fn add_row(&mut self, index: usize, scores: &[f64], target: f64, weight: f64) -> Result<()> {
        if scores.iter().any(|score| score.is_nan()) {
            let message = "the score NaN, which has no rank: the model has diverged";
            return Err(self.failed(ErrorKind::Diverged, index, message));
        }
        let classes = match self.sums {
            Sums::Matrix(_) => self.metric.width(),
            _ => 2,
        };
        let Some(class) = class(target, classes) else {
            let message = format!("the target {target}; expected 0 to {}", classes - 1);
            return Err(self.failed(ErrorKind::InvalidArgument, index, &message));
        };
        let label = index % self.metric.width();
        match &mut self.sums {
            Sums::Rows(labels) => {
                let signed = if class == 1 { weight } else { -weight };
                labels[label].push([scores[0], signed]);
            }
            Sums::Counts(counts) => {
                let Kind::PrecisionRecall { threshold, .. } = self.metric.kind else {
                    unreachable!("counts are those of precision and recall");
                };
                let counts = &mut counts[label];
                match (scores[0] > threshold, class == 1) {
                    (true, true) => counts.true_positives += weight,
                    (true, false) => counts.false_positives += weight,
                    (false, true) => counts.false_negatives += weight,
                    (false, false) => {}
                }
            }
            Sums::Matrix(matrix) => {
                let predicted = match scores {
                    [class] if classes > 1 => self::class(*class, classes),
                    scores => Some(largest(scores)),
                };
                let Some(predicted) = predicted else {
                    let message = format!(
                        "the predicted class {}; expected 0 to {}",
                        scores[0],
                        classes - 1
                    );
                    return Err(self.failed(ErrorKind::InvalidArgument, index, &message));
                };
                matrix.add(predicted, class, weight)?;
            }
        }
        Ok(())
    }

    fn failed(&self, kind: ErrorKind, index: usize, what: &str) -> Error {
        let width = self.metric.width();
        let is_by_label = !matches!(self.sums, Sums::Matrix(_)) && !self.metric.names.is_empty();
        let (row, of_label) = if is_by_label {
            let label = &self.metric.names[index % width];
            (index / width, format!(" of the label `{label}`"))
        } else {
            (index, String::new())
        };
        let (name, batch) = (self.name, self.batches);
        let message = format!("`{name}`{of_label}: row {row} of batch {batch} has {what}");
        Error::new(kind, "validate", message)
    }

    fn check_size(&self) -> Result<()> {
        let Sums::Rows(labels) = &self.sums else {
            return Ok(());
        };
        let rows = labels.iter().map(|rows| rows.len() as u64).sum::<u64>();
        let (bytes, most) = (rows * ROW_BYTES, self.metric.most_bytes);
        if bytes <= most {
            return Ok(());
        }
        let message = format!(
            "the rows of `{}` take {bytes} bytes, {ROW_BYTES} a sample and label, and the limit is \
             {most}; set another by `most_bytes`, or limit the validation by `limit_val_batches`",
            self.name
        );
        Err(Error::new(ErrorKind::OutOfMemory, "validate", message))
    }

    /// The results by name, and the confusion matrix if it is one; of all processes, if there are
    /// several.
    ///
    /// # Errors
    /// The first error of a row, in any process; NaN scores, rows beyond the limit.
    pub(crate) fn finish(mut self, processes: Option<&Processes>) -> Result<Finished> {
        if let Some(processes) = processes {
            let name = format!("metric `{}`", self.name);
            let mine = self.encoded();
            let all = processes
                .group()
                .all_gather(&name, &mine, patience(processes))?;
            let others: Vec<(usize, Vec<u8>)> = (all.into_iter().enumerate())
                .filter(|(rank, _)| *rank != processes.rank())
                .collect();
            if self.error.is_none() {
                for (rank, bytes) in others {
                    self.merge(rank, &bytes)?;
                }
                self.error = self.check_size().err();
            }
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        Ok(Finished {
            values: self.results(),
            matrix: match self.sums {
                Sums::Matrix(matrix) => Some(matrix),
                _ => None,
            },
        })
    }

    /// Sums for the other processes: a byte that is 1 if there are some, then numbers; or 0 and the
    /// text of the error.
    fn encoded(&self) -> Vec<u8> {
        if let Some(error) = &self.error {
            return [&[0], error.message().as_bytes()].concat();
        }
        let mut numbers = Vec::new();
        match &self.sums {
            Sums::Rows(labels) => {
                for rows in labels {
                    numbers.push(rows.len() as f64);
                    numbers.extend(rows.iter().flatten());
                }
            }
            Sums::Counts(counts) => numbers.extend(counts.iter().flat_map(|counts| {
                let ClassCounts {
                    true_positives,
                    false_positives,
                    false_negatives,
                } = *counts;
                [true_positives, false_positives, false_negatives]
            })),
            Sums::Matrix(matrix) => numbers.extend(matrix.counts()),
        }
        let bytes = numbers.into_iter().flat_map(f64::to_le_bytes);
        std::iter::once(1).chain(bytes).collect()
    }

    /// Adds the sums of another process.
    fn merge(&mut self, rank: usize, bytes: &[u8]) -> Result<()> {
        let text = |message: String| Error::invalid("validate", message);
        let numbers = match bytes.split_first() {
            Some((1, numbers)) => numbers,
            Some((_, error)) => {
                let error = String::from_utf8_lossy(error);
                return Err(text(format!("in process {rank}: {error}")));
            }
            None => return Err(text(format!("process {rank} sent nothing"))),
        };
        let numbers: Vec<f64> = (numbers.chunks_exact(8))
            .map(|bytes| f64::from_le_bytes(bytes.try_into().expect("chunks have 8 bytes")))
            .collect();
        let short = || text(format!("process {rank} collects another metric"));
        match &mut self.sums {
            Sums::Rows(labels) => {
                let mut rest = &numbers[..];
                for rows in labels {
                    let (count, after) = rest.split_first().ok_or_else(short)?;
                    let (own, after) = after
                        .split_at_checked(2 * *count as usize)
                        .ok_or_else(short)?;
                    rows.extend(own.chunks_exact(2).map(|row| [row[0], row[1]]));
                    rest = after;
                }
            }
            Sums::Counts(counts) => {
                for (counts, theirs) in counts.iter_mut().zip(numbers.chunks_exact(3)) {
                    counts.true_positives += theirs[0];
                    counts.false_positives += theirs[1];
                    counts.false_negatives += theirs[2];
                }
            }
            Sums::Matrix(matrix) => {
                let classes = matrix.classes();
                for (index, count) in numbers.iter().take(classes * classes).enumerate() {
                    matrix.add(index % classes, index / classes, *count)?;
                }
            }
        }
        Ok(())
    }

    fn results(&self) -> Vec<(String, f64)> {
        let (name, names) = (self.name, &self.metric.names);
        match &self.sums {
            Sums::Rows(labels) => {
                let values: Vec<f64> = labels.iter().map(|rows| self.ranked(rows)).collect();
                let first = (name.to_owned(), macro_average(values.iter().copied()));
                let labels = names.iter().zip(&values);
                let labels = labels.map(|(label, value)| (format!("{name}/{label}"), *value));
                std::iter::once(first).chain(labels).collect()
            }
            Sums::Counts(counts) => {
                let micro = micro_average(counts);
                let micro =
                    FRACTIONS.map(|(of, value)| (format!("{name}/micro_{of}"), value(micro)));
                let mut results = self.averages(counts);
                results.splice(3..3, micro);
                results
            }
            Sums::Matrix(matrix) => {
                let mut results = self.averages(&matrix.by_class());
                results.insert(0, (format!("{name}/accuracy"), matrix.accuracy()));
                results
            }
        }
    }

    fn ranked(&self, rows: &[[f64; 2]]) -> f64 {
        let rows = rows
            .iter()
            .map(|[score, weight]| (*score, *weight > 0.0, weight.abs()));
        match self.metric.kind {
            Kind::RocAuc => ranking::roc_auc_of_rows(rows),
            _ => ranking::average_precision_of_rows(rows),
        }
    }

    /// Means over labels, and then the values of each label if they are results.
    fn averages(&self, counts: &[ClassCounts]) -> Vec<(String, f64)> {
        let name = self.name;
        let of_all = FRACTIONS.iter().map(|(of, value)| {
            let values = counts.iter().map(|counts| value(*counts));
            (format!("{name}/{of}"), macro_average(values))
        });
        let mut results: Vec<(String, f64)> = of_all.collect();
        if let Kind::PrecisionRecall { by_label: true, .. } | Kind::Confusion { by_class: true } =
            self.metric.kind
        {
            for (of, value) in FRACTIONS {
                let labels = self.metric.names.iter().zip(counts);
                results.extend(
                    labels.map(|(label, counts)| (format!("{name}/{of}/{label}"), value(*counts))),
                );
            }
        }
        results
    }
}

/// Results of a metric.
pub(crate) struct Finished {
    pub(crate) values: Vec<(String, f64)>,
    pub(crate) matrix: Option<ConfusionMatrix>,
}

/// The class of a number: an integer below `classes`.
fn class(value: f64, classes: usize) -> Option<usize> {
    let is_class = value >= 0.0 && value < classes as f64 && value.fract() == 0.0;
    is_class.then_some(value as usize)
}

/// The first index of the largest score.
fn largest(scores: &[f64]) -> usize {
    let of_larger = |best: usize, (index, score): (usize, &f64)| {
        if *score > scores[best] { index } else { best }
    };
    scores.iter().enumerate().fold(0, of_larger)
}
