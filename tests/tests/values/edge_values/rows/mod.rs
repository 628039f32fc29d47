//! The rows, and what several of them use.

mod activations;
mod constants;
mod contractions;
mod cubes;
mod elementwise;
mod indexing;
mod linalg;
mod losses;
mod reductions;
mod shapes;

use halite_core::{
    DType,
    tree::{Empty, Leaf},
};
use halite_nn::Tensor;

use crate::edge_values::table::Row;

pub(crate) const TABLES: &[&[Row]] = &[
    elementwise::ROWS,
    constants::ROWS,
    activations::ROWS,
    reductions::ROWS,
    shapes::ROWS,
    indexing::ROWS,
    linalg::ROWS,
    losses::ROWS,
    contractions::ROWS,
    cubes::ROWS,
];

/// `function` of each row of a matrix, `[1, size]`, and its target, `[1]`; the scalars together.
fn of_each<'t>(
    x: Tensor<'t>,
    function: impl Fn(Tensor<'t>, Tensor<'t>) -> Tensor<'t>,
) -> Tensor<'t> {
    let (rows, size) = (x.dims()[0], x.dims()[1]);
    let targets = x.trace().arange(rows, DType::S32) % size.max(1);
    of_pairs(x, targets, |row, target| {
        function(row.unsqueeze(0), target.unsqueeze(0))
    })
}

/// `function` of the parts of two tensors along their first dimension, together. It is in the
/// program once: to compile it for each part would take minutes.
fn of_pairs<'t>(
    x: Tensor<'t>,
    y: Tensor<'t>,
    function: impl Fn(Tensor<'t>, Tensor<'t>) -> Tensor<'t>,
) -> Tensor<'t> {
    let both = vec![Leaf(x), Leaf(y)];
    let body = |none, parts: Vec<Leaf<Tensor<'t>>>| (none, Leaf(function(parts[0].0, parts[1].0)));
    x.trace().scan(Empty::new(), both, body).1.0
}
