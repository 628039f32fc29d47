use std::panic::Location;

use crate::{Tensor, rng};

/// Sets elements to 0 at random while training, and divides the others by the part that stays
/// (Srivastava et al. 2014, "inverted"). In evaluation it does nothing.
///
/// The function that it is traced in sets the mode: [`Trace::set_mode`](crate::Trace::set_mode).
///
/// It has no parameters: a model keeps it as a static field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The part of elements that becomes 0: from 0 to 1.
    pub rate: f64,
}

impl Dropout {
    /// Drops this part of the elements: from 0 to 1.
    pub const fn new(rate: f64) -> Self {
        Dropout { rate }
    }

    /// `x` of any dimensions. Takes a random key of the step:
    /// [`Trace::next_key`](crate::Trace::next_key).
    #[track_caller]
    pub fn forward<'t>(&self, x: Tensor<'t>) -> Tensor<'t> {
        let cx = x.trace();
        let _site = cx.called_from(Location::caller());
        if !(0.0..=1.0).contains(&self.rate) {
            return cx.fail(
                "dropout",
                format!("rate {} is not in 0 to 1", self.rate),
                Some(x.ty()),
            );
        }
        if self.rate == 0.0 || !cx.training_for("dropout") {
            return x;
        }
        if self.rate == 1.0 {
            return x.zeros_like();
        }
        let kept = 1.0 - self.rate;
        rng::bernoulli(cx.next_key(), x.dims(), kept).select(x * (1.0 / kept), 0.0)
    }
}
