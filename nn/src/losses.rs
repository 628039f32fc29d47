//! Losses, computed in `f32` (`f64` for `f64`), whatever the compute dtype of the model.
//!
//! A loss function returns the loss of each sample or element, as in Optax. A training task makes the
//! [`Mean`] of them with the weights of the batch, so that the padding of a last batch does not
//! count; a custom loop without padding takes [`mean_all`](Tensor::mean_all).
//!
//! ```
//! use halite_core::{DType, TensorType};
//! use halite_nn::{CrossEntropy, Mean, Trace, cross_entropy};
//!
//! let cx = Trace::new();
//! let logits = cx.input(TensorType::new(DType::F32, [8, 10]), "logits");
//! let target = cx.input(TensorType::new(DType::U8, [8]), "target");
//! let weight = cx.input(TensorType::new(DType::F32, [8]), "weight");
//! let plain = cross_entropy(logits, target); // f32[8]
//! let mean = Mean::weighted(plain, weight);
//! let careful = CrossEntropy::new().label_smoothing(0.1).weights(weight).loss(logits, target);
//! assert_eq!(mean.value().ty(), careful.value().ty());
//! ```

mod nll;

use std::panic::Location;

use halite_core::{DType, TensorType};

pub use self::nll::{NllLoss, nll_loss};
use crate::{Mean, Tensor, check::Checked, context, grad, special::wide};

/// `-log softmax(logits)[target]` of each sample, in nats. `logits: [.., classes]`, `target: [..]` of
/// integers; returns `[..]`.
///
/// A target out of range gives NaN, so that wrong labels are noticed. [`CrossEntropy`] has the
/// options.
#[track_caller]
pub fn cross_entropy<'t>(logits: Tensor<'t>, target: Tensor<'t>) -> Tensor<'t> {
    let _site = logits.trace().called_from(Location::caller());
    let options = CrossEntropy::new();
    match options.each(logits, target) {
        Ok(each) => each.loss,
        Err(error) => error_of_samples(error, target),
    }
}

/// Cross entropy with options, like `torch.nn.CrossEntropyLoss`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrossEntropy<'t> {
    label_smoothing: f64,
    ignore: Option<i32>,
    class_weights: Option<Tensor<'t>>,
    weights: Option<Tensor<'t>>,
}

/// Losses of samples.
struct Samples<'t> {
    /// Loss of each sample, multiplied by its class weight.
    loss: Tensor<'t>,
    /// Class of each sample, as `s32`.
    target: Tensor<'t>,
    /// Weight of each sample's class.
    class_weight: Option<Tensor<'t>>,
}

impl<'t> CrossEntropy<'t> {
    /// Cross entropy with default options: [`cross_entropy`].
    pub fn new() -> Self {
        CrossEntropy::default()
    }

    /// Mixes the target with the uniform distribution, by this fraction (Szegedy et al. 2015).
    pub fn label_smoothing(mut self, part: f64) -> Self {
        self.label_smoothing = part;
        self
    }

    /// Ignores samples with this target: -100, or the id of padding.
    pub fn ignore(mut self, target: i32) -> Self {
        self.ignore = Some(target);
        self
    }

    /// Sets a weight for each class, `[classes]`. The mean is weighted by that of each sample's class.
    pub fn class_weights(mut self, weights: Tensor<'t>) -> Self {
        self.class_weights = Some(weights);
        self
    }

    /// Sets a weight for each sample, `[..]` like the target; 0 leaves it out.
    pub fn weights(mut self, weights: Tensor<'t>) -> Self {
        self.weights = Some(weights);
        self
    }

    /// Computes the mean over the batch. `logits: [.., classes]`, `target: [..]` of integers.
    #[track_caller]
    pub fn loss(&self, logits: Tensor<'t>, target: Tensor<'t>) -> Mean<'t> {
        let _site = logits.trace().called_from(Location::caller());
        match self.each(logits, target) {
            Ok(each) => self.weighted_mean(each),
            Err(error) => Mean::failed(error),
        }
    }

    /// The losses of the samples, ignored ones among them.
    #[track_caller]
    fn each(&self, logits: Tensor<'t>, target: Tensor<'t>) -> Checked<'t, Samples<'t>> {
        let cx = logits.trace();
        self.check(logits, target)?;
        let logits = logits.convert(wide(logits.dtype()));
        let (last, dtype) = (logits.rank() - 1, logits.dtype());
        let classes = logits.dims()[last];
        context::expect_classes(cx, target, classes, self.ignore);
        let target = class_index(target, self.ignore);
        let hit = is_class(target, classes);
        // Subtracting the largest logit does not change the loss; it avoids overflow and keeps the
        // precision of small losses.
        let logits = logits - logits.max_keep([last]).stop_gradient();
        let log_sum_exp = logits.exp().sum([last]).log();
        let class_weights = self.class_weights.map(|weights| weights.convert(dtype));
        let class_weight = class_weights.map(|weights| {
            let weights = weights.broadcast_to(logits.dims());
            hit.select(weights, 0.0).sum([last])
        });

        let mut loss = log_sum_exp - hit.select(logits, 0.0).sum([last]);
        if let Some(weight) = class_weight {
            loss = loss.weighted_by(weight);
        }
        if self.label_smoothing > 0.0 {
            let uniform = match class_weights {
                Some(weights) => {
                    let each = weights.broadcast_to(logits.dims());
                    (log_sum_exp * weights.sum_all() - logits.weighted_by(each).sum([last]))
                        / classes as f64
                }
                None => log_sum_exp - logits.mean([last]),
            };
            let part = |name, value| cx.hyperparameter(name, value, dtype);
            loss = loss * part("1 - label_smoothing", 1.0 - self.label_smoothing)
                + uniform * part("label_smoothing", self.label_smoothing);
        }
        let known = target.ge(0.0).and(target.lt(classes as f64));
        Ok(Samples {
            loss: known.select(loss, f64::NAN),
            target,
            class_weight,
        })
    }

    /// Checks the types of the arguments and of the options; `Err` after a mistake.
    #[track_caller]
    fn check(&self, logits: Tensor<'t>, target: Tensor<'t>) -> Result<(), Tensor<'t>> {
        classified("cross entropy", logits, target)?;
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            let like = TensorType::scalar(wide(logits.dtype()));
            let message = format!("label smoothing {}; expected 0 to 1", self.label_smoothing);
            return Err((logits.trace()).fail("cross entropy", message, Some(like)));
        }
        self.check_weights("cross entropy", logits)
    }

    /// Checks the dimensions of weights of samples and classes; `Err` after a mistake.
    #[track_caller]
    fn check_weights(&self, name: &str, logits: Tensor<'t>) -> Result<(), Tensor<'t>> {
        let like = TensorType::scalar(wide(logits.dtype()));
        let ty = logits.ty().with_dtype(like.dtype());
        let (batch, classes) = ty.dims().split_at(ty.rank() - 1);
        // No broadcasting: weights [n, 1] with targets [n] would be a mean of n² products.
        for (what, weights, dims) in [
            ("weights", self.weights, batch),
            ("class weights", self.class_weights, classes),
        ] {
            let Some(weights) = weights else { continue };
            if !weights.is_error() && weights.dims() != dims {
                let message = format!(
                    "{what} {} for logits {ty}; expected dimensions {dims:?}",
                    weights.ty()
                );
                return Err((logits.trace()).fail(name, message, Some(like)));
            }
        }
        Ok(())
    }

    /// Mean of the losses of samples, without ignored ones.
    #[track_caller]
    fn weighted_mean(&self, each: Samples<'t>) -> Mean<'t> {
        let Samples {
            loss,
            target,
            class_weight,
        } = each;
        let mut share = self.weights.map(|weights| weights.convert(loss.dtype()));
        if let Some(ignored) = self.ignore {
            let is_ignored = target.eq(ignored);
            let zeros = loss.zeros_like();
            share = Some(is_ignored.select(zeros, share.unwrap_or(loss.ones_like())));
        }
        match (share, class_weight) {
            (None, None) => Mean::of(loss),
            (None, Some(weight)) => Mean {
                total: loss.sum_all(),
                weight: weight.sum_all(),
            },
            (Some(share), weight) => Mean {
                total: loss.weighted_by(share).sum_all(),
                weight: weight.map_or(share, |weight| weight * share).sum_all(),
            },
        }
    }
}

/// `-sum(target * log softmax(logits))` of each sample: cross entropy with a distribution over
/// classes as the target, as label mixing gives. Both `[.., classes]`; returns `[..]`. A target of 0
/// contributes 0, also if the logit is -inf.
#[track_caller]
pub fn soft_cross_entropy<'t>(logits: Tensor<'t>, target: Tensor<'t>) -> Tensor<'t> {
    let _site = logits.trace().called_from(Location::caller());
    match paired("soft cross entropy", logits, target) {
        Ok((logits, target)) if logits.rank() > 0 => {
            let last = logits.rank() - 1;
            let logs = logits.log_softmax(last);
            let kept = target.ne(0.0).or(logs.is_finite());
            let logs = grad::leave_out(logits.trace(), logs, kept);
            -(target * logs).sum([last])
        }
        Ok((logits, _)) => {
            logits
                .trace()
                .fail("soft cross entropy", "scalars have no classes", None)
        }
        Err(error) => error,
    }
}

/// Kullback-Leibler divergence of softmax(`logits`) from the distribution `target` of each sample,
/// in nats. Both `[.., classes]`; returns `[..]`. A target of 0 contributes 0.
#[track_caller]
pub fn kl_divergence<'t>(logits: Tensor<'t>, target: Tensor<'t>) -> Tensor<'t> {
    let _site = logits.trace().called_from(Location::caller());
    let cross = soft_cross_entropy(logits, target);
    if cross.is_error() {
        return cross;
    }
    let target = target.convert(cross.dtype());
    let positive = target.gt(0.0);
    // The logarithm in the unselected branch must be finite, or its gradient is NaN.
    let log = positive.select(target, 1.0).log();
    cross + (target * log).sum([target.rank() - 1])
}

/// Binary cross entropy of `sigmoid(logits)` with `target` of each element, in nats, for labels that
/// do not exclude each other. Equal dimensions; `target` from 0 to 1.
#[track_caller]
pub fn bce_with_logits<'t>(logits: Tensor<'t>, target: Tensor<'t>) -> Tensor<'t> {
    elementwise("bce with logits", logits, target, |logits, target| {
        // softplus(logits) - logits * target without a difference, which would cancel.
        let [negative, positive] = [logits, -logits].map(Tensor::softplus);
        negative.weighted_by(1.0 - target) + positive.weighted_by(target)
    })
}

/// Squared difference of each element. Equal dimensions.
#[track_caller]
pub fn mse<'t>(prediction: Tensor<'t>, target: Tensor<'t>) -> Tensor<'t> {
    elementwise("mse", prediction, target, |prediction, target| {
        (prediction - target).square()
    })
}

/// Absolute difference of each element. Equal dimensions.
#[track_caller]
pub fn mae<'t>(prediction: Tensor<'t>, target: Tensor<'t>) -> Tensor<'t> {
    elementwise("mae", prediction, target, |prediction, target| {
        (prediction - target).abs()
    })
}

/// Huber's loss of each element: half the square of a difference `d` up to `delta`, beyond it
/// `delta (|d| - delta / 2)`. Equal dimensions; `delta` above 0. Divided by `delta` it is PyTorch's
/// `smooth_l1_loss`.
#[track_caller]
pub fn huber<'t>(prediction: Tensor<'t>, target: Tensor<'t>, delta: f64) -> Tensor<'t> {
    // The loss of a `delta` of 0 is 0, and below 0 it falls with the distance.
    if delta.is_nan() || delta <= 0.0 {
        let cx = prediction.trace();
        let message = format!("delta {delta}; expected a number above 0, such as 1");
        return cx.fail("huber", message, Some(prediction.ty()));
    }
    elementwise("huber", prediction, target, |prediction, target| {
        let difference = prediction - target;
        // Without a select between two forms, of which one may be infinite and its gradient NaN.
        let part = difference.clamp(-delta, delta);
        part * 0.5 * part + (difference - part) * part
    })
}

/// Converts both to the element type of sums, if they are floats of equal dimensions.
fn paired<'t>(
    loss: &str,
    prediction: Tensor<'t>,
    target: Tensor<'t>,
) -> Result<(Tensor<'t>, Tensor<'t>), Tensor<'t>> {
    let (a, b) = (prediction.ty(), target.ty());
    if prediction.is_error() || target.is_error() {
        return Err(prediction.trace().error_like(Some(a)));
    }
    // No broadcasting: [n] with [n, 1] would be a loss of n² pairs.
    if a.dims() != b.dims() || !a.dtype().is_float() {
        let message = format!("prediction {a} and target {b}; expected floats of equal dimensions");
        return Err(prediction.trace().fail(loss, message, Some(a)));
    }
    let wide = wide(a.dtype());
    Ok((prediction.convert(wide), target.convert(wide)))
}

#[track_caller]
fn elementwise<'t>(
    loss: &str,
    prediction: Tensor<'t>,
    target: Tensor<'t>,
    each: impl FnOnce(Tensor<'t>, Tensor<'t>) -> Tensor<'t>,
) -> Tensor<'t> {
    let _site = prediction.trace().called_from(Location::caller());
    match paired(loss, prediction, target) {
        Ok((prediction, target)) => each(prediction, target),
        Err(error) => error,
    }
}

/// The error tensor in place of a value for each sample.
fn error_of_samples<'t>(error: Tensor<'t>, target: Tensor<'t>) -> Tensor<'t> {
    let like = target.ty().with_dtype(error.dtype());
    error.trace().error_like(Some(like))
}

/// The target as `s32`. Numbers that `s32` does not have become one that is neither a class nor
/// `ignored`.
pub(crate) fn class_index(target: Tensor<'_>, ignored: Option<i32>) -> Tensor<'_> {
    let dtype = target.dtype();
    let (low, high) = (f64::from(i32::MIN), f64::from(i32::MAX));
    let index = target.convert(DType::S32);
    if holds_all(dtype) {
        return index;
    }
    let fits = if dtype.is_signed_integer() {
        target.ge(low).and(target.le(high))
    } else {
        target.le(high)
    };
    let none = if ignored == Some(i32::MIN) {
        low + 1.0
    } else {
        low
    };
    fits.select(index, none)
}

/// Whether `s32` has all numbers of an integer type.
fn holds_all(dtype: DType) -> bool {
    dtype == DType::S32 || dtype.size() < DType::S32.size()
}

/// One-hot encoding of the target: `[..]` to `bool[.., classes]`.
pub(crate) fn is_class(target: Tensor<'_>, classes: usize) -> Tensor<'_> {
    let mut dims = target.dims();
    dims.push(classes);
    let last = dims.len() - 1;
    let class = target
        .trace()
        .iota(&TensorType::new(target.dtype(), &dims), last);
    target.unsqueeze(last).broadcast_to(dims).eq(class)
}

/// Checks that `logits: [.., classes]` are floats and `target: [..]` integers; otherwise returns the
/// error tensor, a scalar.
pub(crate) fn classified<'t>(
    name: &str,
    logits: Tensor<'t>,
    target: Tensor<'t>,
) -> Result<(), Tensor<'t>> {
    let (a, b, cx) = (logits.ty(), target.ty(), logits.trace());
    let like = TensorType::scalar(wide(a.dtype()));
    if logits.is_error() || target.is_error() {
        return Err(cx.error_like(Some(like)));
    }
    let fits = a.rank() > 0 && a.dims()[..a.rank() - 1] == *b.dims();
    if fits && a.dtype().is_float() && b.dtype().is_integer() {
        return Ok(());
    }
    let message =
        format!("logits {a} and target {b}; expected floats [.., classes] and integers [..]");
    Err(cx.fail(name, message, Some(like)))
}
