//! Options of the numbers of a step: precision, clipping and accumulation of gradients.

use halite_core::DTypePolicy;

use super::{GradientClip, GradientClipAlgorithm};
#[cfg(feature = "clap")]
use crate::flags::{clip_norm, positive};

/// Options that change what a training step computes: precision, gradient clipping and
/// accumulation. A plan of a step shares them with the trainer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct NumericsOptions {
    /// Compute and parameter dtypes: `f32`, `tf32` (f32, multiplied as fast as the device can),
    /// `bf16-mixed`, `f16-mixed`, `bf16`, `use-bf16`, `downcast-bf16` [default: bf16-mixed on TPUs
    /// and recent GPUs, else f32]
    #[cfg_attr(feature = "clap", arg(long, value_name = "POLICY"))]
    pub precision: Option<DTypePolicy>,
    /// Clip gradients to this global norm; 0 turns clipping off
    #[cfg_attr(
        feature = "clap",
        arg(long, visible_alias = "clip-norm", value_name = "LIMIT", value_parser = clip_norm,
            allow_negative_numbers = true)
    )]
    pub gradient_clip_val: Option<f64>,
    /// What --gradient-clip-val limits: the global `norm` of the gradients, or the `value` of each
    /// element
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "norm|value", default_value_t = NUMERICS.gradient_clip_algorithm)
    )]
    pub gradient_clip_algorithm: GradientClipAlgorithm,
    /// Batches whose gradients are added before each optimizer step. It is the step of a batch of
    /// all their samples, with the memory of one
    // Schedules, limits and logs count optimizer steps; batch norm sees single batches.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = NUMERICS.accumulate_grad_batches,
            value_parser = positive::<usize>, allow_negative_numbers = true)
    )]
    pub accumulate_grad_batches: usize,
}

pub(super) const NUMERICS: NumericsOptions = NumericsOptions {
    precision: None,
    gradient_clip_val: None,
    gradient_clip_algorithm: GradientClipAlgorithm::Norm,
    accumulate_grad_batches: 1,
};

impl Default for NumericsOptions {
    fn default() -> Self {
        NUMERICS
    }
}

impl NumericsOptions {
    /// Clipping of the gradients; `None` does not clip them.
    pub fn clipping(&self) -> Option<GradientClip> {
        let limit = self.gradient_clip_val?;
        GradientClip::new(limit, self.gradient_clip_algorithm)
    }

    /// Optimizer steps of this many batches: the last one may have fewer.
    pub(crate) fn steps_of(&self, batches: usize) -> usize {
        batches.div_ceil(self.accumulate_grad_batches.max(1))
    }
}
