//! Operations that move elements.

use crate::{
    Dense, ElementType, RankedType, Type,
    ops::classes::{INTEGER, NUMBER},
};

use super::{
    list::{check_count, check_dim, list},
    typed::{Check, Typed, check_class, check_same, check_scalar, ensure, tensor},
    window,
};

pub(super) fn constant(op: &Typed<'_>, value: &Dense) -> Check<Vec<Type>> {
    let [] = op.tensors()?;
    Ok(vec![Type::Tensor(value.ty.clone())])
}

pub(super) fn iota(op: &Typed<'_>, dim: usize) -> Check<Vec<Type>> {
    let [] = op.tensors()?;
    let [y] = op.declared()?;
    check_class(y.element, NUMBER)?;
    check_dim("iota_dimension", dim, y.rank())?;
    Ok(vec![Type::Tensor(y.clone())])
}

pub(super) fn broadcast_in_dim(op: &Typed<'_>, mapping: &[usize]) -> Check<Vec<Type>> {
    let [x] = op.tensors()?;
    let [y] = op.declared()?;
    let mapping = list("broadcast_dimensions", mapping);
    mapping.check_count(x.rank())?;
    mapping.check_dims(y.rank())?;
    for (&size, &dim) in x.dims.iter().zip(mapping.items) {
        ensure!(
            size == 1 || size == y.dims[dim],
            "it is from {x} to {y} by `broadcast_dimensions` {:?}; a dimension of the operand must \
             be 1 or that of the result",
            mapping.items
        );
    }
    Ok(vec![tensor(x.element, &*y.dims)])
}

pub(super) fn reshape(op: &Typed<'_>) -> Check<Vec<Type>> {
    let [x] = op.tensors()?;
    let [y] = op.declared()?;
    ensure!(
        x.elements() == y.elements(),
        "it is from {x} with {} elements to {y} with {}; they must have as many",
        x.elements(),
        y.elements()
    );
    Ok(vec![tensor(x.element, &*y.dims)])
}

pub(super) fn transpose(op: &Typed<'_>, permutation: &[usize]) -> Check<Vec<Type>> {
    let [x] = op.tensors()?;
    let permutation = list("permutation", permutation);
    permutation.check_count(x.rank())?;
    permutation.check_dims(x.rank())?;
    let dims: Vec<_> = permutation.items.iter().map(|&dim| x.dims[dim]).collect();
    Ok(vec![tensor(x.element, dims)])
}

pub(super) fn reverse(op: &Typed<'_>, dims: &[usize]) -> Check<Vec<Type>> {
    let [x] = op.tensors()?;
    list("dimensions", dims).check_dims(x.rank())?;
    Ok(vec![Type::Tensor(x.clone())])
}

pub(super) fn concatenate(op: &Typed<'_>, dim: usize) -> Check<Vec<Type>> {
    let parts = op.some_tensors()?;
    let mut whole = parts[0].clone();
    check_dim("dimension", dim, whole.rank())?;
    for part in &parts[1..] {
        let mut aligned = (*part).clone();
        if let Some(size) = aligned.dims.get_mut(dim) {
            *size = parts[0].dims[dim];
        }
        ensure!(
            aligned == *parts[0],
            "operands are {} and {part}; they must differ in dimension {dim} only",
            parts[0]
        );
        whole.dims[dim] = (whole.dims[dim].checked_add(part.dims[dim]))
            .ok_or("the size of the result overflows")?;
    }
    Ok(vec![Type::Tensor(whole)])
}

pub(super) fn slice(
    op: &Typed<'_>,
    starts: &[usize],
    limits: &[usize],
    strides: &[usize],
) -> Check<Vec<Type>> {
    let [x] = op.tensors()?;
    let strides = list("strides", strides);
    list("start_indices", starts).check_count(x.rank())?;
    list("limit_indices", limits).check_count(x.rank())?;
    strides.check_count(x.rank())?;
    strides.check_positive()?;
    let mut dims = Vec::with_capacity(x.rank());
    for (dim, &size) in x.dims.iter().enumerate() {
        let (start, limit) = (starts[dim], limits[dim]);
        ensure!(
            start <= limit && limit <= size,
            "dimension {dim} of {x} is sliced from {start} to {limit}; the range must be within \
             0 and {size}"
        );
        dims.push((limit - start).div_ceil(strides.items[dim]));
    }
    Ok(vec![tensor(x.element, dims)])
}

pub(super) fn dynamic_slice(op: &Typed<'_>, sizes: &[usize]) -> Check<Vec<Type>> {
    let operands = op.some_tensors()?;
    let x = operands[0];
    check_starts(&operands[1..], x)?;
    list("slice_sizes", sizes).check_count(x.rank())?;
    check_within("the slice", sizes, x)?;
    Ok(vec![tensor(x.element, sizes)])
}

pub(super) fn dynamic_update_slice(op: &Typed<'_>) -> Check<Vec<Type>> {
    let operands = op.all_tensors()?;
    let [x, update, starts @ ..] = &*operands else {
        return Err("it must have an operand and an update".into());
    };
    check_starts(starts, x)?;
    ensure!(
        update.element == x.element && update.rank() == x.rank(),
        "the operand is {x} and the update {update}; they must have one element type and rank"
    );
    check_within("the update", &update.dims, x)?;
    Ok(vec![Type::Tensor((*x).clone())])
}

/// Checks start indices: a scalar of one integer type for each dimension of `x`.
fn check_starts(starts: &[&RankedType], x: &RankedType) -> Check {
    ensure!(
        starts.len() == x.rank(),
        "it has {} start indices; it must have one for each dimension of {x}",
        starts.len()
    );
    check_same(starts)?;
    if let Some(start) = starts.first() {
        check_scalar("a start index", start)?;
        check_class(start.element, INTEGER)?;
    }
    Ok(())
}

/// Checks that `sizes`, one for each dimension of `x`, do not exceed those of `x`.
fn check_within(what: &str, sizes: &[usize], x: &RankedType) -> Check {
    ensure!(
        sizes.iter().zip(&x.dims).all(|(part, whole)| part <= whole),
        "{what} has the sizes {sizes:?}; they must not exceed those of {x}"
    );
    Ok(())
}

pub(super) fn pad(
    op: &Typed<'_>,
    low: &[i64],
    high: &[i64],
    interior: &[usize],
) -> Check<Vec<Type>> {
    let [x, value] = op.tensors()?;
    check_scalar("the padding value", value)?;
    ensure!(
        value.element == x.element,
        "the operand is {x} and the padding value {value}; they must have one element type"
    );
    check_count("edge_padding_low", low.len(), x.rank())?;
    check_count("edge_padding_high", high.len(), x.rank())?;
    list("interior_padding", interior).check_count(x.rank())?;
    let mut dims = Vec::with_capacity(x.rank());
    for (dim, &size) in x.dims.iter().enumerate() {
        let step = interior[dim].saturating_add(1);
        let padded = window::padded(size, step, (low[dim], high[dim]))?;
        let padded = usize::try_from(padded);
        dims.push(padded.map_err(|_| format!("dimension {dim} is padded to a negative size"))?);
    }
    Ok(vec![tensor(x.element, dims)])
}

pub(super) fn get_dimension_size(op: &Typed<'_>, dim: usize) -> Check<Vec<Type>> {
    let [x] = op.tensors()?;
    check_dim("dimension", dim, x.rank())?;
    ensure!(
        i32::try_from(x.dims[dim]).is_ok(),
        "dimension {dim} of {x} does not fit the result, an i32"
    );
    Ok(vec![tensor(ElementType::S32, [])])
}
