//! The largest elements along the last dimension.

use super::{Built, builder::Value};
use crate::{
    Attribute, Attributes, ComparisonDirection, ComparisonOrder, ElementClass, ElementType, OpKind,
    RankedType,
};

/// The `k` largest elements in descending order, and their indices. NaN of either sign is larger
/// than all numbers; equal elements, both zeros among them, keep their order.
pub(super) fn top_k<'b>(x: Value<'b>, attributes: &Attributes) -> Built<'b> {
    let ty = x.ty();
    let count = match attributes.get("k") {
        Some(&Attribute::Int(count, _)) => usize::try_from(count).ok(),
        _ => None,
    };
    let is_ordered = matches!(
        ty.element.class(),
        ElementClass::Float | ElementClass::Signed | ElementClass::Unsigned
    );
    let (true, Some(&length), Some(count)) = (is_ordered, ty.dims.last(), count) else {
        return Err("one tensor of numbers with dimensions, and `k`");
    };
    if count > length {
        return Err("a last dimension of at least `k` elements");
    }
    let (builder, dim) = (x.builder(), ty.rank() - 1);
    let of_indices = RankedType::new(ElementType::S32, &*ty.dims);
    let iota = builder.push(
        OpKind::Iota { dim },
        &[],
        Vec::new(),
        vec![of_indices.clone()],
    );
    let scalars = [ty.element, ty.element, ElementType::S32, ElementType::S32];
    let scalars = scalars.map(|element| RankedType::new(element, []));
    let region = builder.region(&scalars, |arguments| {
        let (left, right) = (arguments[0], arguments[1]);
        if ty.element.class() != ElementClass::Float {
            return left.compare(ComparisonDirection::Gt, right);
        }
        let order = ComparisonOrder::TotalOrder;
        canonical(left).ordered(ComparisonDirection::Gt, order, canonical(right))
    });
    let sort = OpKind::Sort { dim, stable: true };
    let sorted = builder.push(sort, &[x, iota[0]], vec![region], vec![ty, of_indices]);
    Ok(sorted.into_iter().map(|all| first(all, count)).collect())
}

/// A float of which total order is the order of values: one zero, and one NaN, which is positive.
fn canonical(x: Value<'_>) -> Value<'_> {
    let [zero, nan] = [0.0, f64::NAN].map(|value| x.constant(value));
    let unsigned = x.eq(zero).select(zero, x);
    x.ne(x).select(nan, unsigned)
}

/// The first elements along the last dimension.
fn first(x: Value<'_>, count: usize) -> Value<'_> {
    let mut ty = x.ty();
    let slice = OpKind::Slice {
        starts: vec![0; ty.rank()],
        limits: [&ty.dims[..ty.rank() - 1], &[count]].concat(),
        strides: vec![1; ty.rank()],
    };
    if let Some(last) = ty.dims.last_mut() {
        *last = count;
    }
    x.builder().push(slice, &[x], Vec::new(), vec![ty])[0]
}
