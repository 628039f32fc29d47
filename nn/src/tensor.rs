//! Values of a program that is being traced.

use std::{fmt, panic::Location, sync::Arc};

use halite_core::{DType, TensorType};
use halite_ir::{Literal, Op};

use crate::{Trace, trace::Id};

/// A value of a program that is being traced. `Copy`, and unable to outlive its trace.
///
/// Operators work, between tensors and with Rust numbers: `x * 2.0 + y`. Dimensions broadcast as in
/// NumPy: aligned at the last, sizes equal or 1. Element types do not mix:
/// [`convert`](Self::convert) says where they change.
#[derive(Clone, Copy)]
pub struct Tensor<'t> {
    pub(crate) trace: &'t Trace,
    pub(crate) id: Id,
}

impl<'t> Tensor<'t> {
    /// The trace it belongs to.
    pub fn trace(self) -> &'t Trace {
        self.trace
    }

    /// Element type and dimensions.
    pub fn ty(self) -> TensorType {
        self.trace.recording.borrow().tensor(self.id).ty.clone()
    }

    /// Element type.
    pub fn dtype(self) -> DType {
        self.ty().dtype()
    }

    /// Sizes of the dimensions, outermost first.
    pub fn dims(self) -> Vec<usize> {
        self.ty().dims().to_vec()
    }

    /// Number of dimensions.
    pub fn rank(self) -> usize {
        self.ty().rank()
    }

    /// Whether it results from a mistake, directly or through other operations.
    pub fn is_error(self) -> bool {
        self.trace.recording.borrow().tensor(self.id).error
    }

    /// The same value, treated as a constant by differentiation. Compilers do not see it.
    #[track_caller]
    pub fn stop_gradient(self) -> Tensor<'t> {
        self.trace.push_one(Op::StopGradient, &[self])
    }

    /// The line of the user's code that computed it; `None` for inputs and parameters.
    pub fn origin(self) -> Option<&'static Location<'static>> {
        let maker = self.trace.recording.borrow().maker(self.id);
        maker.map(|node| node.origin)
    }

    /// Path of the parameter or input, if this is one.
    pub fn name(self) -> Option<Arc<str>> {
        self.trace.recording.borrow().tensor(self.id).name.clone()
    }
}

halite_core::impl_single_leaf!(Tensor<'t>, 't);

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Tensor({}{})",
            self.ty(),
            if self.is_error() { ", error" } else { "" }
        )
    }
}

/// Type and origin, such as `f32[8, 10], computed at src/model.rs:12:9` or
/// ``f32[8], input `x` ``; there are no values while tracing.
impl fmt::Display for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ty())?;
        if self.is_error() {
            return write!(f, ", after a mistake");
        }
        match (self.name(), self.origin()) {
            (Some(name), None) => write!(f, ", input `{name}`"),
            (Some(name), Some(line)) => write!(f, ", `{name}`, computed at {line}"),
            (None, Some(line)) => write!(f, ", computed at {line}"),
            (None, None) => Ok(()),
        }
    }
}

impl Trace {
    /// A scalar of element type `dtype`, rounded to it.
    #[track_caller]
    pub fn scalar(&self, value: f64, dtype: DType) -> Tensor<'_> {
        self.full(value, &TensorType::scalar(dtype))
    }

    /// A tensor of type `ty` with every element `value`, rounded to its element type.
    #[track_caller]
    pub fn full(&self, value: f64, ty: &TensorType) -> Tensor<'_> {
        let element = self.literal(splat(value, &TensorType::scalar(ty.dtype())));
        // Not a constant of the whole type: some compilers materialize those in memory.
        if ty.rank() == 0 {
            element
        } else {
            element.broadcast_to(ty.dims())
        }
    }
}

/// Whether `value` is representable in this element type: an integer in its range; any number for
/// floats, which round.
pub(crate) fn holds(dtype: DType, value: f64) -> bool {
    let bits = 8 * dtype.size();
    let (first, end) = match dtype {
        _ if dtype.is_float() => return true,
        _ if !dtype.is_computed() => return false,
        DType::Bool => (0.0, 2.0),
        _ if dtype.is_signed_integer() => (
            -((1u128 << (bits - 1)) as f64),
            (1u128 << (bits - 1)) as f64,
        ),
        _ => (0.0, (1u128 << bits) as f64),
    };
    value.fract() == 0.0 && (first..end).contains(&value)
}

/// Every element `value`, rounded to the element type as Rust's `as` does.
pub(crate) fn splat(value: f64, ty: &TensorType) -> Literal {
    use half::{bf16, f16};
    let dims = ty.dims();
    match ty.dtype() {
        DType::Bool => Literal::splat(value != 0.0, dims),
        DType::S8 => Literal::splat(value as i8, dims),
        DType::S16 => Literal::splat(value as i16, dims),
        DType::S32 => Literal::splat(value as i32, dims),
        DType::S64 => Literal::splat(value as i64, dims),
        DType::U8 => Literal::splat(value as u8, dims),
        DType::U16 => Literal::splat(value as u16, dims),
        DType::U32 => Literal::splat(value as u32, dims),
        DType::U64 => Literal::splat(value as u64, dims),
        DType::F16 => Literal::splat(f16::from_f64(value), dims),
        DType::Bf16 => Literal::splat(bf16::from_f64(value), dims),
        DType::F32 => Literal::splat(value as f32, dims),
        DType::F64 => Literal::splat(value, dims),
        // Refused where it is recorded.
        _ => Literal::zero(ty),
    }
}
