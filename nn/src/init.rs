//! First values of parameters, drawn on the device.

use std::panic::Location;

use halite_core::{
    TensorType, Tree,
    tree::{Empty, Leaf, Of},
};

use crate::{Param, Tensor, Trace, rng, special::wide};

/// How the first value of a parameter is made.
///
/// Fans are counted with the convention of halite's layers: the last dimension counts outputs, the
/// one before inputs, the others are the window of a kernel (`Linear: [in, out]`,
/// `Conv2d: [height, width, in, out]`). A tensor of one dimension has that for both fans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// 0
    Zeros,
    /// 1
    Ones,
    /// One number.
    Constant(f64),
    /// Uniform in `[low, high)`.
    Uniform {
        /// The least value.
        low: f64,
        /// All values are below.
        high: f64,
    },
    /// Normal.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Normal, given that the value is less than two standard deviations from the mean. (Its own
    /// standard deviation is 0.88 `std`.)
    TruncatedNormal {
        /// Mean.
        mean: f64,
        /// Standard deviation before the tails are cut.
        std: f64,
    },
    /// Mean 0, variance `scale / fan`.
    VarianceScaling {
        /// The variance times the fan.
        scale: f64,
        /// Which fan.
        mode: Fan,
        /// Which distribution of that variance.
        distribution: Distribution,
    },
}

/// What a variance is divided by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fan {
    /// Inputs of one output.
    In,
    /// Outputs of one input.
    Out,
    /// Mean of both.
    Average,
}

/// A distribution, its variance given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Distribution {
    /// Normal without the values beyond two standard deviations, widened to have the variance
    /// nonetheless.
    TruncatedNormal,
    /// Normal.
    Normal,
    /// Uniform around 0.
    Uniform,
}

impl Init {
    /// LeCun et al. 1998: variance `1 / fan_in`; truncated normal.
    pub const fn lecun_normal() -> Self {
        Init::scaled(1.0, Fan::In, Distribution::TruncatedNormal)
    }

    /// LeCun et al. 1998: variance `1 / fan_in`; uniform.
    pub const fn lecun_uniform() -> Self {
        Init::scaled(1.0, Fan::In, Distribution::Uniform)
    }

    /// Glorot and Bengio 2010 ("Xavier"): variance `2 / (fan_in + fan_out)`; normal.
    pub const fn glorot_normal() -> Self {
        Init::scaled(1.0, Fan::Average, Distribution::Normal)
    }

    /// Glorot and Bengio 2010 ("Xavier"): variance `2 / (fan_in + fan_out)`; uniform.
    pub const fn glorot_uniform() -> Self {
        Init::scaled(1.0, Fan::Average, Distribution::Uniform)
    }

    /// He et al. 2015 ("Kaiming"): variance `2 / fan_in`, which keeps the variance through a ReLU;
    /// normal.
    pub const fn he_normal() -> Self {
        Init::scaled(2.0, Fan::In, Distribution::Normal)
    }

    /// He et al. 2015 ("Kaiming"): variance `2 / fan_in`, which keeps the variance through a ReLU;
    /// uniform.
    pub const fn he_uniform() -> Self {
        Init::scaled(2.0, Fan::In, Distribution::Uniform)
    }

    /// What PyTorch gives weights and biases of linear and convolution layers that have `fan_in`
    /// inputs: `kaiming_uniform(a = sqrt(5))`, which is uniform within `1 / sqrt(fan_in)`.
    pub fn torch_default(fan_in: usize) -> Self {
        let bound = 1.0 / (fan_in.max(1) as f64).sqrt();
        Init::Uniform {
            low: -bound,
            high: bound,
        }
    }

    const fn scaled(scale: f64, mode: Fan, distribution: Distribution) -> Self {
        Init::VarianceScaling {
            scale,
            mode,
            distribution,
        }
    }

    /// Needs a random key.
    pub const fn is_random(&self) -> bool {
        !matches!(self, Init::Zeros | Init::Ones | Init::Constant(_))
    }

    /// A first value of type `ty`. `key` (`u32[2]`) is not used unless the value [is
    /// random](Self::is_random).
    #[track_caller]
    pub fn sample<'t>(&self, key: Tensor<'t>, ty: &TensorType) -> Tensor<'t> {
        self.draw(key.trace(), || key, ty)
    }

    /// As many values one upon the other as the first `stacked` dimensions say, each drawn from a
    /// key of its own.
    fn draw_each<'t>(
        &self,
        cx: &'t Trace,
        key: impl FnOnce() -> Tensor<'t>,
        ty: &TensorType,
        stacked: usize,
    ) -> Tensor<'t> {
        if stacked == 0 || !self.is_random() {
            return self.draw(cx, key, ty);
        }
        let layer = ty.with_dims(&ty.dims()[1..]);
        let keys = rng::split_many(key(), ty.dims()[0]);
        let (_, Leaf(values)) = cx.scan(
            Empty::new(),
            Leaf(keys),
            |nothing: Empty<Tensor<'t>>, Leaf(key)| {
                let value: Tensor<'t> = self.draw_each(
                    cx,
                    Box::new(|| key) as Box<dyn FnOnce() -> Tensor<'t>>,
                    &layer,
                    stacked - 1,
                );
                (nothing, Leaf(value))
            },
        );
        values
    }

    fn draw<'t>(
        &self,
        cx: &'t Trace,
        key: impl FnOnce() -> Tensor<'t>,
        ty: &TensorType,
    ) -> Tensor<'t> {
        let dims = ty.dims();
        // Scaled before it is rounded to 16 bits.
        let wide = wide(ty.dtype());
        let value = match *self {
            Init::Zeros => return cx.full(0.0, ty),
            Init::Ones => return cx.full(1.0, ty),
            Init::Constant(value) => return cx.full(value, ty),
            Init::Uniform { low, high } => rng::uniform(key(), dims, wide, low, high),
            Init::Normal { mean, std } => moved(rng::normal(key(), dims, wide), mean, std),
            Init::TruncatedNormal { mean, std } => moved(
                rng::truncated_normal(key(), dims, wide, -2.0, 2.0),
                mean,
                std,
            ),
            Init::VarianceScaling {
                scale,
                mode,
                distribution,
            } => {
                let (fan_in, fan_out) = fans(dims);
                let fan = match mode {
                    Fan::In => fan_in,
                    Fan::Out => fan_out,
                    Fan::Average => (fan_in + fan_out) / 2.0,
                };
                let variance = scale / fan.max(1.0);
                match distribution {
                    // The standard deviation of a normal distribution cut at two of its own.
                    Distribution::TruncatedNormal => {
                        let std = variance.sqrt() / 0.879_625_661_034_239_8;
                        rng::truncated_normal(key(), dims, wide, -2.0, 2.0) * std
                    }
                    Distribution::Normal => rng::normal(key(), dims, wide) * variance.sqrt(),
                    Distribution::Uniform => {
                        rng::uniform(key(), dims, wide, -1.0, 1.0) * (3.0 * variance).sqrt()
                    }
                }
            }
        };
        value.convert(ty.dtype())
    }
}

/// First values of all leaves of `model`, from one random key (`u32[2]`).
///
/// Each leaf has a key of its own, made of `key` and the leaf's path. So a layer more or less, or
/// another order of fields, does not change what the other leaves get. Each layer of a
/// [stacked](Param::stacked) leaf has a key of its own, split from the leaf's.
#[track_caller]
pub fn init<'t, M: Tree<Leaf = Param>>(
    cx: &'t Trace,
    model: &M,
    key: Tensor<'t>,
) -> Of<M, Tensor<'t>> {
    let _site = cx.called_from(Location::caller());
    let hashes: Vec<u64> = model
        .named()
        .iter()
        .filter(|(_, param)| param.init.is_random())
        .map(|(path, _)| stable_hash(path))
        .collect();
    // All keys in one go: a few operations on vectors instead of a hundred on scalars for each
    // leaf.
    let keys = (!hashes.is_empty()).then(|| rng::fold_in_many(key, &hashes));
    let mut drawn = 0;
    Tree::as_ref(model).map(|_, param| {
        let next = || {
            let keys = keys.expect("there are keys if a leaf is random");
            drawn += 1;
            rng::row(keys, drawn - 1)
        };
        param.init.draw_each(cx, next, &param.ty, param.stacked)
    })
}

fn moved<'t>(x: Tensor<'t>, mean: f64, std: f64) -> Tensor<'t> {
    let x = if std == 1.0 { x } else { x * std };
    if mean == 0.0 { x } else { x + mean }
}

/// Inputs of one output, and outputs of one input.
fn fans(dims: &[usize]) -> (f64, f64) {
    match dims {
        [] => (1.0, 1.0),
        [only] => (*only as f64, *only as f64),
        [window @ .., inputs, outputs] => {
            let window: f64 = window.iter().map(|&size| size as f64).product();
            (window * *inputs as f64, window * *outputs as f64)
        }
    }
}

/// FNV-1a of 64 bits: the same on every machine and in every version.
fn stable_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fans_follow_the_dimensions_of_layers() {
        for (dims, expected) in [
            (&[][..], (1.0, 1.0)),
            (&[7], (7.0, 7.0)),
            (&[784, 512], (784.0, 512.0)),
            (&[3, 5, 16, 32], (240.0, 480.0)),
        ] {
            assert_eq!(fans(dims), expected, "{dims:?}");
        }
    }

    #[test]
    fn the_hash_of_a_path_is_the_published_one_and_stays() {
        // Test vectors of FNV-1a.
        assert_eq!(stable_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(stable_hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(stable_hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
