//! Elementwise operations and operators, with broadcasting.

use std::ops::{Add, Div, Mul, Neg, Not, Rem, Sub};

use halite_core::{DType, TensorType};
use halite_ir::{BinaryOp, ComparisonDirection, Op, UnaryOp};

use crate::{Tensor, tensor::holds, trace};

/// Right-hand side of an operation on a tensor: a tensor, or a Rust number, which is converted to
/// the tensor's element type. References work too.
///
/// A number that an integer type or `bool` cannot represent, such as -1 for `u8`, is a mistake;
/// floats round it.
///
/// A number on the left-hand side is an `f64` or an `i64`, so that literals need no suffix and
/// `(1.0 - p).log()` infers. Write other types on the right, or convert them:
/// `f64::from(rate) * x`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an operand of a tensor operation",
    label = "expected a tensor or a number",
    note = "an array becomes a tensor as an input of a compiled function: \
            `jit(&client, |cx, [x, y]| [x + y])`"
)]
pub trait Operand<'t>: Copy {
    /// Returns this as a tensor of the trace and element type of `like`.
    #[track_caller]
    fn beside(self, like: Tensor<'t>) -> Tensor<'t>;
}

impl<'t> Operand<'t> for Tensor<'t> {
    fn beside(self, _: Tensor<'t>) -> Tensor<'t> {
        self
    }
}

impl<'t, R: Operand<'t>> Operand<'t> for &R {
    #[track_caller]
    fn beside(self, like: Tensor<'t>) -> Tensor<'t> {
        (*self).beside(like)
    }
}

impl<'t> Operand<'t> for f64 {
    #[track_caller]
    fn beside(self, like: Tensor<'t>) -> Tensor<'t> {
        let dtype = like.dtype();
        if holds(dtype, self) {
            like.trace().scalar(self, dtype)
        } else {
            let message = format!("{dtype} cannot represent {self}; convert the tensor first");
            let ty = TensorType::scalar(dtype);
            like.trace().fail("number", message, Some(ty))
        }
    }
}

impl<'t> Operand<'t> for f32 {
    #[track_caller]
    fn beside(self, like: Tensor<'t>) -> Tensor<'t> {
        f64::from(self).beside(like)
    }
}

macro_rules! integer_operands {
    ($($number:ty)*) => {$(
        impl<'t> Operand<'t> for $number {
            #[track_caller]
            fn beside(self, like: Tensor<'t>) -> Tensor<'t> {
                let value = self as f64;
                // Beyond 2^53 an f64 may be another integer.
                if like.dtype().is_float() || value as i128 == self as i128 {
                    value.beside(like)
                } else {
                    let message = format!("{self} is beyond 2^53; pass it as an input array");
                    let ty = TensorType::scalar(like.dtype());
                    like.trace().fail("number", message, Some(ty))
                }
            }
        }
    )*};
}
integer_operands!(i8 u8 i16 u16 i32 u32 i64 u64 isize usize);

macro_rules! operators {
    ($($trait:ident $method:ident $binary:ident),*) => {$(
        operators!(@right Tensor<'t>, $trait $method $binary);
        operators!(@right &Tensor<'t>, $trait $method $binary);
        operators!(@left f64 Tensor<'t>, $trait $method);
        operators!(@left f64 &Tensor<'t>, $trait $method);
        operators!(@left i64 Tensor<'t>, $trait $method);
        operators!(@left i64 &Tensor<'t>, $trait $method);
    )*};
    (@right $tensor:ty, $trait:ident $method:ident $binary:ident) => {
        impl<'t, R: Operand<'t>> $trait<R> for $tensor {
            type Output = Tensor<'t>;
            #[track_caller]
            fn $method(self, right: R) -> Tensor<'t> {
                self.binary(BinaryOp::$binary, right)
            }
        }
    };
    (@left $number:ident $tensor:ty, $trait:ident $method:ident) => {
        impl<'t> $trait<$tensor> for $number {
            type Output = Tensor<'t>;
            #[track_caller]
            fn $method(self, right: $tensor) -> Tensor<'t> {
                let right: Tensor<'t> = right.to_owned();
                self.beside(right).$method(right)
            }
        }
    };
}
operators!(Add add Add, Sub sub Subtract, Mul mul Multiply, Div div Divide, Rem rem Remainder);

macro_rules! unary_operators {
    ($($trait:ident $method:ident $unary:ident for $tensor:ty),*) => {$(
        impl<'t> $trait for $tensor {
            type Output = Tensor<'t>;
            #[track_caller]
            fn $method(self) -> Tensor<'t> {
                self.unary(UnaryOp::$unary)
            }
        }
    )*};
}
unary_operators!(
    Neg neg Negate for Tensor<'t>, Neg neg Negate for &Tensor<'t>,
    Not not Not for Tensor<'t>, Not not Not for &Tensor<'t>
);

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl<'t> Tensor<'t> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(self) -> Tensor<'t> {
                self.unary(UnaryOp::$op)
            }
        )*}
    };
}
unary_methods! {
    /// |x|
    abs Abs;
    /// Cube root.
    cbrt Cbrt;
    /// Smallest integer not below.
    ceil Ceil;
    /// Cosine, of radians.
    cos Cosine;
    /// The error function.
    erf Erf;
    /// e^x
    exp Exponential;
    /// e^x - 1, accurate near 0.
    exp_m1 ExponentialMinusOne;
    /// Largest integer not above.
    floor Floor;
    /// `true` if neither infinite nor NaN.
    is_finite IsFinite;
    /// Natural logarithm.
    log Log;
    /// log(1 + x), accurate near 0.
    log_1p LogPlusOne;
    /// 1 / (1 + e^-x)
    sigmoid Logistic;
    /// Nearest integer, halves to even.
    round RoundNearestEven;
    /// 1 / sqrt(x)
    rsqrt Rsqrt;
    /// -1, 0 or 1.
    sign Sign;
    /// Sine, of radians.
    sin Sine;
    /// Square root.
    sqrt Sqrt;
    /// Tangent, of radians.
    tan Tan;
    /// Hyperbolic tangent.
    tanh Tanh;
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl<'t> Tensor<'t> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(self, right: impl Operand<'t>) -> Tensor<'t> {
                self.binary(BinaryOp::$op, right)
            }
        )*}
    };
}
binary_methods! {
    /// Angle of the point (right, self), in radians.
    atan2 Atan2;
    /// Bitwise and; logical and of `bool`.
    and And;
    /// Bitwise or; logical or of `bool`.
    or Or;
    /// Bitwise exclusive or; unequal, of `bool`.
    xor Xor;
    /// Larger of the two; NaN if either is. Equal operands share the gradient, but it is 0 where
    /// the tensor equals the number 0, as for ReLU.
    maximum Maximum;
    /// Smaller of the two; NaN if either is. Equal operands share the gradient, but it is 0 where
    /// the tensor equals the number 0.
    minimum Minimum;
    /// `self` raised to the power `right`.
    pow Power;
    /// Left shift; 0 if by the width of the type or more.
    shift_left ShiftLeft;
    /// Arithmetic right shift: repeats the sign bit.
    shift_right_arithmetic ShiftRightArithmetic;
    /// Logical right shift: fills with zeros.
    shift_right_logical ShiftRightLogical;
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl<'t> Tensor<'t> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(self, right: impl Operand<'t>) -> Tensor<'t> {
                let (left, right) = self.aligned("compare", right);
                left.trace().push_one(Op::Compare(ComparisonDirection::$op), &[left, right])
            }
        )*}
    };
}
comparisons! {
    /// Equal, as `bool`.
    eq Eq;
    /// Not equal, as `bool`.
    ne Ne;
    /// Less, as `bool`.
    lt Lt;
    /// Less or equal, as `bool`.
    le Le;
    /// Greater, as `bool`.
    gt Gt;
    /// Greater or equal, as `bool`.
    ge Ge;
}

impl<'t> Tensor<'t> {
    /// Applies an elementwise operation.
    #[track_caller]
    pub fn unary(self, op: UnaryOp) -> Tensor<'t> {
        self.trace().push_one(Op::Unary(op), &[self])
    }

    /// Applies an elementwise operation to this and `right`, with broadcasting.
    #[track_caller]
    pub fn binary(self, op: BinaryOp, right: impl Operand<'t>) -> Tensor<'t> {
        let (left, right) = self.aligned(op.name(), right);
        left.trace().push_one(Op::Binary(op), &[left, right])
    }

    /// x²
    #[track_caller]
    pub fn square(self) -> Tensor<'t> {
        self * self
    }

    /// max(x, 0). Its gradient at 0 is 0.
    #[track_caller]
    pub fn relu(self) -> Tensor<'t> {
        self.maximum(0.0)
    }

    /// Selects `on_true` where this `bool` tensor is true, else `on_false`, with broadcasting.
    #[track_caller]
    pub fn select(self, on_true: Tensor<'t>, on_false: impl Operand<'t>) -> Tensor<'t> {
        let (on_true, on_false) = on_true.aligned("select", on_false);
        let (predicate, on_true) = self.aligned("select", on_true);
        let on_false = on_false.broadcast_to(on_true.dims());
        self.trace()
            .push_one(Op::Select, &[predicate, on_true, on_false])
    }

    /// Clamps values to between `low` and `high`.
    #[track_caller]
    pub fn clamp(self, low: impl Operand<'t>, high: impl Operand<'t>) -> Tensor<'t> {
        self.trace()
            .push_one(Op::Clamp, &[low.beside(self), self, high.beside(self)])
    }

    /// Converts to another element type, by value. Does nothing if it has that type already.
    #[track_caller]
    pub fn convert(self, dtype: DType) -> Tensor<'t> {
        if self.dtype() == dtype {
            self
        } else {
            self.trace().push_one(Op::Convert(dtype), &[self])
        }
    }

    /// Rounds to a float of `exponent` and `mantissa` bits; the element type stays.
    #[track_caller]
    pub fn reduce_precision(self, exponent: u32, mantissa: u32) -> Tensor<'t> {
        self.trace()
            .push_one(Op::ReducePrecision { exponent, mantissa }, &[self])
    }

    /// Reinterprets the bits as another element type of the same size.
    #[track_caller]
    pub fn bitcast(self, dtype: DType) -> Tensor<'t> {
        self.trace().push_one(Op::BitcastConvert(dtype), &[self])
    }

    /// Broadcasts both to their common dimensions.
    #[track_caller]
    pub(crate) fn aligned(self, op: &str, right: impl Operand<'t>) -> (Tensor<'t>, Tensor<'t>) {
        let right = right.beside(self);
        let (a, b) = (self.ty(), right.ty());
        if a.dims() == b.dims() || self.is_error() || right.is_error() {
            return (self, right);
        }
        match broadcast_dims(a.dims(), b.dims()) {
            Some(dims) => (self.broadcast_to(&dims), right.broadcast_to(&dims)),
            None => {
                let names = trace::names(&[self, right]);
                let message = format!(
                    "shapes are not broadcastable: {a} and {b}; aligned at the last dimension, sizes \
                     must be equal or 1{names}"
                );
                (self.trace.fail(op, message, Some(a)), right)
            }
        }
    }
}

/// The dimensions that two tensors broadcast to: aligned at the last, with sizes equal or 1.
pub(crate) fn broadcast_dims(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size = |dims: &[usize], dim: usize| {
        (dim + dims.len())
            .checked_sub(rank)
            .map_or(1, |dim| dims[dim])
    };
    (0..rank)
        .map(|dim| match (size(a, dim), size(b, dim)) {
            (a, b) if a == b => Some(a),
            (1, b) => Some(b),
            (a, 1) => Some(a),
            _ => None,
        })
        .collect()
}
