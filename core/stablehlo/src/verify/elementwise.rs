//! Elementwise operations.

use crate::{
    BinaryOp, ComparisonOrder, ElementClass, ElementType, RankedType, Type, UnaryOp,
    ops::classes::FLOAT,
};

use super::typed::{Check, Typed, check_class, check_same, ensure, tensor};

pub(super) fn unary(op: &Typed<'_>, unary: UnaryOp) -> Check<Vec<Type>> {
    let [x] = op.tensors()?;
    check_class(x.element, unary.classes())?;
    let element = match unary {
        UnaryOp::Abs | UnaryOp::Imag | UnaryOp::Real => x.element.part().unwrap_or(x.element),
        UnaryOp::IsFinite => ElementType::Bool,
        _ => x.element,
    };
    Ok(vec![tensor(element, &*x.dims)])
}

pub(super) fn binary(op: &Typed<'_>, binary: BinaryOp) -> Check<Vec<Type>> {
    let [a, b] = op.tensors()?;
    check_same(&[a, b])?;
    check_class(a.element, binary.classes())?;
    let element = match binary {
        BinaryOp::Complex => complex_of(a.element)?,
        _ => a.element,
    };
    Ok(vec![tensor(element, &*a.dims)])
}

/// The complex type with parts of type `part`.
pub(super) fn complex_of(part: ElementType) -> Check<ElementType> {
    match part {
        ElementType::F32 => Ok(ElementType::C64),
        ElementType::F64 => Ok(ElementType::C128),
        other => Err(format!(
            "the element type is {other}; it must be f32 or f64"
        )),
    }
}

pub(super) fn compare(op: &Typed<'_>, order: Option<ComparisonOrder>) -> Check<Vec<Type>> {
    let [a, b] = op.tensors()?;
    check_same(&[a, b])?;
    let fits = match (order, a.element.class()) {
        (None, _)
        | (Some(ComparisonOrder::Float), ElementClass::Float | ElementClass::Complex)
        | (Some(ComparisonOrder::TotalOrder), ElementClass::Float)
        | (Some(ComparisonOrder::Signed), ElementClass::Signed)
        | (Some(ComparisonOrder::Unsigned), ElementClass::Unsigned | ElementClass::Bool) => true,
        (Some(_), _) => false,
    };
    ensure!(
        fits,
        "`compare_type` is {}, which elements of {} do not have",
        order.map_or("", ComparisonOrder::name),
        a.element
    );
    Ok(vec![tensor(ElementType::Bool, &*a.dims)])
}

pub(super) fn select(op: &Typed<'_>) -> Check<Vec<Type>> {
    let [predicate, on_true, on_false] = op.tensors()?;
    check_same(&[on_true, on_false])?;
    ensure!(
        predicate.element == ElementType::Bool,
        "the predicate is {predicate}; its element type must be i1"
    );
    check_scalar_or_same_dims("the predicate", predicate, on_true)?;
    Ok(vec![Type::Tensor(on_true.clone())])
}

pub(super) fn clamp(op: &Typed<'_>) -> Check<Vec<Type>> {
    let [low, x, high] = op.tensors()?;
    for (what, bound) in [("the lower bound", low), ("the upper bound", high)] {
        ensure!(
            bound.element == x.element,
            "{what} is {bound} and the operand is {x}; they must have one element type"
        );
        check_scalar_or_same_dims(what, bound, x)?;
    }
    Ok(vec![Type::Tensor(x.clone())])
}

fn check_scalar_or_same_dims(what: &str, ty: &RankedType, of: &RankedType) -> Check {
    ensure!(
        ty.rank() == 0 || ty.dims == of.dims,
        "{what} is {ty}; it must be a scalar or have the dimensions of {of}"
    );
    Ok(())
}

pub(super) fn convert(op: &Typed<'_>) -> Check<Vec<Type>> {
    let [x] = op.tensors()?;
    let [y] = op.declared()?;
    Ok(vec![tensor(y.element, &*x.dims)])
}

pub(super) fn bitcast_convert(op: &Typed<'_>) -> Check<Vec<Type>> {
    let [x] = op.tensors()?;
    let [y] = op.declared()?;
    let is_complex = |ty: &RankedType| ty.element.class() == ElementClass::Complex;
    ensure!(
        is_complex(x) == is_complex(y),
        "it is from {x} to {y}; both or none must be complex"
    );
    let (from, to) = (x.element.bits(), y.element.bits());
    let fits = if from > to {
        from.is_multiple_of(to) && y.dims.strip_prefix(&*x.dims) == Some(&[from / to])
    } else if from < to {
        to.is_multiple_of(from) && x.dims.strip_prefix(&*y.dims) == Some(&[to / from])
    } else {
        x.dims == y.dims
    };
    ensure!(
        fits,
        "it is from {x} to {y}; the last dimension of the type with narrower elements must be the \
         ratio of their widths, {from} and {to} bits, and the other dimensions the same"
    );
    Ok(vec![Type::Tensor(y.clone())])
}

pub(super) fn reduce_precision(op: &Typed<'_>, exponent: u32) -> Check<Vec<Type>> {
    let [x] = op.tensors()?;
    check_class(x.element, FLOAT)?;
    ensure!(exponent >= 1, "`exponent_bits` is 0; it must be at least 1");
    Ok(vec![Type::Tensor(x.clone())])
}
