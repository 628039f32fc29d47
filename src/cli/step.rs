//! Options that `train` and `plan` share.

use clap::{Arg, Args, ValueEnum};
use halite::{
    MeshShape,
    ir::Remat,
    models::TrainingOptions,
    nn::TransformerConfig,
    train::{GradientClip, NumericsOptions, Strategy, flags::positive},
};

/// Options of the sharding over several devices.
#[derive(Args, Clone, Debug)]
pub(super) struct ShardingArgs {
    /// Device mesh: sizes of the axes `data`, `fsdp`, `model`, such as `data=2,model=4`
    /// [default: one axis over all devices]
    #[arg(long, value_name = "AXES")]
    pub(super) mesh: Option<MeshShape>,
    /// Sharding strategy: `dp` shards the batch, `fsdp` the batch and the parameters, `tp` the
    /// layers; also `dp+tp`, `fsdp+tp`
    #[arg(long, default_value_t = Strategy::default(), value_name = "NAME")]
    pub(super) strategy: Strategy,
}

/// Returns the hyperparameters of a run of `steps` steps. `clip` is the default limit of the
/// gradients.
pub(super) fn training_options(
    numerics: &NumericsOptions,
    learning_rate: f64,
    steps: u64,
    clip: Option<f64>,
) -> TrainingOptions {
    let limit = numerics.gradient_clip_val.or(clip);
    TrainingOptions {
        learning_rate,
        steps,
        clip: limit.and_then(|limit| GradientClip::new(limit, numerics.gradient_clip_algorithm)),
    }
}

/// Adds a default that is not a value of the option to its help.
pub(super) fn default_in_help(arg: Arg, default: &str) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    arg.help(format!("{help} [default: {default}]"))
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
