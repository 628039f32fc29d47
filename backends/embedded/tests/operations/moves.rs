//! Operations that move elements.

use halite_stablehlo::{ElementType, RankedType};

use crate::operations::{
    compare::Tolerance,
    draft::{Draft, Value, join},
    family::Family,
    numbers::Range,
};

pub(crate) fn families() -> Vec<Family> {
    vec![
        Family::new("broadcast_in_dim", broadcast_in_dim),
        Family::new("reshape", reshape),
        Family::new("transpose", transpose),
        Family::new("reverse", reverse),
        Family::new("slice", slice),
        Family::new("pad", pad),
        Family::new("concatenate", concatenate),
        Family::new("iota", iota),
        Family::new("get_dimension_size", get_dimension_size),
        Family::new("dynamic_slice", dynamic_slice),
        Family::new("dynamic_update_slice", dynamic_update_slice),
    ]
}

/// An attribute `array<i64: ..>`.
pub(crate) fn array(values: &[impl std::fmt::Display]) -> String {
    match values {
        [] => "array<i64>".to_owned(),
        _ => format!("array<i64: {}>", join(values)),
    }
}

/// Some of the numbers below `end`, in order.
pub(crate) fn subset(draft: &mut Draft<'_>, end: usize) -> Vec<usize> {
    (0..end).filter(|_| draft.random.percent(50)).collect()
}

pub(crate) fn permutation(draft: &mut Draft<'_>, count: usize) -> Vec<usize> {
    let mut rest: Vec<_> = (0..count).collect();
    (0..count)
        .map(|_| rest.remove(draft.random.below(rest.len())))
        .collect()
}

/// Writes an operation whose results have the bits of its operands.
fn moved(
    draft: &mut Draft<'_>,
    text: String,
    operands: &[&Value],
    dims: Vec<usize>,
) -> Option<Tolerance> {
    let element = operands[0].ty.element;
    let y = draft.op(text, operands, RankedType::new(element, dims));
    draft.output(y);
    Some(Tolerance::Bits)
}

fn broadcast_in_dim(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let rank = draft.random.below(4);
    let result = draft.dims_of_rank(rank);
    let mapping: Vec<_> = (permutation(draft, rank).into_iter())
        .filter(|_| draft.random.percent(60))
        .collect();
    let size = |&dim: &usize| {
        if draft.random.percent(25) {
            1
        } else {
            result[dim]
        }
    };
    let dims: Vec<_> = mapping.iter().map(size).collect();
    let x = draft.input(element, &dims, Range::Any);
    let text = format!(
        "broadcast_in_dim {{broadcast_dimensions = {}}}",
        array(&mapping)
    );
    moved(draft, text, &[&x], result)
}

fn reshape(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(4);
    let x = draft.input(element, &dims, Range::Any);
    let elements = x.ty.elements();
    let result = match draft.random.below(4) {
        0 => vec![elements],
        1 => vec![1, elements, 1],
        2 if elements.is_multiple_of(2) => vec![2, elements / 2],
        _ => dims.into_iter().rev().collect(),
    };
    moved(draft, "reshape".into(), &[&x], result)
}

fn transpose(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(4);
    let x = draft.input(element, &dims, Range::Any);
    let permutation = permutation(draft, dims.len());
    let result = permutation.iter().map(|&dim| dims[dim]).collect();
    moved(
        draft,
        format!("transpose {{permutation = {}}}", array(&permutation)),
        &[&x],
        result,
    )
}

fn reverse(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(4);
    let x = draft.input(element, &dims, Range::Any);
    let reversed = subset(draft, dims.len());
    moved(
        draft,
        format!("reverse {{dimensions = {}}}", array(&reversed)),
        &[&x],
        dims,
    )
}

fn slice(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(4);
    let x = draft.input(element, &dims, Range::Any);
    let (mut starts, mut limits, mut strides) = (Vec::new(), Vec::new(), Vec::new());
    for &size in &dims {
        let start = draft.random.below(size + 1);
        starts.push(start);
        limits.push(start + draft.random.below(size - start + 1));
        strides.push(draft.choose(&[1, 1, 2, 3, 50]));
    }
    let result = (0..dims.len()).map(|at| (limits[at] - starts[at]).div_ceil(strides[at]));
    let result = result.collect();
    let text = format!(
        "slice {{start_indices = {}, limit_indices = {}, strides = {}}}",
        array(&starts),
        array(&limits),
        array(&strides)
    );
    moved(draft, text, &[&x], result)
}

fn pad(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(3);
    let x = draft.input(element, &dims, Range::Any);
    let value = draft.scalar(element, Range::Any);
    let (mut low, mut high, mut interior) = (Vec::new(), Vec::new(), Vec::new());
    let mut result = Vec::new();
    for &size in &dims {
        let within = draft.random.below(3);
        let dilated = (size + size.saturating_sub(1) * within) as i64;
        let before = draft.random.below(6) as i64 - 3;
        let after = (draft.random.below(6) as i64 - 3).max(-dilated - before);
        let before = before.max(-dilated - after);
        low.push(before);
        high.push(after);
        interior.push(within);
        result.push((dilated + before + after) as usize);
    }
    let text = format!(
        "pad {{edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}}}",
        array(&low),
        array(&high),
        array(&interior)
    );
    moved(draft, text, &[&x, &value], result)
}

fn concatenate(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let rank = 1 + draft.random.below(3);
    let mut dims = draft.dims_of_rank(rank);
    let dim = draft.random.below(rank);
    let mut operands = Vec::new();
    let mut size = 0;
    for _ in 0..1 + draft.random.below(3) {
        dims[dim] = draft.random.below(4);
        size += dims[dim];
        operands.push(draft.input(element, &dims, Range::Any));
    }
    dims[dim] = size;
    let operands: Vec<_> = operands.iter().collect();
    moved(
        draft,
        format!("concatenate {{dimension = {dim} : i64}}"),
        &operands,
        dims,
    )
}

fn iota(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    if element == ElementType::Bool {
        return None;
    }
    let rank = 1 + draft.random.below(3);
    let dims = draft.dims_of_rank(rank);
    let dim = draft.random.below(rank);
    let text = format!("iota {{iota_dimension = {dim} : i64}}");
    let y = draft.op(text, &[], RankedType::new(element, dims));
    draft.output(y);
    Some(Tolerance::Exact)
}

fn get_dimension_size(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let rank = 1 + draft.random.below(3);
    let dims = draft.dims_of_rank(rank);
    let x = draft.input(element, &dims, Range::Any);
    let dim = draft.random.below(rank);
    let text = format!("get_dimension_size {{dimension = {dim} : i64}}");
    let y = draft.op(text, &[&x], RankedType::new(ElementType::S32, []));
    draft.output(y);
    Some(Tolerance::Exact)
}

/// Positions in a tensor, some out of range, as scalars of a random integer type.
fn starts(draft: &mut Draft<'_>, dims: &[usize]) -> Vec<Value> {
    let types = [
        ElementType::S8,
        ElementType::S32,
        ElementType::S64,
        ElementType::U8,
        ElementType::U32,
        ElementType::U64,
    ];
    let element = draft.choose(&types);
    let scalar = |&size: &usize| {
        let far = draft.choose(&[i64::MIN, i64::MAX, -1, 100]);
        let near = draft.random.below(size + 2) as i64;
        let value = if draft.random.percent(20) { far } else { near };
        draft.integers(element, &[], &[value])
    };
    dims.iter().map(scalar).collect()
}

fn dynamic_slice(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(3);
    let x = draft.input(element, &dims, Range::Any);
    let sizes: Vec<_> = dims
        .iter()
        .map(|size| draft.random.below(size + 1))
        .collect();
    let starts = starts(draft, &dims);
    let operands: Vec<_> = [&x].into_iter().chain(&starts).collect();
    moved(
        draft,
        format!("dynamic_slice {{slice_sizes = {}}}", array(&sizes)),
        &operands,
        sizes,
    )
}

fn dynamic_update_slice(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(3);
    let x = draft.input(element, &dims, Range::Any);
    let sizes: Vec<_> = dims
        .iter()
        .map(|size| draft.random.below(size + 1))
        .collect();
    let update = draft.input(element, &sizes, Range::Any);
    let starts = starts(draft, &dims);
    let operands: Vec<_> = [&x, &update].into_iter().chain(&starts).collect();
    moved(draft, "dynamic_update_slice".into(), &operands, dims)
}
