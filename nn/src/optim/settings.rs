//! Settings that optimizers share.

/// Setters of the learning rate and the weight decay.
macro_rules! settings {
    ($Optimizer:ident, $(#[$doc:meta])*) => {
        impl $Optimizer {
            /// Sets the learning rate: a number or a [`Schedule`].
            pub fn learning_rate(mut self, learning_rate: impl Into<Schedule>) -> Self {
                self.learning_rate = learning_rate.into();
                self
            }

            $(#[$doc])*
            pub fn weight_decay(mut self, weight_decay: f64) -> Self {
                self.weight_decay = weight_decay;
                self
            }

            /// Selects the parameters that decay; by default all.
            pub fn decay(mut self, decay: Decay) -> Self {
                self.decay = decay;
                self
            }
        }
    };
}
pub(super) use settings;
