//! Options that are one of several words.

use std::{fmt, str::FromStr};

/// What gradient clipping limits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum GradientClipAlgorithm {
    /// The global norm, by scaling all gradients.
    #[default]
    Norm,
    /// The absolute value of each element, by clamping it.
    Value,
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

/// What happens at a step whose gradients are not finite.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnNotFinite {
    /// The run ends with an error that names the metric and the step.
    #[default]
    Stop,
    /// The step changes neither parameters nor optimizer state nor statistics, its metrics do not
    /// count, and the report counts it. It is a step of the run all the same: schedules go on, and
    /// averages of the parameters take the unchanged ones once more.
    Skip,
}

/// The texts of the variants of a type.
macro_rules! texts {
    ($ty:ty: $($text:literal => $variant:path),+) => {
        impl FromStr for $ty {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok($variant),)+
                    _ => {
                        let texts = [$(concat!("`", $text, "`")),+];
                        Err(format!("expected {}", texts.join(" or ")))
                    }
                }
            }
        }

        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($variant => $text,)+
                })
            }
        }
    };
}

texts!(GradientClipAlgorithm: "norm" => GradientClipAlgorithm::Norm, "value" => GradientClipAlgorithm::Value);
texts!(OnNotFinite: "stop" => OnNotFinite::Stop, "skip" => OnNotFinite::Skip);
