//! Optimizer slots of all parameters, as one tree.

use std::{fmt, sync::Arc};

use halite_core::{
    Family, Tree,
    tree::{Of, Path},
};

/// Slots of the trained parameters of a model: for each leaf of the model a tree of family `S`, or
/// nothing. Its leaves are `L`; their paths continue those of the parameters: `out.weight.first`.
///
/// It is a list, and not the model with slots as its leaves, so that its code is compiled once and
/// not for each layer.
pub struct Slots<S: Family, L> {
    /// Paths of the leaves of the model.
    params: Arc<[Path]>,
    list: Vec<Option<S::Of<L>>>,
}

impl<S: Family, L> Slots<S, L> {
    /// The slots that `slot` returns for each leaf of `model`.
    pub fn of<M: Tree>(
        model: &M,
        mut slot: impl FnMut(&Path, &M::Leaf) -> Option<S::Of<L>>,
    ) -> Self {
        let (mut params, mut list) = (Vec::new(), Vec::new());
        model.for_each(|path, leaf| {
            params.push(path.clone());
            list.push(slot(path, leaf));
        });
        Slots {
            params: params.into(),
            list,
        }
    }

    /// The slot of each leaf of the model, in order.
    pub fn list(&self) -> &[Option<S::Of<L>>] {
        &self.list
    }

    /// The slot of each leaf of the model, in order, owned.
    pub fn into_list(self) -> Vec<Option<S::Of<L>>> {
        self.list
    }
}

impl<S: Family> Family for Slots<S, ()> {
    type Of<L> = Slots<S, L>;
    type Bare<L> = Slots<S, L>;

    fn into_bare<L>(tree: Slots<S, L>) -> Slots<S, L> {
        tree
    }

    fn from_bare<L>(bare: Slots<S, L>) -> Slots<S, L> {
        bare
    }
}

impl<S: Family, A> Tree for Slots<S, A> {
    type Leaf = A;
    type Family = Slots<S, ()>;

    fn leaf_refs(&self) -> Slots<S, &A> {
        Slots {
            params: self.params.clone(),
            list: Tree::leaf_refs(&self.list),
        }
    }

    fn leaf_refs_mut(&mut self) -> Slots<S, &mut A> {
        Slots {
            params: self.params.clone(),
            list: Tree::leaf_refs_mut(&mut self.list),
        }
    }

    fn try_map_at<L>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, A) -> Option<L>,
    ) -> Option<Of<Self, L>> {
        let mut list = Vec::with_capacity(self.list.len());
        for (param, slot) in self.params.iter().zip(self.list) {
            list.push(slot.try_map_at(&mut at.below(param.segments()), f)?);
        }
        Some(Slots {
            params: self.params,
            list,
        })
    }

    fn from_tree(tree: Self) -> Self {
        tree
    }

    fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a A)) {
        for (param, slot) in self.params.iter().zip(&self.list) {
            slot.visit(&mut at.below(param.segments()), f);
        }
    }
}

impl<S: Family, L: fmt::Debug> fmt::Debug for Slots<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.named()).finish()
    }
}
