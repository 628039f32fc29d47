//! Elementwise operations.

use halite_core::{DType, Result, TensorType};

use super::{Infer, is_bool_or_integer, is_number};
use crate::{BinaryOp, UnaryOp};

impl Infer<'_> {
    pub(super) fn unary(self, unary: UnaryOp) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        match unary {
            UnaryOp::Abs | UnaryOp::Sign => self.element(
                x,
                |dtype| dtype.is_signed_integer() || dtype.is_float(),
                "signed integers and floats",
            )?,
            UnaryOp::Negate => self.element(x, is_number, "integers and floats")?,
            UnaryOp::CountLeadingZeros | UnaryOp::Popcnt => {
                self.element(x, DType::is_integer, "integers")?
            }
            UnaryOp::Imag | UnaryOp::Real => {
                return self.fail("takes complex numbers, which halite does not compute with");
            }
            UnaryOp::Not => self.element(x, is_bool_or_integer, "bool and integers")?,
            UnaryOp::Cbrt
            | UnaryOp::Ceil
            | UnaryOp::Cosine
            | UnaryOp::Erf
            | UnaryOp::Exponential
            | UnaryOp::ExponentialMinusOne
            | UnaryOp::Floor
            | UnaryOp::IsFinite
            | UnaryOp::Log
            | UnaryOp::LogPlusOne
            | UnaryOp::Logistic
            | UnaryOp::RoundNearestAfz
            | UnaryOp::RoundNearestEven
            | UnaryOp::Rsqrt
            | UnaryOp::Sine
            | UnaryOp::Sqrt
            | UnaryOp::Tan
            | UnaryOp::Tanh => self.element(x, DType::is_float, "floats")?,
        }
        Ok(vec![if unary == UnaryOp::IsFinite {
            x.with_dtype(DType::Bool)
        } else {
            (*x).clone()
        }])
    }

    pub(super) fn binary(self, binary: BinaryOp) -> Result<Vec<TensorType>> {
        let [left, right] = self.take()?;
        self.equal(left, right)?;
        match binary {
            // For `bool`, these are or, and, and, or.
            BinaryOp::Add | BinaryOp::Multiply | BinaryOp::Minimum | BinaryOp::Maximum => {}
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
                self.element(left, is_bool_or_integer, "bool and integers")?
            }
            BinaryOp::Divide | BinaryOp::Power | BinaryOp::Remainder | BinaryOp::Subtract => {
                self.element(left, is_number, "integers and floats")?
            }
            BinaryOp::Complex => {
                return self.fail("makes complex numbers, which halite does not compute with");
            }
            BinaryOp::Atan2 => self.element(left, DType::is_float, "floats")?,
            BinaryOp::ShiftLeft | BinaryOp::ShiftRightArithmetic | BinaryOp::ShiftRightLogical => {
                self.element(left, DType::is_integer, "integers")?
            }
        }
        Ok(vec![(*left).clone()])
    }

    pub(super) fn compare(self) -> Result<Vec<TensorType>> {
        let [left, right] = self.take()?;
        self.equal(left, right)?;
        Ok(vec![left.with_dtype(DType::Bool)])
    }

    pub(super) fn select(self) -> Result<Vec<TensorType>> {
        let [predicate, on_true, on_false] = self.take()?;
        if predicate.dtype() != DType::Bool {
            return self.fail(format!(
                "the predicate is {predicate}; it must be bool (compare first)"
            ));
        }
        self.equal(on_true, on_false)?;
        if predicate.rank() != 0 && predicate.dims() != on_true.dims() {
            return self.fail(format!(
                "the predicate is {predicate}, for {on_true} it must be bool{:?} or bool[]",
                on_true.dims()
            ));
        }
        Ok(vec![(*on_true).clone()])
    }

    pub(super) fn clamp(self) -> Result<Vec<TensorType>> {
        let [low, x, high] = self.take()?;
        self.element(x, is_number, "integers and floats")?;
        for (what, bound) in [("lower", low), ("upper", high)] {
            if bound.dtype() != x.dtype() || (bound.rank() != 0 && bound.dims() != x.dims()) {
                return self.fail(format!(
                    "the {what} bound is {bound}, for {x} it must be {x} or {}[]",
                    x.dtype()
                ));
            }
        }
        Ok(vec![(*x).clone()])
    }

    pub(super) fn convert(self, dtype: DType) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        Ok(vec![x.with_dtype(dtype)])
    }

    pub(super) fn bitcast_convert(self, dtype: DType) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        // A bool is a byte in memory but one bit in the program, so it has the bits of no other
        // type.
        let bits = |dtype: DType| {
            if dtype == DType::Bool {
                1
            } else {
                dtype.size() * 8
            }
        };
        if bits(x.dtype()) != bits(dtype) {
            return self.fail(format!(
                "elements of {x} have {} bits, {dtype} has {}; the bits of one element are kept",
                bits(x.dtype()),
                bits(dtype)
            ));
        }
        Ok(vec![x.with_dtype(dtype)])
    }

    pub(super) fn reduce_precision(self, exponent: u32, mantissa: u32) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        self.element(x, DType::is_float, "floats")?;
        if !(1..=11).contains(&exponent) || mantissa > 52 {
            return self.fail(format!("{exponent} exponent bits and {mantissa} mantissa bits; a float has 1 to 11 and 0 to 52"));
        }
        Ok(vec![(*x).clone()])
    }

    fn equal(self, left: &TensorType, right: &TensorType) -> Result<()> {
        if left == right {
            return Ok(());
        }
        let advice = match left.dims() == right.dims() {
            true => "convert one first",
            false => "broadcast first",
        };
        self.fail(format!(
            "{left} and {right} differ; elementwise operations need equal types ({advice})"
        ))
    }
}
