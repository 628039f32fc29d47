//! Classification of color images by several labels that do not exclude each other.

use std::{fmt, marker::PhantomData};

use halite_core::{DType, TensorType, tree::Leaf};
use halite_data::Labeled;
use halite_nn::{Adam, Mean, Param, Tensor, Trace, bce_with_logits};
use halite_train::{Collect, Predict, Task, Weighted, metrics::RocAuc};

use crate::{ColorImageModel, Normalization, TrainingOptions, TrainingStep};

/// Classification of color images by several binary labels: binary cross entropy with logits, mean
/// over labels and samples, as `BCEWithLogitsLoss` in PyTorch. The metric `accuracy` is the
/// fraction of labels on whose side of 0 the logit is; in validation, `roc_auc` is the area under
/// the ROC curve, the mean over labels, and `roc_auc/LABEL` that of each.
///
/// A batch has images `u8[batch, height, width, 3]` and labels `f32[batch, labels]` of 0 and 1.
/// Images are normalized on the device.
pub struct MultiLabel<M> {
    /// Normalization of the pixels.
    pub normalization: Normalization,
    /// Names of the labels, in the order of the model's outputs.
    pub labels: Vec<String>,
    model: PhantomData<fn() -> M>,
}

impl<M> MultiLabel<M> {
    /// Creates the task for models of family `M`, whose outputs are the logits of these labels.
    pub fn new(
        normalization: Normalization,
        labels: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        MultiLabel {
            normalization,
            labels: labels.into_iter().map(Into::into).collect(),
            model: PhantomData,
        }
    }
}

// A derive would require the same of `M`.
impl<M> Clone for MultiLabel<M> {
    fn clone(&self) -> Self {
        MultiLabel {
            normalization: self.normalization,
            labels: self.labels.clone(),
            model: PhantomData,
        }
    }
}

impl<M> fmt::Debug for MultiLabel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLabel")
            .field("normalization", &self.normalization)
            .field("labels", &self.labels)
            .finish()
    }
}

impl<M: ColorImageModel> Task for MultiLabel<M> {
    type Model = M;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &M::Of<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let logits = M::logits(model, self.normalization.forward(batch.input));
        let target = batch.target.convert(logits.dtype());
        let is_positive = target.gt(0.5);
        let right = logits.gt(0.0).eq(is_positive).convert(DType::F32);
        cx.metric("accuracy", batch.mean(right.mean([1])));
        let auc = RocAuc::by_label(&self.labels);
        cx.collect("roc_auc", auc, logits, batch.target, batch.weight);
        batch.mean(bce_with_logits(logits, target).mean([1]))
    }
}

impl<M: ColorImageModel> Predict for MultiLabel<M> {
    type Output = Leaf<()>;

    /// Returns the probability of each label, `f32[batch, labels]`.
    fn predict<'t>(
        &self,
        _cx: &'t Trace,
        model: &M::Of<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Tensor<'t> {
        M::logits(model, self.normalization.forward(batch.input)).sigmoid()
    }
}

impl<M: ColorImageModel> MultiLabel<M> {
    /// Training step on images of `side` by `side` pixels, with Adam.
    pub fn step(
        self,
        side: usize,
        model: M::Of<Param>,
        options: &TrainingOptions,
    ) -> TrainingStep<Self, Adam> {
        let labels = self.labels.len();
        TrainingStep {
            task: self,
            model,
            optimizer: Adam::new(options.schedule.clone()),
            clip: options.clip,
            sample: vec![
                TensorType::new(DType::U8, [side, side, 3]),
                TensorType::new(DType::F32, [labels]),
            ],
        }
    }
}
