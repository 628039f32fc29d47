//! Elementwise operations: from those of StableHLO to those of [`halite_kernels`].

use halite_kernels::{Binary, Unary};
use halite_stablehlo::{
    BinaryOp, ComparisonDirection, ComparisonOrder, ElementType, OpKind, UnaryOp,
};

/// An elementwise operation that has a kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Elementwise {
    /// A copy of the operand, which is a view.
    Copy,
    Unary(Unary),
    Binary(Binary),
    /// The operands are exchanged.
    Swapped(Binary),
    Select,
    /// `minimum(maximum(x, low), high)` of the operands `(low, x, high)`.
    Clamp(Binary, Binary),
}

/// Returns whether registers can hold elements of a type.
pub(super) fn fits_register(element: ElementType) -> bool {
    is_word(element) || is_byte(element)
}

/// Returns whether buffers hold elements of a type as words.
pub(super) fn is_word(element: ElementType) -> bool {
    matches!(
        element,
        ElementType::F32 | ElementType::S32 | ElementType::U32
    )
}

fn is_byte(element: ElementType) -> bool {
    matches!(
        element,
        ElementType::Bool | ElementType::S8 | ElementType::U8
    )
}

impl Elementwise {
    /// The kernel of an operation on operands of type `from` with a result of type `to`; `None` if
    /// it has none.
    pub(super) fn new(kind: &OpKind, from: ElementType, to: ElementType) -> Option<Self> {
        if !fits_register(from) || !fits_register(to) {
            return None;
        }
        Some(match kind {
            OpKind::Unary(op) => Elementwise::Unary(unary(*op, from)?),
            OpKind::Binary(op) => Elementwise::Binary(binary(*op, from)?),
            OpKind::Compare { direction, order } => compare(*direction, *order, from)?,
            OpKind::Select => Elementwise::Select,
            OpKind::Clamp => Elementwise::Clamp(
                binary(BinaryOp::Maximum, from)?,
                binary(BinaryOp::Minimum, from)?,
            ),
            OpKind::Convert => convert(from, to)?,
            OpKind::BitcastConvert if is_word(from) && is_word(to) => Elementwise::Copy,
            _ => return None,
        })
    }
}

fn unary(op: UnaryOp, element: ElementType) -> Option<Unary> {
    Some(match (element, op) {
        (ElementType::F32, op) => match op {
            UnaryOp::Abs => Unary::AbsF,
            UnaryOp::Cbrt => Unary::Cbrt,
            UnaryOp::Ceil => Unary::Ceil,
            UnaryOp::Cosine => Unary::Cos,
            UnaryOp::Exponential => Unary::Exp,
            UnaryOp::ExponentialMinusOne => Unary::ExpM1,
            UnaryOp::Floor => Unary::Floor,
            UnaryOp::IsFinite => Unary::IsFinite,
            UnaryOp::Log => Unary::Log,
            UnaryOp::LogPlusOne => Unary::Log1P,
            UnaryOp::Logistic => Unary::Logistic,
            UnaryOp::Negate => Unary::NegateF,
            UnaryOp::RoundNearestAfz => Unary::RoundAway,
            UnaryOp::RoundNearestEven => Unary::RoundEven,
            UnaryOp::Rsqrt => Unary::Rsqrt,
            UnaryOp::Sign => Unary::SignF,
            UnaryOp::Sine => Unary::Sin,
            UnaryOp::Sqrt => Unary::Sqrt,
            UnaryOp::Tan => Unary::Tan,
            UnaryOp::Tanh => Unary::Tanh,
            _ => return None,
        },
        (ElementType::Bool, UnaryOp::Not) => Unary::NotBool,
        (ElementType::S32 | ElementType::U32, UnaryOp::Not) => Unary::Not,
        (ElementType::S32 | ElementType::U32, UnaryOp::Negate) => Unary::NegateS,
        (ElementType::S32 | ElementType::U32, UnaryOp::Popcnt) => Unary::Popcnt,
        (ElementType::S32 | ElementType::U32, UnaryOp::CountLeadingZeros) => Unary::LeadingZeros,
        (ElementType::S32, UnaryOp::Abs) => Unary::AbsS,
        (ElementType::S32, UnaryOp::Sign) => Unary::SignS,
        (ElementType::U32, UnaryOp::Sign) => Unary::SignU,
        _ => return None,
    })
}

fn binary(op: BinaryOp, element: ElementType) -> Option<Binary> {
    let is_float = element == ElementType::F32;
    let is_signed = matches!(element, ElementType::S32 | ElementType::S8);
    Some(match op {
        _ if is_float => match op {
            BinaryOp::Add => Binary::AddF,
            BinaryOp::Atan2 => Binary::Atan2F,
            BinaryOp::Divide => Binary::DivideF,
            BinaryOp::Maximum => Binary::MaximumF,
            BinaryOp::Minimum => Binary::MinimumF,
            BinaryOp::Multiply => Binary::MultiplyF,
            BinaryOp::Power => Binary::PowerF,
            BinaryOp::Remainder => Binary::RemainderF,
            BinaryOp::Subtract => Binary::SubtractF,
            _ => return None,
        },
        BinaryOp::Maximum if is_signed => Binary::MaximumS,
        BinaryOp::Minimum if is_signed => Binary::MinimumS,
        BinaryOp::Maximum => Binary::MaximumU,
        BinaryOp::Minimum => Binary::MinimumU,
        BinaryOp::And => Binary::And,
        BinaryOp::Or => Binary::Or,
        BinaryOp::Xor => Binary::Xor,
        // The rest would have to wrap results of narrow types.
        _ if !is_word(element) => return None,
        BinaryOp::Add => Binary::Add,
        BinaryOp::Subtract => Binary::Subtract,
        BinaryOp::Multiply => Binary::Multiply,
        BinaryOp::ShiftLeft => Binary::ShiftLeft,
        BinaryOp::ShiftRightLogical => Binary::ShiftRightLogical,
        BinaryOp::ShiftRightArithmetic => Binary::ShiftRightArithmetic,
        _ => return None,
    })
}

fn compare(
    direction: ComparisonDirection,
    order: Option<ComparisonOrder>,
    element: ElementType,
) -> Option<Elementwise> {
    let [equal, not_equal, less, less_equal] = match element {
        ElementType::F32 if order == Some(ComparisonOrder::TotalOrder) => return None,
        ElementType::F32 => [
            Binary::EqualF,
            Binary::NotEqualF,
            Binary::LessF,
            Binary::LessEqualF,
        ],
        ElementType::S32 | ElementType::S8 => [
            Binary::Equal,
            Binary::NotEqual,
            Binary::LessS,
            Binary::LessEqualS,
        ],
        _ => [
            Binary::Equal,
            Binary::NotEqual,
            Binary::LessU,
            Binary::LessEqualU,
        ],
    };
    Some(match direction {
        ComparisonDirection::Eq => Elementwise::Binary(equal),
        ComparisonDirection::Ne => Elementwise::Binary(not_equal),
        ComparisonDirection::Lt => Elementwise::Binary(less),
        ComparisonDirection::Le => Elementwise::Binary(less_equal),
        ComparisonDirection::Gt => Elementwise::Swapped(less),
        ComparisonDirection::Ge => Elementwise::Swapped(less_equal),
    })
}

fn convert(from: ElementType, to: ElementType) -> Option<Elementwise> {
    let is_signed = matches!(from, ElementType::S32 | ElementType::S8);
    Some(Elementwise::Unary(match (from, to) {
        _ if from == to => return Some(Elementwise::Copy),
        (ElementType::F32, ElementType::S32) => Unary::SFromFloat,
        (ElementType::F32, ElementType::U32) => Unary::UFromFloat,
        (ElementType::F32, ElementType::S8) => Unary::S8FromFloat,
        (ElementType::F32, ElementType::U8) => Unary::U8FromFloat,
        (ElementType::F32, ElementType::Bool) => Unary::BoolFromFloat,
        (_, ElementType::F32) if is_signed => Unary::FloatFromS,
        (_, ElementType::F32) => Unary::FloatFromU,
        // Registers hold narrow integers extended by their own sign.
        (_, ElementType::S32 | ElementType::U32) => return Some(Elementwise::Copy),
        (_, ElementType::S8) => Unary::S8FromInt,
        (_, ElementType::U8) => Unary::U8FromInt,
        (_, ElementType::Bool) => Unary::BoolFromInt,
        _ => return None,
    }))
}
