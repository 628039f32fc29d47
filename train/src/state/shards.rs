//! The parts of a state that processes divide among them: slots and averages are vectors, of which
//! each process has its own.

use std::{collections::HashSet, ops::Range};

use halite_core::{
    DType, HostArray, Result,
    tree::{Family, Tree},
};
use halite_nn::{
    Init, Optimizer, Param, ProcessShards, Tensor, Trace,
    optim::{self, Named, Slots},
};

use super::{State, StateOptions};

/// The trained parameters of `model` that processes cannot divide among them with this optimizer.
pub(crate) fn undivided<M: Tree<Leaf = Param>, O: Optimizer>(
    model: &M,
    optimizer: &O,
) -> Vec<String> {
    let is_constant =
        |slot: &Param| matches!(slot.init, Init::Zeros | Init::Ones | Init::Constant(_));
    let named = model.named().into_iter();
    let undivided = named.filter(|(path, param)| {
        let named = Named { path, param };
        let slot = || optimizer.slot(named);
        param.trainable
            && !(optimizer.is_elementwise(named) && slot().leaves().into_iter().all(is_constant))
    });
    undivided.map(|(path, _)| path).collect()
}

/// What a process has of these slots of a model.
pub(crate) fn divided<M: Tree<Leaf = Param>, S: Family>(
    model: &M,
    slots: Slots<S, Param>,
    shards: Option<ProcessShards>,
) -> Slots<S, Param> {
    let Some(shards) = shards else {
        return slots;
    };
    let mut slots = slots.into_list().into_iter();
    Slots::of(model, |_, param| {
        let slot = slots.next().expect("the leaves of the model have slots")?;
        Some(slot.map_leaves(|_, leaf| {
            if is_divided(&leaf, param) {
                Param {
                    ty: (leaf.ty).with_dims([shards.shard_len(leaf.ty.elements())]),
                    stacked: 0,
                    ..leaf
                }
            } else {
                leaf
            }
        }))
    })
}

/// The arrays of a state that processes divide among them.
#[derive(Debug)]
pub(crate) struct Divided {
    paths: HashSet<String>,
    shards: ProcessShards,
    /// That of this process.
    rank: usize,
}

impl Divided {
    /// Those of a state with these options, if there are some.
    pub(crate) fn new<M: Tree<Leaf = Param>, O: Optimizer>(
        model: &M,
        optimizer: &O,
        options: &StateOptions,
        rank: usize,
    ) -> Option<Self> {
        let slots = optim::slots(optimizer, model);
        let per_param = model.leaves().into_iter().zip(slots.list());
        let is_divided = per_param.flat_map(|(param, slots)| {
            let leaves = slots.iter().flat_map(Tree::leaves);
            leaves.map(move |leaf| is_divided(leaf, param))
        });
        let slots = slots.paths().into_iter().zip(is_divided);
        let slots = slots.filter(|(_, is_divided)| *is_divided);
        let slots = slots.map(|(path, _)| format!("slots.{path}"));
        let averages = options.average.map(|rule| rule.describe(model).paths());
        let averages = averages.into_iter().flatten();
        Some(Divided {
            paths: slots
                .chain(averages.map(|path| format!("average.{path}")))
                .collect(),
            shards: options.shards?,
            rank,
        })
    }

    /// The elements that this process has, at the beginning of a vector, of the array of this path
    /// with this number of elements; `None` if it has the whole array.
    pub(crate) fn range(&self, path: &str, elements: usize) -> Option<Range<usize>> {
        let is_divided = self.paths.contains(path);
        is_divided.then(|| self.shards.range(elements, self.rank))
    }

    /// What this process has of the array of this path.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn shard(&self, path: &str, whole: HostArray) -> Result<HostArray> {
        let (ty, size) = (whole.ty(), whole.ty().dtype().size());
        let Some(range) = self.range(path, ty.elements()) else {
            return Ok(whole);
        };
        let len = self.shards.shard_len(ty.elements());
        let mut shard = HostArray::try_zeros(ty.with_dims([len]))?;
        let bytes = &whole.bytes()[range.start * size..range.end * size];
        shard.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        Ok(shard)
    }
}

/// Whether processes divide this leaf of the slot of a parameter: it has an element for each.
pub(crate) fn is_divided(leaf: &Param, param: &Param) -> bool {
    leaf.ty.dims() == param.ty.dims()
}

impl<'t, F: Family, S: Family> State<F, S, Tensor<'t>> {
    /// Whether each of these `bool` scalars holds in all processes, if they divide the gradients
    /// among them; else the scalars.
    #[track_caller]
    pub(crate) fn everywhere<const N: usize>(&self, holds: [Tensor<'t>; N]) -> [Tensor<'t>; N] {
        let all = self.all_everywhere(&holds);
        std::array::from_fn(|index| all[index])
    }

    /// As [`everywhere`](Self::everywhere).
    #[track_caller]
    pub(crate) fn all_everywhere(&self, holds: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        if self.rule.shards.is_none() || holds.is_empty() {
            return holds.to_vec();
        }
        let fails = holds.iter().map(|holds| (!*holds).convert(DType::F32));
        let fails: Vec<Tensor<'t>> = fails.collect();
        let counts = self.step.trace().process_sums("finite gradients", &fails);
        counts.into_iter().map(|count| count.eq(0.0)).collect()
    }
}

/// `model` with the shards of this process in the place of the leaves for which `is_divided` holds,
/// if processes divide the state.
#[track_caller]
pub(super) fn shards_of<'t, F: Family>(
    cx: &'t Trace,
    shards: Option<ProcessShards>,
    is_divided: &[bool],
    model: F::Of<Tensor<'t>>,
) -> F::Of<Tensor<'t>> {
    match shards {
        Some(_) => with_chosen::<F>(model, is_divided, |whole| cx.process_shards(whole)),
        None => model,
    }
}

/// `model` with other values of the chosen leaves.
pub(super) fn with_chosen<'t, F: Family>(
    model: F::Of<Tensor<'t>>,
    is_chosen: &[bool],
    change: impl FnOnce(&[Tensor<'t>]) -> Vec<Tensor<'t>>,
) -> F::Of<Tensor<'t>> {
    let leaves = model.leaves().into_iter().zip(is_chosen);
    let chosen = leaves.filter(|(_, is_chosen)| **is_chosen);
    let chosen: Vec<Tensor<'t>> = chosen.map(|(leaf, _)| *leaf).collect();
    let (mut changed, mut is_chosen) = (change(&chosen).into_iter(), is_chosen.iter());
    model.map_leaves(|_, leaf| match is_chosen.next() {
        Some(true) => changed.next().expect("a value for each that is chosen"),
        _ => leaf,
    })
}
