//! Classification of color images: the task of ImageNet and of folders of images.

use std::{fmt, marker::PhantomData, panic::Location, str::FromStr};

use halite_core::{
    Array, Client, DType, Error, HostArray, Result, Sharding, TensorType,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_data::Labeled;
use halite_nn::{
    Adam, AdamW, CrossEntropy, Decay, Dropout, Jit, Mean, Param, Sgd, Tensor, Trace, correct,
    correct_top_k, soft_cross_entropy,
};
use halite_train::{Collect, Predict, Task, Weighted, metrics::RocAuc};

use crate::{TrainingOptions, TrainingStep};

/// A family of classifiers of color images.
pub trait ColorImageModel: Family<Of<Param>: Send + Sync + Clone> {
    /// Maps normalized `images: [batch, height, width, 3]` to logits `[batch, classes]`.
    fn logits<'t>(model: &Self::Of<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t>;
}

/// Normalization of pixels from 0 to 255: `(pixel - mean) / std`, for red, green and blue.
///
/// A classifier gets the normalization that its weights were trained with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalization {
    /// Subtracted from pixels, from 0 to 255.
    pub mean: [f64; 3],
    /// Divisor, from 0 to 255.
    pub std: [f64; 3],
}

impl Normalization {
    /// Mean and standard deviation of ImageNet, as in torchvision: 0.485, 0.456, 0.406 and 0.229,
    /// 0.224, 0.225 of pixels from 0 to 1.
    pub const IMAGENET: Normalization = Normalization {
        mean: [0.485 * 255.0, 0.456 * 255.0, 0.406 * 255.0],
        std: [0.229 * 255.0, 0.224 * 255.0, 0.225 * 255.0],
    };

    /// Pixels from -1 to 1, as in many weights of timm.
    pub const HALF: Normalization = Normalization {
        mean: [127.5; 3],
        std: [127.5; 3],
    };

    /// `(pixel - 127) / 128`, of EfficientNet-Lite.
    pub const EFFICIENTNET_LITE: Normalization = Normalization {
        mean: [127.0; 3],
        std: [128.0; 3],
    };

    /// Normalizes `images: [.., 3]`, pixels from 0 to 255, and converts them to `f32`; `f64` stays.
    #[track_caller]
    pub fn forward<'t>(&self, images: Tensor<'t>) -> Tensor<'t> {
        let cx = images.trace();
        let x = match images.dtype() {
            DType::F64 => images,
            _ => images.convert(DType::F32),
        };
        let dtype = x.dtype();
        let row = |values: [f64; 3]| {
            let parts = values.map(|value| cx.scalar(value, dtype).reshape([1]));
            cx.concat(&parts, 0)
        };
        (x - row(self.mean)) / row(self.std)
    }
}

/// Mean and standard deviation of red, green and blue: `123.675 116.28 103.53 58.395 57.12 57.375`.
impl fmt::Display for Normalization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.mean;
        let [d, e, g] = self.std;
        write!(f, "{a} {b} {c} {d} {e} {g}")
    }
}

impl FromStr for Normalization {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text.split(' ').map(f64::from_str);
        let numbers = numbers.collect::<Result<Vec<_>, _>>().unwrap_or_default();
        let &[a, b, c, d, e, f] = &numbers[..] else {
            let message = format!(
                "normalization `{text}`; expected mean and standard deviation of three channels"
            );
            return Err(Error::invalid("normalization", message));
        };
        Ok(Normalization {
            mean: [a, b, c],
            std: [d, e, f],
        })
    }
}

/// Classification of color images: cross-entropy loss, with the accuracies of the most likely class
/// and, from six classes on, of the five most likely as metrics.
///
/// A batch has images `u8[batch, height, width, 3]` and labels: integers `[batch]`, or
/// probabilities of the classes `[batch, classes]`, as of mixed images, whose accuracies are those
/// of the most probable class. Images are normalized on the device.
pub struct ClassifyColor<M> {
    /// Normalization of the pixels.
    pub normalization: Normalization,
    /// Label smoothing (Szegedy et al. 2016) of the loss in training, from 0 to 1.
    pub label_smoothing: f64,
    /// Whether half of the training images are mirrored, left to right.
    pub mirror: bool,
    /// Names of the classes for the metric `roc_auc`; without names there is no such metric.
    pub classes: Vec<String>,
    model: PhantomData<fn() -> M>,
}

impl<M> ClassifyColor<M> {
    /// Label smoothing of `halite train imagenet`.
    pub const LABEL_SMOOTHING: f64 = 0.1;

    /// Creates the task for models of family `M`, without label smoothing and mirroring.
    pub fn new(normalization: Normalization) -> Self {
        ClassifyColor {
            normalization,
            label_smoothing: 0.0,
            mirror: false,
            classes: Vec::new(),
            model: PhantomData,
        }
    }

    /// Sets the label smoothing of the loss in training.
    pub fn label_smoothing(mut self, smoothing: f64) -> Self {
        self.label_smoothing = smoothing;
        self
    }

    /// Mirrors half of the training images, left to right.
    pub fn mirror(mut self) -> Self {
        self.mirror = true;
        self
    }

    /// Reports, in validation, the area under the ROC curve of each of these classes against the
    /// others by its probability, `roc_auc/CLASS`, and their mean, `roc_auc`. The names are as many
    /// as the outputs of the model.
    pub fn roc_auc(mut self, classes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.classes = classes.into_iter().map(Into::into).collect();
        self
    }
}

// A derive would require the same of `M`.
impl<M> Clone for ClassifyColor<M> {
    fn clone(&self) -> Self {
        ClassifyColor {
            classes: self.classes.clone(),
            ..*self
        }
    }
}

impl<M> fmt::Debug for ClassifyColor<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassifyColor")
            .field("normalization", &self.normalization)
            .field("label_smoothing", &self.label_smoothing)
            .field("mirror", &self.mirror)
            .field("classes", &self.classes)
            .finish()
    }
}

impl<M: ColorImageModel> Task for ClassifyColor<M> {
    type Model = M;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &M::Of<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let training = cx.is_training();
        let mut images = self.normalization.forward(batch.input);
        if training && self.mirror {
            images = mirrored(cx, images);
        }
        let logits = M::logits(model, images);
        let (target, is_soft) = if batch.target.dtype().is_float() {
            (batch.target.argmax(1), true)
        } else {
            (batch.target, false)
        };
        cx.metric("accuracy", batch.mean(correct(logits, target)));
        if logits.dims().last().is_some_and(|&classes| classes > TOP) {
            cx.metric(
                "top_5_accuracy",
                batch.mean(correct_top_k(logits, target, TOP)),
            );
        }
        if !training && !self.classes.is_empty() {
            let probabilities = logits.convert(DType::F32).softmax(1);
            let own = target.one_hot(self.classes.len(), DType::F32);
            let auc = RocAuc::by_label(&self.classes);
            cx.collect("roc_auc", auc, probabilities, own, batch.weight);
        }
        let smoothing = if training { self.label_smoothing } else { 0.0 };
        if is_soft {
            let classes = batch.target.dims().last().copied().unwrap_or(1).max(1);
            let smoothed = batch.target * (1.0 - smoothing) + smoothing / classes as f64;
            return batch.mean(soft_cross_entropy(logits, smoothed));
        }
        CrossEntropy::new()
            .label_smoothing(smoothing)
            .weights(batch.weight)
            .loss(logits, target)
    }
}

const TOP: usize = 5;

/// Mirrors each of `images: [batch, height, width, 3]` with probability 0.5.
fn mirrored<'t>(cx: &'t Trace, images: Tensor<'t>) -> Tensor<'t> {
    let dims = images.dims();
    let one = TensorType::new(DType::F32, [dims[0], 1, 1, 1]);
    // Among several processes, dropout draws what one process would draw for the same samples.
    let chosen = Dropout::new(0.5).forward(cx.full(1.0, &one)).gt(0.0);
    chosen
        .broadcast_to(dims)
        .select(images.reverse([2]), images)
}

impl<M: ColorImageModel> Predict for ClassifyColor<M> {
    type Output = Leaf<()>;

    /// Returns the probability of each class, `f32[batch, classes]`.
    fn predict<'t>(
        &self,
        _cx: &'t Trace,
        model: &M::Of<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Tensor<'t> {
        M::logits(model, self.normalization.forward(batch.input)).softmax(1)
    }
}

impl<M: ColorImageModel> ClassifyColor<M> {
    /// Probabilities of the classes of images `u8[count, height, width, 3]`: `f32[count, classes]`,
    /// computed in batches of at most 32. Each call compiles a program;
    /// [`Trainer::predict`](halite_train::Trainer::predict) is for data sets.
    ///
    /// # Errors
    /// If the images are of another type, or the program cannot be compiled or run.
    #[track_caller]
    pub fn probabilities(
        &self,
        client: &Client,
        model: &M::Of<Array>,
        images: &HostArray,
    ) -> Result<HostArray> {
        const BATCH: usize = 32;
        let line = Location::caller();
        let refused = |message| Err(Error::invalid("classify", message));
        let &[count, height, width, 3] = images.ty().dims() else {
            let ty = images.ty();
            return refused(format!("images {ty}; expected u8[count, height, width, 3]"));
        };
        let Some(first) = model.leaves().first().copied() else {
            return refused("the model has no parameters".to_owned());
        };
        let mesh = first.sharding().mesh().clone();
        let normalization = self.normalization;
        let program = Jit::<Empty<()>, (M, Leaf<()>), Leaf<()>>::new(
            client,
            move |cx, nothing, (model, Leaf(images))| {
                cx.set_mode(false, None);
                let logits = M::logits(&model, normalization.forward(images));
                (nothing, Leaf(logits.convert(DType::F32).softmax(1)))
            },
        );
        let program = program.named("classify").of_line(line).on(&mesh);
        let replicated = Sharding::replicated(&mesh);
        let (mut rows, mut classes) = (Vec::new(), 0);
        let bytes = (height * width * 3 * images.ty().dtype().size()).max(1);
        for batch in images.bytes().chunks(bytes * BATCH) {
            let ty = images
                .ty()
                .with_dims([batch.len() / bytes, height, width, 3]);
            let batch = HostArray::from_bytes(batch, ty)?;
            let batch = Array::upload(client, &batch, &replicated)?;
            let Leaf(found) = program.run_with((Tree::leaf_refs(model), Leaf(&batch)))?;
            classes = found.ty().dims()[1];
            rows.extend(found.to_vec::<f32>()?);
        }
        HostArray::from_slice(&rows, [count, classes])
    }

    /// Training step of ResNets on images of `side` by `side` pixels, as in torchvision's recipe:
    /// SGD with momentum 0.9 and a weight decay of 1e-4.
    pub fn sgd_step(
        self,
        side: usize,
        model: M::Of<Param>,
        options: &TrainingOptions,
    ) -> TrainingStep<Self, Sgd> {
        let optimizer = Sgd::new(options.schedule.clone())
            .momentum(0.9)
            .weight_decay(1e-4);
        self.step(side, model, optimizer, options)
    }

    /// Training step of vision transformers on images of `side` by `side` pixels: AdamW with a
    /// weight decay of 0.3, as in the paper, of matrices alone.
    pub fn adamw_step(
        self,
        side: usize,
        model: M::Of<Param>,
        options: &TrainingOptions,
    ) -> TrainingStep<Self, AdamW> {
        let optimizer = AdamW::new(options.schedule.clone())
            .weight_decay(0.3)
            .decay(Decay::Matrices);
        self.step(side, model, optimizer, options)
    }

    /// Training step on images of `side` by `side` pixels with Adam.
    pub fn adam_step(
        self,
        side: usize,
        model: M::Of<Param>,
        options: &TrainingOptions,
    ) -> TrainingStep<Self, Adam> {
        let optimizer = Adam::new(options.schedule.clone());
        self.step(side, model, optimizer, options)
    }

    fn step<O>(
        self,
        side: usize,
        model: M::Of<Param>,
        optimizer: O,
        options: &TrainingOptions,
    ) -> TrainingStep<Self, O> {
        TrainingStep {
            task: self,
            model,
            optimizer,
            clip: options.clip,
            sample: vec![
                TensorType::new(DType::U8, [side, side, 3]),
                TensorType::scalar(DType::U32),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalization_is_parsed_from_its_text() {
        let imagenet = Normalization::IMAGENET;
        assert_eq!(
            imagenet.to_string().parse::<Normalization>().unwrap(),
            imagenet
        );
        let error = "1 2 3".parse::<Normalization>().unwrap_err().to_string();
        assert!(error.contains("`1 2 3`"), "{error}");
    }
}
