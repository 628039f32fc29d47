use std::panic::Location;

use halite_core::tree::{Empty, Family, Leaf, Of, Path, Tree};
use halite_ir::Remat;

use crate::{Param, ScanOptions, Tensor, Trace, low_rank::LowRank};

/// Layers of one type, stacked: each leaf has a leading dimension that counts them. They run as a
/// scan, so program size and compile time do not depend on their number.
///
/// Paths are those of one layer: `blocks.attention.q.weight`.
///
/// ```
/// use halite_core::{DType, TensorType, Tree};
/// use halite_nn::{Linear, Param, Stack, Tensor, Trace, grad};
///
/// #[derive(Tree)]
/// struct Deep<L> {
///     blocks: Stack<Linear<L>>,
/// }
///
/// let model = Deep { blocks: Stack::new(24, Linear::new(64, 64)) };
/// assert_eq!(model.paths(), ["blocks.weight", "blocks.bias"]);
/// assert_eq!(model.blocks.stacked().weight.ty.to_string(), "f32[24, 64, 64]");
///
/// let cx = &Trace::new();
/// let model = model.map_leaves(|path, param: Param| cx.input(param.ty, path.to_string()));
/// let x = cx.input(TensorType::new(DType::F32, [8, 64]), "x");
/// let y = model.blocks.scan(cx, x, |layer, x| layer.forward(x).gelu());
/// let slopes = grad(y.mean_all(), &model);
/// assert!(cx.mistakes().is_empty());
/// assert_eq!(slopes.blocks.stacked().weight.ty().to_string(), "f32[24, 64, 64]");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Stack<M> {
    stacked: M,
    layers: usize,
}

impl<M: Tree<Leaf = Param>> Stack<M> {
    /// Stacks `layers` layers, each as `layer` describes and initialized separately.
    pub fn new(layers: usize, layer: M) -> Self {
        Stack {
            stacked: M::from_tree(layer.map_leaves(|_, param| param.stacked(layers))),
            layers,
        }
    }
}

impl<M> Stack<M> {
    /// The stacked leaves, each with a leading dimension that counts layers.
    pub fn stacked(&self) -> &M {
        &self.stacked
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.layers
    }
}

impl<'t, M: Tree<Leaf = Tensor<'t>>> Stack<M> {
    /// Applies all layers to `x`, in order. `layer` must return the type of `x`.
    ///
    /// Dropout draws a different mask in each layer.
    #[track_caller]
    pub fn scan(
        &self,
        cx: &'t Trace,
        x: Tensor<'t>,
        layer: impl FnOnce(&M, Tensor<'t>) -> Tensor<'t>,
    ) -> Tensor<'t> {
        self.scan_with(cx, None, x, layer)
    }

    /// Like [`scan`](Self::scan), with rematerialization in the backward pass; `None` saves all
    /// residuals.
    #[track_caller]
    pub fn scan_with(
        &self,
        cx: &'t Trace,
        remat: Option<Remat>,
        x: Tensor<'t>,
        layer: impl FnOnce(&M, Tensor<'t>) -> Tensor<'t>,
    ) -> Tensor<'t> {
        let layer = |block: &M, x, nothing: Empty<Tensor<'t>>| (layer(block, x), nothing);
        self.scan_over(cx, remat, x, Empty::new(), layer).0
    }

    /// Carries a state through all layers, with per-layer inputs `xs` and per-layer outputs, such as
    /// caches, masks or features. Their leaves have a leading dimension that counts layers.
    #[track_caller]
    pub fn scan_over<S, X, Y>(
        &self,
        cx: &'t Trace,
        remat: Option<Remat>,
        init: S,
        xs: X,
        layer: impl FnOnce(&M, S, X) -> (S, Y),
    ) -> (S, Y)
    where
        S: Tree<Leaf = Tensor<'t>>,
        X: Tree<Leaf = Tensor<'t>>,
        Y: Tree<Leaf = Tensor<'t>>,
    {
        let _site = cx.called_from(Location::caller());
        let options = ScanOptions {
            length: Some(self.layers),
            reverse: false,
        };
        // Layers of weights with a low-rank term have one as well, in place of a slice of the sum.
        let mut leaves: Vec<Tensor<'t>> = self.stacked.leaves().into_iter().copied().collect();
        let (mut specs, mut terms) = (Vec::new(), Vec::new());
        for (place, leaf) in leaves.iter_mut().enumerate() {
            if let Some(LowRank { base, a, b, spec }) = LowRank::of(*leaf) {
                *leaf = base;
                specs.push((place, spec));
                terms.push([Leaf(a), Leaf(b)]);
            }
        }
        let stacked = self.stacked.with_leaves(leaves);
        let restored = |block: M, terms: Vec<[Leaf<Tensor<'t>>; 2]>| {
            let mut leaves: Vec<Tensor<'t>> = block.leaves().into_iter().copied().collect();
            for (&(place, spec), [Leaf(a), Leaf(b)]) in specs.iter().zip(terms) {
                leaves[place] = LowRank::of_layer(spec, [leaves[place], a, b]).sum();
            }
            block.with_leaves(leaves)
        };
        cx.scan_with(
            options,
            init,
            (stacked, terms, xs),
            |state, (block, terms, x)| {
                let block = restored(block, terms);
                match remat {
                    Some(remat) => cx.checkpoint_with(remat, || layer(&block, state, x)),
                    None => layer(&block, state, x),
                }
            },
        )
    }

    /// Takes one layer, for loops that are not scans.
    ///
    /// # Panics
    /// If `index` is not below the number of layers.
    #[track_caller]
    pub fn layer(&self, index: usize) -> M {
        assert!(index < self.layers, "layer {index} of {}", self.layers);
        let of_layer = |leaf: &Tensor<'t>| match LowRank::of(*leaf) {
            None => leaf.index(0, index),
            Some(LowRank { base, a, b, spec }) => {
                let parts = [base, a, b].map(|part| part.index(0, index));
                LowRank::of_layer(spec, parts).sum()
            }
        };
        let leaves = self.stacked.leaves().into_iter();
        self.stacked.with_leaves(leaves.map(of_layer))
    }
}

impl<F: Family> Family for Stack<F> {
    type Of<L> = Stack<F::Of<L>>;
    type Bare<L> = Stack<F::Of<L>>;

    fn into_bare<L>(tree: Self::Of<L>) -> Self::Bare<L> {
        tree
    }

    fn from_bare<L>(bare: Self::Bare<L>) -> Self::Of<L> {
        bare
    }
}

/// Adds no segment to paths.
impl<M: Tree> Tree for Stack<M> {
    type Leaf = M::Leaf;
    type Family = Stack<M::Family>;

    fn leaf_refs(&self) -> Of<Self, &M::Leaf> {
        Stack {
            stacked: Tree::leaf_refs(&self.stacked),
            layers: self.layers,
        }
    }

    fn leaf_refs_mut(&mut self) -> Of<Self, &mut M::Leaf> {
        Stack {
            stacked: Tree::leaf_refs_mut(&mut self.stacked),
            layers: self.layers,
        }
    }

    fn try_map_at<L>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, M::Leaf) -> Option<L>,
    ) -> Option<Of<Self, L>> {
        Some(Stack {
            stacked: self.stacked.try_map_at(at, f)?,
            layers: self.layers,
        })
    }

    fn from_tree(tree: Of<Self, M::Leaf>) -> Self {
        Stack {
            stacked: M::from_tree(tree.stacked),
            layers: tree.layers,
        }
    }

    fn visit<'a>(&'a self, at: &mut Path, f: &mut dyn FnMut(&Path, &'a M::Leaf)) {
        self.stacked.visit(at, f);
    }
}
