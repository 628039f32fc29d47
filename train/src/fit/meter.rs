//! Metrics of training steps: windows on their way to the host, and the sums of those that arrived.

use std::{collections::VecDeque, sync::Arc};

use halite_core::{HostArray, Pending, Result};

use crate::{
    MetricValues,
    callback::{MetricsWindow, NotFinite},
    finite,
    loggers::{Row, Split},
    signals::StopFlag,
    waits::{Limits, wait_also_when_stopped},
    window::{ReadExtras, Window, WindowMetric, weighted_mean},
};

/// Sums of one metric over an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    /// Sum of the values, each times its weight.
    pub(super) total: f64,
    pub(super) weight: f64,
}

/// A window that is copied to the host.
struct Sent {
    /// Its last step.
    step: u64,
    /// Factor of learning rates of that step.
    rate_factor: f64,
    window: Pending<HostArray>,
}

/// Adds the metrics of an epoch up, in f64, as their windows arrive.
pub(super) struct Meter {
    window: Window,
    /// Windows that are copied to the host.
    pending: VecDeque<Sent>,
    pub(super) sums: Vec<Sum>,
}

impl Meter {
    pub(super) fn new(window: &Window) -> Self {
        Meter {
            window: window.clone(),
            pending: VecDeque::new(),
            sums: vec![Sum::default(); window.names().len()],
        }
    }

    /// The names of the metrics, in the order of the sums.
    pub(super) fn names(&self) -> &[Arc<str>] {
        self.window.names()
    }

    /// Adds a window, the last step of which is `step` and had this factor of learning rates.
    pub(super) fn push(&mut self, step: u64, rate_factor: f64, window: Pending<HostArray>) {
        self.pending.push_back(Sent {
            step,
            rate_factor,
            window,
        });
    }

    /// The last step of the oldest window that is not taken yet.
    pub(super) fn first_pending(&self) -> Option<u64> {
        self.pending.front().map(|sent| sent.step)
    }

    /// The last step of the newest window that is not taken yet.
    pub(super) fn last_pending(&self) -> Option<u64> {
        self.pending.back().map(|sent| sent.step)
    }

    /// Takes the next window if it has arrived.
    pub(super) fn poll(&mut self) -> Result<Option<Arrived>> {
        match self.pending.front() {
            Some(sent) if sent.window.is_ready() => self.take(),
            _ => Ok(None),
        }
    }

    /// Takes the next window, and waits for it; `None` if there are no more.
    pub(super) fn wait(&mut self, limits: &Limits, stop: &StopFlag) -> Result<Option<Arrived>> {
        if let Some(Sent { step, window, .. }) = self.pending.front() {
            let name = || format!("the metrics of step {step}");
            wait_also_when_stopped(name, limits, &|| stop.is_set(), |slice| {
                window.wait_ready(slice).then_some(())
            })?;
        }
        self.take()
    }

    fn take(&mut self) -> Result<Option<Arrived>> {
        let Some(sent) = self.pending.pop_front() else {
            return Ok(None);
        };
        let Sent {
            step,
            rate_factor,
            window,
        } = sent;
        let window = window.wait()?;
        let metrics = self.window.read(&window)?;
        let extras = self.window.read_extras(&window)?;
        add(&mut self.sums, &metrics);
        Ok(Some(Arrived {
            step,
            rate_factor,
            is_empty: metrics.iter().all(|metric| metric.weight == 0.0),
            not_finite: finite::first_not_finite(&metrics),
            extras,
            // A metric that no step counted for, such as one of skipped steps, is unknown and not 0.
            means: metrics
                .iter()
                .filter(|metric| metric.weight != 0.0)
                .map(|metric| (metric.name.to_string(), metric.mean()))
                .collect(),
        }))
    }

    /// The means over the windows that have arrived.
    pub(super) fn means(&self) -> MetricValues {
        self.named(&self.sums)
    }

    /// The means over the windows that have arrived and one that is not complete yet, and the
    /// steps that were skipped in that one.
    pub(super) fn means_with(&self, incomplete: &HostArray) -> Result<(MetricValues, u64)> {
        let mut sums = self.sums.clone();
        add(&mut sums, &self.window.read(incomplete)?);
        let skipped = self.window.read_extras(incomplete)?.skipped;
        Ok((self.named(&sums), skipped))
    }

    fn named(&self, sums: &[Sum]) -> MetricValues {
        let names = self.window.names().iter().cloned();
        let means = names.zip(sums).filter(|(_, sum)| sum.weight != 0.0);
        means
            .map(|(name, sum)| (name, weighted_mean(sum.total, sum.weight)))
            .collect()
    }
}

fn add(sums: &mut [Sum], metrics: &[WindowMetric]) {
    for (sum, metric) in sums.iter_mut().zip(metrics) {
        sum.total += metric.total;
        sum.weight += metric.weight;
    }
}

/// A window that has arrived.
pub(super) struct Arrived {
    step: u64,
    pub(super) rate_factor: f64,
    /// An epoch can end right after a window was sent, and a run stop there: the next window has no
    /// steps then.
    pub(super) is_empty: bool,
    not_finite: Option<NotFinite>,
    pub(super) extras: ReadExtras,
    means: Vec<(String, f64)>,
}

impl Arrived {
    /// The last step of it.
    pub(super) fn step(&self) -> u64 {
        self.step
    }

    /// The mean of a metric over its steps.
    pub(super) fn mean(&self, metric: &str) -> Option<f64> {
        let mut means = self.means.iter();
        means
            .find(|(name, _)| name == metric)
            .map(|(_, mean)| *mean)
    }

    /// The window as callbacks see it.
    pub(super) fn at(self, epoch: u64, seconds: f64) -> MetricsWindow {
        MetricsWindow {
            row: Row {
                step: self.step,
                epoch,
                seconds,
                split: Split::Train,
                metrics: self.means,
            },
            not_finite: self.not_finite,
            anomaly: self
                .extras
                .anomaly
                .map(|(metric, step)| NotFinite { metric, step }),
        }
    }

    /// Returns true if callbacks should receive it.
    pub(super) fn is_relevant(&self) -> bool {
        !self.is_empty || self.not_finite.is_some() || self.extras.anomaly.is_some()
    }
}
