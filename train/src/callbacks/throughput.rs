//! How fast a run trains.

use std::collections::VecDeque;

use halite_core::{Error, Result};

use crate::{
    callback::{Callback, Run},
    loggers::{Row, Split},
};

/// Least number of steps over which a speed is measured, once there are as many.
const STEPS: u64 = 100;

/// Adds the speed of training to the metrics, for `metrics.csv` and all loggers:
/// `samples_per_second`; with [`tokens_per_sample`](Self::tokens_per_sample) `tokens_per_second`;
/// `mfu`, model FLOPs utilization, where the [peak](Run::peak_flops) of the devices is known or
/// [given](Self::peak_flops); and `device_memory`, the bytes in use on the fullest device, where the
/// driver counts them.
///
/// Speeds are those of the steps of the last rows, at least a hundred once there are as many,
/// without validations. The times are those at which
/// metrics arrive on the host: nothing waits for a device. The first row after a start has none.
#[derive(Clone, Debug, Default)]
pub struct ThroughputMonitor {
    tokens_per_sample: Option<f64>,
    peak_flops: Option<f64>,
    /// Steps of the last rows, the samples before them, and their seconds of training.
    rows: VecDeque<(u64, u64, f64)>,
    /// Seconds in validations.
    validating: f64,
    /// When the validation began.
    began: f64,
}

impl ThroughputMonitor {
    /// Counts samples.
    pub fn new() -> Self {
        ThroughputMonitor::default()
    }

    /// Counts tokens too.
    pub fn tokens_per_sample(self, tokens: usize) -> Self {
        ThroughputMonitor {
            tokens_per_sample: Some(tokens as f64),
            ..self
        }
    }

    /// Sets the peak rate of one device, in floating point operations a second, to which the
    /// operations of matrix multiplications and convolutions of a step are compared. By default it is
    /// that of the vendor's specification for the precision of the run.
    pub fn peak_flops(self, flops: f64) -> Self {
        ThroughputMonitor {
            peak_flops: Some(flops),
            ..self
        }
    }
}

impl Callback for ThroughputMonitor {
    fn check(&mut self, _: &[String]) -> Result<()> {
        match self.peak_flops {
            Some(flops) if !(flops > 0.0 && flops.is_finite()) => {
                let message = format!("`peak_flops` is {flops}; it must be positive");
                Err(Error::invalid("throughput monitor", message))
            }
            _ => Ok(()),
        }
    }

    fn on_fit_start(&mut self, _: &mut Run) -> Result<()> {
        self.rows.clear();
        self.validating = 0.0;
        Ok(())
    }

    fn on_validation_start(&mut self, run: &mut Run) -> Result<()> {
        self.began = run.seconds();
        Ok(())
    }

    fn on_validation_end(&mut self, run: &mut Run, _: &Row) -> Result<()> {
        self.validating += run.seconds() - self.began;
        Ok(())
    }

    fn additional_metrics(&mut self, run: &Run, row: &Row) -> Result<Vec<(String, f64)>> {
        if row.split != Split::Train {
            return Ok(Vec::new());
        }
        let mut metrics = Vec::new();
        if let Some(samples) = self.samples_per_second(row, run.samples_of(row.step)) {
            metrics.push(("samples_per_second".to_string(), samples));
            if let Some(tokens) = self.tokens_per_sample {
                metrics.push(("tokens_per_second".to_string(), samples * tokens));
            }
            let given = self.peak_flops.map(|flops| flops * run.devices() as f64);
            if let Some(peak) = given.or_else(|| run.peak_flops()) {
                let steps = samples / run.batch_size() as f64;
                let mfu = steps * run.flops_per_step() / peak;
                metrics.push(("mfu".to_string(), mfu));
            }
        }
        if let Some(bytes) = run.memory_in_use() {
            metrics.push(("device_memory".to_string(), bytes as f64));
        }
        Ok(metrics)
    }
}

impl ThroughputMonitor {
    /// The speed up to a row, which is one of the next, with the `samples` before it.
    fn samples_per_second(&mut self, row: &Row, samples: u64) -> Option<f64> {
        let seconds = row.seconds - self.validating;
        self.rows.push_back((row.step, samples, seconds));
        while self
            .rows
            .get(1)
            .is_some_and(|(step, ..)| step + STEPS <= row.step)
        {
            self.rows.pop_front();
        }
        let (_, before, began) = *self.rows.front()?;
        let samples = samples.saturating_sub(before) as f64;
        (samples > 0.0 && seconds > began).then(|| samples / (seconds - began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_that_of_the_last_hundred_steps() {
        let mut monitor = ThroughputMonitor::new();
        // Ten steps a second, later twenty.
        let second = |step: u64| match step {
            0..200 => step as f64 / 10.0,
            _ => 20.0 + (step - 200) as f64 / 20.0,
        };
        let mut speed = |step: u64| {
            let row = Row {
                step,
                epoch: 0,
                seconds: second(step),
                split: Split::Train,
                metrics: Vec::new(),
            };
            monitor.samples_per_second(&row, step)
        };
        let speeds: Vec<Option<f64>> = (1..=8).map(|row| speed(50 * row)).collect();
        let (ten, twenty) = (Some(10.0), Some(20.0));
        let both = Some(100.0 / 7.5);
        assert_eq!(speeds, [None, ten, ten, ten, both, twenty, twenty, twenty]);
    }
}
