//! Gather and scatter.

use super::{
    Check, TensorLike, ensure,
    list::{Items, check_ascending, check_dims, check_each, without},
    take,
};
use crate::{GatherAttributes, ScatterAttributes, ops::classes::INTEGER};

/// What gather and scatter have in common: windows of an operand at places that indices give.
struct Indexing<'a, T> {
    x: &'a T,
    indices: &'a T,
    /// Dimensions of the result, or of the updates, that are those of the window.
    window: &'a [usize],
    /// Dimensions of `x` that the window does not have.
    dropped: &'a [usize],
    batching: &'a [usize],
    indices_batching: &'a [usize],
    /// Dimension of `x` that each component of an index is for.
    map: &'a [usize],
    /// Dimension of the indices that holds their components.
    vector_dim: usize,
}

impl<T: TensorLike> Indexing<'_, T> {
    /// Checks the dimension numbers. Returns the dimensions of the indices without that of the
    /// components.
    fn check(&self) -> Check<Vec<usize>> {
        let Indexing { x, indices, .. } = *self;
        ensure!(
            INTEGER.contains(&indices.element().class()),
            "the indices are {indices}; they must be integers"
        );
        ensure!(
            self.vector_dim <= indices.rank(),
            "index vector dimension {} of the indices {indices}; it must be at most {}",
            self.vector_dim,
            indices.rank()
        );
        check_ascending("dropped dimension", self.dropped, x)?;
        check_ascending("batching dimension", self.batching, x)?;
        check_dims("indexed dimension", self.map, x)?;
        self.check_batching()?;
        let components = indices.dims().get(self.vector_dim).copied().unwrap_or(1);
        ensure!(
            self.map.len() == components,
            "each index of {indices} has {components} components, and {} dimensions {} of {x} are \
             indexed",
            self.map.len(),
            Items(self.map)
        );
        let kept = self.kept().count();
        ensure!(
            kept == self.window.len(),
            "window dimensions {} are {}, windows of {x} have {kept} dimensions",
            Items(self.window),
            self.window.len()
        );
        Ok(without(indices.dims(), &[self.vector_dim]))
    }

    fn check_batching(&self) -> Check {
        let Indexing { x, indices, .. } = *self;
        check_dims("batching dimension", self.indices_batching, indices)?;
        for dim in self.batching {
            ensure!(
                !self.dropped.contains(dim) && !self.map.contains(dim),
                "dimension {dim} of {x} is batched, and so is neither dropped nor indexed"
            );
        }
        ensure!(
            self.batching.len() == self.indices_batching.len(),
            "batching dimensions {} of {x} and {} of the indices {indices} are paired",
            Items(self.batching),
            Items(self.indices_batching)
        );
        for (&of_x, &of_indices) in self.batching.iter().zip(self.indices_batching) {
            ensure!(
                of_indices != self.vector_dim,
                "dimension {of_indices} of the indices {indices} holds their components, not a batch"
            );
            ensure!(
                x.dims()[of_x] == indices.dims()[of_indices],
                "batching dimension {of_x} of {x} is {}, dimension {of_indices} of the indices \
                 {indices} is {}",
                x.dims()[of_x],
                indices.dims()[of_indices]
            );
        }
        Ok(())
    }

    /// Dimensions of `x` that windows have.
    fn kept(&self) -> impl Iterator<Item = usize> {
        (0..self.x.rank()).filter(|dim| !self.dropped.contains(dim) && !self.batching.contains(dim))
    }

    /// Checks that the dimensions of windows are ascending, without duplicates, and below `rank`.
    fn check_window(&self, rank: usize) -> Check {
        let dims = self.window;
        ensure!(
            dims.iter().all(|&dim| dim < rank) && dims.is_sorted_by(|a, b| a < b),
            "window dimensions {} must be ascending and below {rank}",
            Items(dims)
        );
        Ok(())
    }
}

/// Windows of the first operand at places that the second, the indices, gives.
///
/// # Errors
/// If the attributes do not fit the operands.
pub fn gather<T: TensorLike>(operands: &[&T], gather: &GatherAttributes) -> Check<T> {
    let [x, indices] = take(operands)?;
    let sizes = &gather.slice_sizes;
    let indexing = Indexing {
        x,
        indices,
        window: &gather.offset_dims,
        dropped: &gather.collapsed_slice_dims,
        batching: &gather.operand_batching_dims,
        indices_batching: &gather.start_indices_batching_dims,
        map: &gather.start_index_map,
        vector_dim: gather.index_vector_dim,
    };
    let batch = indexing.check()?;
    check_each("slice sizes", sizes, x)?;
    for (dim, (&size, &whole)) in sizes.iter().zip(x.dims()).enumerate() {
        ensure!(
            size <= whole,
            "slice size {size} in dimension {dim} of {x}, which has {whole}"
        );
        ensure!(
            size <= 1 || indexing.kept().any(|kept| kept == dim),
            "slice size {size} in dimension {dim} of {x}, which is collapsed; it must be 1"
        );
    }
    let rank = batch.len() + indexing.window.len();
    indexing.check_window(rank)?;
    let (mut batch, mut kept) = (batch.into_iter(), indexing.kept());
    let pick = |dim| {
        if indexing.window.contains(&dim) {
            kept.next().map(|dim| sizes[dim])
        } else {
            batch.next()
        }
    };
    let dims: Vec<usize> = (0..rank).filter_map(pick).collect();
    ensure!(
        dims.contains(&0) || !sizes.contains(&0),
        "slice sizes {} of {x} have no elements, and the result has",
        Items(sizes)
    );
    Ok(x.with_dims(&dims))
}

/// Inputs with updates combined into windows at places that indices give. Operands are the inputs,
/// the indices, and an update for each input. The result of an input has its type.
///
/// # Errors
/// If the attributes do not fit the operands.
pub fn scatter<'a, T: TensorLike>(
    operands: &[&'a T],
    scatter: &ScatterAttributes,
) -> Check<Vec<&'a T>> {
    let count = operands.len() / 2;
    ensure!(
        count > 0 && operands.len() == 2 * count + 1,
        "takes inputs, indices, and updates for each input, got {} operands",
        operands.len()
    );
    let (inputs, indices, updates) = (&operands[..count], operands[count], &operands[count + 1..]);
    let indexing = Indexing {
        x: inputs[0],
        indices,
        window: &scatter.update_window_dims,
        dropped: &scatter.inserted_window_dims,
        batching: &scatter.input_batching_dims,
        indices_batching: &scatter.scatter_indices_batching_dims,
        map: &scatter.scatter_dims_to_operand_dims,
        vector_dim: scatter.index_vector_dim,
    };
    let batch = indexing.check()?;
    check_updates(&indexing, &batch, updates[0])?;
    for (input, update) in inputs.iter().zip(updates) {
        ensure!(
            input.element() == update.element(),
            "the updates {update} and {input} must have the same element type"
        );
        ensure!(
            input.dims() == inputs[0].dims() && update.dims() == updates[0].dims(),
            "{input} and its updates {update} must have the dimensions of the first, {} and {}",
            inputs[0],
            updates[0]
        );
    }
    Ok(inputs.to_vec())
}

/// Checks the dimensions of updates: those of the batch, and of windows within the operand.
fn check_updates<T: TensorLike>(indexing: &Indexing<'_, T>, batch: &[usize], updates: &T) -> Check {
    let Indexing {
        x, indices, window, ..
    } = *indexing;
    ensure!(
        updates.rank() == batch.len() + window.len(),
        "the updates {updates} have {} dimensions, the indices {indices} give {} and windows of {x} {}",
        updates.rank(),
        batch.len(),
        window.len()
    );
    indexing.check_window(updates.rank())?;
    let (mut batch, mut kept) = (batch.iter(), indexing.kept());
    for (dim, &size) in updates.dims().iter().enumerate() {
        if window.contains(&dim) {
            if let Some(of) = kept.next().filter(|&of| size > x.dims()[of]) {
                return Err(format!(
                    "dimension {dim} of the updates {updates} is a window of {size}, dimension {of} \
                     of {x} has {}",
                    x.dims()[of]
                ));
            }
        } else if let Some(expected) = batch.next().filter(|&&expected| size != expected) {
            return Err(format!(
                "dimension {dim} of the updates {updates} is {size}, the indices {indices} imply \
                 {expected}"
            ));
        }
    }
    Ok(())
}
