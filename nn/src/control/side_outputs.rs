//! Metrics and updated states of bodies, which leave a loop or checkpoint as further results.

use std::{panic::Location, sync::Arc};

use crate::{Mean, Tensor, Trace, context, context::SideOutputs, trace::Id};

/// Metrics as name, total and weight; and new values of states.
pub(super) type Reports<'t> = (Vec<(Arc<str>, Tensor<'t>, Tensor<'t>)>, Vec<Tensor<'t>>);

/// Runs a body that may not report metrics or update states.
pub(super) fn without_side_outputs<R>(
    cx: &Trace,
    op: &str,
    location: &'static Location<'static>,
    body: impl FnOnce() -> R,
) -> R {
    let (result, side) = context::with_side_outputs(cx, body);
    for (name, ..) in &side.metrics {
        let message = format!(
            "`{name}` is reported in a body that may not run; return it, and report it outside"
        );
        cx.fail_at(location, op, message, None);
    }
    if !side.updates.is_empty() {
        let message = "a state is updated in a body that may not run; return its value, and \
                       update it outside";
        cx.fail_at(location, op, message, None);
    }
    result
}

/// Reports the side outputs of a body outside of it.
#[track_caller]
pub(super) fn report<'t>(
    cx: &'t Trace,
    reports: Reports<'t>,
    states: impl Iterator<Item = Tensor<'t>>,
) {
    let (metrics, values) = reports;
    for (name, total, weight) in metrics {
        cx.metric(&name, Mean { total, weight });
    }
    for (state, value) in states.zip(values) {
        cx.update(state, value);
    }
}

impl SideOutputs {
    /// All tensors.
    pub(super) fn leaves(&self) -> impl Iterator<Item = Id> + '_ {
        let of_metrics = self
            .metrics
            .iter()
            .flat_map(|&(_, total, weight)| [total, weight]);
        of_metrics.chain(self.updates.iter().map(|&(_, value)| value))
    }

    /// The same side outputs with other tensors, converted by `metric`.
    pub(super) fn with<'t>(
        self,
        leaves: Vec<Tensor<'t>>,
        metric: impl Fn(Arc<str>, Tensor<'t>, Tensor<'t>) -> (Arc<str>, Tensor<'t>, Tensor<'t>),
    ) -> Reports<'t> {
        let mut leaves = leaves.into_iter();
        let mut next = || leaves.next().expect("as many results as side outputs");
        let metrics = self
            .metrics
            .into_iter()
            .map(|(name, ..)| metric(name, next(), next()))
            .collect();
        (metrics, leaves.collect())
    }
}
