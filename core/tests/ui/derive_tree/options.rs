//! `#[tree(..)]` where it is not understood.

use halite_core::Tree;

#[derive(Tree)]
struct Frozen<L> {
    #[tree(static)]
    weight: Vec<L>,
}

#[derive(Tree)]
struct Skipped<L> {
    weight: L,
    #[tree(skip)]
    name: String,
}

#[derive(Tree)]
#[tree(rename = "x")]
struct Renamed<L> {
    weight: L,
}

#[derive(Tree)]
enum Pool<L> {
    #[tree(static)]
    Max,
    Learned(L),
}

fn main() {}
