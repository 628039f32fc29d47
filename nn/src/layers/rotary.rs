//! Rotary position embeddings.

use std::panic::Location;

use halite_core::DType;
use halite_ir::{Literal, Op};

use crate::{Tensor, Trace, check::check, special::wide};

/// Rotary position embedding (Su et al. 2021): rotates pairs of features of queries and keys by
/// angles proportional to the position, so that attention scores depend on relative positions.
///
/// Feature `i` is paired with feature `i + width / 2`, as in Llama's weights for Hugging Face
/// ("halves"); the original pairs neighbors. Pair `i` rotates by `theta^(-2 i / width)` radians
/// per position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// Base of the wavelengths: 10,000.
    pub theta: f64,
    /// Change of the wavelengths for contexts longer than those of the training.
    pub scaling: Option<RotaryScaling>,
}

/// Scaling of rotary frequencies for longer contexts than a model was first trained on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RotaryScaling {
    /// Divides all frequencies by `factor` (position interpolation, Chen et al. 2023).
    Linear {
        /// Ratio of the context lengths.
        factor: f64,
    },
    /// Llama 3.1's: divides the frequencies whose wavelength is longer than
    /// `original_context / low_freq_factor` positions by `factor`, keeps those whose wavelength is
    /// shorter than `original_context / high_freq_factor`, and interpolates between.
    Llama3 {
        /// Ratio of the context lengths: 8; 32 in Llama 3.2.
        factor: f64,
        /// 1
        low_freq_factor: f64,
        /// 4
        high_freq_factor: f64,
        /// Context length of the first training: 8,192.
        original_context: f64,
    },
}

/// Cosines and sines of [`Rotary`], `f32[time, width / 2]` or `f32[batch, time, width / 2]`; of `f64`
/// where they rotate values of `f64`.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'t> {
    rotary: Rotary,
    /// `[time]` or `[batch, time]`
    positions: Tensor<'t>,
    cos: Tensor<'t>,
    sin: Tensor<'t>,
}

impl Default for Rotary {
    fn default() -> Self {
        Rotary::new(10_000.0)
    }
}

impl Rotary {
    /// Rotary embedding of this base, without scaling.
    pub const fn new(theta: f64) -> Self {
        Rotary {
            theta,
            scaling: None,
        }
    }

    /// Radians per position of each pair of features of a head, `width / 2` values.
    pub fn frequencies(&self, width: usize) -> Vec<f64> {
        let frequency = |i: usize| self.theta.powf(-((2 * i) as f64) / width as f64);
        let scaled = |frequency| self.scaling.map_or(frequency, |by| by.scaled(frequency));
        (0..width / 2).map(|i| scaled(frequency(i))).collect()
    }

    /// The rotation for `time` positions from 0, and heads of an even size `width`.
    #[track_caller]
    pub fn rotation<'t>(&self, cx: &'t Trace, time: usize, width: usize) -> Rotation<'t> {
        let _site = cx.called_from(Location::caller());
        self.rotation_at(cx.arange(time, DType::F32), width)
    }

    /// The rotation for `positions: [time]` or `[batch, time]`, and heads of an even size `width`.
    #[track_caller]
    pub fn rotation_at<'t>(&self, positions: Tensor<'t>, width: usize) -> Rotation<'t> {
        let cx = positions.trace();
        let _site = cx.called_from(Location::caller());
        if !width.is_multiple_of(2) {
            let error = cx.fail(
                "rotary",
                format!("heads of size {width}; expected an even size"),
                None,
            );
            return Rotation {
                rotary: *self,
                positions,
                cos: error,
                sin: error,
            };
        }
        let angles = self.angles(positions, width, DType::F32);
        Rotation {
            rotary: *self,
            positions,
            cos: angles.cos(),
            sin: angles.sin(),
        }
    }

    /// The angle of each position and pair: `[.., width / 2]` of this type.
    #[track_caller]
    fn angles<'t>(&self, positions: Tensor<'t>, width: usize, dtype: DType) -> Tensor<'t> {
        let (cx, half) = (positions.trace(), width / 2);
        let frequencies = self.frequencies(width);
        let frequencies = match dtype {
            DType::F64 => Literal::new(&frequencies, [half]),
            _ => {
                let narrow: Vec<f32> = frequencies.iter().map(|value| *value as f32).collect();
                Literal::new(&narrow, [half])
            }
        };
        let frequencies = frequencies.expect("as many frequencies as pairs");
        let frequencies = cx.push_one(Op::Constant(frequencies), &[]);
        let rank = positions.rank();
        let dims = [positions.dims(), vec![half]].concat();
        let positions = positions.convert(dtype).unsqueeze(rank);
        positions.broadcast_to(dims) * frequencies
    }
}

impl RotaryScaling {
    /// The scaled frequency, in radians per position.
    fn scaled(self, frequency: f64) -> f64 {
        match self {
            RotaryScaling::Linear { factor } => frequency / factor,
            RotaryScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_context,
            } => {
                let turns = original_context * frequency / std::f64::consts::TAU;
                // 0 for the frequencies that are divided, 1 for those that stay.
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (kept + (1.0 - kept) / factor)
            }
        }
    }
}

impl<'t> Rotation<'t> {
    /// Rotates `x: [batch, time, heads, width]`, in `f32`, or in `f64` for values in `f64`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let cx = x.trace();
        let _site = cx.called_from(Location::caller());
        check!(x.check_float("rotary"));
        if self.cos.is_error() {
            return cx.error_like(Some(x.ty()));
        }
        let (dims, table) = (x.dims(), self.cos.dims());
        let fits = |dims: &[usize]| match table[..] {
            [time, half] => dims[1] == time && dims[3] == 2 * half,
            [batch, time, half] => dims[..2] == [batch, time] && dims[3] == 2 * half,
            _ => false,
        };
        if dims.len() != 4 || !fits(&dims) {
            let [positions @ .., half] = &table[..] else {
                return x.mistake("rotary", || "the positions are a scalar".to_owned());
            };
            let message = || {
                format!(
                    "{} rotated for positions {positions:?} of size {}; expected \
                     [batch, time, heads, width]",
                    x.ty(),
                    2 * half
                )
            };
            return x.mistake("rotary", message);
        }
        let wide = wide(x.dtype());
        let half = dims[3] / 2;
        let value = x.convert(wide);
        let (first, second) = (value.slice_dim(3, ..half), value.slice_dim(3, half..));
        let along: &[usize] = if table.len() == 2 {
            &[1, 3]
        } else {
            &[0, 1, 3]
        };
        let (cos, sin) = match wide {
            DType::F64 => {
                let angles = self.rotary.angles(self.positions, dims[3], wide);
                (angles.cos(), angles.sin())
            }
            _ => (self.cos, self.sin),
        };
        let spread = |table: Tensor<'t>| table.broadcast_in_dim(first.dims(), along);
        let (cos, sin) = (spread(cos), spread(sin));
        cx.concat(&[first * cos - second * sin, second * cos + first * sin], 3)
            .convert(x.dtype())
    }
}
