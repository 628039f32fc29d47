use std::panic::Location;

use halite_core::DType;

use crate::{Tensor, context, rng};

/// Stochastic depth (Huang et al. 2016), also called drop path: in training, sets the residual
/// branch of random samples to 0, and divides the others by `1 - rate`. The identity in evaluation.
/// `torchvision.ops.StochasticDepth` in mode "row".
///
/// Among several processes, each drops the samples that one process would drop.
///
/// The traced function sets the mode: [`Trace::set_mode`](crate::Trace::set_mode). It has no
/// parameters, so a model has it as a static field.
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_nn::{StochasticDepth, Trace};
///
/// let cx = Trace::new();
/// cx.set_mode(false, None);
/// let x = cx.input(TensorType::new(DType::F32, [4, 8]), "x");
/// let y = x + StochasticDepth::new(0.1).forward(x.relu());
/// assert_eq!(y.ty(), x.ty());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StochasticDepth {
    /// Probability that the branch of a sample is dropped, from 0 to 1.
    pub rate: f64,
}

impl StochasticDepth {
    /// Drops the branch of a sample with this probability, from 0 to 1.
    pub const fn new(rate: f64) -> Self {
        StochasticDepth { rate }
    }

    /// The rate of block `index` of `count`, which grows linearly from 0 to `last`, as in ResNets
    /// and vision transformers.
    pub fn linear(last: f64, index: usize, count: usize) -> Self {
        let blocks_after_first = count.saturating_sub(1).max(1);
        StochasticDepth::new(last * index as f64 / blocks_after_first as f64)
    }

    /// Maps a residual branch `x: [batch, ..]` to the same type. Uses a random key of the step:
    /// [`Trace::next_key`](crate::Trace::next_key).
    #[track_caller]
    pub fn forward<'t>(&self, x: Tensor<'t>) -> Tensor<'t> {
        let cx = x.trace();
        let _site = cx.called_from(Location::caller());
        let fail = |message| cx.fail("stochastic depth", message, Some(x.ty()));
        if x.is_error() {
            return x;
        }
        if !(0.0..=1.0).contains(&self.rate) {
            return fail(format!("rate {}; expected 0 to 1", self.rate));
        }
        if x.rank() == 0 || !x.dtype().is_float() {
            return fail(format!("{}; expected floats [batch, ..]", x.ty()));
        }
        if self.rate == 0.0 || !context::training_for(cx, "stochastic depth") {
            return x;
        }
        if self.rate == 1.0 {
            return x.zeros_like();
        }
        let (keep, batch) = (1.0 - self.rate, x.dims()[0]);
        let kept = match cx.processes() {
            None => rng::bernoulli(cx.next_key(), [batch], keep),
            // The samples of this process are rows of the whole batch.
            Some(_) => {
                let first = cx.process_index().convert(DType::U64) * batch as f64;
                rng::unit_from(cx.next_key(), &[batch], first, DType::F32).lt(keep)
            }
        };
        let kept = kept.broadcast_in_dim(x.dims(), [0]);
        x.widened(|x| kept.select(x * (1.0 / keep), 0.0))
    }
}
