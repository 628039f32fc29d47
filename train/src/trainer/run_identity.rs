//! The identity of a run: the options, data and programs that a resume compares.

use std::sync::Arc;

use halite_data::{Dataset, Loader};
use halite_nn::Optimizer;

use super::Trainer;
use halite_core::Code;

use crate::{
    Limit, Property, Strategy, TrainerOptions,
    identity::{Data, Identity, PendingIdentity, Values},
    validation_set::NamedSet,
};

impl Trainer {
    /// The identity of a run of this trainer. Data are digested only if the run saves checkpoints.
    pub(crate) fn identity<O: Optimizer>(
        &self,
        train: &Loader,
        validation: &[NamedSet],
        optimizer: &O,
        strategy: &Strategy,
        step: &Code,
        frozen: Option<Property>,
    ) -> PendingIdentity {
        let TrainerOptions {
            label,
            seed,
            batch_size,
            numerics,
            last_batch,
            limit_train_batches,
            overfit_batches,
            out,
            properties,
            ..
        } = &self.options;
        let all = |limit: Option<Limit>| limit.map_or("all".to_string(), |limit| limit.to_string());
        let platform = self.client.platform();
        let properties: Vec<Property> = properties.iter().cloned().chain(frozen).collect();
        let known = Identity::new(Values {
            label: label.as_deref(),
            seed: *seed,
            batch_size: *batch_size as u64,
            samples: train.dataset().len() as u64,
            clip: numerics.clipping().map(|clip| clip.to_string()),
            accumulate_grad_batches: numerics.accumulate_grad_batches as u64,
            last_batch: last_batch.to_string(),
            limit_train_batches: all(limit_train_batches.filter(|_| overfit_batches.is_none())),
            overfit_batches: overfit_batches.map_or("none".into(), |limit| limit.to_string()),
            optimizer: format!("{optimizer:#?}"),
            precision: self.precision.to_string(),
            epochs: length(&self.options),
            // The names of the axes of a single device change nothing.
            mesh: match (self.exchanging(), self.mesh.size()) {
                (None, 1) => "1 device".into(),
                (None, _) => self.mesh.to_string(),
                (Some(processes), _) => {
                    format!("{} processes of {}", processes.size(), self.mesh)
                }
            },
            strategy: strategy.to_string(),
            plugin: format!("{} {}", platform.name, platform.version)
                .trim()
                .to_string(),
            step,
            properties: &properties,
        });
        let data = out.as_ref().map(|_| Data {
            train: train.dataset().clone(),
            validation: (validation.iter())
                .map(|set| {
                    Arc::new(NamedSet {
                        name: set.name.clone(),
                        data: set.data.dataset().clone(),
                    })
                })
                .collect(),
        });
        PendingIdentity::new(known, data)
    }
}

/// The epochs and steps after which a run ends.
fn length(options: &TrainerOptions) -> String {
    let epochs = match options.epochs() {
        u64::MAX => None,
        epochs => Some(epochs.to_string()),
    };
    let steps = options.max_steps.map(|steps| format!("{steps} steps"));
    let lengths = epochs.into_iter().chain(steps).collect::<Vec<_>>();
    if lengths.is_empty() {
        "no limit".to_string()
    } else {
        lengths.join(" or ")
    }
}
