//! Checks of the mistakes that a trace records.

use std::panic::Location;

use expect_test::Expect;
use halite_core::{DType, TensorType};
use halite_nn::{Mistake, Tensor, Trace};

/// Checks the mistakes of `traced`, with lines relative to the call of `check`, without columns.
#[track_caller]
pub(crate) fn check(traced: impl for<'t> FnOnce(&'t Trace), expected: Expect) {
    let call = Location::caller();
    let cx = Trace::new();
    traced(&cx);
    let line = |mistake: &Mistake| {
        assert_eq!(mistake.location.file(), call.file(), "{mistake}");
        format!(
            "+{}: {}: {}\n",
            mistake.location.line() - call.line(),
            mistake.op,
            mistake.message
        )
    };
    let lines: String = cx.mistakes().iter().map(line).collect();
    expected.assert_eq(&lines);
}

/// An `f32` input.
pub(crate) fn input<'t>(cx: &'t Trace, name: &str, dims: &[usize]) -> Tensor<'t> {
    cx.input(TensorType::new(DType::F32, dims), name)
}
