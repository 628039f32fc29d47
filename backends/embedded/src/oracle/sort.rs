//! Sorting by a comparator of the program.

use halite_core::Result;
use halite_stablehlo::{
    BinaryOp, ComparisonDirection, ComparisonOrder, OpKind, Operation, Region, ValueId,
};

use super::{
    binary::holds,
    index::{for_each_index, offset, strides},
    reduce::Evaluate,
    tensor::{Tensor, Value, Wide, allocate, collect, unexpected},
};

/// A comparator that is one comparison of an operand: it is applied without evaluating the region.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// The operand.
    key: usize,
    direction: ComparisonDirection,
    order: Option<ComparisonOrder>,
    /// Also where only one element is NaN: the left one of LT comes first if the right one is.
    nan_is_largest: bool,
}

impl Order {
    /// The order of a region that is nothing else.
    pub(super) fn of(region: &Region) -> Option<Self> {
        let (first, rest) = region.operations.split_first()?;
        let OpKind::Compare { direction, order } = first.kind else {
            return None;
        };
        let key = (region.arguments.chunks(2)).position(|pair| first.operands[..] == *pair)?;
        let is_whole = region.operations.last()?.results[..] == region.results;
        let nan_is_largest = !rest.is_empty();
        (is_whole && (rest.is_empty() || tests_nan(first, direction, rest))).then_some(Order {
            key,
            direction,
            order,
            nan_is_largest,
        })
    }

    fn holds(self, left: f64, right: f64) -> bool {
        if self.order == Some(ComparisonOrder::TotalOrder) {
            return holds(self.direction, left.total_cmp(&right) as i32, 0) != 0;
        }
        let (smaller, larger) = match self.direction {
            ComparisonDirection::Lt => (left, right),
            _ => (right, left),
        };
        holds(self.direction, left, right) != 0
            || (self.nan_is_largest && larger.is_nan() && !smaller.is_nan())
    }
}

/// Whether `rest` adds to `first`, which is LT or GT: or only the larger element is NaN.
fn tests_nan(first: &Operation, direction: ComparisonDirection, rest: &[Operation]) -> bool {
    let ([left, right], [is_number, is_nan, both, either]) = (&first.operands[..], rest) else {
        return false;
    };
    let (smaller, larger) = match direction {
        ComparisonDirection::Lt => (left, right),
        ComparisonDirection::Gt => (right, left),
        _ => return false,
    };
    let compares = |operation: &Operation, wanted, x: &ValueId| {
        let is_known = matches!(
            operation.kind,
            OpKind::Compare { direction, order }
                if direction == wanted && order != Some(ComparisonOrder::TotalOrder)
        );
        is_known && operation.operands[..] == [*x, *x]
    };
    let combines = |operation: &Operation, op, a: &Operation, b: &Operation| {
        operation.kind == OpKind::Binary(op)
            && operation.operands[..] == [&a.results[..], &b.results].concat()
    };
    compares(is_number, ComparisonDirection::Eq, smaller)
        && compares(is_nan, ComparisonDirection::Ne, larger)
        && combines(both, BinaryOp::And, is_number, is_nan)
        && combines(either, BinaryOp::Or, first, both)
}

/// Sorts `inputs` together along `dim`. `evaluate` returns whether the left elements come first, as
/// `order` does if there is one.
pub(super) fn sort(
    evaluate: &mut Evaluate<'_>,
    order: Option<Order>,
    inputs: &[&Tensor],
    dim: usize,
) -> Result<Vec<Tensor>> {
    let dims = &inputs[0].ty.dims;
    let keys = match order {
        Some(order) => Some((order, inputs[order.key].wide()?)),
        None => None,
    };
    let mut comes_first = |left: usize, right: usize| -> Result<bool> {
        match &keys {
            Some((order, Wide::Int(keys))) => {
                return Ok(holds(order.direction, keys[left], keys[right]) != 0);
            }
            Some((order, Wide::Float(keys))) => return Ok(order.holds(keys[left], keys[right])),
            _ => {}
        }
        let pair = |input: &&Tensor| [left, right].map(|at| Value::Tensor(input.scalar_at(at)));
        let results = evaluate(inputs.iter().flat_map(pair).collect())?;
        match results.first() {
            Some(value) => Ok(value.tensor()?.int()? != 0),
            None => Err(unexpected("a boolean", "no result")),
        }
    };
    let steps = strides(dims);
    let mut lines = dims.clone();
    lines[dim] = 1;
    let mut sources = allocate(inputs[0].ty.elements())?;
    sources.resize(inputs[0].ty.elements(), 0);
    if !sources.is_empty() {
        for_each_index(&lines, |index| {
            let first = offset(index, &steps);
            let line = |at: usize| first + at * steps[dim];
            let sorted = collect(dims[dim], (0..dims[dim]).map(line))?;
            let sorted = merge_sort(sorted, &mut comes_first)?;
            for (at, from) in (0..).map(line).zip(sorted) {
                sources[at] = from;
            }
            Ok(())
        })?;
    }
    let permute = |input: &&Tensor| {
        let mut bytes = allocate(input.bytes.len())?;
        sources
            .iter()
            .for_each(|&from| bytes.extend_from_slice(input.element(from)));
        Ok(Tensor::new(input.ty.clone(), bytes))
    };
    inputs.iter().map(permute).collect()
}

/// Stable, and defined for every comparator, however inconsistent.
fn merge_sort(
    mut items: Vec<usize>,
    comes_first: &mut impl FnMut(usize, usize) -> Result<bool>,
) -> Result<Vec<usize>> {
    if items.len() < 2 {
        return Ok(items);
    }
    let right = items.split_off(items.len() / 2);
    let left = merge_sort(items, comes_first)?;
    let right = merge_sort(right, comes_first)?;
    let mut merged = allocate(left.len() + right.len())?;
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(&a), Some(&b)) = (left.peek(), right.peek()) {
        merged.extend(if comes_first(b, a)? {
            right.next()
        } else {
            left.next()
        });
    }
    merged.extend(left.chain(right));
    Ok(merged)
}
