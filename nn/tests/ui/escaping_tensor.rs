//! A tensor is a value of the program that is being traced; it cannot be stored beyond the trace.

use std::cell::Cell;

use halite_core::{Client, Null};
use halite_nn::{Tensor, jit};

thread_local! {
    static ESCAPED: Cell<Option<Tensor<'static>>> = const { Cell::new(None) };
}

fn main() {
    let _ = jit(&Client::new(Null::new(1)), |_cx, [sum, x]| {
        ESCAPED.set(Some(x));
        [sum + x]
    });
}
