//! Options that are one of several words.

use std::fmt;

use crate::words::words;

words! {
    /// What gradient clipping limits.
    #[derive(Default)]
    GradientClipAlgorithm, "algorithm of clipping" {
        /// The global norm, by scaling all gradients.
        #[default]
        Norm = "norm",
        /// The absolute value of each element, by clamping it.
        Value = "value",
    }
}

/// Gradient clipping: what it limits, and to which value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GradientClip {
    /// All gradients are scaled down to this global norm.
    Norm(f64),
    /// Each element is clamped to this absolute value.
    Value(f64),
}

impl GradientClip {
    /// Clipping to `limit`; `None` if that is 0, which turns clipping off.
    pub fn new(limit: f64, algorithm: GradientClipAlgorithm) -> Option<Self> {
        (limit > 0.0).then_some(match algorithm {
            GradientClipAlgorithm::Norm => GradientClip::Norm(limit),
            GradientClipAlgorithm::Value => GradientClip::Value(limit),
        })
    }

    /// The limit of the norm or of each element.
    pub fn limit(self) -> f64 {
        match self {
            GradientClip::Norm(limit) | GradientClip::Value(limit) => limit,
        }
    }
}

impl fmt::Display for GradientClip {
    /// `0.5` for a norm, as in checkpoints of old, and `0.5 by value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GradientClip::Norm(norm) => write!(f, "{norm}"),
            GradientClip::Value(value) => write!(f, "{value} by value"),
        }
    }
}

words! {
    /// What happens at a step whose gradients are not finite.
    #[derive(Default)]
    OnNotFinite, "choice" {
        /// The run ends with an error that names the metric and the step.
        #[default]
        Stop = "stop",
        /// The step changes neither parameters nor optimizer state nor statistics, its metrics do
        /// not count, and the report counts it. It is a step of the run all the same: schedules go
        /// on, and averages of the parameters take the unchanged ones once more.
        Skip = "skip",
    }
}
