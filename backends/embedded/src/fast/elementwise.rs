//! Elementwise operations: from those of StableHLO to those of [`halite_kernels`].
//!
//! Registers hold numbers of 8 and 16 bits as ones of 32 bits, and operations compute with these:
//! what the narrow type may not have is rounded or wrapped by a conversion afterwards.

mod convert;

use halite_kernels::{Binary, Compare, Convert, Format, Odd, OddBinary, Operation, Shorten, Unary};
use halite_stablehlo::{
    BinaryOp, ComparisonDirection, ComparisonOrder, ElementClass, ElementType, OpKind, UnaryOp,
};

use self::convert::{bitcast, convert};

/// An elementwise operation that is a single instruction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Elementwise {
    /// A copy of the operand, which is a view.
    Copy,
    Apply(Operation),
    /// The operands are exchanged.
    Swapped(Operation),
}

/// An operation of StableHLO as a few elementwise ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Recipe {
    /// Applied to the first operand.
    pub(super) before: Option<Operation>,
    pub(super) op: Elementwise,
    /// Applied to the result.
    pub(super) after: Option<Operation>,
}

/// How buffers store elements of a type; `None` if registers cannot hold them.
pub(super) fn format(element: ElementType) -> Option<Format> {
    Some(match element {
        ElementType::Bool | ElementType::U8 => Format::U8,
        ElementType::S8 => Format::S8,
        ElementType::U16 => Format::U16,
        ElementType::S16 => Format::S16,
        ElementType::Bf16 => Format::Bf16,
        ElementType::F16 => Format::F16,
        ElementType::F32 | ElementType::S32 | ElementType::U32 => Format::Word,
        ElementType::F64 | ElementType::S64 | ElementType::U64 => Format::Wide,
        _ => return None,
    })
}

/// The type with which operations on elements of a type compute: it has the same registers.
pub(super) fn computed(element: ElementType) -> ElementType {
    match element {
        ElementType::Bf16 | ElementType::F16 => ElementType::F32,
        ElementType::S8 | ElementType::S16 => ElementType::S32,
        ElementType::Bool | ElementType::U8 | ElementType::U16 => ElementType::U32,
        element => element,
    }
}

fn is_wide(element: ElementType) -> bool {
    format(element) == Some(Format::Wide)
}

fn is_float(element: ElementType) -> bool {
    element.class() == ElementClass::Float
}

fn is_signed(element: ElementType) -> bool {
    element.class() == ElementClass::Signed
}

fn pick<T>(is_signed: bool, of_signed: T, of_unsigned: T) -> T {
    if is_signed { of_signed } else { of_unsigned }
}

/// From the type that computes to a narrow one. `None` if they are the same.
fn narrowing(element: ElementType) -> Option<Operation> {
    Some(Operation::Convert(match element {
        ElementType::Bf16 => Convert::RoundBf16,
        ElementType::F16 => Convert::RoundF16,
        ElementType::S8 => Convert::S8FromInt,
        ElementType::U8 => Convert::U8FromInt,
        ElementType::S16 => Convert::S16FromInt,
        ElementType::U16 => Convert::U16FromInt,
        ElementType::Bool => Convert::BoolFromInt,
        _ => return None,
    }))
}

impl Recipe {
    /// The recipe of an operation on operands of type `from` with a result of type `to`; `None` if
    /// it has none.
    pub(super) fn new(kind: &OpKind, from: ElementType, to: ElementType) -> Option<Self> {
        format(from)?;
        format(to)?;
        match kind {
            OpKind::Unary(op) if is_float(from) => float_unary(*op, from),
            OpKind::Unary(op) => integer_unary(*op, from),
            OpKind::Binary(op) if is_float(from) => float_binary(*op, from),
            OpKind::Binary(op) => integer_binary(*op, from),
            OpKind::Compare { direction, order } => {
                Some(Recipe::of(compare(*direction, *order, from)))
            }
            OpKind::Select => Some(Recipe::of(Elementwise::Apply(Operation::Select))),
            OpKind::Convert => convert(from, to),
            OpKind::BitcastConvert => bitcast(from, to),
            _ => None,
        }
    }

    fn of(op: Elementwise) -> Self {
        Recipe {
            before: None,
            op,
            after: None,
        }
    }

    fn one(op: Operation) -> Self {
        Recipe::of(Elementwise::Apply(op))
    }

    /// The operation, and then the conversion to a narrow type.
    fn narrowed(op: Operation, to: ElementType) -> Self {
        Recipe {
            after: narrowing(to),
            ..Recipe::one(op)
        }
    }
}

fn float_unary(op: UnaryOp, element: ElementType) -> Option<Recipe> {
    let (unary, odd) = match op {
        // Exact.
        UnaryOp::Abs => (Unary::AbsF, None),
        UnaryOp::Ceil => (Unary::Ceil, None),
        UnaryOp::Floor => (Unary::Floor, None),
        UnaryOp::Negate => (Unary::NegateF, None),
        UnaryOp::RoundNearestAfz => (Unary::RoundAway, None),
        UnaryOp::RoundNearestEven => (Unary::RoundEven, None),
        UnaryOp::Sign => (Unary::SignF, None),
        UnaryOp::IsFinite if is_wide(element) => {
            return Some(Recipe::one(Operation::Shorten(Shorten::IsFinite)));
        }
        UnaryOp::IsFinite => (Unary::IsFinite, None),
        UnaryOp::Sqrt => {
            return Some(Recipe::narrowed(Operation::Unary(Unary::Sqrt), element));
        }
        UnaryOp::Cbrt => (Unary::Cbrt, Some(Odd::Cbrt)),
        UnaryOp::Cosine => (Unary::Cos, Some(Odd::Cos)),
        UnaryOp::Erf => (Unary::Erf, Some(Odd::Erf)),
        UnaryOp::Exponential => (Unary::Exp, Some(Odd::Exp)),
        UnaryOp::ExponentialMinusOne => (Unary::ExpM1, Some(Odd::ExpM1)),
        UnaryOp::Log => (Unary::Log, Some(Odd::Log)),
        UnaryOp::LogPlusOne => (Unary::Log1P, Some(Odd::Log1P)),
        UnaryOp::Logistic => (Unary::Logistic, Some(Odd::Logistic)),
        UnaryOp::Rsqrt => (Unary::Rsqrt, Some(Odd::Rsqrt)),
        UnaryOp::Sine => (Unary::Sin, Some(Odd::Sin)),
        UnaryOp::Tan => (Unary::Tan, Some(Odd::Tan)),
        UnaryOp::Tanh => (Unary::Tanh, Some(Odd::Tanh)),
        _ => return None,
    };
    Some(match odd {
        Some(odd) => transcendental(unary, odd, element),
        None => Recipe::one(Operation::Unary(unary)),
    })
}

/// A function of floats of any type: types of 16 bits round the result that is rounded to odd.
fn transcendental(unary: Unary, odd: Odd, element: ElementType) -> Recipe {
    if computed(element) == element {
        Recipe::one(Operation::Unary(unary))
    } else {
        Recipe::narrowed(Operation::Odd(odd), element)
    }
}

fn integer_unary(op: UnaryOp, element: ElementType) -> Option<Recipe> {
    if element == ElementType::Bool {
        let not = Recipe::one(Operation::Convert(Convert::NotBool));
        return (op == UnaryOp::Not).then_some(not);
    }
    let signed = is_signed(element);
    let narrowed = |op| Recipe::narrowed(Operation::Unary(op), element);
    Some(match op {
        UnaryOp::Abs if signed => narrowed(Unary::AbsS),
        UnaryOp::Abs => Recipe::of(Elementwise::Copy),
        UnaryOp::Negate => narrowed(Unary::NegateS),
        UnaryOp::Not => narrowed(Unary::Not),
        UnaryOp::Sign if signed => Recipe::one(Operation::Unary(Unary::SignS)),
        UnaryOp::Popcnt => Recipe {
            before: unsigned_bits(element),
            ..Recipe::one(Operation::Unary(Unary::Popcnt))
        },
        UnaryOp::CountLeadingZeros => Recipe::one(match element.bits() {
            8 => Operation::Convert(Convert::LeadingZeros8),
            16 => Operation::Convert(Convert::LeadingZeros16),
            _ => Operation::Unary(Unary::LeadingZeros),
        }),
        _ => return None,
    })
}

/// The bits of a narrow signed integer without its extension.
fn unsigned_bits(element: ElementType) -> Option<Operation> {
    narrowing(match element {
        ElementType::S8 => ElementType::U8,
        ElementType::S16 => ElementType::U16,
        _ => return None,
    })
}

/// The bits of a narrow unsigned integer, extended as those of a signed one.
fn signed_bits(element: ElementType) -> Option<Operation> {
    narrowing(match element {
        ElementType::U8 => ElementType::S8,
        ElementType::U16 => ElementType::S16,
        _ => return None,
    })
}

fn float_binary(op: BinaryOp, element: ElementType) -> Option<Recipe> {
    let is_bf16 = element == ElementType::Bf16;
    let is_narrow = computed(element) != element;
    Some(match op {
        BinaryOp::Add => Recipe::narrowed(Operation::Binary(Binary::AddF), element),
        BinaryOp::Subtract => Recipe::narrowed(Operation::Binary(Binary::SubtractF), element),
        // Subnormal results of bf16 would be rounded twice.
        BinaryOp::Multiply if is_bf16 => {
            Recipe::narrowed(Operation::OddBinary(OddBinary::Multiply), element)
        }
        BinaryOp::Divide if is_bf16 => {
            Recipe::narrowed(Operation::OddBinary(OddBinary::Divide), element)
        }
        BinaryOp::Multiply => Recipe::narrowed(Operation::Binary(Binary::MultiplyF), element),
        BinaryOp::Divide => Recipe::narrowed(Operation::Binary(Binary::DivideF), element),
        BinaryOp::Power if is_narrow => {
            Recipe::narrowed(Operation::OddBinary(OddBinary::Power), element)
        }
        BinaryOp::Atan2 if is_narrow => {
            Recipe::narrowed(Operation::OddBinary(OddBinary::Atan2), element)
        }
        BinaryOp::Power => Recipe::one(Operation::Binary(Binary::PowerF)),
        BinaryOp::Atan2 => Recipe::one(Operation::Binary(Binary::Atan2F)),
        // Exact.
        BinaryOp::Maximum => Recipe::one(Operation::Binary(Binary::MaximumF)),
        BinaryOp::Minimum => Recipe::one(Operation::Binary(Binary::MinimumF)),
        BinaryOp::Remainder => Recipe::one(Operation::Binary(Binary::RemainderF)),
        _ => return None,
    })
}

fn integer_binary(op: BinaryOp, element: ElementType) -> Option<Recipe> {
    let signed = is_signed(element);
    let narrowed = |op| Recipe::narrowed(Operation::Binary(op), element);
    let one = |op| Recipe::one(Operation::Binary(op));
    Some(match op {
        BinaryOp::Add => narrowed(Binary::Add),
        BinaryOp::Subtract => narrowed(Binary::Subtract),
        BinaryOp::Multiply => narrowed(Binary::Multiply),
        BinaryOp::Divide => narrowed(pick(signed, Binary::DivideS, Binary::DivideU)),
        BinaryOp::Remainder => one(pick(signed, Binary::RemainderS, Binary::RemainderU)),
        BinaryOp::Power => narrowed(pick(signed, Binary::PowerS, Binary::PowerU)),
        BinaryOp::Maximum => one(pick(signed, Binary::MaximumS, Binary::MaximumU)),
        BinaryOp::Minimum => one(pick(signed, Binary::MinimumS, Binary::MinimumU)),
        BinaryOp::And => one(Binary::And),
        BinaryOp::Or => one(Binary::Or),
        BinaryOp::Xor => one(Binary::Xor),
        _ if element == ElementType::Bool => return None,
        BinaryOp::ShiftLeft => narrowed(Binary::ShiftLeft),
        BinaryOp::ShiftRightLogical => Recipe {
            before: unsigned_bits(element),
            ..narrowed(Binary::ShiftRightLogical)
        },
        // The highest bit is the sign, also of unsigned numbers.
        BinaryOp::ShiftRightArithmetic => Recipe {
            before: signed_bits(element),
            ..narrowed(Binary::ShiftRightArithmetic)
        },
        _ => return None,
    })
}

fn compare(
    direction: ComparisonDirection,
    order: Option<ComparisonOrder>,
    element: ElementType,
) -> Elementwise {
    let is_total = order == Some(ComparisonOrder::TotalOrder);
    let [equal, not_equal, less, less_equal] = match element.class() {
        ElementClass::Float if is_total => [
            Compare::Equal,
            Compare::NotEqual,
            Compare::LessTotal,
            Compare::LessEqualTotal,
        ],
        ElementClass::Float => [
            Compare::EqualF,
            Compare::NotEqualF,
            Compare::LessF,
            Compare::LessEqualF,
        ],
        ElementClass::Signed => [
            Compare::Equal,
            Compare::NotEqual,
            Compare::LessS,
            Compare::LessEqualS,
        ],
        _ => [
            Compare::Equal,
            Compare::NotEqual,
            Compare::LessU,
            Compare::LessEqualU,
        ],
    };
    let [equal, not_equal, less, less_equal] =
        [equal, not_equal, less, less_equal].map(Operation::Compare);
    match direction {
        ComparisonDirection::Eq => Elementwise::Apply(equal),
        ComparisonDirection::Ne => Elementwise::Apply(not_equal),
        ComparisonDirection::Lt => Elementwise::Apply(less),
        ComparisonDirection::Le => Elementwise::Apply(less_equal),
        ComparisonDirection::Gt => Elementwise::Swapped(less),
        ComparisonDirection::Ge => Elementwise::Swapped(less_equal),
    }
}
