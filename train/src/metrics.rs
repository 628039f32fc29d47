//! Metrics of whole data sets, computed in `f64` on the host: ROC-AUC, average precision, confusion
//! matrices and what follows from them.
//!
//! [`Collect`] has a task report them in a validation; the functions are for arrays of your own.
//! Nothing here knows a device. The functions take slices; values and the treatment of ties are
//! those of scikit-learn.
//!
//! Undefined values, such as the ROC-AUC of a label with samples of one class only, are NaN.

mod collect;
mod collected;
mod confusion;
mod ranking;
mod set;
#[cfg(test)]
mod tests;

pub(crate) use self::collected::{CollectedMetrics, Collecting, Scores};
pub use self::{
    collect::{AveragePrecision, Collect, Confusion, PrecisionRecall, RocAuc, SetMetric},
    collected::{ConfusionTable, MetricReport},
    confusion::{ClassCounts, ConfusionMatrix, confusion, macro_average, micro_average},
    ranking::{average_precision, roc_auc, weighted_average_precision, weighted_roc_auc},
};
