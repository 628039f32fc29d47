//! Elementwise operations and operators, with broadcasting.

use std::ops::{Add, Div, Mul, Neg, Not, Rem, Sub};

use halite_core::{DType, TensorType};
use halite_ir::{Binary, Comparison, Op, Unary};

use crate::{Tensor, tensor::holds};

/// The other side of an operation on a tensor: a tensor, or a Rust number, which takes the tensor's
/// element type.
///
/// A number that an integer type or `bool` does not have, as -1 beside `u8`, is a mistake; floats
/// round it.
pub trait Operand<'t>: Copy {
    /// As a tensor of the trace and element type of `like`.
    #[track_caller]
    fn beside(self, like: Tensor<'t>) -> Tensor<'t>;
}

impl<'t> Operand<'t> for Tensor<'t> {
    fn beside(self, _: Tensor<'t>) -> Tensor<'t> {
        self
    }
}

macro_rules! number_operands {
    ($($number:ty)*) => {$(
        impl<'t> Operand<'t> for $number {
            #[track_caller]
            fn beside(self, like: Tensor<'t>) -> Tensor<'t> {
                let (value, dtype) = (f64::from(self), like.dtype());
                if !holds(dtype, value) {
                    let message = format!("{self} is no {dtype}; convert the tensor first");
                    return like.trace().fail("number", message, Some(TensorType::scalar(dtype)));
                }
                like.trace().scalar(value, dtype)
            }
        }
        number_operands!(@operator $number, Add add, Sub sub, Mul mul, Div div, Rem rem);
    )*};
    (@operator $number:ty, $($trait:ident $method:ident),*) => {$(
        impl<'t> $trait<Tensor<'t>> for $number {
            type Output = Tensor<'t>;
            #[track_caller]
            fn $method(self, right: Tensor<'t>) -> Tensor<'t> {
                self.beside(right).$method(right)
            }
        }
    )*};
}
number_operands!(f64 f32 i32 u32 i8 u8);

macro_rules! operators {
    ($($trait:ident $method:ident $binary:ident),*) => {$(
        impl<'t, R: Operand<'t>> $trait<R> for Tensor<'t> {
            type Output = Tensor<'t>;
            #[track_caller]
            fn $method(self, right: R) -> Tensor<'t> {
                self.binary(Binary::$binary, right)
            }
        }
    )*};
}
operators!(Add add Add, Sub sub Subtract, Mul mul Multiply, Div div Divide, Rem rem Remainder);

impl<'t> Neg for Tensor<'t> {
    type Output = Tensor<'t>;
    #[track_caller]
    fn neg(self) -> Tensor<'t> {
        self.unary(Unary::Negate)
    }
}

impl<'t> Not for Tensor<'t> {
    type Output = Tensor<'t>;
    #[track_caller]
    fn not(self) -> Tensor<'t> {
        self.unary(Unary::Not)
    }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl<'t> Tensor<'t> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(self) -> Tensor<'t> {
                self.unary(Unary::$op)
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
    /// Neither infinite nor NaN, as `bool`.
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
                self.binary(Binary::$op, right)
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
    /// The larger; NaN if either is. Equal ones share the gradient, but of 0 and the number 0
    /// neither gets it, as of relu.
    maximum Maximum;
    /// The smaller; NaN if either is. Equal ones share the gradient, but of 0 and the number 0
    /// neither gets it.
    minimum Minimum;
    /// self to the power right.
    pow Power;
    /// Bits moved up; 0 if by the width or more.
    shift_left ShiftLeft;
    /// Bits moved down, the sign's bit repeated.
    shift_right_arithmetic ShiftRightArithmetic;
    /// Bits moved down, zeros moved in.
    shift_right_logical ShiftRightLogical;
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl<'t> Tensor<'t> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(self, right: impl Operand<'t>) -> Tensor<'t> {
                let (left, right) = self.aligned("compare", right);
                left.trace().push_one(Op::Compare(Comparison::$op), &[left, right])
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
    /// Elementwise operation on this.
    #[track_caller]
    pub fn unary(self, op: Unary) -> Tensor<'t> {
        self.trace().push_one(Op::Unary(op), &[self])
    }

    /// Elementwise operation on this and `right`, with broadcasting.
    #[track_caller]
    pub fn binary(self, op: Binary, right: impl Operand<'t>) -> Tensor<'t> {
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

    /// Where this `bool` tensor is true `on_true`, else `on_false`, with broadcasting.
    #[track_caller]
    pub fn select(self, on_true: Tensor<'t>, on_false: impl Operand<'t>) -> Tensor<'t> {
        let (on_true, on_false) = on_true.aligned("select", on_false);
        let (predicate, on_true) = self.aligned("select", on_true);
        let on_false = on_false.broadcast_to(on_true.dims());
        self.trace()
            .push_one(Op::Select, &[predicate, on_true, on_false])
    }

    /// Not below `low`, not above `high`.
    #[track_caller]
    pub fn clamp(self, low: impl Operand<'t>, high: impl Operand<'t>) -> Tensor<'t> {
        self.trace()
            .push_one(Op::Clamp, &[low.beside(self), self, high.beside(self)])
    }

    /// To another element type, by value. Nothing happens if it is that already.
    #[track_caller]
    pub fn convert(self, dtype: DType) -> Tensor<'t> {
        if self.dtype() == dtype {
            self
        } else {
            self.trace().push_one(Op::Convert(dtype), &[self])
        }
    }

    /// Rounded to a float of `exponent` and `mantissa` bits; the element type stays.
    #[track_caller]
    pub fn reduce_precision(self, exponent: u32, mantissa: u32) -> Tensor<'t> {
        self.trace()
            .push_one(Op::ReducePrecision { exponent, mantissa }, &[self])
    }

    /// To another element type of the same size, by bits.
    #[track_caller]
    pub fn bitcast(self, dtype: DType) -> Tensor<'t> {
        self.trace().push_one(Op::BitcastConvert(dtype), &[self])
    }

    /// Both with the dimensions that they broadcast to.
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
                let names = self.trace.names(&[self, right]);
                let message = format!(
                    "{a} and {b}: aligned at the last, each size is to be the same or 1{names}"
                );
                (self.trace.fail(op, message, Some(a)), right)
            }
        }
    }
}

/// The dimensions that two tensors broadcast to: aligned at the last, equal or 1.
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
