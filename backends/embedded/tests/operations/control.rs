//! Loops, branches, calls, and operations without arithmetic.

use halite_stablehlo::{ElementType, RankedType};

use crate::operations::{compare::Tolerance, draft::Draft, family::Family, numbers::Range};

pub(crate) fn families() -> Vec<Family> {
    vec![
        Family::new("while", repeat),
        Family::new("if", conditional),
        Family::new("case", switch),
        Family::new("optimization_barrier", barrier),
        Family::new("tuple", tuple),
    ]
}

/// Swaps two tensors some times, perhaps never.
fn repeat(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(2);
    let (x, y) = (
        draft.input(element, &dims, Range::Any),
        draft.input(element, &dims, Range::Any),
    );
    let zero = draft.integers(ElementType::S32, &[], &[0]);
    let limit = draft.choose(&[-1, 0, 1, 2, 7]);
    let limit = draft.integers(ElementType::S32, &[], &[limit]);
    let (ty, index) = (&x.ty, &zero.ty);
    let text = format!(
        "while ({{
    ^bb0(%i: {index}, %x: {ty}, %y: {ty}):
      %z = stablehlo.compare LT, %i, {limit} : ({index}, {index}) -> tensor<i1>
      stablehlo.return %z : tensor<i1>
  }}, {{
    ^bb0(%i: {index}, %x: {ty}, %y: {ty}):
      %one = stablehlo.constant dense<1> : {index}
      %j = stablehlo.add %i, %one : {index}
      stablehlo.return %j, %y, %x : {index}, {ty}, {ty}
  }})"
    );
    let types = [zero.ty.clone(), x.ty.clone(), y.ty.clone()];
    let results = draft.ops(text, &[&zero, &x, &y], &types);
    results.into_iter().for_each(|result| draft.output(result));
    Some(Tolerance::Bits)
}

fn conditional(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(2);
    let (x, y) = (
        draft.input(element, &dims, Range::Any),
        draft.input(element, &dims, Range::Any),
    );
    let predicate = draft.input(ElementType::Bool, &[], Range::Any);
    let ty = x.ty.clone();
    let text = format!(
        "if ({{\n    stablehlo.return {x}, {y} : {ty}, {ty}\n  }}, {{\n    stablehlo.return {y}, \
         {y} : {ty}, {ty}\n  }})"
    );
    let results = draft.ops(text, &[&predicate], &[ty.clone(), ty]);
    results.into_iter().for_each(|result| draft.output(result));
    Some(Tolerance::Bits)
}

/// One of several branches; the last for an index out of range.
fn switch(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(2);
    let count = 1 + draft.random.below(4);
    let branches = (0..count).map(|_| draft.input(element, &dims, Range::Any));
    let branches: Vec<_> = branches.collect();
    let index = draft.choose(&[i64::from(i32::MIN), -1, 0, 1, 2, 3, 4, 100]);
    let index = draft.integers(ElementType::S32, &[], &[index]);
    let ty = RankedType::new(element, dims);
    let regions = branches
        .iter()
        .map(|value| format!("{{\n    stablehlo.return {value} : {ty}\n  }}"));
    let regions = regions.collect::<Vec<_>>().join(", ");
    let y = draft.op(format!("case ({regions})"), &[&index], ty);
    draft.output(y);
    Some(Tolerance::Bits)
}

fn barrier(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let (first, second) = (draft.dims(2), draft.dims(2));
    let x = draft.input(element, &first, Range::Any);
    let y = draft.input(element, &second, Range::Any);
    let types = [x.ty.clone(), y.ty.clone()];
    let results = draft.ops("optimization_barrier", &[&x, &y], &types);
    results.into_iter().for_each(|result| draft.output(result));
    Some(Tolerance::Bits)
}

fn tuple(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let (first, second) = (draft.dims(2), draft.dims(2));
    let x = draft.input(element, &first, Range::Any);
    let y = draft.input(element, &second, Range::Any);
    let y = draft.element_of_tuple([&x, &y], 1);
    draft.output(y);
    Some(Tolerance::Bits)
}
