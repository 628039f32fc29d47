use std::panic::Location;

use halite_core::Tree;

use crate::{Init, Param, Tensor};

/// Embedding table: a vector for each token, class or position.
#[derive(Clone, Debug, Tree)]
pub struct Embedding<L> {
    /// `[count, features]`
    pub table: L,
}

impl Embedding<Param> {
    /// Creates a table of `count` vectors of `width` features, initialized from the standard normal
    /// distribution, as in PyTorch.
    pub fn new(count: usize, width: usize) -> Self {
        Embedding {
            table: Param::new(
                [count, width],
                Init::Normal {
                    mean: 0.0,
                    std: 1.0,
                },
            ),
        }
    }

    /// Sets the initialization of the table.
    pub fn table_init(mut self, init: Init) -> Self {
        self.table.init = init;
        self
    }
}

impl<'t> Embedding<Tensor<'t>> {
    /// Maps integers `ids: [..]` below `count` to `[.., features]`. An id out of range is clamped.
    #[track_caller]
    pub fn forward(&self, ids: Tensor<'t>) -> Tensor<'t> {
        let _site = ids.trace().called_from(Location::caller());
        self.table.take(ids, 0)
    }

    /// Multiplies `x: [.., features]` with each vector of the table, giving `[.., count]`: an output
    /// layer with tied weights.
    #[track_caller]
    pub fn attend(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        x.matmul(self.table.t())
    }
}
