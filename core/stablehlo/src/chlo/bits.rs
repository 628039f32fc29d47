//! Functions of the bits of numbers.

use super::{Built, builder::Value};
use crate::{
    ComparisonDirection::{Eq, Gt, Lt},
    ElementClass, ElementType,
};

/// The bits of floats as signed integers.
pub(super) fn bits(x: Value<'_>) -> Value<'_> {
    x.bitcast(match x.element().bits() {
        16 => ElementType::S16,
        32 => ElementType::S32,
        _ => ElementType::S64,
    })
}

/// One float of at least 16 bits.
fn float<'b>(operands: &[Value<'b>]) -> Result<Value<'b>, &'static str> {
    match operands {
        &[x] if is_ieee(x.element()) => Ok(x),
        _ => Err("one tensor of f16, bf16, f32 or f64"),
    }
}

fn is_ieee(element: ElementType) -> bool {
    let types = [
        ElementType::F16,
        ElementType::Bf16,
        ElementType::F32,
        ElementType::F64,
    ];
    types.contains(&element)
}

pub(super) fn is_inf<'b>(operands: &[Value<'b>]) -> Built<'b> {
    let x = super::computed(float(operands)?);
    Ok(vec![x.abs().eq(f64::INFINITY)])
}

pub(super) fn is_pos_inf<'b>(operands: &[Value<'b>]) -> Built<'b> {
    let x = super::computed(float(operands)?);
    Ok(vec![x.eq(f64::INFINITY)])
}

pub(super) fn is_neg_inf<'b>(operands: &[Value<'b>]) -> Built<'b> {
    let x = super::computed(float(operands)?);
    Ok(vec![x.eq(f64::NEG_INFINITY)])
}

/// The next float from `x` towards `y`, by the integers that order floats as their values do. No
/// arithmetic of floats is in it, which may take subnormals for 0.
pub(super) fn next_after<'b>(operands: &[Value<'b>]) -> Built<'b> {
    let (&[x, y], true) = (operands, operands.iter().all(|it| is_ieee(it.element()))) else {
        return Err("two tensors of f16, bf16, f32 or f64 of one type");
    };
    let [from, to] = [x, y].map(|value| order(bits(value)));
    let one = from.integer(1);
    let rises = from.compare(Lt, to);
    let next = rises.select(from + one, from - one);
    // From below, the zero is the negative one.
    let zero = from.integer(0);
    let is_negative_zero = next.compare(Eq, zero).and(from.compare(Lt, zero));
    let next = is_negative_zero.select(least(from), order(next));
    let next = from.compare(Eq, to).select(y, next.bitcast(x.element()));
    // The sum of both is NaN if one is.
    let is_nan = x.ne(x).or(y.ne(y));
    Ok(vec![is_nan.select(x + y, next)])
}

/// Maps the bits of floats to integers in the order of their values, 0 for both zeros, and back.
fn order(bits: Value<'_>) -> Value<'_> {
    let negative = bits.compare(Lt, bits.integer(0));
    negative.select(least(bits) - bits, bits)
}

/// The least integer, which has the bits of -0.
fn least(bits: Value<'_>) -> Value<'_> {
    bits.integer(1 << (bits.element().bits() - 1))
}

/// The high half of the product of integers.
pub(super) fn mulhi<'b>(operands: &[Value<'b>]) -> Built<'b> {
    let (&[x, y], Some(signed)) = (
        operands,
        operands.first().and_then(|x| match x.element().class() {
            ElementClass::Signed => Some(true),
            ElementClass::Unsigned => Some(false),
            _ => None,
        }),
    ) else {
        return Err("two tensors of integers of one type");
    };
    let bits = x.element().bits();
    if bits == 64 {
        return Ok(vec![mulhi_64(x, y, signed)]);
    }
    let wide = match signed {
        true => ElementType::S64,
        false => ElementType::U64,
    };
    let product = x.convert(wide) * y.convert(wide);
    let high = product.shift_right(product.integer(bits as i64));
    Ok(vec![high.convert(x.element())])
}

/// The high half of a product of 128 bits, from products of halves.
fn mulhi_64<'b>(x: Value<'b>, y: Value<'b>, signed: bool) -> Value<'b> {
    let [a, b] = [x, y].map(|it| it.convert(ElementType::U64));
    let half = a.integer(32);
    let mask = a.integer(0xffff_ffff);
    let [(a1, a0), (b1, b0)] = [a, b].map(|it| (it.shift_right(half), it.and(mask)));
    let low = (a0 * b0).shift_right(half);
    let first = a1 * b0 + low;
    let second = a0 * b1 + first.and(mask);
    let high = (a1 * b1 + first.shift_right(half) + second.shift_right(half)).convert(x.element());
    if !signed {
        return high;
    }
    let zero = x.integer(0);
    let if_negative = |test: Value<'b>, value| zero.compare(Gt, test).select(value, zero);
    high - if_negative(x, y) - if_negative(y, x)
}
