//! A training step in progress: one or more updates, and then the next state.

use std::panic::Location;

use halite_core::{
    TensorType,
    tree::{Family, Tree},
};
use halite_nn::{
    Pattern, Tensor,
    optim::{self, Part, StepOf},
};

use super::{
    Rule, State,
    shards::{shards_of, with_chosen},
};
use crate::loss_scale::all_finite;

/// The parameters that an update changes, and the steps in which it is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn<'a> {
    /// Pattern of the parameters; none is all.
    pub(crate) part: Option<&'a Pattern>,
    /// It is done in every step whose number, counted from 1, this divides.
    pub(crate) every: u64,
}

/// All parameters in every step.
impl Default for Turn<'_> {
    fn default() -> Self {
        Turn {
            part: None,
            every: 1,
        }
    }
}

impl Turn<'_> {
    /// Whether the update is done in the step that follows `step` steps, a `bool` scalar; `None` if it
    /// is done in each.
    pub(crate) fn is_due<'t>(&self, step: Tensor<'t>) -> Option<Tensor<'t>> {
        (self.every > 1).then(|| {
            let every = step.trace().scalar(self.every as f64, step.dtype());
            ((step + 1) % every).eq(0)
        })
    }

    /// Number of these updates in `step` steps, from the first on.
    pub(super) fn count<'t>(&self, step: Tensor<'t>) -> Tensor<'t> {
        match self.every {
            1 => step,
            every => step / step.trace().scalar(every as f64, step.dtype()),
        }
    }
}

/// A training step in progress, from [`State::begin_step`].
pub(crate) struct Stepping<'t, F: Family, S: Family> {
    /// The state after the updates so far, with the step count and the averages before the step.
    pub(crate) state: State<F, S, Tensor<'t>>,
    /// Leaves of the model and of the slots before the step.
    before: Vec<Tensor<'t>>,
    /// Whether the gradients so far are finite, a `bool` scalar, if the state has a loss scale.
    finite: Option<Tensor<'t>>,
}

impl<'t, F: Family, S: Family> State<F, S, Tensor<'t>> {
    /// Begins a step.
    pub(crate) fn begin_step(self) -> Stepping<'t, F, S> {
        Stepping {
            before: leaves(&self),
            finite: None,
            state: self,
        }
    }
}

impl<'t, F: Family, S: Family> Stepping<'t, F, S> {
    /// Updates the parameters of `turn` along `gradients`, if it is due, and takes the running
    /// statistics that layers computed since the update before.
    ///
    /// # Panics
    /// If `gradients` is a tree of another structure than the model.
    #[track_caller]
    pub(crate) fn update(self, turn: Turn<'_>, gradients: F::Of<Tensor<'t>>) -> Self {
        let Stepping {
            state,
            before,
            finite,
        } = self;
        let cx = state.step.trace();
        let _site = cx.called_from(Location::caller());
        let finite = state.scale.is_some().then(|| {
            let these = all_finite(cx, &state.trained_of(turn.part, &gradients));
            let [these] = state.everywhere([these]);
            finite.map_or(these, |others| others.and(these))
        });
        let Rule {
            params, optimizer, ..
        } = &*state.rule;
        let at = StepOf {
            count: turn.count(state.step),
            step: state.step,
            skipped: state.skipped_steps().map(|skipped| turn.count(skipped)),
            rate_factor: state.rate_factor,
        };
        let part = Part {
            model: &state.model.rebuild(params.iter().cloned()),
            pattern: turn.part,
        };
        let unchanged = turn.is_due(state.step).map(|due| (due, leaves(&state)));
        let is_divided = state.trained(turn.part);
        let types: Vec<TensorType> = (state.trained_leaves(turn.part).iter())
            .map(|leaf| leaf.ty())
            .collect();
        let model = shards_of::<F>(cx, state.rule.shards, &is_divided, state.model);
        let (model, slots) = optim::update(optimizer, cx, at, part, model, gradients, state.slots);
        let model = match state.rule.shards {
            Some(_) => with_chosen::<F>(model, &is_divided, |shards| {
                cx.gather_process_shards("parameters", shards, &types)
            }),
            None => model,
        };
        let state = State {
            model: model.map_leaves(|_, leaf| cx.updated(leaf)),
            slots,
            ..state
        };
        let state = match unchanged {
            Some((due, unchanged)) => state.or_before(due, unchanged),
            None => state,
        };
        Stepping {
            state,
            before,
            finite,
        }
    }

    /// This step before another update, whose gradients do not go through the updates so far: they
    /// depend on all parameters.
    pub(crate) fn detached(self) -> Self {
        let state = State {
            model: self.state.model.map_leaves(|_, leaf| leaf.stop_gradient()),
            ..self.state
        };
        Stepping { state, ..self }
    }

    /// The next state, with the step count plus 1. If `accepted`, a `bool` scalar, is given and does
    /// not hold, or gradients under a loss scale are not finite, it has the model and the slots
    /// before the step.
    #[track_caller]
    pub(crate) fn end(self, accepted: Option<Tensor<'t>>) -> State<F, S, Tensor<'t>> {
        let Stepping {
            state,
            before,
            finite,
        } = self;
        let cx = state.step.trace();
        let _site = cx.called_from(Location::caller());
        let (step, skipped) = (state.step, state.skipped_steps());
        let scaled = finite.zip(state.scale.as_ref());
        let accepts = scaled.map(|(finite, scale)| scale.accepts(finite));
        let conditions = [accepted, accepts].into_iter().flatten();
        let accepted = conditions.reduce(|one, other| one.and(other));
        let scale = scaled.zip(accepted);
        let scale = scale.map(|((finite, scale), is_done)| scale.next(finite, is_done));
        let own_skipped = state.skipped.map(|skipped| match accepted {
            Some(accepted) => accepted.select(skipped, skipped + 1),
            None => skipped,
        });
        let next = State {
            step: step + 1,
            scale,
            skipped: own_skipped,
            ..state
        };
        let count = skipped.map_or(step, |skipped| step - skipped);
        match accepted {
            Some(accepted) => next
                .or_before(accepted, before)
                .averaged(count, Some(accepted)),
            None => next.averaged(count, None),
        }
    }
}

/// Leaves of the model and of the slots.
fn leaves<'t, F: Family, S: Family>(state: &State<F, S, Tensor<'t>>) -> Vec<Tensor<'t>> {
    let leaves = [state.model.leaves(), state.slots.leaves()].concat();
    leaves.into_iter().copied().collect()
}

impl<'t, F: Family, S: Family> State<F, S, Tensor<'t>> {
    /// This state after the update with this number, with averages that have its parameters if the
    /// step is accepted.
    #[track_caller]
    fn averaged(self, count: Tensor<'t>, accepted: Option<Tensor<'t>>) -> Self {
        let (Some(rule), Some(average)) = (self.rule.average, self.average) else {
            return State {
                average: None,
                ..self
            };
        };
        let net = self.model.rebuild(self.rule.params.iter().cloned());
        let model = Tree::leaf_refs(&self.model).map_leaves(|_, leaf| *leaf);
        let cx = count.trace();
        let averaged: Vec<bool> = self.rule.params.iter().map(optim::is_averaged).collect();
        let model = shards_of::<F>(cx, self.rule.shards, &averaged, model);
        let before: Vec<Tensor<'t>> = average.leaves().into_iter().copied().collect();
        let mut before = before.into_iter();
        let average = rule.next(cx, count, &net, average, &model);
        let average = average.map_leaves(|_, new| match (accepted, before.next()) {
            (Some(accepted), Some(before)) => accepted.select(new, before),
            _ => new,
        });
        State {
            average: Some(average),
            ..self
        }
    }

    /// This state if the step is accepted, else the model and the slots `before` it.
    fn or_before(self, accepted: Tensor<'t>, before: Vec<Tensor<'t>>) -> Self {
        let mut before = before.into_iter();
        let mut chosen = |new: Tensor<'t>| {
            let before = before.next();
            accepted.select(
                new,
                before.expect("the next state has the leaves of the state"),
            )
        };
        State {
            model: self.model.map_leaves(|_, new| chosen(new)),
            slots: self.slots.map_leaves(|_, new| chosen(new)),
            ..self
        }
    }
}
