//! A transformer with dropout.

use halite_core::{DType, HostArray, Result, tree::Tree};
use halite_data::{InMemory, Labeled};
use halite_nn::{CrossEntropy, Mean, Sgd, Tensor, Trace, Transformer, TransformerConfig};
use halite_tests::long::part;
use halite_train::{Fitted, Task, TrainerBuilder};

use super::{EXECUTORS, alike, hundred_steps_agree};

/// Length of a sequence.
const TIME: usize = 8;

pub(super) struct NextToken;

impl Task for NextToken {
    type Model = Transformer<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Transformer<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let logits = model.forward(batch.input);
        let weights = batch.weight.convert(logits.dtype());
        let weights = weights.broadcast_in_dim(batch.target.dims(), [0]);
        let loss = CrossEntropy::new().weights(weights);
        loss.loss(logits, batch.target)
    }
}

fn fit(builder: TrainerBuilder, dropout: f64) -> Result<Fitted<NextToken>> {
    fit_as(builder, dropout, DType::F64, 9)
}

/// A hundred steps with dropout.
pub(super) fn fit_long(builder: TrainerBuilder, dtype: DType) -> Result<Fitted<NextToken>> {
    fit_as(builder, 0.1, dtype, 100)
}

fn fit_as(
    builder: TrainerBuilder,
    dropout: f64,
    dtype: DType,
    steps: u64,
) -> Result<Fitted<NextToken>> {
    let config = TransformerConfig {
        hidden_size: 16,
        heads: 2,
        kv_heads: 2,
        dropout,
        ..TransformerConfig::tiny()
    };
    let model = Transformer::new(&config)?;
    let model = model.map_leaves(|_, param| param.with_dtype(dtype));
    let token = |sample: usize, at: usize| ((sample * 7 + at) % 64) as u32;
    let tokens = |first: usize| -> Vec<u32> {
        let samples = (0..24).flat_map(|sample| (0..TIME).map(move |at| (sample, first + at)));
        samples.map(|(sample, at)| token(sample, at)).collect()
    };
    let [x, y] = [0, 1].map(|first| HostArray::from_slice(&tokens(first), [24, TIME]).unwrap());
    let data = InMemory::new([("x", x), ("y", y)]).unwrap();
    let trainer = builder.batch_size(8).max_steps(steps).build()?;
    trainer.fit(NextToken, model, Sgd::new(1e-2), data, ())
}

#[test]
fn transformers_with_dropout_train_as_in_one_process() {
    for open in EXECUTORS {
        let one = alike(open, [1, 1], |builder| fit(builder, 0.1));
        for &shape in part(&[[2, 1], [2, 2], [4, 1]], &[1]) {
            let distance = one.distance(&alike(open, shape, |builder| fit(builder, 0.1)));
            assert!(distance.weights < 1e-12, "{shape:?}: {distance:?}");
        }
        // The control.
        let without = alike(open, [2, 1], |builder| fit(builder, 0.0));
        assert!(one.distance(&without).weights > 1e-6);
    }
}

#[test]
fn hundred_steps_agree_on_eight_devices() {
    hundred_steps_agree(|builder| fit_long(builder, DType::F64));
}
