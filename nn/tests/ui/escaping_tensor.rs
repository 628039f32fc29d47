//! A tensor is a value of the program that is being traced: it cannot be kept for after.

use std::cell::Cell;

use halite_core::{Client, Null, tree::Leaf};
use halite_nn::{Jit, Tensor};

thread_local! {
    static KEPT: Cell<Option<Tensor<'static>>> = const { Cell::new(None) };
}

fn main() {
    let _ = Jit::<Leaf<()>, Leaf<()>, Leaf<()>>::new(&Client::new(Null::new(1)), |_cx, Leaf(sum), Leaf(x)| {
        KEPT.set(Some(x));
        (Leaf(sum + x), Leaf(x))
    });
}
