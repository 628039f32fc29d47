//! Tasks whose steps have several updates, each of a loss and a part of the model.

use std::{fmt, sync::Arc};

use halite_core::{Error, Result, Tree, tree::Family};
use halite_nn::{Mean, Param, Pattern, Trace, Traced};

use super::Task;
use crate::state::Turn;

/// A task whose training step has several updates, one after the other: each computes a loss, and
/// the gradients by a part of the parameters, and changes these. A loss is computed with the
/// parameters after the updates before it, and changes no other ones.
///
/// ```
/// use halite_core::Tree;
/// use halite_nn::{Adam, Linear, Optimizer, Param};
/// use halite_train::{Alternating, Weighted, task};
///
/// #[derive(Tree)]
/// struct Gan<L> {
///     generator: Linear<L>,
///     critic: Linear<L>,
/// }
///
/// # fn main() -> halite_core::Result<()> {
/// let gan: Gan<Param> = Gan {
///     generator: Linear::new(2, 8),
///     critic: Linear::new(8, 1),
/// };
/// // A batch has noise as its input and real samples as its target.
/// let criticize = task(&gan, |_, gan, batch| {
///     let fake = gan.critic.forward(gan.generator.forward(batch.input));
///     let real = gan.critic.forward(batch.target);
///     batch.mean((real - 1.0).square() + fake.square())
/// });
/// let deceive = task(&gan, |_, gan, batch| {
///     let fake = gan.critic.forward(gan.generator.forward(batch.input));
///     batch.mean((fake - 1.0).square())
/// });
/// let task = Alternating::new()
///     .update("critic.**", criticize)?
///     .update("generator.**", deceive)?;
/// // An optimizer for each part, or one for both.
/// let optimizer = Adam::new(2e-4).partition("critic.**", Adam::new(1e-4))?;
/// # let _ = (task, optimizer);
/// # Ok(())
/// # }
/// ```
///
/// The metric `loss` is the loss of the first update. Those of the others are metrics with the
/// pattern as their prefix, here `generator/loss`; metrics of different updates have different names.
/// Validation computes all losses with the same parameters.
///
/// A parameter has one update at most: the optimizer has one slot of it, and one count of updates.
/// Gradients are clipped in each update. A step that `on_not_finite` or a loss scale skips skips all
/// its updates.
pub struct Alternating<M: Family, B: Family> {
    updates: Vec<Update<M, B>>,
}

/// An update of a training step: see [`Alternating::update`].
pub struct Update<M: Family, B: Family> {
    pattern: Pattern,
    /// It is done in every step whose number, counted from 1, this divides.
    every: u64,
    task: Arc<dyn Task<Model = M, Batch = B>>,
}

impl<M: Family, B: Family<Of<()>: Default>> Alternating<M, B> {
    /// Creates a task without updates.
    #[expect(
        clippy::new_without_default,
        reason = "a task without updates is a mistake"
    )]
    pub fn new() -> Self {
        Alternating {
            updates: Vec::new(),
        }
    }

    /// Adds an update of the parameters whose path matches the pattern, along the gradients of the
    /// loss of `task`.
    ///
    /// # Errors
    /// If it is not a valid pattern, or that of an earlier update.
    pub fn update(mut self, pattern: &str, task: impl Task<Model = M, Batch = B>) -> Result<Self> {
        let pattern: Pattern = pattern.parse()?;
        if self.updates.iter().any(|update| update.pattern == pattern) {
            let message = format!("`{pattern}` has an update already; make one loss of the two");
            return Err(Error::invalid("task", message));
        }
        let task = Arc::new(task);
        self.updates.push(Update {
            pattern,
            every: 1,
            task,
        });
        Ok(self)
    }

    /// Does the update that was added last in every `steps`-th step only: for 5, in steps 5, 10, ..
    /// Its optimizer counts its own updates; schedules count steps.
    pub fn every(mut self, steps: u64) -> Self {
        if let Some(update) = self.updates.last_mut() {
            update.every = steps;
        }
        self
    }
}

impl<M: Family<Of<Param>: Send + Sync>, B: Family<Of<()>: Default>> Task for Alternating<M, B> {
    type Model = M;
    type Batch = B;

    fn loss<'t>(&self, cx: &'t Trace, model: &Traced<'t, M>, batch: &Traced<'t, B>) -> Mean<'t> {
        losses(&self.updates, cx, model, batch).unwrap_or_else(|| {
            let message = "it has no update; add one with `Alternating::update`";
            let loss = cx.fail("task", message, None);
            Mean {
                total: loss,
                weight: loss,
            }
        })
    }

    fn updates(&self) -> &[Update<M, B>] {
        &self.updates
    }
}

impl<M: Family<Of<Param>: Send + Sync>, B: Family<Of<()>: Default>> Update<M, B> {
    /// The parameters that it changes, and when.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn {
            part: Some(&self.pattern),
            every: self.every,
        }
    }

    /// The loss. That of an update after the first one is a metric.
    pub(crate) fn loss<'t>(
        &self,
        index: usize,
        cx: &'t Trace,
        model: &Traced<'t, M>,
        batch: &Traced<'t, B>,
    ) -> Mean<'t> {
        let loss = self.task.loss(cx, model, batch);
        if index > 0 {
            cx.metric(&self.metric("loss"), loss);
        }
        loss
    }

    /// Name of a metric of this update.
    pub(crate) fn metric(&self, name: &str) -> String {
        let pattern = self.pattern.to_string();
        format!("{}/{name}", pattern.strip_suffix(".**").unwrap_or(&pattern))
    }
}

/// Computes the losses of all updates with the same parameters, and returns that of the first.
pub(crate) fn losses<'t, M: Family<Of<Param>: Send + Sync>, B: Family<Of<()>: Default>>(
    updates: &[Update<M, B>],
    cx: &'t Trace,
    model: &Traced<'t, M>,
    batch: &Traced<'t, B>,
) -> Option<Mean<'t>> {
    let updates = updates.iter().enumerate();
    let losses = updates.map(|(index, update)| update.loss(index, cx, model, batch));
    let losses: Vec<Mean<'t>> = losses.collect();
    losses.first().copied()
}

/// Checks that each update has a parameter and a step, and that no two have the same parameter. A
/// warning names parameters without an update.
pub(crate) fn check_updates<K: Task>(task: &K, model: &impl Tree<Leaf = Param>) -> Result<()> {
    let updates = task.updates();
    if updates.is_empty() {
        return Ok(());
    }
    let named = model.named().into_iter();
    let trained = named.filter(|(_, param)| param.trainable);
    let trained: Vec<String> = trained.map(|(path, _)| path).collect();
    let listed = |paths: Vec<&String>| -> String {
        let more = match paths.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names: Vec<String> = paths
            .iter()
            .take(SHOWN)
            .map(|path| format!("`{path}`"))
            .collect();
        names.join(", ") + &more
    };
    let changes = |update: &Update<K::Model, K::Batch>, path: &str| update.pattern.matches(path);
    for update in updates {
        // Step counts are u32.
        if update.every == 0 || update.every > u32::MAX.into() {
            let message = format!(
                "the update `{}` is done every {} steps; expected 1 to {}",
                update.pattern,
                update.every,
                u32::MAX
            );
            return Err(Error::invalid("task", message));
        }
        if !trained.iter().any(|path| changes(update, path)) {
            let nearest = update.pattern.nearest(trained.iter().map(String::as_str));
            let message = format!(
                "the update `{}` has no parameter; did you mean `{}`? The trained ones are {}",
                update.pattern,
                nearest.unwrap_or_default(),
                listed(trained.iter().collect())
            );
            return Err(Error::invalid("task", message));
        }
    }
    check_disjoint(updates, &trained)?;
    let without = trained
        .iter()
        .filter(|path| !updates.iter().any(|update| changes(update, path)));
    let without: Vec<&String> = without.collect();
    if !without.is_empty() {
        let without = listed(without);
        halite_core::warning!("no update of the task changes {without}; they stay as they are");
    }
    Ok(())
}

/// Checks that no parameter has two updates. Its optimizer slot would see both, and be corrected by
/// the number of one.
fn check_disjoint<M: Family, B: Family>(
    updates: &[Update<M, B>],
    trained: &[String],
) -> Result<()> {
    for path in trained {
        let mut changing = updates
            .iter()
            .map(|update| &update.pattern)
            .filter(|pattern| pattern.matches(path));
        if let (Some(first), Some(second)) = (changing.next(), changing.next()) {
            let message = format!(
                "the updates `{first}` and `{second}` both change `{path}`; give patterns that \
                 have no parameter in common, or make one loss of the two"
            );
            return Err(Error::invalid("task", message));
        }
    }
    Ok(())
}

/// Most paths that a message lists.
const SHOWN: usize = 8;

impl<M: Family, B: Family> fmt::Debug for Alternating<M, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.updates).finish()
    }
}

impl<M: Family, B: Family> fmt::Debug for Update<M, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Update({})", self.pattern)
    }
}

#[cfg(test)]
mod tests {
    use halite_nn::Linear;

    use super::*;
    use crate::{Weighted, task};

    #[test]
    fn parameter_has_one_update_at_most() {
        let model = Linear::new(2, 1);
        let loss = task(&model, |_, model, batch| {
            batch.mean(model.forward(batch.input))
        });
        let checked = |first, second| {
            let task = Alternating::new().update(first, loss)?;
            check_updates(&task.update(second, loss)?, &model)
        };
        checked("weight", "bias").unwrap();
        let error = checked("**", "bias").unwrap_err().to_string();
        assert!(
            error.contains("the updates `**` and `bias` both change `bias`"),
            "{error}"
        );
    }
}
