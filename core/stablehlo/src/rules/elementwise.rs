//! Elementwise operations.

use super::{Check, TensorLike, check_class, ensure, take};
use crate::{BinaryOp, ComparisonOrder, ElementClass, ElementType, UnaryOp, ops::classes::FLOAT};

/// Elementwise operations of one operand.
///
/// # Errors
/// If there is not one operand with elements that the operation is defined on.
pub fn unary<T: TensorLike>(operands: &[&T], unary: UnaryOp) -> Check<T> {
    let [x] = take(operands)?;
    check_class(x, unary.classes())?;
    match unary {
        UnaryOp::Abs | UnaryOp::Imag | UnaryOp::Real => match x.element().part() {
            Some(part) => x.with_element(part),
            None => Ok(x.clone()),
        },
        UnaryOp::IsFinite => x.with_element(ElementType::Bool),
        _ => Ok(x.clone()),
    }
}

/// Elementwise operations of two operands of one type. For `bool`, addition and maximum are "or",
/// multiplication and minimum "and".
///
/// # Errors
/// If there are not two such operands with elements that the operation is defined on.
pub fn binary<T: TensorLike>(operands: &[&T], binary: BinaryOp) -> Check<T> {
    let left = equal(take(operands)?)?;
    check_class(left, binary.classes())?;
    match binary {
        BinaryOp::Complex => left.with_element(complex_of(left.element())?),
        _ => Ok(left.clone()),
    }
}

/// The first of two operands of one type.
fn equal<T: TensorLike>([left, right]: [&T; 2]) -> Check<&T> {
    let advice = if left.dims() == right.dims() {
        "convert one first"
    } else {
        "broadcast first"
    };
    ensure!(
        left == right,
        "{left} and {right} differ; elementwise operations need equal types ({advice})"
    );
    Ok(left)
}

/// The complex type with parts of type `part`.
pub(crate) fn complex_of(part: ElementType) -> Check<ElementType> {
    match part {
        ElementType::F32 => Ok(ElementType::C64),
        ElementType::F64 => Ok(ElementType::C128),
        other => Err(format!(
            "the element type is {other}; it must be f32 or f64"
        )),
    }
}

/// Comparisons in this order, that of the element type if there is none.
///
/// # Errors
/// If there are not two operands of one type, or its elements do not have the order.
pub fn compare<T: TensorLike>(operands: &[&T], order: Option<ComparisonOrder>) -> Check<T> {
    let left = equal(take(operands)?)?;
    let fits = match (order, left.element().class()) {
        (None, _)
        | (Some(ComparisonOrder::Float), ElementClass::Float | ElementClass::Complex)
        | (Some(ComparisonOrder::TotalOrder), ElementClass::Float)
        | (Some(ComparisonOrder::Signed), ElementClass::Signed)
        | (Some(ComparisonOrder::Unsigned), ElementClass::Unsigned | ElementClass::Bool) => true,
        (Some(_), _) => false,
    };
    ensure!(
        fits,
        "`compare_type` is {}, which elements of {left} do not have",
        order.map_or("", ComparisonOrder::name)
    );
    left.with_element(ElementType::Bool)
}

/// Choice between two operands of one type by a predicate, which comes first.
///
/// # Errors
/// If the predicate is not `bool`, a scalar or of the same dimensions, or the others differ.
pub fn select<T: TensorLike>(operands: &[&T]) -> Check<T> {
    let [predicate, on_true, on_false] = take(operands)?;
    ensure!(
        predicate.element() == ElementType::Bool,
        "the predicate is {predicate}; it must be bool (compare first)"
    );
    equal([on_true, on_false])?;
    let needed = on_true.with_element(ElementType::Bool)?;
    check_scalar_or("the predicate", predicate, on_true, &needed)?;
    Ok(on_true.clone())
}

/// The second operand, not less than the first and not more than the third.
///
/// # Errors
/// If a bound is neither a scalar nor of the same dimensions, or of another element type.
pub fn clamp<T: TensorLike>(operands: &[&T]) -> Check<T> {
    let [low, x, high] = take(operands)?;
    check_scalar_or("the lower bound", low, x, x)?;
    check_scalar_or("the upper bound", high, x, x)?;
    Ok(x.clone())
}

/// Checks that `ty` is `needed` or a scalar of its elements.
fn check_scalar_or<T: TensorLike>(what: &str, ty: &T, of: &T, needed: &T) -> Check {
    let scalar = needed.with_dims(&[]);
    ensure!(
        ty == needed || *ty == scalar,
        "{what} is {ty}, for {of} it must be {needed} or {scalar}"
    );
    Ok(())
}

/// Conversion of the elements.
///
/// # Errors
/// If there is not one operand.
pub fn convert<T: TensorLike>(operands: &[&T], element: ElementType) -> Check<T> {
    let [x] = take(operands)?;
    x.with_element(element)
}

/// The same bits as elements of another type.
///
/// # Errors
/// If `to` has other bits than the operand: as many in each element, or with one more dimension, the
/// last, which has the parts of an element.
pub fn bitcast_convert<T: TensorLike>(operands: &[&T], to: &T) -> Check<T> {
    let [x] = take(operands)?;
    let is_complex = |ty: &T| ty.element().class() == ElementClass::Complex;
    ensure!(
        is_complex(x) == is_complex(to),
        "it is from {x} to {to}; both or none must be complex"
    );
    let bits = |ty: &T| ty.element().bits();
    let (from, into) = (bits(x), bits(to));
    let fits = if from > into {
        from.is_multiple_of(into) && to.dims().strip_prefix(x.dims()) == Some(&[from / into])
    } else if from < into {
        into.is_multiple_of(from) && x.dims().strip_prefix(to.dims()) == Some(&[into / from])
    } else {
        x.dims() == to.dims()
    };
    ensure!(
        fits,
        "elements of {x} have {from} bits, those of {to} have {into}; the bits are kept: with other \
         widths, the last dimension of the narrower type must be their ratio"
    );
    Ok(to.clone())
}

/// Rounding to numbers with fewer bits.
///
/// # Errors
/// If there is not one operand of floats, or no bit of the exponent is left.
pub fn reduce_precision<T: TensorLike>(operands: &[&T], exponent: u32) -> Check<T> {
    let [x] = take(operands)?;
    check_class(x, FLOAT)?;
    ensure!(exponent >= 1, "0 exponent bits; a float has 1 or more");
    Ok(x.clone())
}
