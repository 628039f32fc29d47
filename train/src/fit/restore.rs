//! The state of a run from a checkpoint: its arrays, its position, and its callbacks.

use std::sync::Arc;

use halite_core::{Array, Client, Result, tree::Tree};
use halite_nn::Optimizer;

use super::{Fit, LoopState, frozen, messages::resumed, meter::Sum};
use crate::{Task, checkpoint::RunPosition, processes::ResumeFrom, resume, window::WINDOW};

/// Bytes on the host that may wait for the device while a state is restored.
const UPLOADING: usize = 64 << 20;

impl<K: Task, O: Optimizer> Fit<'_, K, O> {
    /// Restores the run to the position at which `saved` was written.
    pub(super) fn restore(&mut self, mut saved: ResumeFrom) -> Result<LoopState<K, O>> {
        let position = saved.position;
        let options = &self.trainer.options;
        let processes = self.trainer.processes.as_ref();
        let comparison = self
            .identity
            .identity()
            .compare(&saved.metadata.identity, &options.allow_changes);
        let warnings = comparison.warnings().into_iter();
        for warning in warnings.filter(|_| processes.is_none_or(|all| all.rank() == 0)) {
            halite_core::warning!("{}: {warning}", saved.path.display());
        }
        let saved_size = saved.metadata.identity.samples_per_step();
        let batch = self.batch_to_resume_at(position, saved_size);
        let client = self.trainer.client.unattributed();
        let (mut arrays, skipped_before) = self.uploaded(&client, &mut saved)?;
        let window = arrays.pop().expect("the window is the last of the specs");
        let arrays = match self.values.take() {
            Some(values) => frozen::with_values::<K, O>(&self.programs, &client, arrays, values)?,
            None => arrays,
        };
        let metadata = saved.metadata;
        let mut now = self.loop_state(self.programs.state.rebuild(arrays), window);

        now.meter.sums = (metadata.sums.iter())
            .map(|(total, weight)| Sum {
                total: total.0,
                weight: weight.0,
            })
            .collect();
        let train_metrics = metadata.measured.train_metrics.iter();
        now.run.train_metrics = train_metrics
            .map(|(name, value)| (Arc::from(name.as_str()), value.0))
            .collect();
        now.run.step = position.step;
        now.run.epoch = position.epoch;
        now.run.batch = batch;
        now.run.resumed_from_step = Some(position.step);
        now.run.earlier_seconds = metadata.seconds;
        now.run.skipped = metadata.skipped + skipped_before;
        now.run.rate_factor = metadata.rate_factor.0;
        now.step_rate_factor = metadata.rate_factor.0;
        now.validated.step = metadata.validated;
        now.first = position.step;
        now.saved_at = Some(position);
        now.loss_scale = metadata.measured.loss_scale.map(|scale| scale.0);
        now.measured = metadata.measured;
        self.callbacks.load_states(metadata.callbacks)?;
        self.callbacks
            .progress_bar
            .progress
            .message(&resumed(position, metadata.seconds, options));
        Ok(now)
    }

    /// The arrays of a checkpoint on the devices, of which the window is the last, and the steps that
    /// were skipped in the window.
    fn uploaded(&self, client: &Client, saved: &mut ResumeFrom) -> Result<(Vec<Array>, u64)> {
        let (programs, mesh) = (&self.programs, &self.trainer.mesh);
        let processes = self.trainer.processes.as_ref();
        let specs = resume::array_specs(programs, mesh);
        let types = resume::array_types(saved.window.as_ref(), programs, mesh);
        let extras = std::mem::take(&mut saved.metadata.extras);
        let (mut arrays, mut uploading, mut skipped_before) = (Vec::<Array>::new(), 0, 0);
        saved.take_each(processes, &types, |index, host| {
            let (name, spec) = &specs[index];
            let host = match &**name {
                WINDOW => {
                    let metrics = &self.programs.train_metrics;
                    let (window, skipped) = metrics.continued(&host, &extras)?;
                    skipped_before = skipped;
                    window
                }
                _ => match &programs.divided {
                    Some(divided) => divided.shard(name, host)?,
                    None => host,
                },
            };
            uploading += host.bytes().len();
            arrays.push(Array::upload_as(
                client,
                &Arc::new(host),
                &spec.sharding,
                spec.stored,
            )?);
            if uploading > UPLOADING {
                arrays.iter().try_for_each(Array::wait)?;
                uploading = 0;
            }
            Ok(())
        })?;
        Ok((arrays, skipped_before))
    }

    /// The step of the epoch to continue with: after a change of the samples of a step, the one with
    /// the next sample that was not seen.
    fn batch_to_resume_at(&self, position: RunPosition, saved_size: Option<u64>) -> usize {
        let options = &self.trainer.options;
        let size = options.samples_per_step().max(1) as u64;
        let samples = position.batch.saturating_mul(saved_size.unwrap_or(size));
        let steps = options.numerics.steps_of(self.train.batches_per_epoch());
        usize::try_from(samples / size).map_or(steps, |batch| batch.min(steps))
    }
}
