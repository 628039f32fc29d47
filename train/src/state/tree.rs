//! The state as a tree: its parts are its fields.

use halite_core::tree::{Family, Path, Tree};

use super::{SKIPPED, State};

impl<F: Family, S: Family> Family for State<F, S, ()> {
    type Of<L> = State<F, S, L>;
    type Bare<L> = State<F, S, L>;

    fn into_bare<L>(tree: State<F, S, L>) -> State<F, S, L> {
        tree
    }

    fn from_bare<L>(bare: State<F, S, L>) -> State<F, S, L> {
        bare
    }
}

impl<F: Family, S: Family, L> Tree for State<F, S, L> {
    type Leaf = L;
    type Family = State<F, S, ()>;

    fn leaf_refs(&self) -> State<F, S, &L> {
        State {
            model: Tree::leaf_refs(&self.model),
            slots: Tree::leaf_refs(&self.slots),
            step: &self.step,
            key: &self.key,
            scale: Tree::leaf_refs(&self.scale),
            average: Tree::leaf_refs(&self.average),
            rate_factor: self.rate_factor.as_ref(),
            skipped: self.skipped.as_ref(),
            rule: self.rule.clone(),
        }
    }

    fn leaf_refs_mut(&mut self) -> State<F, S, &mut L> {
        State {
            model: Tree::leaf_refs_mut(&mut self.model),
            slots: Tree::leaf_refs_mut(&mut self.slots),
            step: &mut self.step,
            key: &mut self.key,
            scale: Tree::leaf_refs_mut(&mut self.scale),
            average: Tree::leaf_refs_mut(&mut self.average),
            rate_factor: self.rate_factor.as_mut(),
            skipped: self.skipped.as_mut(),
            rule: self.rule.clone(),
        }
    }

    fn try_map_at<M>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, L) -> Option<M>,
    ) -> Option<State<F, S, M>> {
        // One statement each: a path scope ends at the end of its statement.
        let model = self.model.try_map_at(&mut at.field("model"), f)?;
        let slots = self.slots.try_map_at(&mut at.field("slots"), f)?;
        let step = f(&at.field("step"), self.step)?;
        let key = f(&at.field("key"), self.key)?;
        let scale = self.scale.try_map_at(&mut at.field("scale"), f)?;
        let average = self.average.try_map_at(&mut at.field("average"), f)?;
        let rate_factor = match self.rate_factor {
            Some(factor) => Some(f(&at.field("rate_factor"), factor)?),
            None => None,
        };
        let skipped = match self.skipped {
            Some(skipped) => Some(f(&at.field(SKIPPED), skipped)?),
            None => None,
        };
        Some(State {
            model,
            slots,
            step,
            key,
            scale,
            average,
            rate_factor,
            skipped,
            rule: self.rule,
        })
    }

    fn from_tree(tree: Self) -> Self {
        tree
    }

    fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a L)) {
        self.model.visit(&mut at.field("model"), f);
        self.slots.visit(&mut at.field("slots"), f);
        f(&at.field("step"), &self.step);
        f(&at.field("key"), &self.key);
        self.scale.visit(&mut at.field("scale"), f);
        self.average.visit(&mut at.field("average"), f);
        if let Some(factor) = &self.rate_factor {
            f(&at.field("rate_factor"), factor);
        }
        if let Some(skipped) = &self.skipped {
            f(&at.field(SKIPPED), skipped);
        }
    }
}
