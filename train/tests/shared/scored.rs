//! A task that collects metrics of its inputs as scores, so that the values are known.

use halite_core::{HostArray, tree::Tree};
use halite_data::{InMemory, Labeled};
use halite_nn::{Init, Mean, Param, Tensor, Trace};
use halite_train::{
    Collect, Task,
    metrics::{AveragePrecision, Confusion, PrecisionRecall, RocAuc},
};

pub(crate) const LABELS: [&str; 2] = ["a", "b"];

#[derive(Tree, Debug)]
pub(crate) struct Scale<L> {
    scale: L,
}

pub(crate) fn scale() -> Scale<Param> {
    Scale {
        scale: Param::new([1], Init::Ones),
    }
}

pub(crate) struct Scored;

impl Task for Scored {
    type Model = Scale<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Scale<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let (scores, targets, weight) = (batch.input, batch.target, batch.weight);
        let (auc, precision) = (
            RocAuc::by_label(&LABELS),
            AveragePrecision::by_label(&LABELS),
        );
        cx.collect("roc_auc", auc, scores, targets, weight);
        cx.collect("average_precision", precision, scores, targets, weight);
        let counts = PrecisionRecall::of_labels(&LABELS).by_label();
        cx.collect("labels", counts, scores, targets, weight);
        let classes = Confusion::of_classes(&["first", "second"]);
        cx.collect("classes", classes, scores, targets.argmax(1), weight);
        let error = (scores * model.scale.broadcast_to(scores.dims()) - targets).square();
        Mean::weighted(error.sum([1]), weight)
    }
}

/// Scores of two labels, and their targets.
pub(crate) type Rows = (Vec<f32>, Vec<f32>);

/// Scores with many ties.
pub(crate) fn rows(count: usize) -> Rows {
    let noise = |i: usize, factor: f32| (i as f32 * factor).sin();
    let scores = (0..2 * count).map(|i| (4.0 * noise(i, 1.7)).round() / 4.0);
    let targets =
        (0..2 * count).map(|i| f32::from(noise(i, 1.7) + (i as f32 * 5.3 + 1.0).sin() > 0.2));
    (scores.collect(), targets.collect())
}

pub(crate) fn data(scores: &[f32], targets: &[f32]) -> InMemory {
    let array = |values: &[f32]| HostArray::from_slice(values, [values.len() / 2, 2]).unwrap();
    InMemory::new([("x", array(scores)), ("y", array(targets))]).unwrap()
}

/// The values of a label, of those that [`rows`] returns.
pub(crate) fn label(values: &[f32], label: usize) -> Vec<f64> {
    let of_label = values.iter().skip(label).step_by(2);
    of_label.map(|value| f64::from(*value)).collect()
}
