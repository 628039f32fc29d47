//! Optimizer slots of all parameters, as one tree.

use std::{fmt, marker::PhantomData};

use halite_core::{
    Family, Tree,
    tree::{Of, Path},
};

/// Tree with a slot for each trained parameter: in place of each leaf of the model's family `F` it
/// has a tree of family `S`, or nothing. Its leaves are `L`; their paths continue those of the
/// parameters: `out.weight.first`.
pub struct Slots<F: Family, S: Family, L>(F::Of<Option<S::Of<L>>>);

/// [`Slots`] with the leaf left open.
pub struct SlotsFamily<F, S>(PhantomData<fn() -> (F, S)>);

impl<F: Family, S: Family, L> Slots<F, S, L> {
    /// Creates slots from a model with slots as its leaves.
    pub fn new(slots: F::Of<Option<S::Of<L>>>) -> Self {
        Slots(slots)
    }

    /// The model with slots as its leaves.
    pub fn inner(&self) -> &F::Of<Option<S::Of<L>>> {
        &self.0
    }

    /// The model with slots as its leaves, owned.
    pub fn into_inner(self) -> F::Of<Option<S::Of<L>>> {
        self.0
    }
}

impl<F: Family, S: Family> Family for SlotsFamily<F, S> {
    type Of<L> = Slots<F, S, L>;
    type Bare<L> = Slots<F, S, L>;

    fn into_bare<L>(tree: Slots<F, S, L>) -> Slots<F, S, L> {
        tree
    }

    fn from_bare<L>(bare: Slots<F, S, L>) -> Slots<F, S, L> {
        bare
    }
}

impl<F: Family, S: Family, A> Tree for Slots<F, S, A> {
    type Leaf = A;
    type Family = SlotsFamily<F, S>;

    fn leaf_refs(&self) -> Slots<F, S, &A> {
        Slots(
            self.0
                .leaf_refs()
                .map_leaves(|_, slot| slot.as_ref().map(Tree::leaf_refs)),
        )
    }

    fn leaf_refs_mut(&mut self) -> Slots<F, S, &mut A> {
        Slots(
            self.0
                .leaf_refs_mut()
                .map_leaves(|_, slot| slot.as_mut().map(Tree::leaf_refs_mut)),
        )
    }

    fn try_map_at<L>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, A) -> Option<L>,
    ) -> Option<Of<Self, L>> {
        let mut below = Path::new();
        let slots = self.0.try_map_at(at, &mut |at, slot: Option<S::Of<A>>| {
            below.clone_from(at);
            match slot {
                Some(slot) => slot.try_map_at(&mut below, &mut *f).map(Some),
                None => Some(None),
            }
        });
        slots.map(Slots)
    }

    fn from_tree(tree: Self) -> Self {
        tree
    }

    fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a A)) {
        let mut below = Path::new();
        self.0.visit(at, &mut |at, slot: &'a Option<S::Of<A>>| {
            if let Some(slot) = slot {
                below.clone_from(at);
                slot.visit(&mut below, &mut *f);
            }
        });
    }
}

impl<F: Family, S: Family, L: fmt::Debug> fmt::Debug for Slots<F, S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.named()).finish()
    }
}

impl<F, S> fmt::Debug for SlotsFamily<F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlotsFamily")
    }
}
