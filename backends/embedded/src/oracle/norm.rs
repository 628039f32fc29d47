//! Batch normalization. Statistics are over all dimensions but the feature, in `f64`.

use halite_core::Result;
use halite_stablehlo::RankedType;

use super::tensor::{Tensor, Wide, collect};

/// A tensor whose elements belong to features.
struct Features<'a> {
    dims: &'a [usize],
    feature: usize,
}

impl Features<'_> {
    fn count(&self) -> usize {
        self.dims[self.feature]
    }

    /// Number of elements of each feature.
    fn elements(&self) -> f64 {
        let others = self
            .dims
            .iter()
            .enumerate()
            .filter(|&(dim, _)| dim != self.feature);
        others.map(|(_, &size)| size as f64).product()
    }

    /// The feature of the element at a position.
    fn at(&self, position: usize) -> usize {
        let inner: usize = self.dims[self.feature + 1..].iter().product();
        position / inner % self.count()
    }

    fn sums(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut sums = vec![0.0; self.count()];
        values
            .enumerate()
            .for_each(|(position, value)| sums[self.at(position)] += value);
        sums
    }

    fn means(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        self.sums(values)
            .into_iter()
            .map(|sum| sum / self.elements())
            .collect()
    }
}

fn encode(values: Vec<f64>, ty: &RankedType) -> Result<Tensor> {
    Tensor::encode(ty, Wide::Float(values))
}

/// `scale (x - mean) / sqrt(variance + epsilon) + offset`. Operands: x, scale, offset, mean,
/// variance.
pub(super) fn inference(
    operands: [&Tensor; 5],
    epsilon: f32,
    feature: usize,
    ty: &RankedType,
) -> Result<Tensor> {
    let features = Features {
        dims: &ty.dims,
        feature,
    };
    let x = operands[0].floats()?;
    let [scale, offset, mean, variance] = [
        operands[1].floats()?,
        operands[2].floats()?,
        operands[3].floats()?,
        operands[4].floats()?,
    ];
    let normalized = |(position, x): (usize, f64)| {
        let at = features.at(position);
        let deviation = (variance[at] + f64::from(epsilon)).sqrt();
        scale[at] * (x - mean[at]) / deviation + offset[at]
    };
    encode(
        collect(x.len(), x.into_iter().enumerate().map(normalized))?,
        ty,
    )
}

/// The normalized tensor, and mean and variance of the batch. Operands: x, scale, offset.
pub(super) fn training(
    operands: [&Tensor; 3],
    epsilon: f32,
    feature: usize,
    types: [&RankedType; 3],
) -> Result<[Tensor; 3]> {
    let [x, scale, offset] = operands;
    let features = Features {
        dims: &x.ty.dims,
        feature,
    };
    let values = x.floats()?;
    let means = features.means(values.iter().copied());
    let square = |(position, value): (usize, &f64)| (value - means[features.at(position)]).powi(2);
    let variances = features.means(values.iter().enumerate().map(square));
    let (mean, variance) = (encode(means, types[1])?, encode(variances, types[2])?);
    let y = inference(
        [x, scale, offset, &mean, &variance],
        epsilon,
        feature,
        types[0],
    )?;
    Ok([y, mean, variance])
}

/// Gradients with respect to x, scale and offset. Operands: x, scale, mean, variance, the gradient
/// with respect to the normalized tensor.
pub(super) fn gradient(
    operands: [&Tensor; 5],
    epsilon: f32,
    feature: usize,
    types: [&RankedType; 3],
) -> Result<[Tensor; 3]> {
    let features = Features {
        dims: &operands[0].ty.dims,
        feature,
    };
    let (x, dy) = (operands[0].floats()?, operands[4].floats()?);
    let [scale, mean, variance] = [
        operands[1].floats()?,
        operands[2].floats()?,
        operands[3].floats()?,
    ];
    let inverse: Vec<_> = variance
        .iter()
        .map(|variance| 1.0 / (variance + f64::from(epsilon)).sqrt())
        .collect();
    let normalized = |position: usize| {
        let at = features.at(position);
        (x[position] - mean[at]) * inverse[at]
    };
    let offset_gradient = features.sums(dy.iter().copied());
    let products = dy
        .iter()
        .enumerate()
        .map(|(position, dy)| dy * normalized(position));
    let scale_gradient = features.sums(products);
    let count = features.elements();
    let x_gradient = |(position, dy): (usize, &f64)| {
        let at = features.at(position);
        let mean_part = offset_gradient[at] / count;
        let variance_part = normalized(position) * scale_gradient[at] / count;
        scale[at] * inverse[at] * (dy - mean_part - variance_part)
    };
    let dx = collect(dy.len(), dy.iter().enumerate().map(x_gradient))?;
    Ok([
        encode(dx, types[0])?,
        encode(scale_gradient, types[1])?,
        encode(offset_gradient, types[2])?,
    ])
}
