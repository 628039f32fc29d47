//! The processes of a traced function, and the order of its exchanges with them.

use std::cell::{Cell, RefCell};

use halite_core::DType;

use crate::{Mean, Tensor, Trace, process_group::Processes, trace::Id};

/// State of the exchanges of a function.
#[derive(Default)]
pub(super) struct Exchanges {
    processes: RefCell<Option<Processes>>,
    /// The token after each exchange, the newest last. Those of a region that is closed cannot be
    /// used: the exchange after it has the token from before it.
    tokens: RefCell<Vec<Id>>,
    has_exchanged: Cell<bool>,
    has_total_weight: Cell<bool>,
}

impl Trace {
    /// Sets the processes that run this function, each on its part of the batch: layers that compute
    /// statistics of a batch, and random numbers for its samples, take all parts into account.
    ///
    /// `after` is a scalar that is there when the launch before is done, such as the number of the
    /// step: the exchanges of two launches must not mix.
    #[track_caller]
    pub fn set_processes<'t>(&'t self, processes: &Processes, after: Tensor<'t>) {
        let exchanges = &self.context.processes;
        exchanges.processes.replace(Some(processes.clone()));
        let token = after.convert(DType::F32);
        exchanges.tokens.replace(vec![token.id]);
    }

    /// The processes that run this function, if there are several.
    pub fn processes(&self) -> Option<Processes> {
        self.context.processes.processes.borrow().clone()
    }

    /// The token of the next exchange.
    pub(crate) fn process_token(&self) -> Tensor<'_> {
        let mut tokens = self.context.processes.tokens.borrow_mut();
        while let Some(&last) = tokens.last() {
            let last = self.tensor(last);
            if self.can_use(last) {
                return last;
            }
            tokens.pop();
        }
        self.scalar(0.0, DType::F32)
    }

    /// Makes the next exchange follow the one that gave this token.
    pub(crate) fn exchanged(&self, token: Tensor<'_>) {
        let exchanges = &self.context.processes;
        exchanges.tokens.borrow_mut().push(token.id);
        exchanges.has_exchanged.set(true);
    }

    /// Whether this function has exchanged anything so far.
    pub(crate) fn has_exchanged(&self) -> bool {
        self.context.processes.has_exchanged.get()
    }

    /// Remembers that the weight of the loss is that of all processes.
    pub(crate) fn set_total_weight(&self) {
        self.context.processes.has_total_weight.set(true);
    }

    pub(crate) fn has_total_weight(&self) -> bool {
        self.context.processes.has_total_weight.get()
    }

    /// The metrics that are reported so far.
    pub(crate) fn reported(&self) -> Vec<Mean<'_>> {
        let metrics = self.context.metrics.borrow();
        let mean = |metric: &super::Metric| Mean {
            total: self.tensor(metric.total),
            weight: self.tensor(metric.weight),
        };
        metrics.iter().map(mean).collect()
    }

    /// Puts these means in the place of those that are reported.
    pub(crate) fn set_reported(&self, means: Vec<Mean<'_>>) {
        let mut metrics = self.context.metrics.borrow_mut();
        for (metric, mean) in metrics.iter_mut().zip(means) {
            (metric.total, metric.weight) = (mean.total.id, mean.weight.id);
        }
    }
}
