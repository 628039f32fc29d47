//! The state is moved into the call, so that its memory can be reused: the old state is gone.

use halite_core::{Array, tree::{Empty, Leaf}};
use halite_nn::Jit;

fn step(jit: &Jit<Leaf<()>, Empty<()>, Empty<()>>, state: Leaf<Array>) -> halite_core::Result<()> {
    let (next, _) = jit.call(state, &Empty::new())?;
    println!("{} after {}", next.0.ty(), state.0.ty());
    Ok(())
}

fn main() {}
