//! The state of a run before its first step: the step is compiled, while the state is initialized or
//! restored.

use std::{sync::Arc, thread, time::Duration};

use halite_core::{
    Array, Client, Error, ErrorKind, HostArray, Result, Sharding,
    tree::{Empty, Family, Leaf, Tree},
    wait::{default_limit, wait_until},
};
use halite_nn::{ArraySpec, Jit, Optimizer, rng};

use super::{Fit, LoopState, messages::left_out, meter::Meter, state::Validated};
use crate::{
    MetricValues, Task, callback::Run, checkpoint::RunPosition, in_flight::InFlight,
    measured::Measured, processes::Agreement, programs::RunState,
};

/// Time between two looks at a compiler's thread.
const COMPILE_POLL: Duration = Duration::from_millis(2);

impl<K: Task, O: Optimizer> Fit<'_, K, O> {
    /// Compiles the training step, and initializes or restores the state meanwhile.
    pub(super) fn begin(&mut self) -> Result<LoopState<K, O>> {
        let options = &self.trainer.options;
        let has_steps = self.saved.as_ref().is_none_or(|saved| {
            let RunPosition { step, epoch, .. } = saved.position;
            epoch < options.epochs() && options.max_steps.is_none_or(|most| step < most)
        });
        let inputs = self.programs.inputs(&self.trainer.mesh);
        if self.stops_alone() {
            return Err(self.stopped_before("before a program was compiled"));
        }
        if let (Some(lowered), true) = (self.lowered.take(), has_steps) {
            self.programs
                .step
                .prepare_lowered(lowered, &self.programs.state, &inputs)?;
            if let Some(steps) = &self.programs.steps {
                steps.prepare_in_background()?;
            }
        }
        let progress = &self.callbacks.progress_bar.progress;
        let options = &self.trainer.options;
        if let (Some(out), true, None) = (&options.out, options.resume, &self.saved) {
            let out = out.display();
            progress.message(&format!("nothing to resume in {out}: starting a new run"));
        }
        if let Some(left_out) = left_out(&self.train, options) {
            progress.message(&left_out);
        }
        progress.waiting_for("compiling the training step");
        let now = match self.saved.take() {
            Some(saved) => self.restore(saved)?,
            None => self.initialize()?,
        };
        if has_steps {
            if !self.wait_until_compiled(&self.programs.step, "train step")? {
                return Err(self.stopped_before("while the program `train step` was compiled"));
            }
            // Collects the compiled step: errors of the compiler come before the state is donated,
            // and compile time is not part of an epoch's.
            self.programs.step.prepare(&self.programs.state, &inputs)?;
            if let Some(steps) = &self.programs.steps {
                if !self.wait_until_compiled(steps.program(), "train steps")? {
                    return Err(self.stopped_before("while the program `train steps` was compiled"));
                }
                steps.prepare()?;
            }
        }
        self.callbacks.progress_bar.progress.done_waiting();
        if has_steps && self.callbacks.checkpointing.is_some() {
            // Its choice is printed before the first step.
            self.choose_mode()?;
        }
        Ok(now)
    }

    fn initialize(&mut self) -> Result<LoopState<K, O>> {
        let (client, mesh) = (&self.trainer.client, &self.trainer.mesh);
        let key = HostArray::from_slice(&rng::key(self.trainer.options.seed), [2])?;
        let key = Array::upload(client, &key, &Sharding::replicated(mesh))?;
        let init = &self.programs.init;
        init.prepare_in_background(&Empty::new(), &Leaf(ArraySpec::of(&key)))?;
        if !self.wait_until_compiled(init, "init")? {
            return Err(self.stopped_before("while the program `init` was compiled"));
        }
        let mut state = init.run(&key)?;
        if let Some(values) = self.values.take() {
            let mut specs = self.programs.state.model.leaves().into_iter();
            state.model = values.try_map_leaves(|_, array| {
                let spec = specs
                    .next()
                    .expect("the values have the structure of the model");
                placed(client, array, spec)
            })?;
        }
        let window = self.programs.train_metrics.upload(client, mesh)?;
        Ok(self.loop_state(state, window))
    }

    /// The state of the loop before the first step of a new run.
    pub(super) fn loop_state(
        &self,
        state: RunState<K, O, Array>,
        window: Array,
    ) -> LoopState<K, O> {
        let options = &self.trainer.options;
        let batches = self.train.batches_per_epoch();
        let samples = batches.saturating_mul(options.batch_size);
        LoopState {
            live: Some((state, window)),
            run: Run {
                step: 0,
                epoch: 0,
                batch: 0,
                epochs: options.epochs(),
                batches_per_epoch: options.numerics.steps_of(batches),
                batch_size: options.samples_per_step(),
                samples_per_epoch: samples.min(self.train.dataset().len()),
                out: options.out.clone(),
                resumed_from_step: None,
                train_metrics: MetricValues::new(),
                facts: self.facts.clone(),
                earlier_seconds: 0.0,
                skipped: 0,
                started: self.started,
                agreed_seconds: None,
                save_requested: false,
                stop_requested: false,
                stopped_by: None,
                new_rate_factor: None,
                rate_factor: 1.0,
                has_rate_factor: self.trainer.has_rate_factor,
            },
            meter: Meter::new(&self.programs.train_metrics),
            in_flight: InFlight::new("step", options.wait_limit),
            first: 0,
            saved_at: None,
            input_wait: Duration::ZERO,
            training: Duration::ZERO,
            time_to_first_step: Arc::default(),
            has_failed: false,
            agreement: self.trainer.processes.as_ref().map(Agreement::new),
            measured: Measured::default(),
            validated: Validated::default(),
            skipped_in_window: 0,
            step_rate_factor: 1.0,
            loss_scale: None,
        }
    }

    /// Waits until `program` is compiled; `false` if the run is asked to stop first.
    pub(super) fn wait_until_compiled<S: Family, I: Family, P: Family>(
        &self,
        program: &Jit<S, I, P>,
        name: &str,
    ) -> Result<bool> {
        let poll = |_| {
            let compiled = !program.is_compiling();
            if !compiled {
                thread::sleep(COMPILE_POLL);
            }
            compiled.then_some(())
        };
        let name = || format!("the compiler, which has `{name}`");
        let late = |error: Error| error.with_note("set a longer limit with HALITE_WAIT_LIMIT");
        let waited = wait_until(name, default_limit(), || self.stops_alone(), poll);
        Ok(waited.map_err(late)?.is_some())
    }

    fn stopped_before(&self, when: &str) -> Error {
        let message = format!(
            "stopped before the first step, {when}; nothing was trained, and {}",
            self.callbacks.newest_checkpoint()
        );
        Error::new(ErrorKind::Cancelled, "fit", message)
    }
}

/// Places an array as `spec` says; arrays that are in place are moved.
pub(super) fn placed(client: &Client, array: Array, spec: &ArraySpec) -> Result<Array> {
    if array.stored() != spec.stored {
        Array::upload_as(
            client,
            &Arc::new(array.read()?),
            &spec.sharding,
            spec.stored,
        )
    } else if array.sharding() != &spec.sharding {
        array.reshard(client, &spec.sharding)
    } else {
        Ok(array)
    }
}
