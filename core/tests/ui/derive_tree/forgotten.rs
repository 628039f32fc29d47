//! A struct without the derive, where its family and where a tree is expected.

use halite_core::{Family, Tree};

struct Net<L> {
    weight: L,
}

trait Task {
    type Model: Family;
}

struct Fit;

impl Task for Fit {
    type Model = Net<()>;
}

fn count(model: &impl Tree) -> usize {
    model.leaf_count()
}

fn main() {
    let net = Net { weight: 1 };
    count(&net);
}
