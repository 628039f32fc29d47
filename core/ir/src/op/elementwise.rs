//! Elementwise operations.

/// Elementwise operations on one operand.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Unary {
    /// |x|
    Abs,
    /// Cube root.
    Cbrt,
    /// Smallest integer not below.
    Ceil,
    /// Cosine.
    Cosine,
    /// Leading zero bits.
    CountLeadingZeros,
    /// The error function (`chlo.erf`).
    Erf,
    /// e^x
    Exponential,
    /// e^x - 1
    ExponentialMinusOne,
    /// Largest integer not above.
    Floor,
    /// Neither infinite nor NaN; the result is `bool`.
    IsFinite,
    /// Natural logarithm.
    Log,
    /// log(1 + x)
    LogPlusOne,
    /// 1 / (1 + e^-x)
    Logistic,
    /// -x
    Negate,
    /// Bitwise not; logical not of `bool`.
    Not,
    /// One bits.
    PopulationCount,
    /// Nearest integer, halves away from zero.
    RoundNearestAfz,
    /// Nearest integer, halves to even.
    RoundNearestEven,
    /// 1 / sqrt(x)
    Rsqrt,
    /// -1, 0 or 1; NaN of NaN.
    Sign,
    /// Sine.
    Sine,
    /// Square root.
    Sqrt,
    /// Tangent.
    Tan,
    /// Hyperbolic tangent.
    Tanh,
}

impl Unary {
    /// Name in StableHLO, except `erf`.
    pub const fn name(self) -> &'static str {
        match self {
            Unary::Abs => "abs",
            Unary::Cbrt => "cbrt",
            Unary::Ceil => "ceil",
            Unary::Cosine => "cosine",
            Unary::CountLeadingZeros => "count_leading_zeros",
            Unary::Erf => "erf",
            Unary::Exponential => "exponential",
            Unary::ExponentialMinusOne => "exponential_minus_one",
            Unary::Floor => "floor",
            Unary::IsFinite => "is_finite",
            Unary::Log => "log",
            Unary::LogPlusOne => "log_plus_one",
            Unary::Logistic => "logistic",
            Unary::Negate => "negate",
            Unary::Not => "not",
            Unary::PopulationCount => "population_count",
            Unary::RoundNearestAfz => "round_nearest_afz",
            Unary::RoundNearestEven => "round_nearest_even",
            Unary::Rsqrt => "rsqrt",
            Unary::Sign => "sign",
            Unary::Sine => "sine",
            Unary::Sqrt => "sqrt",
            Unary::Tan => "tan",
            Unary::Tanh => "tanh",
        }
    }
}

/// Elementwise operations on two operands.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(
    missing_docs,
    reason = "the names are the documentation; the spec has the corner cases"
)]
pub enum Binary {
    Add,
    And,
    Atan2,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Or,
    Power,
    Remainder,
    ShiftLeft,
    ShiftRightArithmetic,
    ShiftRightLogical,
    Subtract,
    Xor,
}

impl Binary {
    /// Name in StableHLO.
    pub const fn name(self) -> &'static str {
        match self {
            Binary::Add => "add",
            Binary::And => "and",
            Binary::Atan2 => "atan2",
            Binary::Divide => "divide",
            Binary::Maximum => "maximum",
            Binary::Minimum => "minimum",
            Binary::Multiply => "multiply",
            Binary::Or => "or",
            Binary::Power => "power",
            Binary::Remainder => "remainder",
            Binary::ShiftLeft => "shift_left",
            Binary::ShiftRightArithmetic => "shift_right_arithmetic",
            Binary::ShiftRightLogical => "shift_right_logical",
            Binary::Subtract => "subtract",
            Binary::Xor => "xor",
        }
    }
}

/// Comparison of two elements.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}
