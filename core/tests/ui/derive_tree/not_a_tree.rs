//! A field of a type that mentions the leaf and is no tree.

use halite_core::Tree;

struct Linear<L> {
    weight: L,
}

#[derive(Tree)]
struct Mlp<L> {
    hidden: Linear<L>,
}

fn main() {}
