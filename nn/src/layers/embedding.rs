use std::panic::Location;

use halite_core::Tree;

use crate::{Init, Param, Tensor};

/// A vector for each number: words, classes, positions.
#[derive(Clone, Debug, Tree)]
pub struct Embedding<L> {
    /// `[count, width]`
    pub table: L,
}

impl Embedding<Param> {
    /// `count` vectors of `width`. First values are normal with standard deviation 1, as in
    /// PyTorch.
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

    /// First values of the table.
    pub fn table_init(mut self, init: Init) -> Self {
        self.table.init = init;
        self
    }
}

impl<'t> Embedding<Tensor<'t>> {
    /// `ids: [..]`, integers below `count`, to `[.., width]`. An id out of range counts as the
    /// nearest that is in range.
    #[track_caller]
    pub fn forward(&self, ids: Tensor<'t>) -> Tensor<'t> {
        let _site = ids.trace().called_from(Location::caller());
        self.table.take(ids, 0)
    }

    /// `x: [.., width]` by each vector of the table, to `[.., count]`: an output layer with the
    /// weights of the input layer.
    #[track_caller]
    pub fn attend(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        x.matmul(self.table.t())
    }
}
