//! Normalization layers. Statistics are computed in `f32`, or in `f64` for inputs in `f64`. Where
//! a mean square overflows, from about 1.8e19 on in `f32`, the results are NaN.

use std::panic::Location;

use halite_core::Tree;

use crate::{Init, Param, Tensor, context, processes, special::wide};

/// Batch normalization over the batch and spatial dimensions (Ioffe and Szegedy 2015), features
/// last.
///
/// Training uses the statistics of the batch, over all devices and processes, and updates their
/// running averages, which are state; evaluation uses the running averages. The variance is that of the distances from the mean of
/// the batch, so it is exact however far from 0 the inputs are, and takes a second pass over them.
/// A batch of one value for each feature has no variance, which is a mistake in training.
///
/// The traced function sets the mode ([`Trace::set_mode`](crate::Trace::set_mode)) and returns the
/// new running statistics of a training step: [`Trace::updated`](crate::Trace::updated).
#[derive(Clone, Debug, Tree)]
pub struct BatchNorm<L> {
    /// `[features]`
    pub scale: L,
    /// `[features]`
    pub bias: L,
    /// Running mean, `[features]`: state.
    pub mean: L,
    /// Running variance, unbiased (divided by the count minus 1), `[features]`: state.
    pub variance: L,
    /// Weight of a new batch in the running averages: 0.1.
    pub momentum: f64,
    /// Added to the variance: 1e-5.
    pub eps: f64,
}

/// Layer normalization over the last dimension (Ba et al. 2016).
#[derive(Clone, Debug, Tree)]
pub struct LayerNorm<L> {
    /// `[features]`
    pub scale: L,
    /// `[features]`
    pub bias: Option<L>,
    /// Added to the variance: 1e-5.
    pub eps: f64,
}

/// Group normalization over groups of features and space, per sample (Wu and He 2018), features
/// last.
#[derive(Clone, Debug, Tree)]
pub struct GroupNorm<L> {
    /// `[features]`
    pub scale: L,
    /// `[features]`
    pub bias: L,
    /// Number of groups; it divides the number of features.
    pub groups: usize,
    /// Added to the variance: 1e-5.
    pub eps: f64,
}

/// Instance normalization: over space, for each sample and feature (Ulyanov et al. 2016), features
/// last. `torch.nn.InstanceNorm2d(affine=True)`; [`without_affine`](Self::without_affine) is
/// PyTorch's default. There are no running statistics.
#[derive(Clone, Debug, Tree)]
pub struct InstanceNorm<L> {
    /// `[features]`
    pub scale: Option<L>,
    /// `[features]`
    pub bias: Option<L>,
    /// Added to the variance: 1e-5.
    pub eps: f64,
}

/// Root-mean-square normalization of the last dimension (Zhang and Sennrich 2019).
#[derive(Clone, Debug, Tree)]
pub struct RmsNorm<L> {
    /// `[features]`
    pub scale: L,
    /// Added to the mean square: 1e-6.
    pub eps: f64,
}

impl BatchNorm<Param> {
    /// Creates the layer for this number of features.
    pub fn new(features: usize) -> Self {
        BatchNorm {
            scale: Param::new([features], Init::Ones),
            bias: Param::new([features], Init::Zeros),
            mean: Param::state([features], Init::Zeros),
            variance: Param::state([features], Init::Ones),
            momentum: 0.1,
            eps: 1e-5,
        }
    }

    /// Sets the weight of a new batch in the running averages.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Sets the constant that is added to the variance.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Sets the initialization of the scale; zeros at the end of a residual branch initialize the
    /// block as the identity.
    pub fn scale_init(mut self, init: Init) -> Self {
        self.scale.init = init;
        self
    }
}

impl<'t> BatchNorm<Tensor<'t>> {
    /// Normalizes `x: [batch, .., features]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let cx = x.trace();
        let _site = cx.called_from(Location::caller());
        if !fits("batch norm", x, self.scale, self.eps) {
            return cx.error_like(Some(x.ty()));
        }
        if !(0.0..=1.0).contains(&self.momentum) {
            let message = format!("momentum {}; expected 0 to 1", self.momentum);
            return cx.fail("batch norm", message, Some(x.ty()));
        }
        let wide = wide(x.dtype());
        let value = x.convert(wide);
        let (running_mean, running_variance) =
            (self.mean.convert(wide), self.variance.convert(wide));
        let (mean, variance) = if context::training_for(cx, "batch norm") {
            let dims: Vec<usize> = (0..x.rank() - 1).collect();
            let processes = cx.processes().map_or(1, |processes| processes.size());
            let count = processes * x.dims()[..x.rank() - 1].iter().product::<usize>();
            if is_of_one("batch norm", x, count) {
                return cx.error_like(Some(x.ty()));
            }
            // E[x²] - E[x]² cancels when the mean is large compared to the deviation, so the mean
            // is subtracted first. That is rounded (a long sum of large numbers, by more than the
            // deviation), and the second pass computes what is left of it. Distances from the
            // running mean make the first sum smaller. The derivatives of both statistics do not
            // depend on what is subtracted.
            let running = running_mean.stop_gradient();
            let [shift] = processes::means(cx, "batch norm", [(value - running).mean(&dims)]);
            let guess = (running + shift).stop_gradient();
            let shifted = value - guess;
            let of_process = [shifted.mean(&dims), shifted.square().mean(&dims)];
            let [offset, square] = processes::means(cx, "batch norm", of_process);
            let variance = (square - offset.square()).maximum(0.0);
            let mean = guess + offset;
            let count = count as f64;
            let sample_variance = variance * (count / (count - 1.0).max(1.0));
            self.update_running(self.mean, mean);
            self.update_running(self.variance, sample_variance);
            (mean, variance)
        } else {
            (running_mean, running_variance)
        };
        let scale = self.scale.convert(wide) * inverse_root(variance + self.eps);
        ((value - mean) * scale + self.bias.convert(wide)).convert(x.dtype())
    }

    /// Updates a running average with the value of a batch.
    fn update_running(&self, state: Tensor<'t>, batch: Tensor<'t>) {
        let cx = state.trace();
        // A layer that is used twice in a step continues from its first update.
        let old = cx.updated(state);
        let new = old * (1.0 - self.momentum)
            + batch.stop_gradient().convert(state.dtype()) * self.momentum;
        cx.update(state, new);
    }
}

impl LayerNorm<Param> {
    /// Creates the layer for this number of features, with a bias.
    pub fn new(features: usize) -> Self {
        let bias = Some(Param::new([features], Init::Zeros));
        LayerNorm {
            scale: Param::new([features], Init::Ones),
            bias,
            eps: 1e-5,
        }
    }

    /// Removes the bias.
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// Sets the constant that is added to the variance.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }
}

impl<'t> LayerNorm<Tensor<'t>> {
    /// Normalizes `x: [.., features]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        if !fits("layer norm", x, self.scale, self.eps) {
            return x.trace().error_like(Some(x.ty()));
        }
        let wide = wide(x.dtype());
        let y = normalized(x.convert(wide), &[x.rank() - 1], self.eps) * self.scale.convert(wide);
        let y = self.bias.map_or(y, |bias| y + bias.convert(wide));
        y.convert(x.dtype())
    }
}

impl GroupNorm<Param> {
    /// Creates the layer for this number of groups and features.
    pub fn new(groups: usize, features: usize) -> Self {
        let (scale, bias) = (
            Param::new([features], Init::Ones),
            Param::new([features], Init::Zeros),
        );
        GroupNorm {
            scale,
            bias,
            groups,
            eps: 1e-5,
        }
    }

    /// Sets the constant that is added to the variance.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }
}

impl<'t> GroupNorm<Tensor<'t>> {
    /// Normalizes `x: [batch, .., features]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let cx = x.trace();
        let _site = cx.called_from(Location::caller());
        if !fits("group norm", x, self.scale, self.eps) {
            return cx.error_like(Some(x.ty()));
        }
        let (dims, wide) = (x.dims(), wide(x.dtype()));
        let features = dims[dims.len() - 1];
        if dims.len() < 2 || self.groups == 0 || !features.is_multiple_of(self.groups) {
            let message = format!(
                "{} groups of {}; expected [batch, .., features], divisible by the groups",
                self.groups,
                x.ty()
            );
            return cx.fail("group norm", message, Some(x.ty()));
        }
        let space = dims[1..dims.len() - 1].iter().product::<usize>();
        if is_of_one("group norm", x, space * (features / self.groups)) {
            return cx.error_like(Some(x.ty()));
        }
        let grouped =
            x.convert(wide)
                .reshape([dims[0], space, self.groups, features / self.groups]);
        let y = normalized(grouped, &[1, 3], self.eps).reshape(&dims);
        (y * self.scale.convert(wide) + self.bias.convert(wide)).convert(x.dtype())
    }
}

impl InstanceNorm<Param> {
    /// Creates the layer for this number of features, with a scale and a bias.
    pub fn new(features: usize) -> Self {
        InstanceNorm {
            scale: Some(Param::new([features], Init::Ones)),
            bias: Some(Param::new([features], Init::Zeros)),
            eps: 1e-5,
        }
    }

    /// Removes the scale and the bias.
    pub fn without_affine(mut self) -> Self {
        (self.scale, self.bias) = (None, None);
        self
    }

    /// Sets the constant that is added to the variance.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }
}

impl<'t> InstanceNorm<Tensor<'t>> {
    /// Normalizes `x: [batch, spatial.., features]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let cx = x.trace();
        let _site = cx.called_from(Location::caller());
        let mut leaves = [self.scale, self.bias].into_iter().flatten();
        if x.is_error() || !leaves.all(|leaf| fits("instance norm", x, leaf, self.eps)) {
            return cx.error_like(Some(x.ty()));
        }
        let (dims, wide) = (x.dims(), wide(x.dtype()));
        if dims.len() < 2 || !x.dtype().is_float() {
            let message = format!("{}; expected floats [batch, spatial.., features]", x.ty());
            return cx.fail("instance norm", message, Some(x.ty()));
        }
        let space: Vec<usize> = (1..dims.len() - 1).collect();
        if is_of_one("instance norm", x, dims[1..dims.len() - 1].iter().product()) {
            return cx.error_like(Some(x.ty()));
        }
        let mut y = normalized(x.convert(wide), &space, self.eps);
        if let Some(scale) = self.scale {
            y = y * scale.convert(wide);
        }
        if let Some(bias) = self.bias {
            y = y + bias.convert(wide);
        }
        y.convert(x.dtype())
    }
}

impl RmsNorm<Param> {
    /// Creates the layer for this number of features.
    pub fn new(features: usize) -> Self {
        RmsNorm {
            scale: Param::new([features], Init::Ones),
            eps: 1e-6,
        }
    }

    /// Sets the constant that is added to the mean square.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }
}

impl<'t> RmsNorm<Tensor<'t>> {
    /// Normalizes `x: [.., features]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        if !fits("rms norm", x, self.scale, self.eps) {
            return x.trace().error_like(Some(x.ty()));
        }
        let wide = wide(x.dtype());
        let value = x.convert(wide);
        let root = inverse_root(value.square().mean_keep([x.rank() - 1]) + self.eps);
        (value * root * self.scale.convert(wide)).convert(x.dtype())
    }
}

/// Subtracts the mean of `x` and divides by its standard deviation, over `dims`.
fn normalized<'t>(x: Tensor<'t>, dims: &[usize], eps: f64) -> Tensor<'t> {
    let centered = x - x.mean_keep(dims);
    centered * inverse_root(centered.square().mean_keep(dims) + eps)
}

/// `1 / sqrt(square)`, and NaN where a mean square has overflowed: 0 would make all results 0 in
/// silence.
fn inverse_root(square: Tensor<'_>) -> Tensor<'_> {
    square.lt(f64::INFINITY).select(square.rsqrt(), f64::NAN)
}

/// Records a mistake for a statistic of one value, whose distance from the mean is always 0: the
/// results would be the bias, whatever `x` is, and nothing before the layer would learn.
#[track_caller]
fn is_of_one(layer: &str, x: Tensor<'_>, count: usize) -> bool {
    if count == 1 {
        let message = format!(
            "{} has one value for each mean and variance, whose result is always the bias; expected \
             more values, by a larger batch or more positions",
            x.ty()
        );
        x.trace().fail(layer, message, Some(x.ty()));
    }
    count == 1
}

/// Checks that `x` has floats and as many features as `scale`, and that `eps` is not negative; a
/// mistake if not.
#[track_caller]
fn fits(layer: &str, x: Tensor<'_>, scale: Tensor<'_>, eps: f64) -> bool {
    let (ty, features) = (x.ty(), scale.ty());
    if x.is_error() || scale.is_error() {
        return false;
    }
    if !(eps.is_finite() && eps >= 0.0) {
        let message = format!("eps {eps}; expected 0 or a positive number, such as 1e-5");
        x.trace().fail(layer, message, Some(ty));
        return false;
    }
    if ty.dtype().is_float() && ty.rank() > 0 && ty.dims().last() == features.dims().first() {
        return true;
    }
    let name = scale
        .name()
        .map_or(String::new(), |name| format!(" (`{name}`)"));
    x.trace().fail(
        layer,
        format!(
            "{ty} with a scale of {features}{name}; expected floats [.., features], features last"
        ),
        Some(ty),
    );
    false
}
