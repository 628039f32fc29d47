//! Checks of arguments of methods of [`Tensor`]: bad dimensions are mistakes, never panics.

use std::ops::{Bound, Range, RangeBounds};

use halite_core::TensorType;

use crate::Tensor;

/// A value, or the error tensor that the method must return: see [`check!`].
pub(crate) type Checked<'t, T = ()> = Result<T, Tensor<'t>>;

/// Evaluates to the value, or returns the error tensor.
macro_rules! check {
    ($checked:expr) => {
        match $checked {
            Ok(value) => value,
            Err(error) => return error,
        }
    };
}
pub(crate) use check;

impl<'t> Tensor<'t> {
    /// Records a mistake of `op` on this, unless this is an error already.
    #[track_caller]
    pub(crate) fn mistake(self, op: &str, message: impl FnOnce() -> String) -> Tensor<'t> {
        self.mistake_like(op, message, self.ty())
    }

    /// Like [`mistake`](Self::mistake), with the most likely type of the result.
    #[track_caller]
    pub(crate) fn mistake_like(
        self,
        op: &str,
        message: impl FnOnce() -> String,
        like: TensorType,
    ) -> Tensor<'t> {
        if self.is_error() {
            return self.trace.error_like(Some(like));
        }
        let named = self
            .name()
            .map_or(String::new(), |name| format!(" (operand 0 is `{name}`)"));
        self.trace.fail(op, message() + &named, Some(like))
    }

    /// Checks that the elements are floats.
    #[track_caller]
    pub(crate) fn check_float(self, op: &str) -> Checked<'t> {
        if self.is_error() {
            return Err(self);
        }
        if self.dtype().is_float() {
            return Ok(());
        }
        Err(self.mistake(op, || {
            format!("{} is not a tensor of floats; convert it first", self.ty())
        }))
    }

    /// Checks that the elements are integers.
    #[track_caller]
    pub(crate) fn check_integer(self, op: &str) -> Checked<'t> {
        if self.is_error() {
            return Err(self);
        }
        if self.dtype().is_integer() {
            return Ok(());
        }
        Err(self.mistake(op, || {
            format!(
                "{} is not a tensor of integers; convert it first",
                self.ty()
            )
        }))
    }

    /// Checks that there are `wanted` of a list argument.
    #[track_caller]
    pub(crate) fn check_count(
        self,
        op: &str,
        what: &str,
        given: usize,
        wanted: usize,
    ) -> Checked<'t> {
        if self.is_error() {
            return Err(self);
        }
        if given == wanted {
            return Ok(());
        }
        Err(self.mistake(op, || {
            format!(
                "{given} {what} given for {}, which needs {wanted}",
                self.ty()
            )
        }))
    }
}

/// `range` within a dimension of `size`; not checked to fit.
pub(crate) fn bounds(range: impl RangeBounds<usize>, size: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => size,
    };
    start..end
}
