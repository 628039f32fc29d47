//! Structs whose leaves can be visited, named by path, and replaced by leaves of another type.
//!
//! A model is a struct generic over its leaf: `Mlp<Param>` describes it, `Mlp<Tensor>` is being
//! traced, `Mlp<Array>` lives on devices, and its gradients are another `Mlp`. [`trait@Tree`] is
//! what these have in common and [`Family`] is the struct without its leaf. `#[derive(Tree)]`
//! writes both. Nothing here knows what a leaf is.
//!
//! ```
//! use halite_core::tree::{Tree, unzip, zip};
//!
//! #[derive(Tree, Debug, PartialEq)]
//! struct Linear<L> {
//!     weight: L,
//!     bias: Option<L>,
//! }
//!
//! #[derive(Tree, Debug, PartialEq)]
//! struct Mlp<L> {
//!     hidden: Vec<Linear<L>>,
//!     out: Linear<L>,
//!     dropout: f32, // does not mention `L`: carried along, not a leaf
//! }
//!
//! let sizes = Mlp {
//!     hidden: vec![Linear { weight: 64, bias: Some(8) }],
//!     out: Linear { weight: 80, bias: None },
//!     dropout: 0.1,
//! };
//! assert_eq!(sizes.paths(), ["hidden.0.weight", "hidden.0.bias", "out.weight"]);
//! assert_eq!(sizes.leaves(), [&64, &8, &80]);
//!
//! // Leaves of another type, in the same struct.
//! let zeros: Mlp<Vec<f32>> = sizes.leaf_refs().map_leaves(|_path, &size| vec![0.0; size]);
//! assert_eq!(zeros.out.weight.len(), 80);
//!
//! // Two trees of one structure, leaf by leaf.
//! let pairs: Mlp<(usize, Vec<f32>)> = zip(sizes, zeros);
//! let (sizes, zeros) = unzip(pairs);
//! assert_eq!(sizes.leaf_count(), zeros.leaf_count());
//! ```
//!
//! Leaves come in one order everywhere: fields as written, then by index. Their paths are unique
//! within a tree. The leaf itself needs no trait and no `'static`; only the [`Family`] is
//! `'static`.
//!
//! A tensor or an array is a tree by itself, with one leaf, and so are tuples, arrays, vectors and
//! options of trees: `(Array, Mlp<Array>)`. [`Leaf`] stands for that leaf where its type changes:
//! mapping the leaf of an `Array` gives `Leaf<usize>`, for instance, since `usize` is not a tree.

mod containers;
mod error;
mod path;
mod single;
#[doc(hidden)]
pub mod support;

pub use halite_derive::Tree;

pub use self::{
    containers::{Empty, Leaf},
    error::TreeError,
    path::{Path, PathScope, Segment},
};

/// A struct with its leaf type left open: `Mlp<_>` without the `_`. Written `Mlp<()>`; derived with
/// [`trait@Tree`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the family of a tree",
    label = "`Family` is not implemented here",
    note = "a struct with one type parameter for its leaves has it by `#[derive(Tree)]`; the \
            family of `struct Mlp<L> {{ .. }}` is written `Mlp<()>`"
)]
pub trait Family: 'static {
    /// The struct with leaves `L`.
    type Of<L>: Tree<Leaf = L, Family = Self>;

    /// The struct with leaves `L` as users write it: a single leaf is `L` instead of [`Leaf<L>`],
    /// also inside tuples, arrays, vectors and options.
    type Bare<L>;

    /// Converts a tree to the form without [`Leaf`].
    fn into_bare<L>(tree: Self::Of<L>) -> Self::Bare<L>;

    /// Converts the form without [`Leaf`] to a tree.
    fn from_bare<L>(bare: Self::Bare<L>) -> Self::Of<L>;
}

/// The tree `T` with leaves `L` instead of its own.
pub type Of<T, L> = <<T as Tree>::Family as Family>::Of<L>;

/// A struct whose leaves can be visited, named by path, and replaced by leaves of another type.
///
/// Derive it. A manual implementation must meet the same leaves in the same order under the same,
/// unique paths in [`leaf_refs`](Tree::leaf_refs), [`leaf_refs_mut`](Tree::leaf_refs_mut) and
/// [`try_map_at`](Tree::try_map_at).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tree of leaves",
    label = "`Tree` is not implemented here",
    note = "a struct with one type parameter for its leaves becomes a tree with `#[derive(Tree)]`",
    note = "tensors and arrays are trees, and so are tuples, arrays, vectors and options of trees"
)]
pub trait Tree: Sized {
    /// The type of the leaves.
    type Leaf;

    /// This struct with its leaf type left open.
    type Family: Family;

    /// The same tree with references at its leaves. Static fields are cloned.
    fn leaf_refs(&self) -> Of<Self, &Self::Leaf>;

    /// The same tree with mutable references at its leaves. Static fields are cloned.
    fn leaf_refs_mut(&mut self) -> Of<Self, &mut Self::Leaf>;

    /// Replaces every leaf by the result of `f`, below the path `at`, which is unchanged when this
    /// returns. At the first `None` of `f` this returns `None`; no later leaf is visited. For
    /// implementors; users call [`try_map_leaves`](Tree::try_map_leaves), which has errors.
    /// (Without a type of errors here, this is compiled once for each type of leaves.)
    fn try_map_at<L>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, Self::Leaf) -> Option<L>,
    ) -> Option<Of<Self, L>>;

    /// Converts the family's struct with this tree's leaves to this tree. The two are one type,
    /// except for single leaves: `Leaf<Array>` and `Array`.
    fn from_tree(tree: Of<Self, Self::Leaf>) -> Self;

    /// Visits every leaf below the path `at`, which is unchanged when this returns. For
    /// implementors; users call [`for_each`](Tree::for_each).
    fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a Self::Leaf)) {
        self.leaf_refs().try_map_at(at, &mut |at, leaf| {
            f(at, leaf);
            Some(())
        });
    }

    /// Replaces every leaf by the result of `f` for its path and itself.
    fn map_leaves<L>(self, mut f: impl FnMut(&Path, Self::Leaf) -> L) -> Of<Self, L> {
        self.try_map_at(&mut Path::new(), &mut |at, leaf| Some(f(at, leaf)))
            .expect("a map ends early only at a `None`")
    }

    /// Replaces every leaf by the result of `f` for its path and itself.
    ///
    /// # Errors
    /// The first error of `f`; no later leaf is visited.
    fn try_map_leaves<L, E>(
        self,
        mut f: impl FnMut(&Path, Self::Leaf) -> Result<L, E>,
    ) -> Result<Of<Self, L>, E> {
        let mut error = None;
        let mapped = self.try_map_at(&mut Path::new(), &mut |at, leaf| {
            f(at, leaf).map_err(|failed| error = Some(failed)).ok()
        });
        match error {
            Some(error) => Err(error),
            None => Ok(mapped.expect("a map ends early only at an error")),
        }
    }

    /// Calls `f` with the path of every leaf and the leaf.
    fn for_each<'a>(&'a self, mut f: impl FnMut(&Path, &'a Self::Leaf)) {
        self.visit(&mut Path::new(), &mut f);
    }

    /// The number of leaves.
    fn leaf_count(&self) -> usize {
        let mut count = 0;
        self.for_each(|_, _| count += 1);
        count
    }

    /// All leaves, in order.
    fn leaves(&self) -> Vec<&Self::Leaf> {
        let mut leaves = Vec::new();
        self.for_each(|_, leaf| leaves.push(leaf));
        leaves
    }

    /// All leaves, in order, moved out of the tree.
    fn into_leaves(self) -> Vec<Self::Leaf> {
        let mut leaves = Vec::new();
        self.map_leaves(|_, leaf| leaves.push(leaf));
        leaves
    }

    /// The paths of all leaves, in order: `blocks.3.attn.q.weight`.
    fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.for_each(|at, _| paths.push(at.to_string()));
        paths
    }

    /// All leaves with their paths, in order.
    fn named(&self) -> Vec<(String, &Self::Leaf)> {
        let mut named = Vec::new();
        self.for_each(|at, leaf| named.push((at.to_string(), leaf)));
        named
    }

    /// This tree with other leaves of the same type, in order. Static fields are cloned.
    ///
    /// # Panics
    /// If the number of `leaves` is not [`leaf_count`](Tree::leaf_count).
    #[track_caller]
    fn with_leaves(&self, leaves: impl IntoIterator<Item = Self::Leaf>) -> Self {
        Self::from_tree(self.rebuild(leaves))
    }

    /// This tree with `leaves`, in order, instead of its own. Static fields are cloned.
    ///
    /// # Panics
    /// If the number of `leaves` is not [`leaf_count`](Tree::leaf_count); see
    /// [`try_rebuild`](Tree::try_rebuild).
    #[track_caller]
    fn rebuild<M>(&self, leaves: impl IntoIterator<Item = M>) -> Of<Self, M> {
        match self.try_rebuild(leaves) {
            Ok(tree) => tree,
            Err(error) => panic!("rebuild: {error}"),
        }
    }

    /// This tree with `leaves`, in order, instead of its own. Static fields are cloned.
    ///
    /// # Errors
    /// [`TreeError::LeafCount`] if there are fewer or more `leaves` than this tree has.
    fn try_rebuild<M>(
        &self,
        leaves: impl IntoIterator<Item = M>,
    ) -> Result<Of<Self, M>, TreeError> {
        let mut leaves = leaves.into_iter();
        let mut taken = 0;
        let rebuilt = self.leaf_refs().try_map_leaves(|_, _| {
            let leaf = leaves.next().ok_or(())?;
            taken += 1;
            Ok(leaf)
        });
        match (rebuilt, leaves.next()) {
            (Ok(tree), None) => Ok(tree),
            (Err(()), _) => Err(TreeError::LeafCount {
                expected: self.leaf_count(),
                given: taken,
                or_more: false,
            }),
            (Ok(_), Some(_)) => {
                // Not counted by draining: the iterator may be endless.
                let beyond = match leaves.size_hint() {
                    (at_least, Some(at_most)) if at_least == at_most => Some(at_least),
                    _ => None,
                };
                Err(TreeError::LeafCount {
                    expected: taken,
                    given: taken.saturating_add(1).saturating_add(beyond.unwrap_or(0)),
                    or_more: beyond.is_none(),
                })
            }
        }
    }
}

/// Checks that `left` and `right` have leaves at the same paths, in the same order. Static fields
/// are not compared.
///
/// # Errors
/// [`TreeError::Structure`] with the first path at which they differ.
pub fn same_structure<A: Tree, B: Tree>(left: &A, right: &B) -> Result<(), TreeError> {
    let mut expected = path::PathList::default();
    left.for_each(|at, _| expected.push(at));
    let mut given = 0;
    let mut first_difference = None;
    right.for_each(|at, _| {
        if first_difference.is_none() && expected.get(given) != Some(at.segments()) {
            first_difference = Some((given, Some(at.to_string())));
        }
        given += 1;
    });
    if first_difference.is_none() && given < expected.len() {
        first_difference = Some((given, None));
    }
    match first_difference {
        None => Ok(()),
        Some((position, right)) => Err(TreeError::Structure {
            left: expected
                .get(position)
                .map(|segments| Path::from(segments).to_string()),
            right,
            left_count: expected.len(),
            right_count: given,
        }),
    }
}

/// One tree of pairs from two trees of one structure. Static fields are those of `left`.
///
/// # Panics
/// If the trees differ in structure (`Vec`s of different lengths, `Some` against `None`); see
/// [`try_zip`].
#[track_caller]
pub fn zip<A: Tree, B: Tree<Family = A::Family>>(left: A, right: B) -> Of<A, (A::Leaf, B::Leaf)> {
    match try_zip(left, right) {
        Ok(tree) => tree,
        Err(error) => panic!("zip: {error}"),
    }
}

/// One tree of pairs from two trees of one structure. Static fields are those of `left`.
///
/// # Errors
/// [`TreeError::Structure`] if the trees do not have leaves at the same paths.
#[expect(
    clippy::type_complexity,
    reason = "it is the type of `zip`, or an error"
)]
pub fn try_zip<A: Tree, B: Tree<Family = A::Family>>(
    left: A,
    right: B,
) -> Result<Of<A, (A::Leaf, B::Leaf)>, TreeError> {
    same_structure(&left, &right)?;
    let mut right = right.into_leaves().into_iter();
    Ok(left.map_leaves(|_, leaf| {
        (
            leaf,
            right
                .next()
                .expect("trees of one structure have equally many leaves"),
        )
    }))
}

/// Two trees from one tree of pairs: the inverse of [`zip`]. Static fields are cloned.
pub fn unzip<T: Tree<Leaf = (A, B)>, A, B>(pairs: T) -> (Of<T, A>, Of<T, B>) {
    let mut rights = Vec::new();
    let left = pairs.map_leaves(|_, (left, right)| {
        rights.push(right);
        left
    });
    let right = left.rebuild(rights);
    (left, right)
}
