//! Classification of images: the task, its loss and its metrics.

use std::{fmt, marker::PhantomData};

use halite_core::{
    DType,
    tree::{Family, Leaf},
};
use halite_data::Labeled;
use halite_nn::{CrossEntropy, Mean, Param, Tensor, Trace, correct};
use halite_train::{Predict, Task, Weighted};

/// A family of image classifiers.
pub trait ImageModel: Family<Of<Param>: Send + Sync> {
    /// Maps `images: [batch, side, side]`, with values from 0 to 1, to logits `[batch, 10]`.
    fn logits<'t>(model: &Self::Of<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t>;
}

/// Classification of grayscale images: cross-entropy loss, with accuracy as a metric.
///
/// A batch has images `u8[batch, side, side]` and labels `u8[batch]`. The images are converted to
/// floats from 0 to 1 on the device.
pub struct Classify<M>(PhantomData<fn() -> M>);

impl<M> Classify<M> {
    /// Creates the task for models of family `M`.
    pub fn new() -> Self {
        Classify(PhantomData)
    }
}

// A derive would require the same of `M`.
impl<M> Clone for Classify<M> {
    fn clone(&self) -> Self {
        Classify::new()
    }
}

impl<M> Default for Classify<M> {
    fn default() -> Self {
        Classify::new()
    }
}

impl<M> fmt::Debug for Classify<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Classify")
    }
}

impl<M: ImageModel> Task for Classify<M> {
    type Model = M;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &M::Of<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let logits = M::logits(model, normalized(batch.input));
        cx.metric("accuracy", batch.mean(correct(logits, batch.target)));
        CrossEntropy::new()
            .weights(batch.weight)
            .loss(logits, batch.target)
    }
}

impl<M: ImageModel> Predict for Classify<M> {
    type Output = Leaf<()>;

    /// Returns the most likely class of each image, `s32[batch]`.
    fn predict<'t>(
        &self,
        _cx: &'t Trace,
        model: &M::Of<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Tensor<'t> {
        M::logits(model, normalized(batch.input)).argmax(1)
    }
}

/// Converts pixels from 0 to 255 to floats from 0 to 1.
pub fn normalized(images: Tensor<'_>) -> Tensor<'_> {
    images.convert(DType::F32) / 255.0
}
