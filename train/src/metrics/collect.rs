//! Metrics that a task collects: what they are of, and the checks of their rows.

use std::{any::Any, panic::Location, sync::Arc};

use halite_core::TensorType;
use halite_nn::{CollectedRows, Tensor, Trace};

/// Largest memory of the rows of one metric, in bytes: 1 GiB.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// Method of [`Trace`] that reports a metric of a whole validation set.
pub trait Collect {
    /// Reports a metric that is not a mean over batches, such as ROC-AUC. Its rows come back from the
    /// evaluation with the results of each batch, and it is computed from those of all batches,
    /// devices and processes at the end of the validation, on the host in `f64`. In training
    /// nothing is collected.
    ///
    /// The shapes of `scores` and `targets` are those of the metric: see [`RocAuc`],
    /// [`AveragePrecision`], [`PrecisionRecall`] and [`Confusion`]. `weight`, such as that of the
    /// batch, has the dimensions of the samples: `[batch]`; or those of the targets. Rows of weight
    /// 0 are left out.
    ///
    /// ```
    /// # use halite_core::{DType, TensorType};
    /// # use halite_nn::Trace;
    /// use halite_train::{Collect, metrics::RocAuc};
    ///
    /// # let cx = &Trace::new();
    /// # cx.set_mode(false, None);
    /// # let logits = cx.input(TensorType::new(DType::F32, [8, 2]), "logits");
    /// # let target = cx.input(TensorType::new(DType::F32, [8, 2]), "target");
    /// # let weight = cx.input(TensorType::new(DType::F32, [8]), "weight");
    /// // In `Task::loss`:
    /// let auc = RocAuc::by_label(&["effusion", "embolism"]);
    /// cx.collect("roc_auc", auc, logits, target, weight);
    /// # assert!(cx.mistakes().is_empty());
    /// ```
    fn collect<'t>(
        &'t self,
        name: &str,
        metric: impl Into<SetMetric>,
        scores: Tensor<'t>,
        targets: Tensor<'t>,
        weight: Tensor<'t>,
    );
}

impl Collect for Trace {
    #[track_caller]
    fn collect<'t>(
        &'t self,
        name: &str,
        metric: impl Into<SetMetric>,
        scores: Tensor<'t>,
        targets: Tensor<'t>,
        weight: Tensor<'t>,
    ) {
        let _site = self.called_from(Location::caller());
        let tensors = [scores, targets, weight];
        if self.is_training() || tensors.iter().any(|tensor| tensor.is_error()) {
            return;
        }
        let metric = metric.into();
        let [scores_type, targets_type, weight_type] = tensors.map(|tensor| tensor.ty());
        if let Err(message) = metric.check(&scores_type, &targets_type, &weight_type) {
            self.fail("collect", format!("`{name}`: {message}"), None);
            return;
        }
        let metric: Arc<dyn Any + Send + Sync> = Arc::new(metric);
        self.collect_rows(CollectedRows {
            name: name.into(),
            metric,
            scores,
            targets,
            weight,
        });
    }
}

/// A metric of a whole data set, for [`Collect::collect`]: [`RocAuc`], [`AveragePrecision`],
/// [`PrecisionRecall`] or [`Confusion`].
#[derive(Clone, Debug)]
pub struct SetMetric {
    pub(super) kind: Kind,
    /// Names of labels or classes; empty for one label.
    pub(super) names: Vec<String>,
    pub(super) most_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    RocAuc,
    AveragePrecision,
    PrecisionRecall { threshold: f64, by_label: bool },
    Confusion { by_class: bool },
}

/// Area under the ROC curve.
///
/// `scores: [batch, .., labels]` of floats and `targets` of the same dimensions, 0 and 1, of any
/// element type; for [`binary`](Self::binary) both are `[batch, ..]`. Logits and probabilities give
/// equal values, as long as they have the same order.
///
/// Results: the mean over the labels with samples of both classes, under the name of the metric;
/// and the value of each label, `roc_auc/effusion`. Others are NaN, with a warning. Rows take 16
/// bytes a sample and label until the end of the validation.
#[derive(Clone, Debug)]
pub struct RocAuc(SetMetric);

/// Average precision, of the shapes and with the results of [`RocAuc`].
#[derive(Clone, Debug)]
pub struct AveragePrecision(SetMetric);

macro_rules! ranking {
    ($name:ident) => {
        impl $name {
            /// The metric of each of several labels, and their mean.
            pub fn by_label<S: AsRef<str>>(names: &[S]) -> Self {
                $name(SetMetric::new(Kind::$name, names))
            }

            /// The metric of one label.
            pub fn binary() -> Self {
                $name(SetMetric::new::<&str>(Kind::$name, &[]))
            }

            /// Sets the largest memory of the rows, in bytes. More rows are an error. Default
            /// 1 GiB: 6.7 million samples of 10 labels.
            pub fn most_bytes(mut self, most_bytes: u64) -> Self {
                self.0.most_bytes = most_bytes;
                self
            }
        }

        impl From<$name> for SetMetric {
            fn from(metric: $name) -> Self {
                metric.0
            }
        }
    };
}

ranking!(RocAuc);
ranking!(AveragePrecision);

/// Precision, recall and F1 of several labels of which a sample has any number.
///
/// `scores: [batch, .., labels]` of floats, which predict a label where they are above the
/// threshold, 0 by default: right for logits. `targets` of the same dimensions, 0 and 1.
///
/// Results: `name/precision`, `name/recall` and `name/f1`, means over the labels, and
/// `name/micro_precision`, `name/micro_recall` and `name/micro_f1` over all samples and labels
/// together. They take no memory for each row.
#[derive(Clone, Debug)]
pub struct PrecisionRecall(SetMetric);

impl PrecisionRecall {
    /// The metric of these labels.
    pub fn of_labels<S: AsRef<str>>(names: &[S]) -> Self {
        let kind = Kind::PrecisionRecall {
            threshold: 0.0,
            by_label: false,
        };
        PrecisionRecall(SetMetric::new(kind, names))
    }

    /// Sets the score above which a label is predicted: 0.5 for probabilities.
    pub fn threshold(mut self, score: f64) -> Self {
        if let Kind::PrecisionRecall { threshold, .. } = &mut self.0.kind {
            *threshold = score;
        }
        self
    }

    /// Adds the results of each label: `name/f1/effusion`.
    pub fn by_label(mut self) -> Self {
        if let Kind::PrecisionRecall { by_label, .. } = &mut self.0.kind {
            *by_label = true;
        }
        self
    }
}

impl From<PrecisionRecall> for SetMetric {
    fn from(metric: PrecisionRecall) -> Self {
        metric.0
    }
}

/// Confusion matrix of predicted and true classes.
///
/// `scores: [batch, .., classes]`, of which the class with the largest is predicted, the first of
/// equal ones; or predicted classes, integers `[batch, ..]`. `targets: [batch, ..]` of integers.
///
/// Results: `name/accuracy`, and `name/precision`, `name/recall` and `name/f1`, means over the
/// classes. Of up to 100 classes the matrix is in [`Report::confusion`](crate::Report), in
/// `report.html`, and of up to 10 in the text at the end of a run. It takes no memory for each row.
#[derive(Clone, Debug)]
pub struct Confusion(SetMetric);

impl Confusion {
    /// The matrix of classes with these names.
    pub fn of_classes<S: AsRef<str>>(names: &[S]) -> Self {
        let kind = Kind::Confusion { by_class: false };
        Confusion(SetMetric::new(kind, names))
    }

    /// Adds precision, recall and F1 of each class to the results: `name/recall/cat`.
    pub fn by_class(mut self) -> Self {
        self.0.kind = Kind::Confusion { by_class: true };
        self
    }
}

impl From<Confusion> for SetMetric {
    fn from(metric: Confusion) -> Self {
        metric.0
    }
}

impl SetMetric {
    fn new<S: AsRef<str>>(kind: Kind, names: &[S]) -> Self {
        SetMetric {
            kind,
            names: names.iter().map(|name| name.as_ref().to_owned()).collect(),
            most_bytes: MOST_BYTES,
        }
    }

    /// Names of the classes.
    pub(super) fn class_names(&self) -> &[String] {
        &self.names
    }

    /// Number of labels or classes.
    pub(super) fn width(&self) -> usize {
        self.names.len().max(1)
    }

    /// Checks the types of the rows of a batch.
    fn check(
        &self,
        scores: &TensorType,
        targets: &TensorType,
        weight: &TensorType,
    ) -> Result<(), String> {
        self.check_names()?;
        let (dims, samples) = (scores.dims(), targets.dims());
        let is_ranked = matches!(self.kind, Kind::RocAuc | Kind::AveragePrecision);
        let expected = match (self.kind, self.names.len()) {
            (Kind::Confusion { .. }, classes) => {
                let is_logits = dims.split_last() == Some((&classes, samples));
                let is_class = dims == samples && !scores.dtype().is_float();
                let is_integer = !targets.dtype().is_float();
                ((is_logits || is_class) && is_integer && !samples.is_empty()).then_some(samples)
            }
            (_, 0) if is_ranked => (dims == samples && !dims.is_empty()).then_some(dims),
            (_, labels) => match dims.split_last() {
                Some((last, rows)) if *last == labels && dims == samples && !rows.is_empty() => {
                    Some(rows)
                }
                _ => None,
            },
        };
        let Some(rows) = expected else {
            return Err(format!(
                "scores {scores} and targets {targets}; expected {}",
                self.expected()
            ));
        };
        if weight.dims() != rows && weight.dims() != samples {
            return Err(format!(
                "weight {weight}; expected a weight of each sample, with dimensions {rows:?}"
            ));
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), String> {
        let is_optional = matches!(self.kind, Kind::RocAuc | Kind::AveragePrecision);
        if self.names.is_empty() && !is_optional {
            return Err("no label or class is named".to_owned());
        }
        let is_unusable = |name: &&String| name.trim().is_empty() || name.contains(['\n', '\r']);
        if let Some(name) = self.names.iter().find(is_unusable) {
            return Err(format!("{name:?} is no name of a label"));
        }
        let twice = (self.names.iter().enumerate())
            .find(|(index, name)| self.names[..*index].contains(name));
        match twice {
            Some((_, name)) => Err(format!("two labels have the name `{name}`")),
            None => Ok(()),
        }
    }

    fn expected(&self) -> String {
        let count = self.names.len();
        match self.kind {
            Kind::Confusion { .. } => format!(
                "scores [batch, .., {count}], or predicted classes as integers [batch, ..], and \
                 targets as integers [batch, ..]"
            ),
            _ if count == 0 => "both [batch, ..]".to_owned(),
            _ => format!("both [batch, .., {count}], as there are {count} labels"),
        }
    }
}
