//! Training steps of the built-in models. `halite train` runs them and `halite plan` compiles them,
//! so a plan is of the step that is trained.

use std::fmt;

use halite_core::{DType, Error, Result, TensorType, tree::Family};
use halite_nn::{Adam, AdamW, Param, Schedule, Transformer, TransformerConfig};
use halite_train::{GradientClip, Task};

use crate::{Classify, ImageModel, LanguageModel};

/// Hyperparameters of the optimizer and the gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingOptions {
    /// Learning rate.
    pub schedule: Schedule,
    /// Clipping of the gradients; `None` does not clip them.
    pub clip: Option<GradientClip>,
}

impl TrainingOptions {
    /// Default peak learning rate of the built-in models.
    pub const LEARNING_RATE: f64 = 2e-3;

    /// The default schedule of a run of `steps` optimizer steps: 10 % linear warmup to the peak,
    /// then cosine decay to 0.
    pub fn warmup_and_cosine(peak: f64, steps: u64) -> Schedule {
        let warmup = steps / 10;
        Schedule::warmup(peak, warmup).then(Schedule::cosine(peak, steps - warmup))
    }
}

/// Everything that determines the program of a training step, apart from the batch size, the
/// precision and the sharding.
pub struct TrainingStep<K: Task, O> {
    /// The loss and the metrics.
    pub task: K,
    /// Types and initialization of the parameters.
    pub model: <K::Model as Family>::Of<Param>,
    /// The optimizer with its learning-rate schedule.
    pub optimizer: O,
    /// Clipping of the gradients; `None` does not clip them.
    pub clip: Option<GradientClip>,
    /// Type of each field of one sample.
    pub sample: Vec<TensorType>,
}

impl<K: Task, O> TrainingStep<K, O> {
    /// Types of the fields of a batch of `samples` over all devices.
    pub fn batch(&self, samples: usize) -> Vec<TensorType> {
        let batched = |field: &TensorType| {
            let dims = [samples].into_iter().chain(field.dims().iter().copied());
            TensorType::new(field.dtype(), dims.collect::<Vec<_>>())
        };
        self.sample.iter().map(batched).collect()
    }
}

impl<K: Task, O> fmt::Debug for TrainingStep<K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrainingStep")
            .field("clip", &self.clip)
            .field("sample", &self.sample)
            .finish_non_exhaustive()
    }
}

impl<M: ImageModel> Classify<M> {
    /// Training step of an image classifier: Adam on grayscale images of `side` by `side` pixels.
    pub fn step(
        side: usize,
        model: M::Of<Param>,
        options: &TrainingOptions,
    ) -> TrainingStep<Self, Adam> {
        TrainingStep {
            task: Classify::new(),
            model,
            optimizer: Adam::new(options.schedule.clone()),
            clip: options.clip,
            sample: vec![
                TensorType::new(DType::U8, [side, side]),
                TensorType::scalar(DType::U8),
            ],
        }
    }
}

impl LanguageModel {
    /// Default upper bound of the global norm of the gradients.
    pub const CLIP_NORM: f64 = 1.0;

    /// Training step of a language model: AdamW with betas 0.9 and 0.99 and a weight decay of 0.1
    /// on windows of `context + 1` tokens.
    ///
    /// # Errors
    /// If `config` describes no model.
    pub fn step(
        config: &TransformerConfig,
        options: &TrainingOptions,
    ) -> Result<TrainingStep<Self, AdamW>> {
        let Some(window) = config.context_length.checked_add(1) else {
            let message = format!(
                "a context of {} tokens is too large: a sample has one token more",
                config.context_length
            );
            return Err(Error::invalid("transformer", message));
        };
        Ok(TrainingStep {
            task: LanguageModel,
            model: Transformer::new(config)?,
            optimizer: AdamW::new(options.schedule.clone())
                .betas(0.9, 0.99)
                .weight_decay(0.1)
                .decay(LanguageModel::decay()),
            clip: options.clip,
            sample: vec![TensorType::new(DType::U32, [window])],
        })
    }
}
