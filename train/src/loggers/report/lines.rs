//! The lines of the table that a report is in text, by subject.

use halite_core::{format_bytes, format_count, format_flops};

use super::{Report, processes};
use crate::format::{format_metric, format_seconds};

impl Report {
    /// Names and values of the lines, in order.
    pub(super) fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Lines::default();
        self.add_metrics(&mut lines);
        self.add_length(&mut lines);
        self.add_speed(&mut lines);
        self.add_programs(&mut lines);
        lines.add("seed", self.seed.to_string());
        lines.0.extend(processes::lines(&self.processes));
        for finding in &self.findings {
            lines.add("note", finding.clone());
        }
        for (name, path) in [
            ("best checkpoint", &self.best_checkpoint),
            ("last checkpoint", &self.last_checkpoint),
        ] {
            if let Some(path) = path {
                lines.add(name, path.display().to_string());
            }
        }
        if let Some(best) = self.best() {
            lines.add("best metrics", best);
        }
        lines.0
    }

    fn add_metrics(&self, lines: &mut Lines) {
        // Without a validation both are the same.
        if self.train_metrics != self.metrics {
            let at = match self.metrics_of_step {
                Some(step) if step != self.steps => format!(" (step {})", format_count(step)),
                _ => String::new(),
            };
            for (name, value) in &self.metrics {
                lines.add(name, format!("{}{at}", format_metric(name, *value)));
            }
        }
        let steps = match self
            .train_metrics_of_steps
            .map(|steps| steps.map(format_count))
        {
            Some([first, last]) => format!(" (steps {first} to {last})"),
            None => String::new(),
        };
        for (name, value) in &self.train_metrics {
            let value = format!("{}{steps}", format_metric(name, *value));
            lines.add(&format!("{name} in training"), value);
        }
    }

    /// The metrics of the best checkpoint, without those of single labels, if it is not the last step.
    fn best(&self) -> Option<String> {
        let step = self.best_step.filter(|step| *step != self.steps)?;
        let metrics = self.best_metrics.iter();
        let metrics = metrics.filter(|(name, _)| !name.contains('/'));
        let metrics =
            metrics.map(|(name, value)| format!("{name} {}", format_metric(name, *value)));
        let metrics: Vec<String> = metrics.collect();
        let step = format_count(step);
        (!metrics.is_empty()).then(|| format!("{} (step {step})", metrics.join(", ")))
    }

    fn add_length(&self, lines: &mut Lines) {
        let epochs = match self.epochs {
            1 => "1 epoch".to_string(),
            epochs => format!("{epochs} epochs"),
        };
        let mut length = format!("{} in {epochs}", format_count(self.steps));
        if self.skipped_steps > 0 {
            length += &format!(", {} skipped", format_count(self.skipped_steps));
        }
        if let Some(step) = self.resumed_from_step {
            length += &format!(", resumed from {}", format_count(step));
        }
        match &self.stopped_by {
            Some(what) => length += &format!(", stopped by {what}"),
            None if self.interrupted => length += ", interrupted",
            None => {}
        }
        lines.add("steps", length);
        if self.skipped_samples > 0 {
            let count = format_count(self.skipped_samples);
            lines.add("skipped samples", format!("{count}, which cannot be read"));
        }
        lines.add("time", format_seconds(self.seconds));
    }

    fn add_speed(&self, lines: &mut Lines) {
        if self.samples_per_second > 0.0 {
            let speed = format_count(self.samples_per_second.round() as u64);
            lines.add("speed", format!("{speed} samples/s"));
        }
        if self.training_seconds <= 0.0 {
            return;
        }
        let share = |seconds: f64| {
            let share = (seconds / self.training_seconds).min(1.0);
            format!("{:.0} %", 100.0 * share)
        };
        let waited = self.input_wait_seconds;
        let wait = format!("{} ({})", format_seconds(waited), share(waited));
        lines.add("input wait", wait);
        if let Some(busy) = self.device_busy_seconds {
            lines.add("device busy", share(busy));
        }
        if let (Some(mfu), Some(peak)) = (self.mfu, self.device.peak_flops) {
            let value = format!("{:.1} % of {}", 100.0 * mfu, format_flops(peak));
            lines.add("MFU", value);
        }
    }

    fn add_programs(&self, lines: &mut Lines) {
        lines.add("precision", self.precision.clone());
        if let Some(scale) = self.loss_scale {
            lines.add("loss scale", format_count(scale.round() as u64));
        }
        if let Some(device) = self.device.line() {
            lines.add("device", device);
        }
        let (plugin, version) = (&self.plugin, &self.plugin_version);
        let plugin = format!("{plugin} {version}, devices: {}", self.devices);
        lines.add("plugin", plugin.trim().to_string());
        if let Some(bytes) = self.device_memory_peak {
            lines.add("device memory", format!("{} at most", format_bytes(bytes)));
        }
        if let Some(seconds) = self.process_seconds_to_first_step {
            let value = format!("{seconds:.2} s after the start of the process");
            lines.add("first step", value);
        }
        let mut compiles = format_count(self.compiles);
        if self.cache_hits > 0 {
            let hits = format_count(self.cache_hits);
            let saved = format_seconds(self.compile_seconds_saved);
            compiles += &format!(", cache hits {hits}, which saved {saved}");
        }
        lines.add("compiles", compiles);
        lines.add("blocking reads", format_count(self.blocking_reads));
        lines.add("uploads", format_count(self.uploads));
    }
}

/// Lines of the table: names and values.
#[derive(Default)]
struct Lines(Vec<(String, String)>);

impl Lines {
    fn add(&mut self, name: &str, value: String) {
        self.0.push((name.to_string(), value));
    }
}
