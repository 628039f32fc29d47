//! Positions that indices in tensors name: `gather`, and those of `scatter`.

use halite_core::Result;
use halite_stablehlo::{GatherAttributes, RankedType, ScatterAttributes};

use super::{
    index::{offset, rearrange, strides},
    tensor::Tensor,
};

/// The dimensions of a result or of updates that are not among `dims`, in order.
fn others(rank: usize, dims: &[usize]) -> Vec<usize> {
    (0..rank).filter(|dim| !dims.contains(dim)).collect()
}

/// A tensor of index vectors.
struct IndexVectors {
    values: Vec<i128>,
    dims: Vec<usize>,
    strides: Vec<usize>,
    /// The dimension along which a vector is; the rank for vectors of one element.
    vector: usize,
}

impl IndexVectors {
    fn new(indices: &Tensor, vector: usize) -> Result<Self> {
        let dims = indices.ty.dims.clone();
        Ok(IndexVectors {
            values: indices.ints()?,
            strides: strides(&dims),
            dims,
            vector,
        })
    }

    /// Element `number` of the vector at `batch`, an index of the other dimensions.
    fn value(&self, batch: &[usize], number: usize) -> i128 {
        let mut index = batch.to_vec();
        if self.vector < self.dims.len() {
            index.insert(self.vector, number);
        }
        self.values[offset(&index, &self.strides)]
    }

    /// The coordinate of `batch` along dimension `dim` of the indices.
    fn coordinate(&self, batch: &[usize], dim: usize) -> usize {
        batch[if dim < self.vector { dim } else { dim - 1 }]
    }
}

/// Slices of `x`, from starts that are moved to where the slice is inside.
pub(super) fn gather(
    x: &Tensor,
    starts: &Tensor,
    attributes: &GatherAttributes,
    ty: &RankedType,
) -> Result<Tensor> {
    let vectors = IndexVectors::new(starts, attributes.index_vector_dim)?;
    let strides = strides(&x.ty.dims);
    let batch_dims = others(ty.rank(), &attributes.offset_dims);
    let absent = [
        &attributes.collapsed_slice_dims[..],
        &attributes.operand_batching_dims,
    ]
    .concat();
    let slice_dims = others(x.ty.rank(), &absent);
    let mut batch = vec![0; batch_dims.len()];
    rearrange(x, ty, |index| {
        batch
            .iter_mut()
            .zip(&batch_dims)
            .for_each(|(at, &dim)| *at = index[dim]);
        let mut at = 0;
        for (number, &dim) in attributes.start_index_map.iter().enumerate() {
            let last = x.ty.dims[dim] - attributes.slice_sizes[dim];
            at += vectors.value(&batch, number).clamp(0, last as i128) as usize * strides[dim];
        }
        let batching = &attributes.start_indices_batching_dims;
        for (&dim, &from) in attributes.operand_batching_dims.iter().zip(batching) {
            at += vectors.coordinate(&batch, from) * strides[dim];
        }
        for (&dim, &from) in slice_dims.iter().zip(&attributes.offset_dims) {
            at += index[from] * strides[dim];
        }
        at
    })
}

/// Positions into which a scatter combines its updates.
pub(super) struct ScatterIndices<'a> {
    attributes: &'a ScatterAttributes,
    dims: &'a [usize],
    strides: Vec<usize>,
    vectors: IndexVectors,
    window_dims: Vec<usize>,
    /// Size of the window that is updated, along each dimension of the operand.
    window: Vec<usize>,
}

impl<'a> ScatterIndices<'a> {
    /// The positions in an operand of `dims` of updates of `update_dims`.
    pub(super) fn new(
        attributes: &'a ScatterAttributes,
        dims: &'a [usize],
        indices: &Tensor,
        update_dims: &[usize],
    ) -> Result<Self> {
        let absent = [
            &attributes.inserted_window_dims[..],
            &attributes.input_batching_dims,
        ]
        .concat();
        let window_dims = others(dims.len(), &absent);
        let mut window = vec![1; dims.len()];
        for (&dim, &from) in window_dims.iter().zip(&attributes.update_window_dims) {
            window[dim] = update_dims[from];
        }
        Ok(ScatterIndices {
            attributes,
            dims,
            strides: strides(dims),
            vectors: IndexVectors::new(indices, attributes.index_vector_dim)?,
            window_dims,
            window,
        })
    }

    /// The position for the update at `index`. `None` if its window is not inside: same as
    /// XLA, such a window is skipped as a whole.
    pub(super) fn position(&self, index: &[usize]) -> Option<usize> {
        let attributes = self.attributes;
        let batch: Vec<_> = others(index.len(), &attributes.update_window_dims)
            .into_iter()
            .map(|dim| index[dim])
            .collect();
        let mut start = vec![0i128; self.dims.len()];
        for (number, &dim) in attributes.scatter_dims_to_operand_dims.iter().enumerate() {
            start[dim] = self.vectors.value(&batch, number);
        }
        let batching = &attributes.scatter_indices_batching_dims;
        for (&dim, &from) in attributes.input_batching_dims.iter().zip(batching) {
            start[dim] += self.vectors.coordinate(&batch, from) as i128;
        }
        let mut at = 0;
        for (dim, &start) in start.iter().enumerate() {
            let last = self.dims[dim].checked_sub(self.window[dim])?;
            let inside = usize::try_from(start).ok().filter(|&start| start <= last)?;
            at += inside * self.strides[dim];
        }
        for (&dim, &from) in self.window_dims.iter().zip(&attributes.update_window_dims) {
            at += index[from] * self.strides[dim];
        }
        Some(at)
    }
}
