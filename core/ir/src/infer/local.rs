//! Operations of StableHLO where halite asks for more than its rules, or has attributes of its own.

use halite_core::{DType, TensorType};
use halite_stablehlo::{
    ElementClass,
    rules::{self, Check, check_class},
};

use super::{Infer, fail};
use crate::{
    ConvolutionAttributes, DotAttributes, Reduction, ScatterAttributes, UnaryOp, WindowAttributes,
};

const NUMBERS: &[ElementClass] = &[
    ElementClass::Signed,
    ElementClass::Unsigned,
    ElementClass::Float,
];
const BITS: &[ElementClass] = &[
    ElementClass::Bool,
    ElementClass::Signed,
    ElementClass::Unsigned,
];

impl Infer<'_> {
    pub(super) fn unary(self, unary: UnaryOp) -> Check<TensorType> {
        match unary {
            UnaryOp::Imag | UnaryOp::Real => {
                fail("takes complex numbers, which halite does not compute with")
            }
            _ => rules::unary(self.operands, unary),
        }
    }

    pub(super) fn clamp(self) -> Check<TensorType> {
        let result = rules::clamp(self.operands)?;
        check_class(&result, NUMBERS)?;
        Ok(result)
    }

    pub(super) fn bitcast_convert(self, dtype: DType) -> Check<TensorType> {
        let [x] = rules::take(self.operands)?;
        rules::bitcast_convert(&[x], &x.with_dtype(dtype))
    }

    pub(super) fn reduce_precision(self, exponent: u32, mantissa: u32) -> Check<TensorType> {
        if exponent > 11 || mantissa > 52 {
            return fail(format!(
                "{exponent} exponent bits and {mantissa} mantissa bits; a float has 1 to 11 and 0 \
                 to 52"
            ));
        }
        rules::reduce_precision(self.operands, exponent)
    }

    pub(super) fn scatter(
        self,
        scatter: &ScatterAttributes,
        combine: Option<Reduction>,
    ) -> Check<TensorType> {
        let [x, indices, updates] = rules::take(self.operands)?;
        if let Some(combine) = combine {
            reducible(combine, x)?;
        }
        let results = rules::scatter(&[x, indices, updates], scatter)?;
        Ok(results[0].clone())
    }

    pub(super) fn dot(self, dot: &DotAttributes, result: DType) -> Check<TensorType> {
        self.product_types(result)?;
        rules::dot(self.operands, dot, result.into())
    }

    pub(super) fn convolution(
        self,
        convolution: &ConvolutionAttributes,
        result: DType,
    ) -> Check<TensorType> {
        self.product_types(result)?;
        let result = rules::convolution(self.operands, convolution, result.into())?;
        let [x, kernel] = rules::take(self.operands)?;
        for (i, &dim) in convolution.kernel.spatial.iter().enumerate() {
            if kernel.dims()[dim] == 0 {
                return fail(format!("dimension {dim} of the kernel {kernel} is 0"));
            }
            let dim = convolution.input.spatial[i];
            let (low, high) = convolution.padding[i];
            let between = x.dims()[dim].saturating_sub(1) * (convolution.input_dilation[i] - 1);
            let padded = (x.dims()[dim] + between) as i64 + low + high;
            if padded < 0 {
                return fail(format!(
                    "dimension {dim} of {x}, padded by {low} and {high}, would have size {padded}"
                ));
            }
        }
        Ok(result)
    }

    /// Element types of two factors, and of a sum of products.
    fn product_types(self, result: DType) -> Check {
        let [left, right] = rules::take(self.operands)?;
        if left.dtype() != right.dtype() {
            return fail(format!(
                "{left} and {right} must have the same element type (convert one first)"
            ));
        }
        check_class(left, NUMBERS)?;
        let from = left.dtype();
        let wider = from == result
            || (from.size() < result.size()
                && (from.is_float() && result.is_float()
                    || from.is_signed_integer() && result.is_signed_integer()
                    || from.is_unsigned_integer() && result.is_unsigned_integer()));
        if !wider {
            return fail(format!(
                "{left} and {right} to a result of {result}; it must be {from} or a wider type of \
                 its family"
            ));
        }
        Ok(())
    }

    pub(super) fn reduce(self, kind: Reduction, dims: &[usize]) -> Check<TensorType> {
        let [x] = rules::take(self.operands)?;
        reducible(kind, x)?;
        let result = rules::reduce(x, dims)?;
        if !dims.is_sorted() {
            return fail(format!(
                "dimensions {dims:?} of {x} must be in ascending order"
            ));
        }
        Ok(result)
    }

    pub(super) fn arg_reduce(self, dim: usize) -> Check<Vec<TensorType>> {
        let [x] = rules::take(self.operands)?;
        check_class(x, NUMBERS)?;
        let value = rules::reduce(x, &[dim])?;
        let size = x.dims()[dim];
        if size == 0 || i32::try_from(size).is_err() {
            return fail(format!(
                "dimension {dim} of {x} has {size} elements; it must have 1 to {}",
                i32::MAX
            ));
        }
        Ok(vec![value.clone(), value.with_dtype(DType::S32)])
    }

    /// The result of linear algebra, which devices have for two element types.
    pub(super) fn solved(self, result: Check<TensorType>) -> Check<TensorType> {
        let result = result?;
        match result.dtype() {
            DType::F32 | DType::F64 => Ok(result),
            _ => fail(format!("takes f32 and f64, not {result} (convert first)")),
        }
    }

    pub(super) fn reduce_window(
        self,
        kind: Reduction,
        window: &WindowAttributes,
    ) -> Check<TensorType> {
        let [x] = rules::take(self.operands)?;
        reducible(kind, x)?;
        padded_by_none_or_more(x, window)?;
        rules::windows(x, window)
    }

    pub(super) fn select_and_scatter(self, window: &WindowAttributes) -> Check<TensorType> {
        let [x, _] = rules::take(self.operands)?;
        check_class(x, NUMBERS)?;
        padded_by_none_or_more(x, window)?;
        rules::select_and_scatter(self.operands, window)
    }
}

fn padded_by_none_or_more(x: &TensorType, window: &WindowAttributes) -> Check {
    let below_0 = |&(low, high): &(i64, i64)| low < 0 || high < 0;
    match window.padding.iter().position(below_0) {
        None => Ok(()),
        Some(dim) => fail(format!(
            "padding {:?} of dimension {dim} of {x} is negative; slice first",
            window.padding[dim]
        )),
    }
}

/// Checks that `kind` can reduce elements of `x`.
pub(super) fn reducible(kind: Reduction, x: &TensorType) -> Check {
    match kind {
        Reduction::Sum | Reduction::Product | Reduction::Min | Reduction::Max => {
            check_class(x, NUMBERS)
        }
        Reduction::And | Reduction::Or => check_class(x, BITS),
    }
}
