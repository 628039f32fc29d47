//! The largest batch that the devices have memory for: Lightning's `BatchSizeFinder`.

use halite_core::{Device, Error, ErrorKind, Result};

use super::{super::Trainer, TrainerBuilder};
use crate::{ObservingOptions, TrainerOptions};

/// Steps of an attempt. The second one donates the state of the first.
const STEPS: u64 = 2;

/// Batch sizes to choose from: `least` times the powers of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchSizes {
    /// The smallest: one sample for each part of a batch on the mesh.
    pub least: usize,
    /// Where to begin.
    pub start: usize,
    /// The largest, such as the number of samples.
    pub most: usize,
}

impl BatchSizes {
    /// The largest size that `fits`, tried by doubling the start, or by halving it where that does
    /// not fit. `None` if the least does not fit.
    ///
    /// ```
    /// use halite_train::BatchSizes;
    ///
    /// let sizes = BatchSizes { least: 4, start: 100, most: 50_000 };
    /// assert_eq!(sizes.largest(|size| Ok(size <= 1000))?, Some(512));
    /// assert_eq!(sizes.largest(|size| Ok(size <= 10))?, Some(8));
    /// assert_eq!(sizes.largest(|_| Ok(true))?, Some(32_768));
    /// assert_eq!(sizes.largest(|_| Ok(false))?, None);
    /// # halite_core::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// If the least is 0 or more than the most; the first error of `fits`.
    pub fn largest(&self, mut fits: impl FnMut(usize) -> Result<bool>) -> Result<Option<usize>> {
        let BatchSizes { least, start, most } = *self;
        if least == 0 || least > most {
            let message = format!("no batch size from {least} to {most}");
            return Err(Error::invalid("batch size", message));
        }
        let start = start.clamp(least, most);
        let mut size = least << (start / least).ilog2();
        if fits(size)? {
            while size <= most / 2 && fits(2 * size)? {
                size *= 2;
            }
            return Ok(Some(size));
        }
        while size > least {
            size /= 2;
            if fits(size)? {
                return Ok(Some(size));
            }
        }
        Ok(None)
    }
}

impl TrainerBuilder {
    /// Finds the largest batch size for which the devices have memory, by trying: a power of two for
    /// each part of the mesh, at most `most`. `run` trains with the trainer that it is given, which
    /// takes two steps and writes nothing:
    ///
    /// ```no_run
    /// // no_run: needs devices that report their memory
    /// # use halite_data::Dataset;
    /// # use halite_nn::{Adam, Linear};
    /// # use halite_train::{Task, TrainerBuilder};
    /// # fn size<K: Task<Model = Linear<()>>>(trainer: TrainerBuilder, task: fn() -> K,
    /// #     images: std::sync::Arc<dyn Dataset>) -> halite_core::Result<usize> {
    /// trainer.largest_batch(images.len(), |trainer| {
    ///     let fitted = trainer.fit(task(), Linear::new(784, 10), Adam::new(1e-3), images.clone(), ());
    ///     fitted.map(drop)
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a device does not report a limit of its memory, as CPUs do not: there an attempt takes the
    /// memory of the machine, and `halite plan --largest-batch` is the way. If not even one sample
    /// for each part fits; in a job of several processes; other errors of `run`.
    pub fn largest_batch(
        &self,
        most: usize,
        run: impl FnMut(&Trainer) -> Result<()>,
    ) -> Result<usize> {
        if (self.processes.as_ref()).is_some_and(|group| group.size() > 1) {
            let message = "a process without memory would leave the others of a job waiting; find \
                           the batch of one process, and multiply it by their number";
            return Err(Error::invalid("batch size", message));
        }
        self.check_reports_memory()?;
        self.largest_that_runs(most, run)
    }

    fn largest_that_runs(
        &self,
        most: usize,
        mut run: impl FnMut(&Trainer) -> Result<()>,
    ) -> Result<usize> {
        let trial = self.trial();
        let mesh = trial.on_devices()?;
        let strategy = self.strategy_on(&mesh)?;
        let least = strategy.batch_spec(&mesh).parts(&mesh, 0);
        let sizes = BatchSizes {
            least,
            start: self.options.batch_size,
            most,
        };
        let largest = sizes.largest(|size| {
            let trainer = trial.clone().batch_size(size).build()?;
            match run(&trainer) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == ErrorKind::OutOfMemory => Ok(false),
                Err(error) => Err(error),
            }
        })?;
        largest.ok_or_else(|| {
            let message = format!(
                "a batch of {least} samples does not fit; use a smaller model, `fsdp`, or a \
                 narrower `precision`"
            );
            Error::new(ErrorKind::OutOfMemory, "batch size", message)
        })
    }

    /// The builder of attempts: two steps from the beginning, of which nothing remains. What is
    /// computed in a step, as the norm of the gradients, is part of them.
    fn trial(&self) -> Self {
        let trial = TrainerBuilder {
            callbacks: Vec::new(),
            loggers: Vec::new(),
            options: TrainerOptions {
                resume: false,
                resume_from: None,
                allow_changes: Vec::new(),
                observing: ObservingOptions {
                    log: self.options.observing.log.clone(),
                    ..ObservingOptions::default()
                },
                ..self.options.clone()
            },
            ..self.clone()
        };
        trial.fast_dev_run(STEPS).limit_val_batches(0).quiet(true)
    }

    fn check_reports_memory(&self) -> Result<()> {
        let mesh = self.on_devices()?;
        let devices = self.client.devices();
        let mut used = (devices.iter()).filter(|device| mesh.devices().contains(&device.id()));
        let has_limit =
            |device: &&dyn Device| device.memory().is_ok_and(|memory| memory.limit.is_some());
        match used.find(|device| !has_limit(device)) {
            None => Ok(()),
            Some(device) => {
                let message = format!(
                    "{} reports no limit of its memory, so that a batch cannot be tried; \
                     `halite plan --largest-batch --memory-limit 16G` compiles for a limit",
                    device.kind()
                );
                Err(Error::new(ErrorKind::Unsupported, "batch size", message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use halite_core::{Client, Null};

    use super::*;

    fn trainer() -> TrainerBuilder {
        let client = Client::new(Null::new(2));
        let mut options = TrainerOptions::default();
        options.observing.early_stopping = Some("validation loss".into());
        options.observing.patience = Some(2);
        Trainer::builder(&client)
            .options(options)
            .batch_size(48)
            .out("never written")
            .resume(true)
            .allow_changes(["seed"])
    }

    /// An attempt on devices that have memory for this many samples.
    fn with_room_for(samples: usize) -> impl FnMut(&Trainer) -> Result<()> {
        move |trainer| {
            let options = trainer.options();
            assert_eq!((options.max_steps, &options.out), (Some(STEPS), &None));
            // Without validations, early stopping would have no metric.
            assert!(trainer.callbacks.is_empty());
            if options.batch_size <= samples {
                Ok(())
            } else {
                Err(Error::new(ErrorKind::OutOfMemory, "launch", "no room"))
            }
        }
    }

    #[test]
    fn largest_batch_is_found_by_trying() {
        for (room, largest) in [(20, 16), (63, 32), (64, 64), (1_000_000, 4096)] {
            let found = trainer().largest_that_runs(5000, with_room_for(room));
            assert_eq!(found.unwrap(), largest, "{room}");
        }
        let error = trainer()
            .largest_that_runs(5000, with_room_for(1))
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("a batch of 2 samples does not fit"),
            "{error}"
        );
    }

    #[test]
    fn other_errors_end_the_search() {
        let failed = |_: &Trainer| Err(Error::invalid("task", "a mistake"));
        let error = trainer().largest_that_runs(5000, failed).unwrap_err();
        assert_eq!(error.to_string(), "task: a mistake");
    }

    #[test]
    fn devices_without_a_limit_are_not_tried() {
        let error = trainer().largest_batch(5000, |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("--memory-limit"), "{error}");
    }
}
