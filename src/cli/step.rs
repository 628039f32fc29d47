//! Options of the training step, which `train` and `plan` share.

use clap::{Args, ValueEnum};
use halite::{
    DTypePolicy,
    ir::Remat,
    models::{TrainingOptions, TrainingStep},
    nn::TransformerConfig,
    train::{Task, TrainerBuilder},
};

use super::positive;

/// Options of every training step.
#[derive(Args, Clone, Debug)]
pub(super) struct StepArgs {
    /// Compute and parameter dtypes: `f32`, `bf16-mixed`, `f16-mixed`, `bf16`, `use-bf16`,
    /// `downcast-bf16` [default: bf16-mixed on TPUs and recent GPUs, else f32]
    #[arg(long, value_name = "POLICY")]
    precision: Option<DTypePolicy>,
    /// Clip gradients to this global norm; 0 turns clipping off [default: 1 for transformers, 0 for
    /// image models]
    #[arg(long, value_name = "NORM", value_parser = clip_norm, allow_negative_numbers = true)]
    clip_norm: Option<f64>,
}

impl StepArgs {
    /// Returns the precision that is requested.
    pub(super) fn precision(&self) -> Option<DTypePolicy> {
        self.precision
    }

    /// Sets the precision and the clipping of `step`.
    pub(super) fn configure<K: Task, O>(
        &self,
        trainer: TrainerBuilder,
        step: &TrainingStep<K, O>,
    ) -> TrainerBuilder {
        let trainer = match self.precision {
            Some(policy) => trainer.precision(policy),
            None => trainer,
        };
        match step.clip_norm {
            Some(norm) => trainer.clip_norm(norm),
            None => trainer,
        }
    }

    /// Returns the options of a run of `steps` steps, where `clip_norm` is the default of the model.
    pub(super) fn options(
        &self,
        learning_rate: f64,
        steps: u64,
        clip_norm: Option<f64>,
    ) -> TrainingOptions {
        TrainingOptions {
            learning_rate,
            steps,
            clip_norm: match self.clip_norm {
                None => clip_norm,
                Some(norm) => Some(norm).filter(|norm| *norm > 0.0),
            },
        }
    }
}

/// Options of the training step of a transformer.
#[derive(Args, Clone, Debug)]
pub(super) struct TransformerArgs {
    /// Context length in tokens [default: the model's]
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    context: Option<usize>,
    /// Dropout probability, of embeddings, attention weights and residual branches [default: 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    dropout: Option<f64>,
    /// Rematerialization, which saves memory by recomputing activations in the backward pass:
    /// `none`, `full` (saves only the input of each block), `save-dots` (also saves the results of
    /// matrix multiplications) [default: none]
    #[arg(long, value_enum, value_name = "POLICY", hide_possible_values = true)]
    remat: Option<RematPolicy>,
}

impl TransformerArgs {
    /// Returns `model` with the options that are given.
    pub(super) fn config(&self, model: &TransformerConfig) -> TransformerConfig {
        TransformerConfig {
            context_length: self.context.unwrap_or(model.context_length),
            dropout: self.dropout.unwrap_or(model.dropout),
            remat: self.remat.map_or(model.remat, RematPolicy::remat),
            ..*model
        }
    }

    /// Returns the flags that are given: they apply to transformers only.
    pub(super) fn given(&self) -> Vec<&'static str> {
        let flags = [
            ("--context", self.context.is_some()),
            ("--dropout", self.dropout.is_some()),
            ("--remat", self.remat.is_some()),
        ];
        let given = flags.into_iter().filter(|(_, given)| *given);
        given.map(|(flag, _)| flag).collect()
    }
}

/// Activations that the backward pass recomputes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RematPolicy {
    None,
    Full,
    SaveDots,
}

impl RematPolicy {
    fn remat(self) -> Option<Remat> {
        match self {
            RematPolicy::None => None,
            RematPolicy::Full => Some(Remat::Full),
            RematPolicy::SaveDots => Some(Remat::SaveDots),
        }
    }
}

pub(super) fn learning_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("expected a positive number, such as 2e-3".into()),
    }
}

fn clip_norm(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(norm) if norm.is_finite() && norm >= 0.0 => Ok(norm),
        _ => Err("expected a norm, such as 1.0, or 0 for no clipping".into()),
    }
}
