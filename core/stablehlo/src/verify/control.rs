//! Control flow, calls, tuples and tokens.

use crate::{
    ElementType, Type, ValueId,
    rules::{Check, ensure},
};

use super::typed::{Typed, check_types, scalar};

/// The types, owned.
fn owned(types: Vec<&Type>) -> Vec<Type> {
    types.into_iter().cloned().collect()
}

/// Results that are the operands.
pub(super) fn identity(op: &Typed<'_>) -> Check<Vec<Type>> {
    Ok(owned(op.operands()))
}

pub(super) fn while_loop(op: &Typed<'_>) -> Check<Vec<Type>> {
    let carried = owned(op.operands());
    op.check_region_count(2)?;
    op.check_region(0, &carried, &[scalar(ElementType::Bool)])?;
    op.check_region(1, &carried, &carried)?;
    Ok(carried)
}

pub(super) fn if_else(op: &Typed<'_>) -> Check<Vec<Type>> {
    op.check_region_count(2)?;
    branches(op, ElementType::Bool)
}

pub(super) fn case(op: &Typed<'_>) -> Check<Vec<Type>> {
    branches(op, ElementType::S32)
}

/// Branches by the scalar operand, of type `by`.
fn branches(op: &Typed<'_>, by: ElementType) -> Check<Vec<Type>> {
    check_types("operand", &op.operands(), &[scalar(by)])?;
    ensure!(op.regions() > 0, "it must have a branch");
    let results = owned(op.region_results(0));
    for branch in 0..op.regions() {
        op.check_region(branch, &[], &results)?;
    }
    Ok(results)
}

/// A call, or a composite, which calls its decomposition.
pub(super) fn call(op: &Typed<'_>, callee: &str) -> Check<Vec<Type>> {
    let function = op.callee(callee)?;
    let types = |values: &[ValueId]| -> Vec<Type> {
        let types = values.iter().map(|&value| function.ty(value));
        types.cloned().collect()
    };
    check_types("operand", &op.operands(), &types(&function.body.arguments))?;
    Ok(types(&function.body.results))
}

pub(super) fn custom_call(op: &Typed<'_>, functions: &[String]) -> Check<Vec<Type>> {
    for function in functions {
        op.callee(function)?;
    }
    Ok(owned(op.results()))
}

pub(super) fn tuple(op: &Typed<'_>) -> Check<Vec<Type>> {
    Ok(vec![Type::Tuple(owned(op.operands()))])
}

pub(super) fn get_tuple_element(op: &Typed<'_>, index: usize) -> Check<Vec<Type>> {
    let operands = op.operands();
    let [Type::Tuple(types)] = &*operands else {
        return Err("the operand must be a tuple, and the only one".into());
    };
    let ty = types.get(index).ok_or_else(|| {
        format!(
            "`index` is {index}; it must be below the size of the tuple, {}",
            types.len()
        )
    })?;
    Ok(vec![ty.clone()])
}

pub(super) fn after_all(op: &Typed<'_>) -> Check<Vec<Type>> {
    let operands = op.operands();
    check_types("operand", &operands, &vec![Type::Token; operands.len()])?;
    Ok(vec![Type::Token])
}
