//! Elementwise operations.

use halite_stablehlo::{
    BinaryOp, ComparisonDirection, ComparisonOrder, ElementClass, ElementType, RankedType, UnaryOp,
};

use crate::operations::{
    compare::Tolerance,
    draft::{Draft, Value},
    family::{Family, variants},
    numbers::Range,
};

pub(crate) fn families() -> Vec<Family> {
    let mut families = Vec::new();
    for &op in UnaryOp::ALL {
        families.push(Family::new(op.name(), move |draft, element| {
            unary(draft, op, element)
        }));
    }
    for &op in BinaryOp::ALL {
        families.push(Family::new(op.name(), move |draft, element| {
            binary(draft, op, element)
        }));
    }
    for &direction in ComparisonDirection::ALL {
        let family = Family::new("compare", move |draft, element| {
            compare(draft, direction, None, element)
        });
        families.push(family.variant(direction.name()));
        let family = Family::new("compare", move |draft, element| {
            let total = Some(ComparisonOrder::TotalOrder);
            is_float(element).then(|| compare(draft, direction, total, element))?
        });
        families.push(family.variant(format!("{} TOTALORDER", direction.name())));
    }
    families.push(Family::new("select", select));
    families.push(Family::new("clamp", clamp));
    families.push(Family::new("reduce_precision", reduce_precision));
    families.extend(variants("convert", convert));
    families.extend(variants("bitcast_convert", bitcast_convert));
    families
}

fn is_float(element: ElementType) -> bool {
    element.class() == ElementClass::Float
}

fn is_complex(element: ElementType) -> bool {
    element.class() == ElementClass::Complex
}

fn is_integer(element: ElementType) -> bool {
    matches!(
        element.class(),
        ElementClass::Signed | ElementClass::Unsigned
    )
}

/// The tolerance of functions that are approximated.
fn approximate(element: ElementType) -> Tolerance {
    Tolerance::Ulps(match element {
        ElementType::F64 | ElementType::F32 => 8,
        _ if is_complex(element) => 32,
        ElementType::F16 => 2,
        _ => 1,
    })
}

fn unary(draft: &mut Draft<'_>, op: UnaryOp, element: ElementType) -> Option<Tolerance> {
    let class = element.class();
    let is_number = is_float(element) || is_complex(element);
    let (takes, is_exact) = match op {
        UnaryOp::Abs => (
            is_number || class == ElementClass::Signed,
            !is_complex(element),
        ),
        UnaryOp::Sign => (
            is_number || class == ElementClass::Signed,
            !is_complex(element),
        ),
        UnaryOp::Negate => (is_number || is_integer(element), true),
        UnaryOp::Not => (is_integer(element) || class == ElementClass::Bool, true),
        UnaryOp::CountLeadingZeros | UnaryOp::Popcnt => (is_integer(element), true),
        UnaryOp::Ceil
        | UnaryOp::Floor
        | UnaryOp::IsFinite
        | UnaryOp::RoundNearestAfz
        | UnaryOp::RoundNearestEven => (is_float(element), true),
        UnaryOp::Erf => (is_float(element) && element.bits() >= 16, false),
        UnaryOp::Imag | UnaryOp::Real => (is_number, true),
        UnaryOp::Sqrt => (is_number, is_float(element) && element.bits() >= 16),
        _ => (is_number, false),
    };
    if !takes {
        return None;
    }
    let dims = draft.dims(3);
    let range = if is_complex(element) && !is_exact {
        Range::Small
    } else {
        Range::Any
    };
    let x = draft.input(element, &dims, range);
    let result = match op {
        UnaryOp::Abs | UnaryOp::Imag | UnaryOp::Real => element.part().unwrap_or(element),
        UnaryOp::IsFinite => ElementType::Bool,
        _ => element,
    };
    let name = match op {
        UnaryOp::Erf => "chlo.erf",
        _ => op.name(),
    };
    let y = draft.op(name, &[&x], RankedType::new(result, dims));
    draft.output(y);
    Some(if is_exact {
        Tolerance::Exact
    } else {
        approximate(element)
    })
}

fn binary(draft: &mut Draft<'_>, op: BinaryOp, element: ElementType) -> Option<Tolerance> {
    let is_number = is_float(element) || is_complex(element);
    let is_bits = is_integer(element) || element.class() == ElementClass::Bool;
    let takes = match op {
        BinaryOp::Add | BinaryOp::Maximum | BinaryOp::Minimum | BinaryOp::Multiply => true,
        BinaryOp::Divide | BinaryOp::Power | BinaryOp::Subtract => is_number || is_integer(element),
        // The plugin aborts on complex numbers, and the oracle refuses them.
        BinaryOp::Remainder => is_float(element) || is_integer(element),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => is_bits,
        BinaryOp::ShiftLeft | BinaryOp::ShiftRightArithmetic | BinaryOp::ShiftRightLogical => {
            is_integer(element)
        }
        BinaryOp::Atan2 => is_number,
        BinaryOp::Complex => matches!(element, ElementType::F32 | ElementType::F64),
    };
    if !takes {
        return None;
    }
    let is_exact = match op {
        BinaryOp::Power | BinaryOp::Atan2 => is_bits,
        // Their order with NaN is not specified.
        BinaryOp::Maximum | BinaryOp::Minimum => !is_complex(element),
        BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Remainder => !is_complex(element),
        _ => true,
    };
    let dims = draft.dims(3);
    // XLA reads six bits of the exponent of an integer, and these as a signed number.
    let is_free = is_exact && op != BinaryOp::Power;
    let range = if is_free { Range::Any } else { Range::Small };
    let (x, y) = (
        draft.input(element, &dims, range),
        draft.input(element, &dims, range),
    );
    let result = match (op, element) {
        (BinaryOp::Complex, ElementType::F32) => ElementType::C64,
        (BinaryOp::Complex, _) => ElementType::C128,
        _ => element,
    };
    let z = draft.op(op.name(), &[&x, &y], RankedType::new(result, dims));
    draft.output(z);
    Some(if is_exact {
        Tolerance::Exact
    } else if op == BinaryOp::Atan2 && is_complex(element) {
        // A logarithm of nearly 1, whose rounding errors are large beside a small result.
        Tolerance::Absolute(32.0)
    } else {
        approximate(element)
    })
}

fn compare(
    draft: &mut Draft<'_>,
    direction: ComparisonDirection,
    order: Option<ComparisonOrder>,
    element: ElementType,
) -> Option<Tolerance> {
    let is_ordered = !matches!(direction, ComparisonDirection::Eq | ComparisonDirection::Ne);
    if is_complex(element) && is_ordered {
        // The specification leaves the order of complex numbers to the implementation.
        return None;
    }
    let dims = draft.dims(3);
    let (x, y) = (
        draft.input(element, &dims, Range::Any),
        draft.input(element, &dims, Range::Any),
    );
    let order = order.unwrap_or(match element.class() {
        ElementClass::Float | ElementClass::Complex => ComparisonOrder::Float,
        ElementClass::Signed => ComparisonOrder::Signed,
        ElementClass::Bool | ElementClass::Unsigned => ComparisonOrder::Unsigned,
    });
    let text = format!(
        "compare {{comparison_direction = #stablehlo<comparison_direction {}>, compare_type = \
         #stablehlo<comparison_type {}>}}",
        direction.name(),
        order.name()
    );
    let z = draft.op(text, &[&x, &y], RankedType::new(ElementType::Bool, dims));
    draft.output(z);
    Some(Tolerance::Exact)
}

fn select(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(3);
    let of = if draft.random.percent(50) {
        vec![]
    } else {
        dims.clone()
    };
    let predicate = draft.input(ElementType::Bool, &of, Range::Any);
    let (x, y) = (
        draft.input(element, &dims, Range::Any),
        draft.input(element, &dims, Range::Any),
    );
    let z = draft.op("select", &[&predicate, &x, &y], x.ty.clone());
    draft.output(z);
    Some(Tolerance::Bits)
}

fn clamp(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    if is_complex(element) {
        return None;
    }
    let dims = draft.dims(3);
    let of = if draft.random.percent(50) {
        vec![]
    } else {
        dims.clone()
    };
    let x = draft.input(element, &dims, Range::Any);
    let (low, high) = (
        draft.input(element, &of, Range::Any),
        draft.input(element, &of, Range::Any),
    );
    let y = draft.op("clamp", &[&low, &x, &high], x.ty.clone());
    draft.output(y);
    Some(Tolerance::Exact)
}

fn reduce_precision(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    if !matches!(
        element,
        ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64
    ) {
        return None;
    }
    let dims = draft.dims(3);
    let x = draft.input(element, &dims, Range::Any);
    let (exponent, mantissa) = (draft.random.below(8) + 1, draft.random.below(12));
    let text = format!(
        "reduce_precision {{exponent_bits = {exponent} : i32, mantissa_bits = {mantissa} : i32}}"
    );
    let y = draft.op(text, &[&x], x.ty.clone());
    draft.output(y);
    Some(Tolerance::Exact)
}

fn convert(draft: &mut Draft<'_>, from: ElementType, to: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(2);
    let x = draft.input(from, &dims, Range::Any);
    let y = draft.op("convert", &[&x], RankedType::new(to, dims));
    draft.output(y);
    Some(Tolerance::Exact)
}

fn bitcast_convert(draft: &mut Draft<'_>, from: ElementType, to: ElementType) -> Option<Tolerance> {
    let (wide, narrow) = (from.bits().max(to.bits()), from.bits().min(to.bits()));
    let is_defined = wide.is_multiple_of(narrow) && is_complex(from) == is_complex(to);
    if !is_defined || from == ElementType::Bool || to == ElementType::Bool {
        return None;
    }
    let mut dims = draft.dims(2);
    let outer = dims.clone();
    let ratio = wide / narrow;
    let inner = if ratio > 1 { vec![ratio] } else { vec![] };
    let mut result = outer;
    if from.bits() < to.bits() {
        dims.extend(inner);
    } else {
        result.extend(inner);
    }
    let x: Value = draft.input(from, &dims, Range::Any);
    let y = draft.op("bitcast_convert", &[&x], RankedType::new(to, result));
    draft.output(y);
    Some(Tolerance::Bits)
}
