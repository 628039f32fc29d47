//! The largest elements along the last dimension.

use super::{Built, builder::Value};
use crate::{
    Attribute, Attributes, ComparisonDirection, ComparisonOrder, ElementClass, ElementType,
    GatherAttributes, OpKind, RankedType,
};

/// The `k` largest elements in descending order, and their indices. NaN of either sign is larger
/// than all numbers; equal elements, both zeros among them, keep their order.
///
/// Compilers order the bits of floats by the composite, `sorted` being its decomposition: it gets
/// floats whose bits are in the order of their values, and booleans as integers.
pub(super) fn top_k<'b>(x: Value<'b>, attributes: &Attributes, sorted: &str) -> Built<'b> {
    let (ty, count) = (x.ty(), count(x, attributes)?);
    let key = of_key(ty.element);
    let types = results(&RankedType::new(key, &*ty.dims), count);
    let composite = OpKind::Composite {
        name: "chlo.top_k".to_owned(),
        attributes: attributes.clone(),
        decomposition: sorted.to_owned(),
        version: 1,
    };
    let is_float = ty.element.class() == ElementClass::Float;
    let keys = if is_float {
        canonical(x)
    } else {
        x.convert(key)
    };
    let found = x
        .builder()
        .push(composite, &[keys], Vec::new(), types.clone());
    let [values, indices] = found[..] else {
        unreachable!("the composite has two results");
    };
    if !is_float {
        return Ok(vec![values.convert(ty.element), indices]);
    }
    // The elements themselves: of the keys, -0 is 0.
    let (last, batch) = (ty.rank() - 1, (0..ty.rank() - 1).collect::<Vec<_>>());
    let gather = OpKind::Gather(Box::new(GatherAttributes {
        collapsed_slice_dims: vec![last],
        operand_batching_dims: batch.clone(),
        start_indices_batching_dims: batch,
        start_index_map: vec![last],
        index_vector_dim: ty.rank(),
        slice_sizes: vec![1; ty.rank()],
        ..GatherAttributes::default()
    }));
    let of_values = types[..1].to_vec();
    let values = x
        .builder()
        .push(gather, &[x, indices], Vec::new(), of_values);
    Ok(vec![values[0], indices])
}

/// The type of what the composite of [`top_k`] gets for elements of a type.
pub(super) fn of_key(element: ElementType) -> ElementType {
    match element {
        ElementType::Bool => ElementType::U8,
        other => other,
    }
}

/// The composite of [`top_k`] in operations of StableHLO.
pub(super) fn sorted<'b>(x: Value<'b>, attributes: &Attributes) -> Built<'b> {
    let (ty, count) = (x.ty(), count(x, attributes)?);
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
    let is_float = ty.element.class() == ElementClass::Float;
    let region = builder.region(&scalars, |arguments| match is_float {
        true => arguments[0].ordered(
            ComparisonDirection::Gt,
            ComparisonOrder::TotalOrder,
            arguments[1],
        ),
        false => arguments[0].compare(ComparisonDirection::Gt, arguments[1]),
    });
    let sort = OpKind::Sort { dim, stable: true };
    let sorted = builder.push(sort, &[x, iota[0]], vec![region], vec![ty, of_indices]);
    Ok(sorted.into_iter().map(|all| first(all, count)).collect())
}

/// How many elements are asked for.
fn count(x: Value<'_>, attributes: &Attributes) -> Result<usize, &'static str> {
    let ty = x.ty();
    let count = match attributes.get("k") {
        Some(&Attribute::Int(count, _)) => usize::try_from(count).ok(),
        _ => None,
    };
    let is_ordered = matches!(
        ty.element.class(),
        ElementClass::Bool | ElementClass::Float | ElementClass::Signed | ElementClass::Unsigned
    );
    match (is_ordered, ty.dims.last(), count) {
        (true, Some(&length), Some(count)) if count <= length => Ok(count),
        (true, Some(_), Some(_)) => Err("a last dimension of at least `k` elements"),
        _ => Err("one tensor of numbers or booleans with dimensions, and `k`"),
    }
}

/// Types of the elements and of their indices.
fn results(ty: &RankedType, count: usize) -> Vec<RankedType> {
    let dims = [&ty.dims[..ty.rank() - 1], &[count]].concat();
    let types = [ty.element, ElementType::S32];
    types.map(|element| RankedType::new(element, &*dims)).into()
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
