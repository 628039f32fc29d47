//! The training state: parameters, optimizer slots, step, random key.

use std::fmt;

use halite_core::tree::{Family, Path, Tree};
use halite_nn::optim::Slots;

use crate::Scaling;

/// State that a training step updates.
pub struct State<F: Family, S: Family, L> {
    /// Parameters and other arrays of the model, such as running statistics.
    pub model: F::Of<L>,
    /// Optimizer state of each parameter.
    pub slots: Slots<F, S, L>,
    /// Updates made so far: a `u32` scalar.
    pub step: L,
    /// Key of the random numbers of every step: `u32[2]`.
    pub key: L,
    /// Loss scale, if the precision policy has one.
    pub scale: Option<Scaling<L>>,
}

impl<F: Family, S: Family> Family for State<F, S, ()> {
    type Of<L> = State<F, S, L>;
}

impl<F: Family, S: Family, L> Tree for State<F, S, L> {
    type Leaf = L;
    type Family = State<F, S, ()>;

    fn as_ref(&self) -> State<F, S, &L> {
        State {
            model: Tree::as_ref(&self.model),
            slots: Tree::as_ref(&self.slots),
            step: &self.step,
            key: &self.key,
            scale: Tree::as_ref(&self.scale),
        }
    }

    fn as_mut(&mut self) -> State<F, S, &mut L> {
        State {
            model: Tree::as_mut(&mut self.model),
            slots: Tree::as_mut(&mut self.slots),
            step: &mut self.step,
            key: &mut self.key,
            scale: Tree::as_mut(&mut self.scale),
        }
    }

    fn try_map<M, E>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, L) -> Result<M, E>,
    ) -> Result<State<F, S, M>, E> {
        // One statement each: a scope ends, and its name with it, at the end of the statement.
        let model = self.model.try_map(&mut at.field("model"), f)?;
        let slots = self.slots.try_map(&mut at.field("slots"), f)?;
        let step = f(&at.field("step"), self.step)?;
        let key = f(&at.field("key"), self.key)?;
        let scale = self.scale.try_map(&mut at.field("scale"), f)?;
        Ok(State {
            model,
            slots,
            step,
            key,
            scale,
        })
    }

    fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a L)) {
        self.model.visit(&mut at.field("model"), f);
        self.slots.visit(&mut at.field("slots"), f);
        f(&at.field("step"), &self.step);
        f(&at.field("key"), &self.key);
        self.scale.visit(&mut at.field("scale"), f);
    }
}

impl<F: Family, S: Family, L> fmt::Debug for State<F, S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} leaves)", self.leaf_count())
    }
}
