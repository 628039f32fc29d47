//! Operations whose regions take scalars: reductions, sort and map.

use crate::{
    ElementType, RankedType, ScatterAttributes, Type, WindowAttributes,
    rules::{self, Check, ensure},
};

use super::typed::{Typed, check_scalar, scalar, tensor};

/// Operands of a reduction: inputs of one size, and as many initial values.
fn inputs<'a>(op: &Typed<'a>) -> Check<Vec<&'a RankedType>> {
    let mut inputs = op.some_tensors()?;
    let count = inputs.len() / 2;
    ensure!(
        inputs.len().is_multiple_of(2),
        "it has {} operands; it must have an initial value for each input",
        inputs.len()
    );
    let initial = inputs.split_off(count);
    check_same_dims(&inputs)?;
    for (input, initial) in inputs.iter().zip(initial) {
        check_scalar("an initial value", initial)?;
        check_same_element("an initial value", initial, input)?;
    }
    Ok(inputs)
}

fn check_same_dims(tensors: &[&RankedType]) -> Check {
    for tensor in tensors {
        ensure!(
            tensor.dims == tensors[0].dims,
            "operands are {} and {tensor}; they must have the same dimensions",
            tensors[0]
        );
    }
    Ok(())
}

fn check_same_element(what: &str, ty: &RankedType, of: &RankedType) -> Check {
    ensure!(
        ty.element == of.element,
        "{what} is {ty} and the operand is {of}; they must have one element type"
    );
    Ok(())
}

/// Checks that a region takes twice as many scalars as there are operands, accumulators first, and
/// returns the new accumulators.
pub(super) fn check_reducer(op: &Typed<'_>, region: usize, operands: &[&RankedType]) -> Check {
    let scalars: Vec<Type> = operands.iter().map(|ty| scalar(ty.element)).collect();
    op.check_region(region, &[&*scalars, &*scalars].concat(), &scalars)
}

/// Tensors of the elements of `inputs`, and of size `dims`.
fn results(inputs: &[&RankedType], dims: &[usize]) -> Vec<Type> {
    let result = |input: &&RankedType| tensor(input.element, dims);
    inputs.iter().map(result).collect()
}

pub(super) fn reduce(op: &Typed<'_>, dims: &[usize]) -> Check<Vec<Type>> {
    let inputs = inputs(op)?;
    let result = rules::reduce(inputs[0], dims)?;
    op.check_region_count(1)?;
    check_reducer(op, 0, &inputs)?;
    Ok(results(&inputs, &result.dims))
}

pub(super) fn reduce_window(op: &Typed<'_>, windows: &WindowAttributes) -> Check<Vec<Type>> {
    let inputs = inputs(op)?;
    let result = rules::windows(inputs[0], windows)?;
    op.check_region_count(1)?;
    check_reducer(op, 0, &inputs)?;
    Ok(results(&inputs, &result.dims))
}

pub(super) fn select_and_scatter(op: &Typed<'_>, window: &WindowAttributes) -> Check<Vec<Type>> {
    let [x, source, initial] = op.take()?;
    check_scalar("the initial value", initial)?;
    check_same_element("the initial value", initial, x)?;
    let result = rules::select_and_scatter(&[x, source], window)?;
    op.check_region_count(2)?;
    op.check_region(
        0,
        &[scalar(x.element), scalar(x.element)],
        &[scalar(ElementType::Bool)],
    )?;
    check_reducer(op, 1, &[x])?;
    Ok(vec![Type::Tensor(result)])
}

pub(super) fn scatter(op: &Typed<'_>, attributes: &ScatterAttributes) -> Check<Vec<Type>> {
    let operands = op.tensors()?;
    let inputs = rules::scatter(&operands, attributes)?;
    op.check_region_count(1)?;
    check_reducer(op, 0, &inputs)?;
    Ok(inputs.into_iter().cloned().map(Type::Tensor).collect())
}

pub(super) fn sort(op: &Typed<'_>, dim: usize) -> Check<Vec<Type>> {
    let operands = op.tensors()?;
    let results = rules::sort(&operands, dim)?;
    op.check_region_count(1)?;
    let pair = |ty: &&RankedType| [scalar(ty.element), scalar(ty.element)];
    let takes: Vec<Type> = operands.iter().flat_map(pair).collect();
    op.check_region(0, &takes, &[scalar(ElementType::Bool)])?;
    Ok(results.into_iter().map(Type::Tensor).collect())
}

pub(super) fn map(op: &Typed<'_>, dims: &[usize]) -> Check<Vec<Type>> {
    let operands = op.some_tensors()?;
    check_same_dims(&operands)?;
    let rank = operands[0].rank();
    ensure!(
        dims.iter().copied().eq(0..rank),
        "`dimensions` is {dims:?}; it must have all {rank} dimensions in their order"
    );
    let [y] = op.declared()?;
    op.check_region_count(1)?;
    let takes: Vec<Type> = operands.iter().map(|ty| scalar(ty.element)).collect();
    op.check_region(0, &takes, &[scalar(y.element)])?;
    Ok(vec![tensor(y.element, &*operands[0].dims)])
}
