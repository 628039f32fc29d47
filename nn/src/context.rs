//! Context of a traced function: its mode and random keys, and its side outputs, metrics and new
//! states.

mod collected;
mod processes;
mod samples;
mod weighted;

use std::{
    cell::{Cell, RefCell},
    panic::Location,
    sync::Arc,
};

use halite_core::{DType, DTypePolicy};

pub(crate) use self::processes::{
    exchanged, exchanging_processes, has_exchanged, own_metrics, process_token, set_total_weight,
    share_metrics, take_total_weight,
};
pub use self::{collected::CollectedRows, weighted::Padded};
use crate::{IntoMean, Mean, Tensor, Trace, rng, trace::Id};

/// Values that pass between the traced function and its caller, besides arguments and results.
#[derive(Default)]
struct Context {
    /// Training or evaluation; `None` until [`Trace::set_mode`].
    training: Cell<Option<bool>>,
    /// Whether the mode was read before it was set: one mistake, however many layers read it.
    mode_missed: Cell<bool>,
    key: Cell<Option<Id>>,
    keys_taken: Cell<u32>,
    metrics: RefCell<Vec<Metric>>,
    /// Rows for metrics of whole data sets.
    collected: RefCell<Vec<collected::Collected>>,
    /// Whether [`Trace::metrics`] was called.
    metrics_taken: Cell<bool>,
    updates: RefCell<Vec<Update>>,
    class_targets: RefCell<Vec<ClassTarget>>,
    /// The first line that took a gradient.
    first_gradient: Cell<Option<&'static Location<'static>>>,
    /// Whether the loss is scaled: [`Trace::scales_loss`].
    scales_loss: Cell<bool>,
    processes: processes::Exchanges,
}

struct Metric {
    name: Arc<str>,
    total: Id,
    weight: Id,
    location: &'static Location<'static>,
}

/// A new value of a state.
struct Update {
    state: Id,
    value: Id,
    location: &'static Location<'static>,
    /// Whether [`Trace::updated`] returned it.
    taken: Cell<bool>,
}

/// Side outputs of a body: metrics as name, total and weight, and states with their new values.
#[derive(Default)]
pub(crate) struct SideOutputs {
    pub(crate) metrics: Vec<(Arc<str>, Id, Id)>,
    pub(crate) updates: Vec<(Id, Id)>,
}

/// An integer input of a program that a loss takes as classes: see [`Trace::class_targets`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClassTarget {
    /// Name of the input, as [`Trace::input`] was given it.
    pub input: Arc<str>,
    /// Number of classes: targets are from 0 to one less.
    pub classes: usize,
    /// A target besides, whose samples do not count.
    pub ignored: Option<i32>,
    /// The user's line that computes the loss.
    pub location: &'static Location<'static>,
}

impl Trace {
    /// Whether this is a training step: dropout drops, batch norm uses the statistics of the batch.
    ///
    /// Reading the mode before [`set_mode`](Self::set_mode) is a mistake: there is no default.
    #[track_caller]
    pub fn is_training(&self) -> bool {
        training_for(self, "is_training")
    }

    /// Sets the mode, and the random key (`u32[2]`) that [`next_key`](Self::next_key) draws from.
    ///
    /// [`Dropout`](crate::Dropout) and [`BatchNorm`](crate::BatchNorm) ask for the mode. The
    /// trainer sets it; a [`Jit`](crate::Jit) of your own begins with this call, with another key
    /// for every training step, such as `rng::fold_in(key, step)`:
    ///
    /// ```
    /// use halite_core::{DType, TensorType};
    /// use halite_nn::{Dropout, Trace, rng};
    ///
    /// let cx = Trace::new();
    /// let step = cx.input(TensorType::scalar(DType::U32), "step");
    /// let x = cx.input(TensorType::new(DType::F32, [8]), "x");
    /// cx.set_mode(true, Some(rng::fold_in(rng::constant_key(&cx, rng::key(0)), step)));
    /// let _ = Dropout::new(0.1).forward(x);
    /// assert!(cx.check().is_ok());
    /// ```
    pub fn set_mode(&self, training: bool, key: Option<Tensor<'_>>) {
        context(self).training.set(Some(training));
        context(self).key.set(key.map(|key| key.id));
        context(self).keys_taken.set(0);
    }

    /// A random key that no other call gets, `u32[2]`. It depends on the step's key and on how many
    /// were taken before.
    #[track_caller]
    pub fn next_key(&self) -> Tensor<'_> {
        let Some(key) = context(self).key.get() else {
            let like = halite_core::TensorType::new(DType::U32, [2]);
            return self.fail(
                "random key",
                "this function is run without a random key; give one with `set_mode`",
                Some(like),
            );
        };
        let taken = context(self).keys_taken.get();
        context(self).keys_taken.set(taken + 1);
        rng::fold_in(self.tensor(key), taken)
    }

    /// Runs `body`; the metrics that it reports count, and the states that it updates change, only
    /// if `condition`, a `bool` scalar, is true.
    ///
    /// ```
    /// use halite_core::{DType, TensorType};
    /// use halite_nn::{Mean, Trace};
    ///
    /// let cx = &Trace::new();
    /// let weight = cx.input(TensorType::new(DType::F32, [8]), "weight");
    /// let has_samples = weight.sum_all().gt(0.0);
    /// cx.report_if(has_samples, || cx.metric("rows", Mean::of(weight)));
    /// assert!(cx.mistakes().is_empty());
    /// ```
    #[track_caller]
    pub fn report_if<'t, R>(&'t self, condition: Tensor<'t>, body: impl FnOnce() -> R) -> R {
        let site = self.called_from(Location::caller());
        let first_metric = context(self).metrics.borrow().len();
        let first_update = context(self).updates.borrow().len();
        let result = site.outside(body);
        let or_zero = |id: Id| condition.select(self.tensor(id), 0.0).id;
        let sums: Vec<[Id; 2]> = context(self).metrics.borrow()[first_metric..]
            .iter()
            .map(|metric| [metric.total, metric.weight])
            .collect();
        for (index, sums) in sums.into_iter().enumerate() {
            let [total, weight] = sums.map(or_zero);
            let metric = &mut context(self).metrics.borrow_mut()[first_metric + index];
            (metric.total, metric.weight) = (total, weight);
        }
        let updates = context(self).updates.borrow().len();
        for index in first_update..updates {
            let (value, before) = {
                let updates = context(self).updates.borrow();
                let Update { state, value, .. } = updates[index];
                let before = updates[..first_update].iter().rev();
                let before = before.filter(|update| update.state == state);
                (
                    value,
                    before.map(|update| update.value).next().unwrap_or(state),
                )
            };
            let value = condition.select(self.tensor(value), self.tensor(before)).id;
            context(self).updates.borrow_mut()[index].value = value;
        }
        result
    }

    /// Reports a metric of this step. Its weighted mean over steps accumulates on the device. A name
    /// is used once per step. In the body of a scan the metric is the weighted mean over all
    /// iterations.
    #[track_caller]
    pub fn metric<'t>(&'t self, name: &str, value: impl IntoMean<'t>) {
        let Mean { total, weight } = value.into_mean();
        if context(self)
            .metrics
            .borrow()
            .iter()
            .any(|known| *known.name == *name)
        {
            self.fail(
                "metric",
                format!("`{name}` is reported already; give this one another name"),
                None,
            );
            return;
        }
        for (what, tensor) in [("total", total), ("weight", weight)] {
            if tensor.rank() != 0 && !tensor.is_error() {
                let message = format!(
                    "the {what} of `{name}` is {}; it must be a scalar, as from `sum_all`",
                    tensor.ty()
                );
                self.fail("metric", message, None);
                return;
            }
        }
        let (name, location) = (Arc::from(name), self.origin(Location::caller()));
        context(self).metrics.borrow_mut().push(Metric {
            name,
            total: total.id,
            weight: weight.id,
            location,
        });
    }

    /// Sets the value of `state`, a leaf of the model that is not a parameter, after this step. In
    /// the body of a scan, a slice of the iteration, such as a leaf of a [`Stack`](crate::Stack), has
    /// a value for each iteration; any other state is carried from one iteration to the next.
    ///
    /// The value takes effect where the function returns it: [`updated`](Self::updated).
    #[track_caller]
    pub fn update(&self, state: Tensor<'_>, value: Tensor<'_>) {
        let (location, taken) = (self.origin(Location::caller()), Cell::new(false));
        context(self).updates.borrow_mut().push(Update {
            state: state.id,
            value: value.id,
            location,
            taken,
        });
    }

    /// The metrics reported so far, in order.
    pub fn metrics(&self) -> Vec<(Arc<str>, Mean<'_>)> {
        context(self).metrics_taken.set(true);
        let mean = |metric: &Metric| Mean {
            total: self.tensor(metric.total),
            weight: self.tensor(metric.weight),
        };
        context(self)
            .metrics
            .borrow()
            .iter()
            .map(|metric| (metric.name.clone(), mean(metric)))
            .collect()
    }

    /// The value that [`update`](Self::update) last gave to `state`, or `state` itself.
    ///
    /// The next model of a training step of your own is `model.map_leaves(|_, leaf| cx.updated(leaf))`,
    /// after the optimizer. An update of a training step that is not read here would be lost,
    /// so [`Jit`](crate::Jit) makes it a mistake.
    pub fn updated<'t>(&'t self, state: Tensor<'t>) -> Tensor<'t> {
        let updates = context(self).updates.borrow();
        updates
            .iter()
            .rev()
            .find(|update| update.state == state.id)
            .map_or(state, |update| {
                update.taken.set(true);
                self.tensor(update.value)
            })
    }

    /// Drops the new values that layers gave to states so far: for a function that needs none, such as
    /// one of gradients alone in training mode.
    pub fn discard_updates(&self) {
        let updates = context(self).updates.borrow();
        updates.iter().for_each(|update| update.taken.set(true));
    }

    /// Declares that this function takes the gradients of a loss that it multiplies by a factor,
    /// and divides them by the factor. A function under a [precision policy] with a loss scale must
    /// do so: in `f16`, gradients below 6e-8 are 0.
    ///
    /// [precision policy]: crate::Jit::precision
    pub fn scales_loss(&self) {
        context(self).scales_loss.set(true);
    }

    /// The inputs that losses take as classes, so far: a target out of range makes the loss NaN,
    /// and this is the expected range.
    pub fn class_targets(&self) -> Vec<ClassTarget> {
        context(self).class_targets.borrow().clone()
    }
}

fn context(cx: &Trace) -> &Context {
    cx.state()
}

/// Like [`is_training`](Trace::is_training), for messages that name a layer.
#[track_caller]
pub(crate) fn training_for(cx: &Trace, layer: &str) -> bool {
    let mode = context(cx).training.get();
    if mode.is_none() && !context(cx).mode_missed.replace(true) {
        let message = "the mode of this function is not set; for training call first \
                       `state.set_training_mode(cx)`, if there is a `State`, or else \
                       `cx.set_mode(true, Some(key))`; for evaluation \
                       `cx.set_mode(false, None)`";
        cx.fail(layer, message, None);
    }
    mode.unwrap_or(false)
}

/// Runs `body` with `key`, if any, as the source of random keys, of which `taken` are already
/// drawn. Returns the result and the number of drawn keys.
pub(crate) fn with_key<R>(
    cx: &Trace,
    key: Option<Tensor<'_>>,
    taken: u32,
    body: impl FnOnce() -> R,
) -> (R, u32) {
    let Some(key) = key else {
        return (body(), taken);
    };
    let outer = context(cx).key.replace(Some(key.id));
    let outer_taken = context(cx).keys_taken.replace(taken);
    let result = body();
    context(cx).key.set(outer);
    (result, context(cx).keys_taken.replace(outer_taken))
}

/// Runs `body` and takes its side outputs out of the trace.
pub(crate) fn with_side_outputs<R>(cx: &Trace, body: impl FnOnce() -> R) -> (R, SideOutputs) {
    let (metrics, updates) = (
        context(cx).metrics.borrow().len(),
        context(cx).updates.borrow().len(),
    );
    let result = body();
    let metrics = context(cx).metrics.borrow_mut().split_off(metrics);
    let updates = context(cx).updates.borrow_mut().split_off(updates);
    let side = SideOutputs {
        metrics: metrics
            .into_iter()
            .map(|metric| (metric.name, metric.total, metric.weight))
            .collect(),
        updates: updates
            .into_iter()
            .map(|update| (update.state, update.value))
            .collect(),
    };
    (result, side)
}

/// As [`with_side_outputs`], for a body in which states have their own
/// values until it updates them, not those of updates before it.
pub(crate) fn with_own_side_outputs<R>(cx: &Trace, body: impl FnOnce() -> R) -> (R, SideOutputs) {
    let outer = context(cx).updates.take();
    let result = with_side_outputs(cx, body);
    context(cx).updates.replace(outer);
    result
}

/// Whether [`next_key`](Trace::next_key) can be called.
pub(crate) fn has_key(cx: &Trace) -> bool {
    context(cx).key.get().is_some()
}

/// Checks, at the end of a traced function, that its side outputs are used: an update of
/// a state in training that is not taken is a mistake, metrics that are not taken are a warning.
pub(crate) fn check_taken(cx: &Trace) {
    let updates = context(cx).updates.borrow();
    let is_last = |index: usize| {
        updates[index + 1..]
            .iter()
            .all(|later| later.state != updates[index].state)
    };
    let lost = (0..updates.len()).filter(|&index| is_last(index) && !updates[index].taken.get());
    // In evaluation the model stays as it is.
    for update in lost
        .filter(|_| context(cx).training.get() != Some(false))
        .map(|index| &updates[index])
    {
        let state = cx
            .tensor(update.state)
            .name()
            .map_or("a state".to_string(), |name| format!("`{name}`"));
        let message = format!(
            "{state} has a new value after this step, which the function does not return; return it in the \
             next state, as `state.update(gradients)` of a training state or \
             `model.map_leaves(|_, leaf| cx.updated(leaf))` does, or drop it by \
             `cx.discard_updates()`"
        );
        cx.fail_at(update.location, "update", message, None);
    }
    let metrics = context(cx).metrics.borrow();
    if let (Some(first), false) = (metrics.first(), context(cx).metrics_taken.get()) {
        let names: Vec<String> = metrics
            .iter()
            .map(|metric| format!("`{}`", metric.name))
            .collect();
        let message = format!(
            "{} reported and not used: this function does not read them; return `cx.metrics()` \
             among its outputs, or leave them out",
            if let [name] = &names[..] {
                format!("{name} is")
            } else {
                format!("{} are", names.join(", "))
            }
        );
        cx.warn_at(first.location, "metric", message);
    }
}

/// Remembers that a gradient was taken.
#[track_caller]
pub(crate) fn took_gradient(cx: &Trace) {
    let first = context(cx).first_gradient.get();
    let line = first.unwrap_or(cx.origin(Location::caller()));
    context(cx).first_gradient.set(Some(line));
}

/// Checks, at the end of a function with this state, that its gradients are used: the next state
/// is not the state.
pub(crate) fn check_learns(cx: &Trace, state: &[Tensor<'_>], next: &[Tensor<'_>]) {
    let line = context(cx).first_gradient.get();
    let is_same = |(old, new): (&Tensor<'_>, &Tensor<'_>)| old.id == new.id;
    let (Some(line), true) = (
        line,
        !state.is_empty() && state.iter().zip(next).all(is_same),
    ) else {
        return;
    };
    let message = "gradients are taken here, and the function returns the state that it was given: \
                   it would stay so for ever. Return the next one, `state.update(gradients)`; a \
                   function that only computes gradients is a `jit` of its inputs";
    cx.fail_at(line, "grad", message, None);
}

/// Checks, at the end of a function with this precision policy, that its loss is scaled if the
/// policy needs that.
pub(crate) fn check_scaled(cx: &Trace, policy: &DTypePolicy) {
    let is_scaled = policy.loss_scale.is_none() || context(cx).scales_loss.get();
    if let (Some(line), false) = (context(cx).first_gradient.get(), is_scaled) {
        let message = format!(
            "under `{policy}` gradients are computed in {}, and small ones become 0: the loss must \
             be scaled. Take them by `state.gradients(loss)` of a \
             `State::with_precision(.., policy)`; or scale the loss and its gradients in this \
             function, and call `cx.scales_loss()`",
            policy.compute
        );
        cx.fail_at(line, "grad", message, None);
    }
}

/// Records that `target` holds classes below `classes`, or `ignored`, if it is an input or a
/// part of one.
#[track_caller]
pub(crate) fn expect_classes(cx: &Trace, target: Tensor<'_>, classes: usize, ignored: Option<i32>) {
    let Some(input) = cx.recording.borrow().input_of(target.id) else {
        return;
    };
    let location = cx.origin(Location::caller());
    context(cx).class_targets.borrow_mut().push(ClassTarget {
        input,
        classes,
        ignored,
        location,
    });
}
