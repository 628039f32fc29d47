use std::{fmt, marker::PhantomData};

use super::{Family, Of, Path, Tree, support::try_map_array};

/// `collect` of a map, as a loop: for each type of layers and leaves, std's code for it is ten times
/// as long.
fn map_vec<T, U>(
    items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    f: impl Fn(T) -> U,
) -> Vec<U> {
    let items = items.into_iter();
    let mut mapped = Vec::with_capacity(items.len());
    for item in items {
        mapped.push(f(item));
    }
    mapped
}

/// A single value of any type as a tree. Its path adds no segment.
///
/// Tensors and arrays are trees without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leaf<L>(pub L);

impl Family for Leaf<()> {
    type Of<L> = Leaf<L>;
    type Bare<L> = L;

    fn into_bare<L>(tree: Leaf<L>) -> L {
        tree.0
    }

    fn from_bare<L>(bare: L) -> Leaf<L> {
        Leaf(bare)
    }
}

impl<A> Tree for Leaf<A> {
    type Leaf = A;
    type Family = Leaf<()>;

    fn leaf_refs(&self) -> Leaf<&A> {
        Leaf(&self.0)
    }

    fn leaf_refs_mut(&mut self) -> Leaf<&mut A> {
        Leaf(&mut self.0)
    }

    fn try_map_at<L>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, A) -> Option<L>,
    ) -> Option<Leaf<L>> {
        Some(Leaf(f(at, self.0)?))
    }

    fn from_tree(tree: Self) -> Self {
        tree
    }

    fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a A)) {
        f(at, &self.0);
    }
}

/// A tree without leaves, for every leaf type.
pub struct Empty<L>(PhantomData<fn() -> L>);

impl<L> Empty<L> {
    /// The tree without leaves.
    pub const fn new() -> Self {
        Empty(PhantomData)
    }
}

// Manual implementations: a derive would require the same traits of `L`.
impl<L> Clone for Empty<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Empty<L> {}

impl<L> Default for Empty<L> {
    fn default() -> Self {
        Empty::new()
    }
}

impl<L> PartialEq for Empty<L> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<L> Eq for Empty<L> {}

impl<L> fmt::Debug for Empty<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Empty")
    }
}

impl Family for Empty<()> {
    type Of<L> = Empty<L>;
    type Bare<L> = Empty<L>;

    fn into_bare<L>(tree: Empty<L>) -> Empty<L> {
        tree
    }

    fn from_bare<L>(bare: Empty<L>) -> Empty<L> {
        bare
    }
}

impl<A> Tree for Empty<A> {
    type Leaf = A;
    type Family = Empty<()>;

    fn leaf_refs(&self) -> Empty<&A> {
        Empty::new()
    }

    fn leaf_refs_mut(&mut self) -> Empty<&mut A> {
        Empty::new()
    }

    fn try_map_at<L>(
        self,
        _: &mut Path,
        _: &mut dyn FnMut(&Path, A) -> Option<L>,
    ) -> Option<Empty<L>> {
        Some(Empty::new())
    }

    fn from_tree(tree: Self) -> Self {
        tree
    }

    fn visit<'a>(&'a self, _: &mut Path, _: &mut dyn FnMut(&Path, &'a A)) {}
}

impl<F: Family> Family for Vec<F> {
    type Of<L> = Vec<F::Of<L>>;
    type Bare<L> = Vec<F::Bare<L>>;

    fn into_bare<L>(tree: Self::Of<L>) -> Self::Bare<L> {
        map_vec(tree, F::into_bare)
    }

    fn from_bare<L>(bare: Self::Bare<L>) -> Self::Of<L> {
        map_vec(bare, F::from_bare)
    }
}

impl<T: Tree> Tree for Vec<T> {
    type Leaf = T::Leaf;
    type Family = Vec<T::Family>;

    fn leaf_refs(&self) -> Of<Self, &T::Leaf> {
        map_vec(self, Tree::leaf_refs)
    }

    fn leaf_refs_mut(&mut self) -> Of<Self, &mut T::Leaf> {
        map_vec(self, Tree::leaf_refs_mut)
    }

    fn try_map_at<L>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, T::Leaf) -> Option<L>,
    ) -> Option<Of<Self, L>> {
        let mut mapped = Vec::with_capacity(self.len());
        for (index, tree) in self.into_iter().enumerate() {
            mapped.push(tree.try_map_at(&mut at.index(index), f)?);
        }
        Some(mapped)
    }

    fn from_tree(tree: Of<Self, T::Leaf>) -> Self {
        map_vec(tree, T::from_tree)
    }

    fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a T::Leaf)) {
        for (index, tree) in self.iter().enumerate() {
            tree.visit(&mut at.index(index), f);
        }
    }
}

impl<F: Family, const N: usize> Family for [F; N] {
    type Of<L> = [F::Of<L>; N];
    type Bare<L> = [F::Bare<L>; N];

    fn into_bare<L>(tree: Self::Of<L>) -> Self::Bare<L> {
        tree.map(F::into_bare)
    }

    fn from_bare<L>(bare: Self::Bare<L>) -> Self::Of<L> {
        bare.map(F::from_bare)
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    type Leaf = T::Leaf;
    type Family = [T::Family; N];

    fn leaf_refs(&self) -> Of<Self, &T::Leaf> {
        self.each_ref().map(Tree::leaf_refs)
    }

    fn leaf_refs_mut(&mut self) -> Of<Self, &mut T::Leaf> {
        self.each_mut().map(Tree::leaf_refs_mut)
    }

    fn try_map_at<L>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, T::Leaf) -> Option<L>,
    ) -> Option<Of<Self, L>> {
        try_map_array(self, |index, tree| tree.try_map_at(&mut at.index(index), f))
    }

    fn from_tree(tree: Of<Self, T::Leaf>) -> Self {
        tree.map(T::from_tree)
    }

    fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a T::Leaf)) {
        for (index, tree) in self.iter().enumerate() {
            tree.visit(&mut at.index(index), f);
        }
    }
}

impl<F: Family> Family for Option<F> {
    type Of<L> = Option<F::Of<L>>;
    type Bare<L> = Option<F::Bare<L>>;

    fn into_bare<L>(tree: Self::Of<L>) -> Self::Bare<L> {
        tree.map(F::into_bare)
    }

    fn from_bare<L>(bare: Self::Bare<L>) -> Self::Of<L> {
        bare.map(F::from_bare)
    }
}

/// `None` has no leaves. The path adds no segment.
impl<T: Tree> Tree for Option<T> {
    type Leaf = T::Leaf;
    type Family = Option<T::Family>;

    fn leaf_refs(&self) -> Of<Self, &T::Leaf> {
        Option::as_ref(self).map(Tree::leaf_refs)
    }

    fn leaf_refs_mut(&mut self) -> Of<Self, &mut T::Leaf> {
        Option::as_mut(self).map(Tree::leaf_refs_mut)
    }

    fn try_map_at<L>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, T::Leaf) -> Option<L>,
    ) -> Option<Of<Self, L>> {
        match self {
            Some(tree) => tree.try_map_at(at, f).map(Some),
            None => Some(None),
        }
    }

    fn from_tree(tree: Of<Self, T::Leaf>) -> Self {
        tree.map(T::from_tree)
    }

    fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a T::Leaf)) {
        if let Some(tree) = self {
            tree.visit(at, f);
        }
    }
}

impl<F: Family> Family for Box<F> {
    type Of<L> = Box<F::Of<L>>;
    type Bare<L> = Box<F::Bare<L>>;

    fn into_bare<L>(tree: Self::Of<L>) -> Self::Bare<L> {
        Box::new(F::into_bare(*tree))
    }

    fn from_bare<L>(bare: Self::Bare<L>) -> Self::Of<L> {
        Box::new(F::from_bare(*bare))
    }
}

/// The path adds no segment.
impl<T: Tree> Tree for Box<T> {
    type Leaf = T::Leaf;
    type Family = Box<T::Family>;

    fn leaf_refs(&self) -> Of<Self, &T::Leaf> {
        Box::new(T::leaf_refs(self))
    }

    fn leaf_refs_mut(&mut self) -> Of<Self, &mut T::Leaf> {
        Box::new(T::leaf_refs_mut(self))
    }

    fn try_map_at<L>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, T::Leaf) -> Option<L>,
    ) -> Option<Of<Self, L>> {
        (*self).try_map_at(at, f).map(Box::new)
    }

    fn from_tree(tree: Of<Self, T::Leaf>) -> Self {
        Box::new(T::from_tree(*tree))
    }

    fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a T::Leaf)) {
        T::visit(self, at, f);
    }
}

macro_rules! tuple_of_trees {
    ($First:ident 0 $(, $Other:ident $index:tt)*) => {
        impl<$First: Family $(, $Other: Family)*> Family for ($First, $($Other,)*) {
            type Of<L> = ($First::Of<L>, $($Other::Of<L>,)*);
            type Bare<L> = ($First::Bare<L>, $($Other::Bare<L>,)*);

            fn into_bare<L>(tree: Self::Of<L>) -> Self::Bare<L> {
                ($First::into_bare(tree.0), $($Other::into_bare(tree.$index),)*)
            }

            fn from_bare<L>(bare: Self::Bare<L>) -> Self::Of<L> {
                ($First::from_bare(bare.0), $($Other::from_bare(bare.$index),)*)
            }
        }

        #[diagnostic::do_not_recommend] // eight tuples would hide what a message is about
        impl<$First: Tree $(, $Other: Tree<Leaf = $First::Leaf>)*> Tree for ($First, $($Other,)*) {
            type Leaf = $First::Leaf;
            type Family = ($First::Family, $($Other::Family,)*);

            fn leaf_refs(&self) -> Of<Self, &$First::Leaf> {
                (self.0.leaf_refs(), $(self.$index.leaf_refs(),)*)
            }

            fn leaf_refs_mut(&mut self) -> Of<Self, &mut $First::Leaf> {
                (self.0.leaf_refs_mut(), $(self.$index.leaf_refs_mut(),)*)
            }

            fn try_map_at<L>(
                self,
                at: &mut Path,
                f: &mut dyn FnMut(&Path, $First::Leaf) -> Option<L>,
            ) -> Option<Of<Self, L>> {
                Some((
                    { self.0.try_map_at(&mut at.index(0), f)? },
                    $({ self.$index.try_map_at(&mut at.index($index), f)? },)*
                ))
            }

            fn from_tree(tree: Of<Self, $First::Leaf>) -> Self {
                ($First::from_tree(tree.0), $($Other::from_tree(tree.$index),)*)
            }

            fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a $First::Leaf)) {
                self.0.visit(&mut at.index(0), f);
                $(self.$index.visit(&mut at.index($index), f);)*
            }
        }
    };
}

tuple_of_trees!(A 0);
tuple_of_trees!(A 0, B 1);
tuple_of_trees!(A 0, B 1, C 2);
tuple_of_trees!(A 0, B 1, C 2, D 3);
tuple_of_trees!(A 0, B 1, C 2, D 3, G 4);
tuple_of_trees!(A 0, B 1, C 2, D 3, G 4, H 5);
tuple_of_trees!(A 0, B 1, C 2, D 3, G 4, H 5, I 6);
tuple_of_trees!(A 0, B 1, C 2, D 3, G 4, H 5, I 6, J 7);
