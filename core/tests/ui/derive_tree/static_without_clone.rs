//! A static field is cloned into every tree made from references.

use halite_core::Tree;

struct Stride(usize);

#[derive(Tree)]
struct Conv<L> {
    weight: L,
    stride: Stride,
}

fn main() {}
