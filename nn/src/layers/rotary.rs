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
}

/// Cosines and sines of [`Rotary`], `f32[time, width / 2]`.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'t> {
    cos: Tensor<'t>,
    sin: Tensor<'t>,
}

impl Default for Rotary {
    fn default() -> Self {
        Rotary { theta: 10_000.0 }
    }
}

impl Rotary {
    /// The rotation for `time` positions from 0, and heads of an even size `width`.
    #[track_caller]
    pub fn rotation<'t>(&self, cx: &'t Trace, time: usize, width: usize) -> Rotation<'t> {
        let _site = cx.called_from(Location::caller());
        if !width.is_multiple_of(2) {
            let error = cx.fail(
                "rotary",
                format!("heads of size {width}; expected an even size"),
                None,
            );
            return Rotation {
                cos: error,
                sin: error,
            };
        }
        let half = width / 2;
        let frequencies: Vec<f32> = (0..half)
            .map(|i| self.theta.powf(-((2 * i) as f64) / width as f64) as f32)
            .collect();
        let frequencies = Literal::new(&frequencies, [half]).expect("as many frequencies as pairs");
        let frequencies = cx.push_one(Op::Constant(frequencies), &[]);
        let positions = cx.arange(time, DType::F32);
        let angles = positions.unsqueeze(1).broadcast_to([time, half]) * frequencies;
        Rotation {
            cos: angles.cos(),
            sin: angles.sin(),
        }
    }
}

impl<'t> Rotation<'t> {
    /// Rotates `x: [batch, time, heads, width]`, in `f32`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let cx = x.trace();
        let _site = cx.called_from(Location::caller());
        check!(x.check_float("rotary"));
        if self.cos.is_error() {
            return cx.error_like(Some(x.ty()));
        }
        let (dims, table) = (x.dims(), self.cos.dims());
        if dims.len() != 4 || dims[1] != table[0] || dims[3] != 2 * table[1] {
            let message = || {
                format!(
                    "{} rotated for {} positions of size {}; expected [batch, time, heads, width]",
                    x.ty(),
                    table[0],
                    2 * table[1]
                )
            };
            return x.mistake("rotary", message);
        }
        let wide = wide(x.dtype());
        let half = table[1];
        let value = x.convert(wide);
        let (first, second) = (value.slice_dim(3, ..half), value.slice_dim(3, half..));
        let spread = |table: Tensor<'t>| table.convert(wide).broadcast_in_dim(first.dims(), [1, 3]);
        let (cos, sin) = (spread(self.cos), spread(self.sin));
        cx.concat(&[first * cos - second * sin, second * cos + first * sin], 3)
            .convert(x.dtype())
    }
}
