//! Compiled programs, each with the types that it is for.

use std::sync::{Arc, PoisonError, atomic::Ordering::Relaxed};

use halite_core::{
    Array, HostArray, InputChange, Loaded, Reason, Stages,
    tree::{Family, Path, Tree},
};

use super::{ArraySpec, Jit};

/// A program with what is known of its border.
pub(super) struct Compiled<O: Family> {
    pub(super) border: Border<O>,
    /// What it is given after state and inputs at every launch.
    pub(super) hyperparameters: Vec<Array>,
    pub(super) loaded: Loaded,
    pub(super) stages: Stages,
}

/// What a program takes and gives.
pub(super) struct Border<O: Family> {
    pub(super) state: Vec<Input>,
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<ArraySpec>,
    pub(super) shape: O::Of<()>,
    pub(super) hyperparameters: Vec<(ArraySpec, HostArray)>,
}

/// A leaf of the state or of the inputs of a program: where it is in its tree, and what it is.
pub(super) type Input = (Path, ArraySpec);

impl<O: Family> Border<O> {
    /// Whether these are the trees that it was made for.
    pub(super) fn is<S: Tree<Leaf = ArraySpec>, I: Tree<Leaf = ArraySpec>>(
        &self,
        state: &S,
        inputs: &I,
    ) -> bool {
        fits(&self.state, state, |known, spec| known == spec)
            && fits(&self.inputs, inputs, |known, spec| known == spec)
    }
}

/// Whether the leaves of `tree` are where the known ones are, and what those are.
fn fits<T: Tree>(known: &[Input], tree: &T, is: impl Fn(&ArraySpec, &T::Leaf) -> bool) -> bool {
    let mut left = known.iter();
    let mut fits = true;
    tree.for_each(|path, leaf| {
        fits = fits
            && left
                .next()
                .is_some_and(|(at, spec)| at == path && is(spec, leaf))
    });
    fits && left.next().is_none()
}

impl<S: Family, I: Family, O: Family> Jit<S, I, O> {
    pub(super) fn find(
        &self,
        state: &S::Of<Array>,
        inputs: &I::Of<&Array>,
    ) -> Option<Arc<Compiled<O>>> {
        let mut programs = self.programs();
        let index = programs.iter().rposition(|compiled| {
            let border = &compiled.border;
            fits(&border.state, state, ArraySpec::is)
                && fits(&border.inputs, inputs, |spec, array| spec.is(array))
        })?;
        programs[index..].rotate_left(1);
        programs.last().cloned()
    }

    /// Adds a program to those that are kept, in place of the least recently used one if there are
    /// too many.
    pub(super) fn keep(&self, compiled: Arc<Compiled<O>>) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.trace += compiled.stages.trace;
        spent.print += compiled.stages.print;
        spent.compile += compiled.stages.compile;
        drop(spent);
        let mut programs = self.programs();
        programs.push(compiled);
        let surplus = programs.len().saturating_sub(self.limit);
        let evicted: Vec<_> = programs.drain(..surplus).collect();
        drop(programs);
        if !evicted.is_empty() && self.evictions.fetch_add(evicted.len() as u64, Relaxed) == 0 {
            halite_core::warning!(
                "`{}` ({}) is compiled for more than {} combinations of input types; the least recently used \
                 program is dropped, now and whenever another one is added, and compiled again when it is called \
                 for. Pad inputs to fewer shapes, or raise `Jit::max_programs`",
                self.name,
                self.origin,
                self.limit
            );
        }
    }
}

/// The leaves of a tree, to find it again.
pub(super) fn known(tree: &impl Tree<Leaf = ArraySpec>) -> Vec<Input> {
    let mut known = Vec::new();
    tree.for_each(|path, spec| known.push((path.clone(), spec.clone())));
    known
}

/// What makes a function that is compiled already be compiled again.
pub(super) fn what_changed(known: Vec<&ArraySpec>, new: Vec<(String, &ArraySpec)>) -> Reason {
    let (from, to) = (known.len(), new.len());
    if from != to {
        return Reason::Arranged { from, to };
    }
    let changes: Vec<InputChange> = (known.into_iter().zip(new))
        .filter(|(old, (_, new))| old != new)
        .map(|(old, (path, new))| InputChange {
            path,
            from: (old.ty.clone(), old.sharding.clone()),
            to: (new.ty.clone(), new.sharding.clone()),
        })
        .collect();
    if changes.is_empty() {
        Reason::Arranged { from, to }
    } else {
        Reason::InputChanged(changes)
    }
}
