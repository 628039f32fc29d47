//! The tree of the adapters.

use halite_core::tree::{Family, Path, Segment, Tree};

/// The adapters of a model, in the order of its weights.
///
/// A tree: the leaves of the adapter of the layer `blocks.attention.q` are
/// `blocks.attention.q.lora_A.weight` and `blocks.attention.q.lora_B.weight`.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapters<L> {
    list: Vec<Adapter<L>>,
    scale: f64,
}

/// The low-rank term `a b` of one weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter<L> {
    /// Path of the layer.
    pub(super) layer: Vec<Segment>,
    /// Number of dimensions of the inputs.
    pub(super) inputs: usize,
    /// Number of leading dimensions that count layers.
    pub(super) stacked: usize,
    /// `[in.., rank]`, in a stack with a leading dimension that counts layers.
    pub a: L,
    /// `[rank, out..]`, in a stack with a leading dimension that counts layers.
    pub b: L,
}

impl<L> Adapters<L> {
    pub(super) fn new(list: Vec<Adapter<L>>, scale: f64) -> Self {
        Adapters { list, scale }
    }

    /// The adapters.
    pub fn list(&self) -> &[Adapter<L>] {
        &self.list
    }

    /// The adapters of the layers for which `keeps` is true.
    pub fn only(mut self, mut keeps: impl FnMut(&Adapter<L>) -> bool) -> Self {
        self.list.retain(|adapter| keeps(adapter));
        self
    }

    /// Factor of all terms: alpha over rank.
    pub fn scale(&self) -> f64 {
        self.scale
    }
}

impl<L> Adapter<L> {
    /// Path of the layer: `blocks.attention.q`.
    pub fn layer(&self) -> String {
        Path::from(&*self.layer).to_string()
    }

    /// This adapter as the only one of a model, multiplied by `scale`.
    pub fn alone(&self, scale: f64) -> Adapters<L>
    where
        L: Clone,
    {
        Adapters::new(vec![self.clone()], scale)
    }

    /// Path of the weight: `blocks.attention.q.weight`.
    pub fn weight(&self) -> String {
        let mut path = self.layer.clone();
        path.push(Segment::Field("weight"));
        Path::from(&*path).to_string()
    }

    /// The same place of a model, with other leaves.
    fn with<M>(&self, a: M, b: M) -> Adapter<M> {
        let Adapter {
            inputs, stacked, ..
        } = *self;
        let layer = self.layer.clone();
        Adapter {
            layer,
            inputs,
            stacked,
            a,
            b,
        }
    }
}

impl Family for Adapters<()> {
    type Of<L> = Adapters<L>;
    type Bare<L> = Adapters<L>;

    fn into_bare<L>(tree: Self::Of<L>) -> Self::Bare<L> {
        tree
    }

    fn from_bare<L>(bare: Self::Bare<L>) -> Self::Of<L> {
        bare
    }
}

impl<A> Tree for Adapters<A> {
    type Leaf = A;
    type Family = Adapters<()>;

    fn leaf_refs(&self) -> Adapters<&A> {
        Adapters {
            list: self
                .list
                .iter()
                .map(|one| one.with(&one.a, &one.b))
                .collect(),
            scale: self.scale,
        }
    }

    fn leaf_refs_mut(&mut self) -> Adapters<&mut A> {
        let list = self.list.iter_mut().map(|one| Adapter {
            layer: one.layer.clone(),
            inputs: one.inputs,
            stacked: one.stacked,
            a: &mut one.a,
            b: &mut one.b,
        });
        Adapters {
            list: list.collect(),
            scale: self.scale,
        }
    }

    fn try_map_at<L>(
        self,
        at: &mut Path,
        f: &mut dyn FnMut(&Path, A) -> Option<L>,
    ) -> Option<Adapters<L>> {
        let mut list = Vec::with_capacity(self.list.len());
        for Adapter {
            layer,
            inputs,
            stacked,
            a,
            b,
        } in self.list
        {
            let at = &mut at.below(&layer);
            let a = f(&at.field("lora_A").field("weight"), a)?;
            let b = f(&at.field("lora_B").field("weight"), b)?;
            list.push(Adapter {
                layer,
                inputs,
                stacked,
                a,
                b,
            });
        }
        Some(Adapters {
            list,
            scale: self.scale,
        })
    }

    fn from_tree(tree: Adapters<A>) -> Self {
        tree
    }
}
