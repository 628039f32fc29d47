//! Rows of an evaluation that its program returns, for metrics of whole data sets.

use std::{any::Any, panic::Location, sync::Arc};

use crate::{Tensor, Trace, trace::Id};

/// Rows of a batch for a metric that needs those of the whole data set, such as ROC-AUC.
#[derive(Clone, Debug)]
pub struct CollectedRows<'t> {
    /// Name of the metric.
    pub name: Arc<str>,
    /// Description of the metric, for what computes it on the host.
    pub metric: Arc<dyn Any + Send + Sync>,
    /// Scores or predictions of the samples.
    pub scores: Tensor<'t>,
    /// Targets of the samples.
    pub targets: Tensor<'t>,
    /// Weights of the samples: 0 for padding.
    pub weight: Tensor<'t>,
}

pub(super) struct Collected {
    pub(super) name: Arc<str>,
    metric: Arc<dyn Any + Send + Sync>,
    pub(super) scores: Id,
    pub(super) targets: Id,
    pub(super) weight: Id,
    pub(super) location: &'static Location<'static>,
}

impl Trace {
    /// Returns these rows from the program beside its results: what runs the program takes them by
    /// [`collected_rows`](Self::collected_rows). A name is used once per function, and not in the
    /// body of a loop or branch.
    #[track_caller]
    pub fn collect_rows(&self, rows: CollectedRows<'_>) {
        let name = &rows.name;
        let is_known = |known: &Collected| known.name == *name;
        if super::context(self).collected.borrow().iter().any(is_known) {
            let message = format!("`{name}` is collected already; give this one another name");
            self.fail("collect", message, None);
            return;
        }
        if self.recording.borrow().scope() != 0 {
            let message = format!(
                "`{name}` is collected in the body of a loop or branch; return its rows from the \
                 body, and collect them outside"
            );
            self.fail("collect", message, None);
            return;
        }
        let location = self.origin(Location::caller());
        super::context(self).collected.borrow_mut().push(Collected {
            name: rows.name,
            metric: rows.metric,
            scores: rows.scores.id,
            targets: rows.targets.id,
            weight: rows.weight.id,
            location,
        });
    }

    /// The rows collected so far, in order.
    pub fn collected_rows(&self) -> Vec<CollectedRows<'_>> {
        let rows = |collected: &Collected| CollectedRows {
            name: collected.name.clone(),
            metric: collected.metric.clone(),
            scores: self.tensor(collected.scores),
            targets: self.tensor(collected.targets),
            weight: self.tensor(collected.weight),
        };
        super::context(self)
            .collected
            .borrow()
            .iter()
            .map(rows)
            .collect()
    }
}
