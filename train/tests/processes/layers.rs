//! Layers that depend on the whole batch: batch norm, and dropout by the place of a sample.

use halite_core::{DType, HostArray, Result, tree::Tree};
use halite_data::{InMemory, Labeled, LastBatch};
use halite_nn::{BatchNorm, Conv2d, Dropout, Init, Mean, Param, Sgd, Tensor, Trace};
use halite_tests::long::part;
use halite_train::{Fitted, Task, TrainerBuilder};

use super::{EXECUTORS, alike, hundred_steps_agree};

/// A convolution with batch norm and dropout.
#[derive(Tree, Debug)]
pub(super) struct Net<L> {
    conv: Conv2d<L>,
    norm: BatchNorm<L>,
    dropout: Dropout,
    out: L,
}

pub(super) struct Regression;

impl Task for Regression {
    type Model = Net<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Net<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let [input, target, weight] =
            [batch.input, batch.target, batch.weight].map(|x| x.convert(model.out.dtype()));
        let x = model.norm.forward(model.conv.forward(input)).tanh();
        let x = model.dropout.forward(x).flatten_from(1);
        let error = x.matmul(model.out) - target;
        Mean::weighted(error.square().sum([1]), weight)
    }
}

fn net(dropout: f64, dtype: DType) -> Net<Param> {
    let (low, high) = (-0.5, 0.5);
    let net = Net {
        // A bias before batch norm has no gradient but rounding.
        conv: Conv2d::new(1, 4, [3, 3]).without_bias(),
        norm: BatchNorm::new(4),
        dropout: Dropout::new(dropout),
        out: Param::new([4 * 4 * 4, 1], Init::Uniform { low, high }),
    };
    net.map_leaves(|_, param| param.with_dtype(dtype))
}

fn data(count: usize) -> InMemory {
    let x: Vec<f64> = (0..36 * count).map(|i| (i as f64 * 1.7).sin()).collect();
    let y: Vec<f64> = x.chunks(36).map(|x| x[0] * x[1] - x[2]).collect();
    let x = HostArray::from_slice(&x, [count, 6, 6, 1]).unwrap();
    let y = HostArray::from_slice(&y, [count, 1]).unwrap();
    InMemory::new([("x", x), ("y", y)]).unwrap()
}

fn fit(builder: TrainerBuilder, samples: usize, dropout: f64) -> Result<Fitted<Regression>> {
    fit_net(builder, net(dropout, DType::F64), samples, 4)
}

/// A hundred steps without dropout, whose last batch of an epoch has a sample.
pub(super) fn fit_long(builder: TrainerBuilder, dtype: DType) -> Result<Fitted<Regression>> {
    fit_net(builder, net(0.0, dtype), 25, 25)
}

fn fit_net(
    builder: TrainerBuilder,
    net: Net<Param>,
    samples: usize,
    epochs: u64,
) -> Result<Fitted<Regression>> {
    let trainer = builder.last_batch(LastBatch::Pad).batch_size(8);
    let trainer = trainer.max_epochs(epochs).build()?;
    trainer.fit(Regression, net, Sgd::new(1e-3), data(samples), data(13))
}

#[test]
fn batch_norm_has_the_statistics_of_the_whole_batch() {
    for open in EXECUTORS {
        // The last batch of 25 has a sample.
        let one = alike(open, [1, 1], |builder| fit(builder, 25, 0.0));
        for &shape in part(&[[2, 1], [4, 1], [2, 2]], &[2]) {
            let distance = one.distance(&alike(open, shape, |builder| fit(builder, 25, 0.0)));
            assert!(distance.weights < 1e-12, "{shape:?}: {distance:?}");
        }
    }
}

#[test]
fn hundred_steps_agree_on_eight_devices() {
    hundred_steps_agree(|builder| fit_long(builder, DType::F64));
}

#[test]
fn batch_norm_is_exchanged_in_accumulated_steps() {
    let run = |builder: TrainerBuilder| fit(builder.accumulate_grad_batches(2), 25, 0.0);
    let one = alike(EXECUTORS[0], [1, 1], run);
    let distance = one.distance(&alike(EXECUTORS[0], [2, 1], run));
    assert!(distance.weights < 1e-12, "{distance:?}");
}

#[test]
fn dropout_depends_on_the_place_in_the_whole_batch() {
    for open in EXECUTORS {
        let one = alike(open, [1, 1], |builder| fit(builder, 24, 0.3));
        let distance = one.distance(&alike(open, [2, 2], |builder| fit(builder, 24, 0.3)));
        assert!(distance.weights < 1e-12, "{distance:?}");
        // The control.
        let without = alike(open, [2, 2], |builder| fit(builder, 24, 0.0));
        assert!(one.distance(&without).weights > 1e-6);
    }
}
