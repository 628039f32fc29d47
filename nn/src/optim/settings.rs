//! Settings that optimizers share.

use std::fmt;

/// What a number of an optimizer may be; always finite.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Range {
    /// From 0 to below 1: a part of an average that is kept.
    Decay,
    /// 0 or more.
    NotNegative,
    /// 1 or more.
    AtLeastOne,
    /// 0 or less.
    NotPositive,
    /// Any number.
    Any,
}

impl Range {
    pub(super) fn contains(self, value: f64) -> bool {
        let holds = match self {
            Range::Decay => (0.0..1.0).contains(&value),
            Range::NotNegative => value >= 0.0,
            Range::AtLeastOne => value >= 1.0,
            Range::NotPositive => value <= 0.0,
            Range::Any => true,
        };
        holds && value.is_finite()
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Range::Decay => "a number from 0 to below 1",
            Range::NotNegative => "0 or a positive number",
            Range::AtLeastOne => "a number from 1 on",
            Range::NotPositive => "0 or a negative number",
            Range::Any => "a finite number",
        })
    }
}

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
