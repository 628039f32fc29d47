//! Low-rank adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021): a few
//! weights of a model become `W + alpha / rank · a b`, and only `a` and `b` are trained.
//!
//! Any model can be adapted, as it is: its dense layers compute `x W + alpha / rank · (x a) b`, in a
//! [`Stack`](crate::Stack) too. The gradient by `W`, and the sum itself, are computed only where a
//! weight is used in other ways than in the product of its layer.

mod adapters;

use halite_core::{
    Array, Client, Error, Result, Tree,
    tree::{Path, Segment},
};

pub use self::adapters::{Adapter, Adapters};
use crate::{
    Init, Param, ParamKind, Pattern, Tensor, jit,
    low_rank::{LowRank, Spec},
};

/// Which weights of a model are adapted, and by how much.
///
/// ```
/// use halite_core::{DType, TensorType, Tree};
/// use halite_nn::{Lora, Trace, Transformer, TransformerConfig, grad};
///
/// let model = Transformer::new(&TransformerConfig::tiny())?;
/// let adapted = Lora::new(4).target("blocks.attention.q|v")?.adapt(model)?;
/// assert_eq!(adapted.adapters.paths()[0], "blocks.attention.q.lora_A.weight");
///
/// let cx = Trace::new();
/// let adapted = adapted.map_leaves(|path, param| cx.input(param.ty, path.to_string()));
/// let model = adapted.model(); // a `Transformer<Tensor>`, used as any other
/// let tokens = cx.input(TensorType::new(DType::U32, [4, 10]), "tokens");
/// let loss = model.forward(tokens).square().mean_all();
/// let gradients = grad(loss, &adapted.adapters);
/// assert_eq!(gradients.leaf_count(), 4);
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lora {
    rank: usize,
    alpha: f64,
    targets: Vec<Pattern>,
}

/// A model with adapters: the base, which is frozen, and the adapters.
#[derive(Clone, Debug, Tree)]
#[tree(subtrees(M))]
pub struct Adapted<M, L> {
    /// The model whose weights are adapted.
    pub base: M,
    /// The adapters, of paths like those of the layers.
    pub adapters: Adapters<L>,
}

impl Lora {
    /// Adapters of this rank, with an alpha of twice the rank, of all dense layers: weights
    /// `[in, out]`, and those of the heads of [`Attention`](crate::Attention).
    pub fn new(rank: usize) -> Self {
        Lora {
            rank,
            alpha: 2.0 * rank as f64,
            targets: Vec::new(),
        }
    }

    /// Sets alpha: adapters are multiplied by `alpha / rank`.
    pub fn alpha(mut self, alpha: f64) -> Self {
        self.alpha = alpha;
        self
    }

    /// Adds dense layers by a [`Pattern`] of their paths: `blocks.attention.q|v`. Without any, all
    /// are adapted.
    ///
    /// # Errors
    /// If it is not a valid pattern.
    pub fn target(mut self, pattern: &str) -> Result<Self> {
        self.targets.push(pattern.parse()?);
        Ok(self)
    }

    /// Describes `model` with adapters, and freezes it. `a` is initialized uniformly within
    /// `1 / sqrt(inputs)` and `b` with zeros, so that the model is unchanged at first.
    ///
    /// # Errors
    /// If a pattern matches no dense layer, the rank is 0, or alpha is not finite.
    pub fn adapt<M: Tree<Leaf = Param>>(&self, model: M) -> Result<Adapted<M, Param>> {
        if self.rank == 0 || !self.alpha.is_finite() {
            let message = format!(
                "rank {} with alpha {}; expected a rank of at least 1 and a finite alpha",
                self.rank, self.alpha
            );
            return Err(Error::invalid("lora", message));
        }
        let mut list = Vec::new();
        let mut layers = Vec::new();
        let mut used = vec![false; self.targets.len()];
        model.for_each(|path, param| {
            let Some((layer, inputs)) = dense(path, param) else {
                return;
            };
            let name = Path::from(layer).to_string();
            let mut chosen = self.targets.is_empty();
            for (target, used) in self.targets.iter().zip(&mut used) {
                if target.matches(&name) || target.matches(&path.to_string()) {
                    (chosen, *used) = (true, true);
                }
            }
            if chosen {
                list.push(self.adapter(layer, inputs, param));
            }
            layers.push(name);
        });
        let layers = layers.iter().map(String::as_str);
        if let Some(unused) = used.iter().position(|used| !used) {
            let pattern = &self.targets[unused];
            let nearest = pattern.nearest(layers);
            let nearest = nearest.map_or(String::new(), |path| format!("; did you mean `{path}`?"));
            let message = format!("`{pattern}` matches no dense layer{nearest}");
            return Err(Error::invalid("lora", message));
        }
        if list.is_empty() {
            return Err(Error::invalid(
                "lora",
                "the model has no dense layer to adapt",
            ));
        }
        let frozen = model.map_leaves(|_, param| param.frozen());
        Ok(Adapted {
            base: M::from_tree(frozen),
            adapters: Adapters::new(list, self.alpha / self.rank as f64),
        })
    }

    fn adapter(&self, layer: &[Segment], inputs: usize, weight: &Param) -> Adapter<Param> {
        let dims = weight.layer_type().dims().to_vec();
        let (before, after) = dims.split_at(inputs);
        let param = |dims: Vec<usize>, init, kind| {
            let param = Param::new(dims, init)
                .with_dtype(weight.ty.dtype())
                .of_kind(kind);
            let layers = &weight.ty.dims()[..weight.stacked];
            (layers.iter().rev()).fold(param, |param, &layers| param.stacked(layers))
        };
        let fan_in = before.iter().product();
        let of_heads = |dims: &[usize], kind| match dims.len() {
            2 => kind,
            _ => ParamKind::Linear,
        };
        let kinds = [
            of_heads(before, ParamKind::FromHeads),
            of_heads(after, ParamKind::ToHeads),
        ];
        Adapter {
            layer: layer.to_vec(),
            inputs,
            stacked: weight.stacked,
            a: param(
                [before, &[self.rank]].concat(),
                Init::torch_default(fan_in),
                kinds[0],
            ),
            b: param([&[self.rank], after].concat(), Init::Zeros, kinds[1]),
        }
    }
}

/// The path of a dense layer, given its weight, and the number of dimensions of inputs.
fn dense<'p>(path: &'p Path, param: &Param) -> Option<(&'p [Segment], usize)> {
    let (field, layer) = path.segments().split_last()?;
    if *field != Segment::Field("weight") || !param.ty.dtype().is_float() {
        return None;
    }
    match (param.kind, param.layer_type().rank()) {
        (ParamKind::Linear, 2) | (ParamKind::ToHeads, 3) => Some((layer, 1)),
        (ParamKind::FromHeads, 3) => Some((layer, 2)),
        _ => None,
    }
}

impl<'t, M: Tree<Leaf = Tensor<'t>>> Adapted<M, Tensor<'t>> {
    /// The model with adapted weights.
    ///
    /// # Panics
    /// If the adapters are not of this model.
    #[track_caller]
    pub fn model(&self) -> M {
        let scale = self.adapters.scale();
        let mut leaves: Vec<Tensor<'t>> = self.base.leaves().into_iter().copied().collect();
        let paths = self.base.paths();
        for adapter in self.adapters.list() {
            let (place, spec) = (adapter.place(&paths), adapter.spec(scale));
            let (a, b) = (adapter.a, adapter.b);
            let base = leaves[place];
            leaves[place] = LowRank { base, a, b, spec }.sum();
        }
        self.base.with_leaves(leaves)
    }
}

impl<M: Tree<Leaf = Array>> Adapted<M, Array> {
    /// The model with the adapters added to its weights, which are new arrays; the others are
    /// those of the base.
    ///
    /// # Errors
    /// If a device has too little memory.
    ///
    /// # Panics
    /// If the adapters are not of this model.
    pub fn merged(self, client: &Client) -> Result<M> {
        let scale = self.adapters.scale();
        let paths = self.base.paths();
        let shape = self.base.leaf_refs().map_leaves(|_, _| ());
        let mut leaves = self.base.into_leaves();
        for adapter in self.adapters.list() {
            let spec = adapter.spec(scale);
            let merge = jit(client, move |_, [base, a, b]| {
                [LowRank { base, a, b, spec }.sum()]
            });
            let place = adapter.place(&paths);
            let [merged] = merge.run([&leaves[place], &adapter.a, &adapter.b])?;
            leaves[place] = merged;
        }
        Ok(M::from_tree(shape.rebuild(leaves)))
    }
}

impl<L> Adapter<L> {
    fn spec(&self, scale: f64) -> Spec {
        Spec {
            scale,
            stacked: self.stacked,
            inputs: self.inputs,
        }
    }

    /// Position of the weight among those of the model.
    fn place(&self, paths: &[String]) -> usize {
        let path = self.weight();
        let place = paths.iter().position(|known| *known == path);
        place.expect("adapters are of weights of the model")
    }
}
