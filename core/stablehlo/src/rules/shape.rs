//! Operations that move elements.

use super::{
    Check, TensorLike, check_class, check_scalar_of, ensure, first,
    list::{check_dim, check_dims, check_each, check_items},
    listed, take,
    window::padded,
};
use crate::ops::classes::{INTEGER, NUMBER};

/// Numbers that count along a dimension of `ty`.
///
/// # Errors
/// If there is an operand, or `ty` has not the dimension, or elements that cannot count.
pub fn iota<T: TensorLike>(operands: &[&T], ty: &T, dim: usize) -> Check<T> {
    let [] = take(operands)?;
    check_dim("dimension", dim, ty)?;
    check_class(ty, NUMBER)?;
    Ok(ty.clone())
}

/// Repetition: dimension `i` of the operand is dimension `mapping[i]` of the result, and repeated if
/// it is 1.
///
/// # Errors
/// If the mapping does not fit, or a dimension is neither 1 nor that of the result.
pub fn broadcast<T: TensorLike>(operands: &[&T], dims: &[usize], mapping: &[usize]) -> Check<T> {
    let [x] = take(operands)?;
    let result = x.with_dims(dims);
    check_each("mapped dimensions", mapping, x)?;
    check_dims("mapped dimension", mapping, &result)?;
    for (from, (&to, &size)) in mapping.iter().zip(x.dims()).enumerate() {
        ensure!(
            size == 1 || size == dims[to],
            "dimension {from} of {x} is {size}, dimension {to} of {result} is {}; only a dimension \
             of 1 is repeated",
            dims[to]
        );
    }
    Ok(result)
}

/// The same elements in other dimensions.
///
/// # Errors
/// If these have another number of elements.
pub fn reshape<T: TensorLike>(operands: &[&T], dims: &[usize]) -> Check<T> {
    let [x] = take(operands)?;
    let result = x.with_dims(dims);
    let count = |dims: &[usize]| {
        let product = |count: u128, &dim: &usize| count.saturating_mul(dim as u128);
        dims.iter().fold(1, product)
    };
    let (of_x, of_result) = (count(x.dims()), count(dims));
    ensure!(
        of_x == of_result,
        "{x} has {of_x} elements, {result} has {of_result}; a reshape keeps them all"
    );
    Ok(result)
}

/// Dimension `i` of the result is dimension `permutation[i]` of the operand.
///
/// # Errors
/// If it is not a permutation of the operand's dimensions.
pub fn transpose<T: TensorLike>(operands: &[&T], permutation: &[usize]) -> Check<T> {
    let [x] = take(operands)?;
    check_each("permuted dimensions", permutation, x)?;
    check_dims("dimension", permutation, x)?;
    let dims: Vec<usize> = permutation.iter().map(|&dim| x.dims()[dim]).collect();
    Ok(x.with_dims(&dims))
}

/// The opposite order of elements along these dimensions.
///
/// # Errors
/// If they are not different dimensions of the operand.
pub fn reverse<T: TensorLike>(operands: &[&T], dims: &[usize]) -> Check<T> {
    let [x] = take(operands)?;
    check_dims("dimension", dims, x)?;
    Ok(x.clone())
}

/// One operand or more, one after the other along a dimension.
///
/// # Errors
/// If they differ in more than this dimension.
pub fn concatenate<T: TensorLike>(operands: &[&T], dim: usize) -> Check<T> {
    let whole = first(operands)?;
    check_dim("dimension", dim, whole)?;
    let mut dims = whole.dims().to_vec();
    for other in &operands[1..] {
        let mut differs = other.dims().iter().zip(whole.dims()).enumerate();
        ensure!(
            other.element() == whole.element()
                && other.rank() == whole.rank()
                && !differs.any(|(i, (a, b))| i != dim && a != b),
            "{whole} and {other} along dimension {dim}: the element type and all other dimensions \
             must be equal"
        );
        let sum = dims[dim].checked_add(other.dims()[dim]);
        dims[dim] = sum.ok_or_else(|| {
            format!("dimension {dim} of the result would be larger than any address space")
        })?;
    }
    Ok(whole.with_dims(&dims))
}

/// Elements from `starts` up to `limits`, `strides` apart.
///
/// # Errors
/// If a list has not an item for each dimension, a range is outside of the operand, or a stride 0.
pub fn slice<T: TensorLike>(
    operands: &[&T],
    starts: &[usize],
    limits: &[usize],
    strides: &[usize],
) -> Check<T> {
    let [x] = take(operands)?;
    check_each("starts", starts, x)?;
    check_each("limits", limits, x)?;
    check_each("strides", strides, x)?;
    check_items("strides", strides, 1)?;
    let mut dims = Vec::with_capacity(x.rank());
    for (dim, &size) in x.dims().iter().enumerate() {
        let (start, limit) = (starts[dim], limits[dim]);
        ensure!(
            start <= limit && limit <= size,
            "{start}..{limit} of dimension {dim} of {x}, whose indices are 0..{size}"
        );
        dims.push((limit - start).div_ceil(strides[dim]));
    }
    Ok(x.with_dims(&dims))
}

/// A slice of `sizes` of the first operand, from indices that the others are: one for each
/// dimension.
///
/// # Errors
/// If the sizes exceed the operand, or the indices do not fit.
pub fn dynamic_slice<T: TensorLike>(operands: &[&T], sizes: &[usize]) -> Check<T> {
    let x = first(operands)?;
    check_each("slice sizes", sizes, x)?;
    check_starts(&operands[1..], x)?;
    check_within("the slice", &x.with_dims(sizes), x)?;
    Ok(x.with_dims(sizes))
}

/// The first operand with the second in place of a slice, from indices that the others are.
///
/// # Errors
/// If the second exceeds the first, has other elements, or the indices do not fit.
pub fn dynamic_update_slice<T: TensorLike>(operands: &[&T]) -> Check<T> {
    let [x, update, starts @ ..] = operands else {
        return Err(format!(
            "takes an operand, an update and start indices, got {}",
            listed(operands)
        ));
    };
    ensure!(
        update.element() == x.element() && update.rank() == x.rank(),
        "the update {update} and {x} must have the same element type and rank"
    );
    check_within("the update", *update, *x)?;
    check_starts(starts, *x)?;
    Ok((*x).clone())
}

/// Checks start indices: a scalar of one integer type for each dimension of `x`.
fn check_starts<T: TensorLike>(starts: &[&T], x: &T) -> Check {
    let indices = |start: &&&T| {
        start.rank() == 0 && INTEGER.contains(&start.element().class()) && **start == starts[0]
    };
    ensure!(
        starts.len() == x.rank() && starts.iter().filter(indices).count() == starts.len(),
        "start indices are {}; {x} takes {} integer scalars of one type",
        listed(starts),
        x.rank()
    );
    Ok(())
}

/// Checks that no dimension of `part` exceeds that of `x`.
fn check_within<T: TensorLike>(what: &str, part: &T, x: &T) -> Check {
    let mut pairs = part.dims().iter().zip(x.dims());
    match pairs.position(|(part, whole)| part > whole) {
        None => Ok(()),
        Some(dim) => Err(format!(
            "dimension {dim} of {what} {part} is {}, of {x} only {}",
            part.dims()[dim],
            x.dims()[dim]
        )),
    }
}

/// The first operand with as many of the second before, after and between its elements. Paddings
/// below 0 remove elements.
///
/// # Errors
/// If the second is not a scalar of the elements, or a list has not an item for each dimension.
pub fn pad<T: TensorLike>(
    operands: &[&T],
    low: &[i64],
    high: &[i64],
    interior: &[usize],
) -> Check<T> {
    let [x, value] = take(operands)?;
    check_scalar_of("the padding value", value, x)?;
    check_each("low paddings", low, x)?;
    check_each("high paddings", high, x)?;
    check_each("interior paddings", interior, x)?;
    check_items("interior paddings", interior, 0)?;
    let mut dims = Vec::with_capacity(x.rank());
    for (dim, &size) in x.dims().iter().enumerate() {
        let (low, high, between) = (low[dim], high[dim], interior[dim]);
        let size = padded(size, between + 1, (low, high));
        let size = size.and_then(|size| {
            let fits = usize::try_from(size);
            fits.map_err(|_| format!("it would have size {size}"))
        });
        dims.push(size.map_err(|why| {
            format!(
                "dimension {dim} of {x}, padded by {low} before, {high} after, {between} between: \
                 {why}"
            )
        })?);
    }
    Ok(x.with_dims(&dims))
}
