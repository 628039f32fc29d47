//! Batches of a constant number of rows, with weights that exclude padding rows.

use std::sync::Arc;

use halite_core::{
    Array, DType, Error, HostArray, PinnedPool, Result, TensorType,
    tree::{self, Tree},
};

use crate::{Field, Rows, rows::zeros_in};

/// A batch of a task with one input and one target: `input: [batch, ..]`, `target: [batch, ..]`,
/// `weight: f32[batch]`.
#[derive(Tree, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labeled<L> {
    /// The input of the model.
    pub input: L,
    /// The expected output.
    pub target: L,
    /// 1 for a sample, 0 for a padding row of the last batch: the weight of every mean over
    /// samples.
    pub weight: L,
}

impl Labeled<()> {
    /// The structure of the batch, for [`HostBatch::into_tree`] and [`DeviceBatch::into_tree`].
    pub const TEMPLATE: Self = Self {
        input: (),
        target: (),
        weight: (),
    };
}

/// Position of a batch in a run, which a checkpoint saves to resume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The batch in the epoch, from 0.
    pub batch: usize,
}

/// One batch on the host.
#[derive(Clone, Debug)]
pub struct HostBatch {
    /// The fields in the dataset's order, `[batch, ..]` each, and last the weights, `f32[batch]`.
    pub arrays: Vec<Arc<HostArray>>,
    /// Number of rows that are not padding: the sum of the weights.
    pub count: usize,
    /// Position of the batch.
    pub position: Position,
}

/// One batch on the devices, or several stacked along a new first dimension.
#[derive(Debug)]
pub struct DeviceBatch {
    /// The fields in the dataset's order, `[batch, ..]` each, and last the weights, `f32[batch]`.
    /// With more than one of [`batches`](Self::batches), `[batches, batch, ..]`.
    pub arrays: Vec<Array>,
    /// Number of rows that are not padding: the sum of the weights.
    pub count: usize,
    /// Position of the first batch.
    pub position: Position,
    /// Number of batches.
    pub batches: usize,
}

impl HostBatch {
    /// Returns the arrays as the leaves of `template`: the fields in order, then the weights, which
    /// are omitted if the template has no leaf for them.
    ///
    /// # Errors
    /// If the template has another number of leaves.
    pub fn into_tree<T: Tree>(self, template: &T) -> Result<tree::Of<T, Arc<HostArray>>> {
        batch_tree(self.arrays, template)
    }
}

impl DeviceBatch {
    /// As [`HostBatch::into_tree`].
    ///
    /// # Errors
    /// If the template has another number of leaves.
    pub fn into_tree<T: Tree>(self, template: &T) -> Result<tree::Of<T, Array>> {
        batch_tree(self.arrays, template)
    }
}

/// Returns the arrays of a loader (the fields in order, then the weights) as the leaves of
/// `template`; the weights are omitted if the template has no leaf for them.
///
/// # Errors
/// If the template has another number of leaves.
pub fn batch_tree<A, T: Tree>(mut arrays: Vec<A>, template: &T) -> Result<tree::Of<T, A>> {
    let (given, wanted) = (arrays.len(), template.leaf_count());
    if wanted + 1 == given {
        arrays.pop();
    }
    template.try_rebuild(arrays).map_err(|_| {
        let paths = template.paths().join(", ");
        let message = format!(
            "the task's batch has {wanted} leaves ({paths}), the loader has {} fields and weights",
            given - 1
        );
        Error::invalid("batch", message)
    })
}

/// The types of a batch's arrays: the fields in order, then the weights.
pub(crate) fn batch_types(fields: &[Field], batch: usize) -> Vec<TensorType> {
    let with_batch = |ty: &TensorType| {
        let dims: Vec<usize> = std::iter::once(batch)
            .chain(ty.dims().iter().copied())
            .collect();
        ty.with_dims(dims)
    };
    let weight = TensorType::scalar(DType::F32);
    fields
        .iter()
        .map(|field| &field.ty)
        .chain([&weight])
        .map(with_batch)
        .collect()
}

impl HostBatch {
    /// Stacks successive batches along new first dimensions of these `lengths`. If there are fewer
    /// than places, copies of the first one at weight 0 take the others: its rows are samples. The
    /// memory is that of the pool, if there is one.
    ///
    /// # Errors
    /// If the memory is exhausted.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn stacked(
        batches: &[HostBatch],
        lengths: &[usize],
        pool: Option<&PinnedPool>,
    ) -> Result<Self> {
        let weights = batches[0].arrays.len() - 1;
        let places: usize = lengths.iter().product();
        let stack = |index: usize| {
            let ty = batches[0].arrays[index].ty();
            let ty = ty.with_dims([lengths, ty.dims()].concat());
            let mut stacked = zeros_in(pool, ty)?;
            let size = batches[0].arrays[index].bytes().len();
            // Weights of the places that are left stay 0.
            let copies = if index == weights {
                0
            } else {
                places - batches.len()
            };
            let copies = std::iter::repeat_n(&batches[0], copies);
            let slices = batches.iter().chain(copies);
            // A size of 0 has no chunks, and nothing to copy.
            for (to, slice) in stacked.bytes_mut().chunks_mut(size.max(1)).zip(slices) {
                to.copy_from_slice(slice.arrays[index].bytes());
            }
            Ok(Arc::new(stacked))
        };
        Ok(HostBatch {
            arrays: (0..=weights).map(stack).collect::<Result<_>>()?,
            count: batches.iter().map(|batch| batch.count).sum(),
            position: batches[0].position,
        })
    }

    pub(crate) fn new(rows: Rows, weights: &[f32], position: Position) -> Self {
        let count = weights.iter().filter(|&&weight| weight > 0.0).count();
        let weights = HostArray::from_slice(weights, [weights.len()])
            .expect("as many weights as the dimension says");
        let arrays = rows
            .into_arrays()
            .into_iter()
            .chain([weights])
            .map(Arc::new)
            .collect();
        Self {
            arrays,
            count,
            position,
        }
    }
}
