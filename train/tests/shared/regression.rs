//! A network, of `f64` if nothing else is said, with a hidden layer, its task and its data.

use halite_core::{DType, HostArray, tree::Tree};
use halite_data::{InMemory, Labeled};
use halite_nn::{Init, Mean, Param, Tensor, Trace};
use halite_train::Task;

#[derive(Tree, Debug)]
pub(crate) struct Net<L> {
    hidden: L,
    bias: L,
    out: L,
    /// Not in the loss: it has no gradient.
    unused: L,
}

pub(crate) struct Regression;

impl Task for Regression {
    type Model = Net<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Net<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let [input, target, weight] =
            [batch.input, batch.target, batch.weight].map(|x| x.convert(model.out.dtype()));
        let hidden = (input.matmul(model.hidden) + model.bias).tanh();
        let error = hidden.matmul(model.out) - target;
        cx.metric("mae", Mean::weighted(error.abs().sum([1]), weight));
        Mean::weighted(error.square().sum([1]), weight)
    }
}

pub(crate) fn net() -> Net<Param> {
    wide_net(8)
}

/// A hidden layer of this width.
pub(crate) fn wide_net(width: usize) -> Net<Param> {
    let param = |dims: [usize; 2]| {
        let (low, high) = (-0.5, 0.5);
        Param::new(dims, Init::Uniform { low, high }).with_dtype(DType::F64)
    };
    Net {
        hidden: param([3, width]),
        bias: param([1, width]),
        out: param([width, 1]),
        unused: param([2, 2]),
    }
}

pub(crate) fn data(count: usize) -> InMemory {
    of_inputs(inputs(count))
}

/// The inputs of [`data`], three of each sample.
pub(crate) fn inputs(count: usize) -> Vec<f64> {
    (0..3 * count).map(|i| (i as f64 * 1.7).sin()).collect()
}

/// The target of each sample.
pub(crate) fn targets_of(x: &[f64]) -> Vec<f64> {
    x.chunks(3).map(|x| x[0] * x[1] - x[2]).collect()
}

/// Samples of three inputs each.
pub(crate) fn of_inputs(x: Vec<f64>) -> InMemory {
    let count = x.len() / 3;
    let y = targets_of(&x);
    let [x, y] = [(&x, 3), (&y, 1)].map(|(v, n)| HostArray::from_slice(v, [count, n]).unwrap());
    InMemory::new([("x", x), ("y", y)]).unwrap()
}
