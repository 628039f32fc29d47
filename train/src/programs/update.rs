//! The updates of a training step.

use std::sync::Arc;

use halite_core::tree::Tree;
use halite_nn::{Mean, Param, Trace, Traced};

use super::step::GRADIENT_NORM;
use crate::{Task, Update, state::Turn, trained::is_trained};

/// Number and description of an update.
type Described<'a, K> = (usize, &'a Update<<K as Task>::Model, <K as Task>::Batch>);

/// One of the updates of a step.
pub(super) struct StepUpdate<'a, K: Task> {
    task: &'a K,
    /// Its number and description, if the task describes its updates.
    described: Option<Described<'a, K>>,
}

impl<'a, K: Task> StepUpdate<'a, K> {
    /// The updates of a step, in order: one of all parameters, if the task does not describe others.
    pub(super) fn all(task: &'a K) -> Vec<Self> {
        let one = |described| StepUpdate { task, described };
        match task.updates() {
            [] => vec![one(None)],
            updates => (updates.iter().enumerate())
                .map(|update| one(Some(update)))
                .collect(),
        }
    }

    /// The parameters that it changes, and when.
    pub(super) fn turn(&self) -> Turn<'a> {
        self.described
            .map_or(Turn::default(), |(_, update)| update.turn())
    }

    pub(super) fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Traced<'t, K::Model>,
        batch: &Traced<'t, K::Batch>,
    ) -> Mean<'t> {
        match self.described {
            Some((number, update)) => update.loss(number, cx, model, batch),
            None => self.task.loss(cx, model, batch),
        }
    }

    /// Name of the metric that is the norm of its gradients.
    pub(super) fn norm_name(&self) -> String {
        match self.described {
            Some((number, update)) if number > 0 => update.metric(GRADIENT_NORM),
            _ => GRADIENT_NORM.to_string(),
        }
    }

    /// Paths of the parameters that it changes.
    pub(super) fn trained_paths<M: Tree<Leaf = Param>>(&self, params: &M) -> Vec<Arc<str>> {
        let named = params.named().into_iter();
        let trained = named.filter(|(path, param)| {
            is_trained(param) && self.turn().part.is_none_or(|part| part.matches(path))
        });
        trained.map(|(path, _)| Arc::from(path)).collect()
    }
}
