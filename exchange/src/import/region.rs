//! Properties of regions: captured values, trip counts, and the expressions that they compute.

use std::collections::HashSet;

use halite_stablehlo::{
    BinaryOp, ComparisonDirection, ComparisonOrder, Dense, ElementClass, ElementType, OpKind,
    Operation, Region, UnaryOp, ValueId,
};

use super::Known;

/// Values from outside that the regions use, in the order of their first use.
pub(super) fn captured(regions: &[&Region]) -> Vec<ValueId> {
    let (mut defined, mut used) = (HashSet::new(), Vec::new());
    for region in regions {
        collect(region, &mut defined, &mut used);
    }
    let mut seen = HashSet::new();
    used.retain(|id| !defined.contains(id) && seen.insert(*id));
    used
}

fn collect(region: &Region, defined: &mut HashSet<ValueId>, used: &mut Vec<ValueId>) {
    defined.extend(&region.arguments);
    for operation in &region.operations {
        used.extend(&operation.operands);
        defined.extend(&operation.results);
        for inner in &operation.regions {
            collect(inner, defined, used);
        }
    }
    used.extend(&region.results);
}

/// The number of iterations of a loop that counts by ones from a constant to a constant:
/// `while (i < N) { .., i = i + 1 }`.
pub(super) fn trip_count(known: &Known<'_>, operation: &Operation) -> Option<usize> {
    let [condition, body] = &operation.regions[..] else {
        return None;
    };
    let compare = known.operations.get(condition.results.first()?)?;
    let is_less = matches!(
        compare.kind,
        OpKind::Compare {
            direction: ComparisonDirection::Lt,
            ..
        }
    );
    if !is_less {
        return None;
    }
    let counter = (condition.arguments.iter()).position(|id| *id == compare.operands[0])?;
    let limit = integer(known.scalar(compare.operands[1])?)?;
    let start = integer(known.scalar(operation.operands[counter])?)?;
    let next = known.operations.get(&body.results[counter])?;
    let [left, right] = next.operands[..] else {
        return None;
    };
    let counts = next.kind == OpKind::Binary(BinaryOp::Add)
        && left == body.arguments[counter]
        && integer(known.scalar(right)?)? == 1;
    let trips = limit.saturating_sub(start).max(0);
    // Graphs count in s32.
    let trips = i32::try_from(trips).ok().filter(|_| counts)?;
    usize::try_from(trips).ok()
}

/// The value of an integer constant whose elements are equal.
pub(super) fn integer(dense: &Dense) -> Option<i64> {
    let size = dense.ty.element.size();
    let bytes = dense.bytes.get(..size).filter(|_| size <= 8)?;
    let negative = match dense.ty.element.class() {
        ElementClass::Signed => bytes[size - 1] >= 0x80,
        ElementClass::Unsigned | ElementClass::Bool => false,
        ElementClass::Float | ElementClass::Complex => return None,
    };
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    wide[..size].copy_from_slice(bytes);
    let value = i64::from_le_bytes(wide);
    // An unsigned number of 64 bits may not fit.
    (negative || value >= 0).then_some(value)
}

/// The value of a float constant whose elements are equal.
pub(super) fn float(dense: &Dense) -> Option<f64> {
    let bytes = &dense.bytes;
    Some(match dense.ty.element {
        ElementType::F32 => f32::from_le_bytes(*bytes.first_chunk()?).into(),
        ElementType::F64 => f64::from_le_bytes(*bytes.first_chunk()?),
        // The sixteen high bits of an f32.
        ElementType::Bf16 => {
            let bits = u16::from_le_bytes(*bytes.first_chunk()?);
            f32::from_bits(u32::from(bits) << 16).into()
        }
        ElementType::F16 => half::f16::from_le_bytes(*bytes.first_chunk()?).into(),
        _ => return None,
    })
}

/// Bound on the length of an expression, which is exponential for a few operations.
const LONGEST: usize = 1000;

/// What a region's result computes, as an expression of its arguments: `add(a0,a1)`. Regions of
/// reductions, scatters and sorts are recognized by it. `None` if it has other operations, or is
/// long.
pub(super) fn expression(known: &Known<'_>, region: &Region, result: usize) -> Option<String> {
    let mut text = String::new();
    write(known, region, *region.results.get(result)?, &mut text)?;
    Some(text)
}

fn write(known: &Known<'_>, region: &Region, id: ValueId, text: &mut String) -> Option<()> {
    if text.len() > LONGEST {
        return None;
    }
    if let Some(argument) = region.arguments.iter().position(|known| *known == id) {
        text.push_str(&format!("a{argument}"));
        return Some(());
    }
    if let Some(constant) = known.scalar(id) {
        match (integer(constant), float(constant)) {
            (Some(value), _) => text.push_str(&value.to_string()),
            // One zero, one NaN.
            (None, Some(value)) => text.push_str(&(value + 0.0).to_string()),
            (None, None) => return None,
        }
        return Some(());
    }
    let operation = *known.operations.get(&id)?;
    let name = match &operation.kind {
        OpKind::Binary(binary) => binary.name(),
        OpKind::Unary(unary @ UnaryOp::Not) => unary.name(),
        OpKind::Select => "select",
        OpKind::Compare { direction, order } => match (direction, order) {
            (ComparisonDirection::Lt, Some(ComparisonOrder::TotalOrder)) => "total_lt",
            (ComparisonDirection::Gt, Some(ComparisonOrder::TotalOrder)) => "total_gt",
            (_, Some(ComparisonOrder::TotalOrder)) => return None,
            (ComparisonDirection::Lt, _) => "lt",
            (ComparisonDirection::Gt, _) => "gt",
            (ComparisonDirection::Le, _) => "le",
            (ComparisonDirection::Ge, _) => "ge",
            (ComparisonDirection::Eq, _) => "eq",
            (ComparisonDirection::Ne, _) => "ne",
        },
        _ => return None,
    };
    text.push_str(name);
    text.push('(');
    for (index, &operand) in operation.operands.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write(known, region, operand, text)?;
    }
    text.push(')');
    Some(())
}
