//! What a traced function can ask of the run it is part of, and tell it: mode, random keys, metrics, new state.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use halite_core::DType;

use crate::{Mean, Tensor, Trace, rng, trace::Id};

/// Beside the operations, a trace holds what passes between the traced function and its caller.
#[derive(Default)]
pub(crate) struct Context {
    training: Cell<bool>,
    key: Cell<Option<Id>>,
    keys_taken: Cell<u32>,
    metrics: RefCell<Vec<(Arc<str>, Id, Id)>>,
    updates: RefCell<Vec<(Id, Id)>>,
}

/// What a body said beside its result: metrics as name, total and weight, and states with their new values.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) metrics: Vec<(Arc<str>, Id, Id)>,
    pub(crate) updates: Vec<(Id, Id)>,
}

impl Trace {
    /// Whether this is a training step: dropout drops, batch norm uses the batch's statistics.
    pub fn is_training(&self) -> bool {
        self.context.training.get()
    }

    /// Sets the mode, and the random key (`u32[2]`) that [`next_key`](Self::next_key) draws from.
    pub fn set_mode(&self, training: bool, key: Option<Tensor<'_>>) {
        self.context.training.set(training);
        self.context.key.set(key.map(|key| key.id));
        self.context.keys_taken.set(0);
    }

    /// A random key that no other call gets, `u32[2]`. It depends on the step's key and on how many were taken before.
    #[track_caller]
    pub fn next_key(&self) -> Tensor<'_> {
        let Some(key) = self.context.key.get() else {
            let like = halite_core::TensorType::new(DType::U32, [2]);
            return self.fail("random key", "this function is run without a random key; give one with `set_mode`", Some(like));
        };
        let taken = self.context.keys_taken.get();
        self.context.keys_taken.set(taken + 1);
        rng::fold_in(self.tensor(key), taken)
    }

    /// Has `body` draw its keys from `key`, if there are keys at all, of which `taken` are drawn already. Says how many are now.
    pub(crate) fn with_key<R>(&self, key: Option<Tensor<'_>>, taken: u32, body: impl FnOnce() -> R) -> (R, u32) {
        let Some(key) = key else { return (body(), taken) };
        let outer = self.context.key.replace(Some(key.id));
        let outer_taken = self.context.keys_taken.replace(taken);
        let result = body();
        self.context.key.set(outer);
        (result, self.context.keys_taken.replace(outer_taken))
    }

    /// Runs `body`, and takes away what it says of metrics and states.
    pub(crate) fn hear<R>(&self, body: impl FnOnce() -> R) -> (R, Said) {
        let (metrics, updates) = (self.context.metrics.borrow().len(), self.context.updates.borrow().len());
        let result = body();
        let metrics = self.context.metrics.borrow_mut().split_off(metrics);
        (result, Said { metrics, updates: self.context.updates.borrow_mut().split_off(updates) })
    }

    /// Whether [`next_key`](Self::next_key) can be called.
    pub(crate) fn has_key(&self) -> bool {
        self.context.key.get().is_some()
    }

    /// Reports a metric of this step. Over many steps the weighted mean is kept, on the device. A name is used once a step.
    /// In the body of a scan, it is the weighted mean over all turns, too.
    #[track_caller]
    pub fn metric<'t>(&'t self, name: &str, value: impl Into<Mean<'t>>) {
        let Mean { total, weight } = value.into();
        if self.context.metrics.borrow().iter().any(|(known, ..)| **known == *name) {
            self.fail("metric", format!("`{name}` is reported already; give this one another name"), None);
            return;
        }
        for (what, tensor) in [("total", total), ("weight", weight)] {
            if tensor.rank() != 0 && !tensor.is_error() {
                let message = format!("the {what} of `{name}` is {}; it is to be a scalar, as by `sum_all`", tensor.ty());
                self.fail("metric", message, None);
                return;
            }
        }
        self.context.metrics.borrow_mut().push((Arc::from(name), total.id, weight.id));
    }

    /// Says that after this step `state`, a leaf of the model that is no parameter, has this value. In the body of a scan
    /// `state` is a slice that the turn gets, as a leaf of a [`Stack`](crate::Stack) is.
    pub fn update(&self, state: Tensor<'_>, value: Tensor<'_>) {
        self.context.updates.borrow_mut().push((state.id, value.id));
    }

    /// The metrics reported so far, in order.
    pub fn metrics(&self) -> Vec<(Arc<str>, Mean<'_>)> {
        let metrics = self.context.metrics.borrow();
        metrics
            .iter()
            .map(|(name, total, weight)| (name.clone(), Mean { total: self.tensor(*total), weight: self.tensor(*weight) }))
            .collect()
    }

    /// The value that [`update`](Self::update) last gave to `state`, or `state` itself.
    pub fn updated<'t>(&'t self, state: Tensor<'t>) -> Tensor<'t> {
        let updates = self.context.updates.borrow();
        updates.iter().rev().find(|(old, _)| *old == state.id).map_or(state, |(_, new)| self.tensor(*new))
    }
}
