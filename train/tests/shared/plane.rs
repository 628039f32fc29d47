//! A linear model of two inputs, its task and its data: the smallest run.

use std::path::Path;

use halite_core::{HostArray, tree::Tree};
use halite_data::{InMemory, Labeled};
use halite_nn::{Linear, Mean, Param, Tensor, Trace};
use halite_train::{Task, checkpoint::CheckpointStore};

#[derive(Tree, Debug)]
pub(crate) struct Model<L> {
    pub(crate) out: Linear<L>,
}

impl Model<Param> {
    pub(crate) fn new() -> Self {
        Model {
            out: Linear::new(2, 1),
        }
    }
}

/// Fits points of a plane.
pub(crate) struct Plane;

impl Task for Plane {
    type Model = Model<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Model<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let error = model.out.forward(batch.input) - batch.target;
        Mean::weighted(error.square().sum([1]), batch.weight)
    }
}

/// Samples of `y = x0 - 2 x1`.
pub(crate) fn samples(count: usize) -> InMemory {
    let x: Vec<f32> = (0..2 * count).map(|i| (i as f32).sin()).collect();
    let y: Vec<f32> = x.chunks(2).map(|x| x[0] - 2.0 * x[1]).collect();
    let [x, y] = [(&x, 2), (&y, 1)].map(|(v, n)| HostArray::from_slice(v, [count, n]).unwrap());
    InMemory::new([("x", x), ("y", y)]).unwrap()
}

/// Steps of the checkpoints of the run in `out`, newest first.
pub(crate) fn saved(out: &Path) -> Vec<u64> {
    let store = CheckpointStore::open_read_only(out.join("checkpoints")).unwrap();
    let all = store.list().unwrap().into_iter();
    all.map(|(_, position)| position.step).collect()
}
