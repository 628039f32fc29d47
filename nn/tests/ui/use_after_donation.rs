//! The state is moved into the call, so that its memory can be reused; the old state is gone.

use halite_core::{Array, Client};
use halite_nn::jit_step;

fn step(client: &Client, state: Array) -> halite_core::Result<()> {
    let add = jit_step(client, &state, |_cx, x, [y]| (x + y, [x]));
    let one = Array::scalar(client, 1.0f32)?;
    let (next, [_before]) = add.call(state, [&one])?;
    println!("{next} after {state}");
    Ok(())
}

fn main() {}
