//! Gather and scatter.

use crate::{GatherAttributes, RankedType, ScatterAttributes, Type, ops::classes::INTEGER};

use super::{
    list::{List, check_all_dims, list, without},
    reduce::check_reducer,
    typed::{Check, Typed, check_class, ensure, tensor},
};

/// What gather and scatter have in common: windows of an operand at places that indices give.
struct Indexing<'a> {
    operand: &'a RankedType,
    indices: &'a RankedType,
    /// Dimensions of the result, or of the updates, that are those of the window.
    window: List<'a>,
    /// Dimensions of the operand that the window does not have.
    dropped: List<'a>,
    batching: List<'a>,
    indices_batching: List<'a>,
    /// Dimension of the operand that each element of an index vector is for.
    index_map: List<'a>,
    index_vector_dim: usize,
}

impl Indexing<'_> {
    /// Checks the dimension numbers. Returns the dimensions of the indices without that of the
    /// index vectors.
    fn check(&self) -> Check<Vec<usize>> {
        let (operand, indices) = (self.operand, self.indices);
        check_class(indices.element, INTEGER)?;
        let counts = [self.window, self.dropped, self.batching];
        ensure!(
            counts.iter().map(|list| list.items.len()).sum::<usize>() == operand.rank(),
            "`{}`, `{}` and `{}` have {:?} items; together they must have the rank of {operand}",
            self.window.name,
            self.dropped.name,
            self.batching.name,
            counts.map(|list| list.items.len())
        );
        check_all_dims(&[self.dropped, self.batching], operand.rank())?;
        check_all_dims(&[self.index_map, self.batching], operand.rank())?;
        for ascending in [self.window, self.dropped, self.batching] {
            ascending.check_increasing()?;
        }
        let vector = self.index_vector_dim;
        ensure!(
            vector <= indices.rank(),
            "`index_vector_dim` is {vector}; it must not exceed the rank of {indices}"
        );
        let index_size = indices.dims.get(vector).copied().unwrap_or(1);
        self.index_map.check_count(index_size)?;
        self.check_batching()?;
        Ok(without(&indices.dims, &[vector]))
    }

    fn check_batching(&self) -> Check {
        let (operand, indices) = (self.operand, self.indices);
        self.indices_batching.check_dims(indices.rank())?;
        self.indices_batching
            .check_count(self.batching.items.len())?;
        ensure!(
            !self.indices_batching.items.contains(&self.index_vector_dim),
            "`{}` has the dimension of the index vectors, {}",
            self.indices_batching.name,
            self.index_vector_dim
        );
        for (&dim, &of_indices) in self.batching.items.iter().zip(self.indices_batching.items) {
            ensure!(
                operand.dims[dim] == indices.dims[of_indices],
                "batching dimension {dim} of {operand} and {of_indices} of {indices} differ"
            );
        }
        Ok(())
    }

    /// The dimensions that the window has, of `sizes` for all dimensions of the operand.
    fn window_sizes(&self, sizes: &[usize]) -> Vec<usize> {
        without(sizes, &[self.dropped.items, self.batching.items].concat())
    }
}

/// Dimensions with those of the window at `window`, and of the batch at the others.
fn combine(batch: &[usize], window: List<'_>, sizes: &[usize]) -> Check<Vec<usize>> {
    let rank = batch.len() + sizes.len();
    window.check_dims(rank)?;
    let (mut batch, mut sizes) = (batch.iter(), sizes.iter());
    let dim = |dim| {
        if window.items.contains(&dim) {
            sizes.next()
        } else {
            batch.next()
        }
    };
    let dims = (0..rank).filter_map(dim).copied().collect();
    Ok(dims)
}

pub(super) fn gather(op: &Typed<'_>, attributes: &GatherAttributes) -> Check<Vec<Type>> {
    let [operand, indices] = op.tensors()?;
    let indexing = Indexing {
        operand,
        indices,
        window: list("offset_dims", &attributes.offset_dims),
        dropped: list("collapsed_slice_dims", &attributes.collapsed_slice_dims),
        batching: list("operand_batching_dims", &attributes.operand_batching_dims),
        indices_batching: list(
            "start_indices_batching_dims",
            &attributes.start_indices_batching_dims,
        ),
        index_map: list("start_index_map", &attributes.start_index_map),
        index_vector_dim: attributes.index_vector_dim,
    };
    let batch = indexing.check()?;
    let sizes = list("slice_sizes", &attributes.slice_sizes);
    sizes.check_count(operand.rank())?;
    for (dim, (&size, &whole)) in sizes.items.iter().zip(&operand.dims).enumerate() {
        ensure!(
            size <= whole,
            "`slice_sizes` is {:?}; they must not exceed the dimensions of {operand}",
            sizes.items
        );
        let dropped = [indexing.dropped, indexing.batching];
        ensure!(
            size <= 1 || !dropped.iter().any(|list| list.items.contains(&dim)),
            "`slice_sizes` is {:?}; that of dimension {dim}, which the result does not have, must \
             be 1",
            sizes.items
        );
    }
    let dims = combine(&batch, indexing.window, &indexing.window_sizes(sizes.items))?;
    ensure!(
        dims.contains(&0) || !sizes.items.contains(&0),
        "`slice_sizes` is {:?}, but the result has elements",
        sizes.items
    );
    Ok(vec![tensor(operand.element, dims)])
}

pub(super) fn scatter(op: &Typed<'_>, attributes: &ScatterAttributes) -> Check<Vec<Type>> {
    let operands = op.some_tensors()?;
    let count = operands.len() / 2;
    ensure!(
        count > 0 && operands.len() == 2 * count + 1,
        "it has {} operands; it must have indices, and an update for each input",
        operands.len()
    );
    let (inputs, indices, updates) = (&operands[..count], operands[count], &operands[count + 1..]);
    let indexing = Indexing {
        operand: inputs[0],
        indices,
        window: list("update_window_dims", &attributes.update_window_dims),
        dropped: list("inserted_window_dims", &attributes.inserted_window_dims),
        batching: list("input_batching_dims", &attributes.input_batching_dims),
        indices_batching: list(
            "scatter_indices_batching_dims",
            &attributes.scatter_indices_batching_dims,
        ),
        index_map: list(
            "scatter_dims_to_operand_dims",
            &attributes.scatter_dims_to_operand_dims,
        ),
        index_vector_dim: attributes.index_vector_dim,
    };
    let batch = indexing.check()?;
    check_updates(&indexing, &batch, updates[0])?;
    for (input, update) in inputs.iter().zip(updates) {
        ensure!(
            input.dims == inputs[0].dims && update.dims == updates[0].dims,
            "input {input} and update {update} must have the dimensions of the first ones, {} and \
             {}",
            inputs[0],
            updates[0]
        );
        ensure!(
            input.element == update.element,
            "input {input} and update {update} must have one element type"
        );
    }
    op.check_region_count(1)?;
    check_reducer(op, 0, inputs)?;
    Ok(inputs
        .iter()
        .map(|&input| Type::Tensor(input.clone()))
        .collect())
}

/// Checks the dimensions of the updates: those of the batch, and of windows within the operand.
fn check_updates(indexing: &Indexing<'_>, batch: &[usize], update: &RankedType) -> Check {
    let window = indexing.window;
    let rank = batch.len() + window.items.len();
    ensure!(
        update.rank() == rank,
        "the update is {update}; it must have {rank} dimensions"
    );
    window.check_dims(update.rank())?;
    let sizes: Vec<usize> = window.items.iter().map(|&dim| update.dims[dim]).collect();
    let whole = indexing.window_sizes(&indexing.operand.dims);
    ensure!(
        sizes.iter().zip(&whole).all(|(part, whole)| part <= whole),
        "the update is {update}, with windows of {sizes:?}; they must not exceed {whole:?}"
    );
    ensure!(
        without(&update.dims, window.items) == batch,
        "the update is {update}; without `{}` its dimensions must be those of the indices, \
         {batch:?}",
        window.name
    );
    Ok(())
}
