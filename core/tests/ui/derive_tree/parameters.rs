//! What stands between `<` and `>` of a tree.

use halite_core::Tree;

#[derive(Tree)]
struct Mlp {
    weight: f32,
}

#[derive(Tree)]
struct Relu;

#[derive(Tree)]
struct Pair<A, B> {
    left: A,
    right: B,
}

#[derive(Tree)]
struct View<'a, L> {
    weight: L,
    name: &'a str,
}

#[derive(Tree)]
struct Bounded<L: Clone> {
    weight: L,
}

#[derive(Tree)]
struct AlsoBounded<L>
where
    L: Clone,
{
    weight: L,
}

#[derive(Tree)]
union Either<L: Copy> {
    left: L,
    right: u32,
}

fn main() {}
