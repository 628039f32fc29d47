//! Likely mistakes with compiled functions: an output without brackets, inputs by value, and an
//! array in place of a tensor.

use halite_core::{Array, Client};
use halite_nn::jit;

fn outputs(client: &Client) {
    let _ = jit(client, |_cx, [x, y]| x.matmul(y));
}

fn inputs(client: &Client, x: Array, y: Array) {
    let multiply = jit(client, |_cx, [x, y]| [x.matmul(y)]);
    let _ = multiply.run([x, y]);
}

fn captured(client: &Client, y: Array) {
    let _ = jit(client, move |_cx, [x]| [x + &y]);
}

fn main() {}
