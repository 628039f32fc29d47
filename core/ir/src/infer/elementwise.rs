//! Elementwise operations.

use halite_core::{DType, Result, TensorType};

use super::{Infer, is_bool_or_integer, is_number};
use crate::{Binary, Unary};

impl Infer<'_> {
    pub(super) fn unary(self, unary: Unary) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        match unary {
            Unary::Abs | Unary::Sign => self.element(
                x,
                |dtype| dtype.is_signed_integer() || dtype.is_float(),
                "signed integers and floats",
            )?,
            Unary::Negate => self.element(x, is_number, "integers and floats")?,
            Unary::CountLeadingZeros | Unary::PopulationCount => {
                self.element(x, DType::is_integer, "integers")?
            }
            Unary::Not => self.element(x, is_bool_or_integer, "bool and integers")?,
            Unary::Cbrt
            | Unary::Ceil
            | Unary::Cosine
            | Unary::Erf
            | Unary::Exponential
            | Unary::ExponentialMinusOne
            | Unary::Floor
            | Unary::IsFinite
            | Unary::Log
            | Unary::LogPlusOne
            | Unary::Logistic
            | Unary::RoundNearestAfz
            | Unary::RoundNearestEven
            | Unary::Rsqrt
            | Unary::Sine
            | Unary::Sqrt
            | Unary::Tan
            | Unary::Tanh => self.element(x, DType::is_float, "floats")?,
        }
        Ok(vec![if unary == Unary::IsFinite {
            x.with_dtype(DType::Bool)
        } else {
            (*x).clone()
        }])
    }

    pub(super) fn binary(self, binary: Binary) -> Result<Vec<TensorType>> {
        let [left, right] = self.take()?;
        self.equal(left, right)?;
        match binary {
            // For `bool`, these are or, and, and, or.
            Binary::Add | Binary::Multiply | Binary::Minimum | Binary::Maximum => {}
            Binary::And | Binary::Or | Binary::Xor => {
                self.element(left, is_bool_or_integer, "bool and integers")?
            }
            Binary::Divide | Binary::Power | Binary::Remainder | Binary::Subtract => {
                self.element(left, is_number, "integers and floats")?
            }
            Binary::Atan2 => self.element(left, DType::is_float, "floats")?,
            Binary::ShiftLeft | Binary::ShiftRightArithmetic | Binary::ShiftRightLogical => {
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
