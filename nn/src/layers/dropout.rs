use std::panic::Location;

use halite_core::DType;

use crate::{Tensor, Trace, context, rng};

/// Inverted dropout (Srivastava et al. 2014): sets random elements to 0 in training, and divides
/// the others by `1 - rate`. The identity in evaluation.
///
/// Among several processes the first dimension of its input must be that of the samples: each drops
/// what one process would drop of its samples.
///
/// The traced function sets the mode: [`Trace::set_mode`](crate::Trace::set_mode). It has no
/// parameters, so a model has it as a static field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Dropout probability, from 0 to 1.
    pub rate: f64,
}

impl Dropout {
    /// Drops elements with this probability, from 0 to 1.
    pub const fn new(rate: f64) -> Self {
        Dropout { rate }
    }

    /// Whether it drops anything, or has a rate that [`forward`](Self::forward) refuses.
    #[track_caller]
    pub(crate) fn is_active(&self, cx: &Trace) -> bool {
        self.rate != 0.0
            && (!(0.0..=1.0).contains(&self.rate) || context::training_for(cx, "dropout"))
    }

    /// Maps `x` of any dimensions to the same type. Uses a random key of the step:
    /// [`Trace::next_key`](crate::Trace::next_key).
    #[track_caller]
    pub fn forward<'t>(&self, x: Tensor<'t>) -> Tensor<'t> {
        let cx = x.trace();
        let _site = cx.called_from(Location::caller());
        if !(0.0..=1.0).contains(&self.rate) {
            return cx.fail(
                "dropout",
                format!("rate {}; expected 0 to 1", self.rate),
                Some(x.ty()),
            );
        }
        if self.rate == 0.0 || !context::training_for(cx, "dropout") {
            return x;
        }
        if self.rate == 1.0 {
            return x.zeros_like();
        }
        let keep = 1.0 - self.rate;
        let kept = match cx.processes() {
            None => rng::bernoulli(cx.next_key(), x.dims(), keep),
            // The samples of this process are rows of the whole batch.
            Some(_) => {
                let first = cx.process_index().convert(DType::U64) * x.ty().elements() as f64;
                rng::unit_from(cx.next_key(), &x.dims(), first, DType::F32).lt(keep)
            }
        };
        x.widened(|x| kept.select(x * (1.0 / keep), 0.0))
    }
}
