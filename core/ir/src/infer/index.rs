//! Operations that move elements by indices known only when they run.

use halite_core::{Result, TensorType};

use super::{Infer, is_bool_or_integer, is_number, reduce::without};
use crate::{GatherAttributes, Reduction, ScatterAttributes};

impl Infer<'_> {
    pub(super) fn dynamic_slice(self, sizes: &[usize]) -> Result<Vec<TensorType>> {
        let Some((x, starts)) = self.operands.split_first() else {
            return self.fail("takes an operand and its start indices, got none");
        };
        self.per_dimension("sizes", sizes, x)?;
        self.starts(x, starts)?;
        for (dim, (&size, &whole)) in sizes.iter().zip(x.dims()).enumerate() {
            if size > whole {
                return self.fail(format!(
                    "size {size} in dimension {dim} of {x}, which has {whole}"
                ));
            }
        }
        Ok(vec![x.with_dims(sizes)])
    }

    pub(super) fn dynamic_update_slice(self) -> Result<Vec<TensorType>> {
        let [x, update, starts @ ..] = self.operands else {
            return self.fail(format!(
                "takes an operand, an update and start indices, got {}",
                self.list()
            ));
        };
        if update.dtype() != x.dtype() || update.rank() != x.rank() {
            return self.fail(format!(
                "the update {update} and {x} must have the same element type and rank"
            ));
        }
        if let Some(dim) = (0..x.rank()).find(|&dim| update.dims()[dim] > x.dims()[dim]) {
            return self.fail(format!(
                "dimension {dim} of the update {update} is {}, of {x} only {}",
                update.dims()[dim],
                x.dims()[dim]
            ));
        }
        self.starts(x, starts)?;
        Ok(vec![(*x).clone()])
    }

    /// One integer scalar per dimension of `x`, all of one type.
    fn starts(self, x: &TensorType, starts: &[&TensorType]) -> Result<()> {
        self.per_dimension("start indices", starts, x)?;
        for start in starts {
            if start.rank() != 0
                || !start.dtype().is_integer()
                || start.dtype() != starts[0].dtype()
            {
                return self.fail(format!(
                    "start indices {starts:?} must be integer scalars of one type"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn gather(self, gather: &GatherAttributes) -> Result<Vec<TensorType>> {
        let [x, indices] = self.take()?;
        let sizes = &gather.slice_sizes;
        let indexing = Indexing {
            x,
            indices,
            dropped: &gather.collapsed_slice_dims,
            operand_batching: &gather.operand_batching_dims,
            indices_batching: &gather.start_indices_batching_dims,
            map: &gather.start_index_map,
            vector_dim: gather.index_vector_dim,
        };
        self.indices(indexing)?;
        self.per_dimension("slice sizes", sizes, x)?;
        for (dim, (&size, &whole)) in sizes.iter().zip(x.dims()).enumerate() {
            let dropped = gather.collapsed_slice_dims.contains(&dim)
                || gather.operand_batching_dims.contains(&dim);
            if size > whole {
                return self.fail(format!(
                    "slice size {size} in dimension {dim} of {x}, which has {whole}"
                ));
            }
            if dropped && size > 1 {
                return self.fail(format!(
                    "slice size {size} in dimension {dim} of {x}, which is collapsed; it must be 1"
                ));
            }
        }
        let kept: Vec<usize> = (indexing.kept_dims().into_iter())
            .map(|dim| sizes[dim])
            .collect();
        if kept.len() != gather.offset_dims.len() {
            return self.fail(format!(
                "offset dimensions {:?} are {}, slices of {x} keep {} dimensions",
                gather.offset_dims,
                gather.offset_dims.len(),
                kept.len()
            ));
        }
        let batch = without(indices.dims(), &[gather.index_vector_dim]);
        let rank = batch.len() + kept.len();
        self.placed("offset dimension", &gather.offset_dims, rank)?;
        let (mut batch, mut kept) = (batch.into_iter(), kept.into_iter());
        let pick = |dim| {
            if gather.offset_dims.contains(&dim) {
                kept.next()
            } else {
                batch.next()
            }
        };
        let dims: Vec<usize> = (0..rank).filter_map(pick).collect();
        Ok(vec![x.with_dims(dims)])
    }

    pub(super) fn scatter(
        self,
        scatter: &ScatterAttributes,
        combine: Option<Reduction>,
    ) -> Result<Vec<TensorType>> {
        let [x, indices, updates] = self.take()?;
        if updates.dtype() != x.dtype() {
            return self.fail(format!(
                "the updates {updates} and {x} must have the same element type"
            ));
        }
        if let Some(combine) = combine {
            self.reducible(combine, x)?;
        }
        let indexing = Indexing {
            x,
            indices,
            dropped: &scatter.inserted_window_dims,
            operand_batching: &scatter.input_batching_dims,
            indices_batching: &scatter.scatter_indices_batching_dims,
            map: &scatter.scatter_dims_to_operand_dims,
            vector_dim: scatter.index_vector_dim,
        };
        self.indices(indexing)?;
        let kept = indexing.kept_dims();
        if kept.len() != scatter.update_window_dims.len() {
            return self.fail(format!(
                "window dimensions {:?} of the updates are {}, windows of {x} have {} dimensions",
                scatter.update_window_dims,
                scatter.update_window_dims.len(),
                kept.len()
            ));
        }
        let batch = without(indices.dims(), &[scatter.index_vector_dim]);
        if updates.rank() != batch.len() + kept.len() {
            return self.fail(format!(
                "the updates {updates} have {} dimensions, the indices {indices} give {} and \
                 windows of {x} {}",
                updates.rank(),
                batch.len(),
                kept.len()
            ));
        }
        let window_dims = &scatter.update_window_dims;
        self.placed("window dimension", window_dims, updates.rank())?;
        let (mut batch, mut kept) = (batch.into_iter(), kept.into_iter());
        for (dim, &size) in updates.dims().iter().enumerate() {
            if window_dims.contains(&dim) {
                let window = kept.next().map(|of| (of, x.dims()[of]));
                if let Some((of, whole)) = window.filter(|&(_, whole)| size > whole) {
                    return self.fail(format!(
                        "dimension {dim} of the updates {updates} is a window of {size}, \
                         dimension {of} of {x} has {whole}"
                    ));
                }
            } else if let Some(expected) = batch.next().filter(|&expected| size != expected) {
                return self.fail(format!(
                    "dimension {dim} of the updates {updates} is {size}, \
                     the indices {indices} imply {expected}"
                ));
            }
        }
        Ok(vec![(*x).clone()])
    }

    /// Checks of operand and indices that gather and scatter share.
    fn indices(self, indexing: Indexing<'_>) -> Result<()> {
        let Indexing {
            x,
            indices,
            dropped,
            operand_batching,
            indices_batching,
            map,
            vector_dim,
        } = indexing;
        if !indices.dtype().is_integer() {
            return self.fail(format!("the indices are {indices}; they must be integers"));
        }
        if vector_dim > indices.rank() {
            return self.fail(format!(
                "index vector dimension {vector_dim} of the indices {indices}; it must be at most {}",
                indices.rank()
            ));
        }
        self.ascending("dropped dimension", dropped, x)?;
        self.ascending("batching dimension", operand_batching, x)?;
        self.distinct("batching dimension", indices_batching, indices)?;
        self.distinct("indexed dimension", map, x)?;
        for dim in operand_batching {
            if dropped.contains(dim) || map.contains(dim) {
                return self.fail(format!(
                    "dimension {dim} of {x} is batched, and so is neither dropped nor indexed"
                ));
            }
        }
        if operand_batching.len() != indices_batching.len() {
            return self.fail(format!(
                "batching dimensions {operand_batching:?} of {x} and {indices_batching:?} of the indices {indices} are paired"
            ));
        }
        for (&of_x, &of_indices) in operand_batching.iter().zip(indices_batching) {
            if of_indices == vector_dim {
                return self.fail(format!("dimension {of_indices} of the indices {indices} holds their components, not a batch"));
            }
            if x.dims()[of_x] != indices.dims()[of_indices] {
                return self.fail(format!(
                    "batching dimension {of_x} of {x} is {}, dimension {of_indices} of the indices {indices} is {}",
                    x.dims()[of_x],
                    indices.dims()[of_indices]
                ));
            }
        }
        let components = indices.dims().get(vector_dim).copied().unwrap_or(1);
        if map.len() != components {
            return self.fail(format!(
                "each index of {indices} has {components} components, and {} dimensions {map:?} of {x} are indexed",
                map.len()
            ));
        }
        Ok(())
    }

    /// Checks that `dims` are ascending, without duplicates, and below `rank`.
    fn placed(self, what: &str, dims: &[usize], rank: usize) -> Result<()> {
        match dims.iter().all(|&dim| dim < rank) && dims.windows(2).all(|pair| pair[0] < pair[1]) {
            true => Ok(()),
            false => self.fail(format!(
                "{what}s {dims:?} must be ascending and below {rank}"
            )),
        }
    }

    /// `kind` can reduce elements of `x`.
    pub(super) fn reducible(self, kind: Reduction, x: &TensorType) -> Result<()> {
        match kind {
            Reduction::Sum | Reduction::Product | Reduction::Min | Reduction::Max => {
                self.element(x, is_number, "integers and floats")
            }
            Reduction::And | Reduction::Or => {
                self.element(x, is_bool_or_integer, "bool and integers")
            }
        }
    }
}

/// The dimension numbers that gather and scatter share.
#[derive(Clone, Copy)]
struct Indexing<'a> {
    x: &'a TensorType,
    indices: &'a TensorType,
    dropped: &'a [usize],
    operand_batching: &'a [usize],
    indices_batching: &'a [usize],
    map: &'a [usize],
    vector_dim: usize,
}

impl Indexing<'_> {
    /// Dimensions of `x` that windows keep.
    fn kept_dims(self) -> Vec<usize> {
        (0..self.x.rank())
            .filter(|dim| !self.dropped.contains(dim) && !self.operand_batching.contains(dim))
            .collect()
    }
}
