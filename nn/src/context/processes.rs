//! The processes of a traced function, and the order of its exchanges with them.

use std::cell::{Cell, RefCell};

use halite_core::DType;

use crate::{Mean, Tensor, Trace, process_group::Processes, trace::Id};

/// State of the exchanges of a function.
#[derive(Default)]
pub(super) struct Exchanges {
    processes: RefCell<Option<Processes>>,
    /// Samples of the batch of this process, once they are known.
    pub(super) samples: Cell<Option<usize>>,
    /// The token after each exchange, the newest last. Those of a region that is closed cannot be
    /// used: the exchange after it has the token from before it.
    tokens: RefCell<Vec<Id>>,
    has_exchanged: Cell<bool>,
    /// Whether the weight of the loss is that of all processes.
    has_total_weight: Cell<bool>,
    /// Metrics that are means over all processes: the first ones.
    shared_metrics: Cell<usize>,
}

impl Trace {
    /// Sets the processes that run this function, each on its part of the batch: layers that compute
    /// statistics of a batch, and random numbers for its samples, take all parts into account.
    ///
    /// `after` is a scalar that is there when the launch before is done, such as the number of the
    /// step: the exchanges of two launches must not mix.
    #[track_caller]
    pub fn set_processes<'t>(&'t self, processes: &Processes, after: Tensor<'t>) {
        let exchanges = &super::context(self).processes;
        exchanges.processes.replace(Some(processes.clone()));
        let token = after.convert(DType::F32);
        exchanges.tokens.replace(vec![token.id]);
    }

    /// The processes that run this function, if there are several.
    pub fn processes(&self) -> Option<Processes> {
        super::context(self).processes.processes.borrow().clone()
    }
}

/// The processes that this function exchanges buffers with, if there are several.
pub(crate) fn exchanging_processes(cx: &Trace) -> Option<Processes> {
    cx.processes()
        .filter(|processes| processes.size() > 1 && has_exchanged(cx))
}

/// The token of the next exchange.
pub(crate) fn process_token(cx: &Trace) -> Tensor<'_> {
    let mut tokens = super::context(cx).processes.tokens.borrow_mut();
    while let Some(&last) = tokens.last() {
        let last = cx.tensor(last);
        if cx.can_use(last) {
            return last;
        }
        tokens.pop();
    }
    cx.scalar(0.0, DType::F32)
}

/// Makes the next exchange follow the one that gave this token.
pub(crate) fn exchanged(cx: &Trace, token: Tensor<'_>) {
    let exchanges = &super::context(cx).processes;
    exchanges.tokens.borrow_mut().push(token.id);
    exchanges.has_exchanged.set(true);
}

/// Whether this function has exchanged anything so far.
pub(crate) fn has_exchanged(cx: &Trace) -> bool {
    super::context(cx).processes.has_exchanged.get()
}

/// Remembers that the weight of the loss is that of all processes.
pub(crate) fn set_total_weight(cx: &Trace) {
    super::context(cx).processes.has_total_weight.set(true);
}

/// Whether the weight of the loss is that of all processes; that of the next loss is not.
pub(crate) fn take_total_weight(cx: &Trace) -> bool {
    super::context(cx).processes.has_total_weight.take()
}

/// The metrics that are reported so far, and are not means over all processes.
pub(crate) fn own_metrics(cx: &Trace) -> Vec<Mean<'_>> {
    let metrics = super::context(cx).metrics.borrow();
    let mean = |metric: &super::Metric| Mean {
        total: cx.tensor(metric.total),
        weight: cx.tensor(metric.weight),
    };
    let shared = super::context(cx).processes.shared_metrics.get();
    metrics[shared..].iter().map(mean).collect()
}

/// Puts means over all processes in the place of [`own_metrics`].
pub(crate) fn share_metrics(cx: &Trace, means: Vec<Mean<'_>>) {
    let mut metrics = super::context(cx).metrics.borrow_mut();
    let shared = super::context(cx)
        .processes
        .shared_metrics
        .replace(metrics.len());
    for (metric, mean) in metrics[shared..].iter_mut().zip(means) {
        (metric.total, metric.weight) = (mean.total.id, mean.weight.id);
    }
}
