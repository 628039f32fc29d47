//! A plan as text: a table.

use std::fmt;

use super::{Excess, Fit, Plan};
use crate::backends::Target;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::default();
        self.add_step(&mut table);
        self.add_memory(&mut table);
        self.add_work(&mut table);
        self.add_collectives(&mut table);
        self.add_estimate(&mut table);
        self.add_program(&mut table);
        write!(f, "{}", table.rows.join("\n"))?;
        if !self.advice.is_empty() {
            write!(f, "\nsuggestions")?;
            for line in &self.advice {
                write!(f, "\n  {line}")?;
            }
        }
        Ok(())
    }
}

/// Lines of a name and a value.
#[derive(Default)]
struct Table {
    rows: Vec<String>,
}

impl Table {
    fn add(&mut self, name: &str, value: impl fmt::Display) {
        let row = format!("{name:<22}{value}");
        self.rows.push(row.trim_end().to_owned());
    }
}

/// Rows of the table.
impl Plan {
    fn add_step(&self, table: &mut Table) {
        let devices = format!("{} ({} x {})", self.target, self.devices, self.device);
        table.add("target", devices);
        let sharding = format!("{} on {}, {}", self.strategy, self.mesh, self.precision);
        table.add("sharding", sharding);
        let samples = per_device(self);
        let batch = format!("{} samples, {samples} per device", self.batch_size);
        table.add("batch", batch);
        table.add("parameters", si(self.parameters as f64, ""));
    }

    fn add_memory(&self, table: &mut Table) {
        match self.memory {
            Some(memory) => {
                table.add("memory per device", "");
                table.add("  arguments", bytes(memory.arguments));
                let (outputs, aliased) = (bytes(memory.outputs), bytes(memory.aliased));
                table.add(
                    "  outputs",
                    format!("{outputs} ({aliased} in donated arguments)"),
                );
                table.add("  temporary", bytes(memory.temporary));
                table.add("  program", bytes(memory.code));
                table.add("  peak", bytes(memory.peak));
            }
            None => table.add("arguments", format!("{} per device", bytes(self.arguments))),
        }
        table.add("fits", verdict(self.fit));
    }

    fn add_work(&self, table: &mut Table) {
        let work = &self.work;
        let flops = si(work.flops, "FLOP");
        table.add("operations", format!("{flops} per step, over all devices"));
        let contractions = si(work.contractions, "FLOP");
        let in_16_bits = percent(work.contractions_in_16_bits, work.contractions);
        let contractions = format!("{contractions}, {in_16_bits} in 16 bits");
        table.add("  contractions", contractions);
        if let Some(flops) = work.model_flops.filter(|flops| *flops != work.contractions) {
            table.add("  without recomputing", si(flops, "FLOP"));
        }
        let intensity = format!("{:.1} FLOP per byte of contractions", work.intensity);
        table.add("  intensity", intensity);
        if !work.counted_once.is_empty() {
            let lines = work.counted_once.join(", ");
            let loops = format!("loops with unknown trip counts at {lines}");
            table.add("  counted once", loops);
        }
    }

    fn add_collectives(&self, table: &mut Table) {
        let Some(collectives) = &self.collectives else {
            return;
        };
        let title = match &collectives[..] {
            [] => "none",
            _ => "per step",
        };
        table.add("collectives", title);
        for one in collectives {
            let (total, sent) = (si(one.bytes as f64, "B"), si(one.sent, "B"));
            let value = format!(
                "{} x, groups of {}, {total} in total, each device sends {sent}",
                one.count, one.group
            );
            table.add(&format!("  {}", one.kind), value);
        }
        let loops = self.collective_loops_counted_once;
        if loops > 0 {
            let note = format!("{loops} loops whose trip counts the compiled program lacks");
            table.add("  counted once", note);
        }
    }

    fn add_estimate(&self, table: &mut Table) {
        let Some(estimate) = &self.estimate else {
            return;
        };
        let step = format!(
            "{} with full overlap ({} bound), {} without",
            seconds(estimate.step_seconds),
            estimate.bound(),
            seconds(estimate.step_seconds_without_overlap)
        );
        table.add("step time, at best", step);
        table.add("  arithmetic", seconds(estimate.compute_seconds));
        table.add("  memory", seconds(estimate.memory_seconds));
        let target = self.target.parse::<Target>();
        let without = if target.is_ok_and(|target| target.crosses_network()) {
            ", without traffic over the data center's network"
        } else {
            ""
        };
        let network = seconds(estimate.network_seconds);
        table.add("  network", format!("{network}{without}"));
        let mfu = format!(
            "{:.0} % to {:.0} % of {}/s",
            100.0 * estimate.mfu_without_overlap,
            100.0 * estimate.mfu,
            si(estimate.peak_flops, "FLOP")
        );
        table.add("  MFU, at best", mfu);
        table.add("  numbers from", &estimate.source);
    }

    fn add_program(&self, table: &mut Table) {
        let executable = self.executable.map_or(String::new(), |size| {
            format!(", executable {}", bytes(size))
        });
        let text = si(self.stablehlo as f64, "B");
        table.add("program", format!("{text} of StableHLO{executable}"));
        let compile = match self.compile_seconds {
            0.0 => "not compiled".to_owned(),
            took => format!("compile {}", seconds(took)),
        };
        let trace = seconds(self.trace_seconds);
        table.add("duration", format!("trace {trace}, {compile}"));
    }
}

impl Plan {
    /// Columns for comparing several plans: peak memory, fit, step time at best and without overlap,
    /// MFU.
    pub fn row(&self) -> String {
        let fits = if self.fits() { "yes" } else { "NO" };
        let peak = si(self.required() as f64, "B");
        match &self.estimate {
            Some(estimate) => format!(
                "{peak:>10}  {fits:<5} {:>12} {:>12}  {:>3.0} - {:.0} %",
                seconds(estimate.step_seconds),
                seconds(estimate.step_seconds_without_overlap),
                100.0 * estimate.mfu_without_overlap,
                100.0 * estimate.mfu
            ),
            None => format!("{peak:>10}  {fits:<5}"),
        }
    }
}

/// Samples per device.
pub(super) fn per_device(plan: &Plan) -> String {
    let samples = plan.batch_size as f64 / plan.devices.max(1) as f64;
    if samples.fract() == 0.0 {
        samples.to_string()
    } else {
        format!("{samples:.2}")
    }
}

fn verdict(fit: Fit) -> String {
    match fit {
        Fit::Fits {
            peak,
            available: Some(available),
        } => {
            format!(
                "yes: {} of {} ({})",
                si(peak as f64, "B"),
                si(available as f64, "B"),
                percent(peak as f64, available as f64)
            )
        }
        Fit::Fits {
            peak,
            available: None,
        } => format!(
            "{}; this target reports no memory limit",
            si(peak as f64, "B")
        ),
        Fit::TooLarge {
            required,
            available,
            what,
        } => {
            let what = match what {
                Excess::Arguments => "by state and batch alone",
                Excess::Loop => "by what one loop keeps alone",
                Excess::Compiler => "according to the compiler",
                Excess::Peak => "at its peak",
            };
            let missing = si(required.saturating_sub(available) as f64, "B");
            format!(
                "NO: {} needed {what}, {} available, {missing} short",
                si(required as f64, "B"),
                si(available as f64, "B")
            )
        }
    }
}

fn percent(part: f64, whole: f64) -> String {
    format!(
        "{:.0} %",
        if whole > 0.0 {
            100.0 * part / whole
        } else {
            0.0
        }
    )
}

fn bytes(value: u64) -> String {
    si(value as f64, "B")
}

/// Formats with a decimal prefix and three digits: `1.49 GB`.
pub(crate) fn si(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 8] = ["", "k", "M", "G", "T", "P", "E", "Z"];
    let mut scaled = value;
    let mut prefix = 0;
    while scaled.abs() >= 999.5 && prefix + 1 < PREFIXES.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    let digits = match scaled.abs() {
        _ if prefix == 0 && scaled.fract() == 0.0 => 0,
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$} {}{unit}", PREFIXES[prefix])
        .trim_end()
        .to_string()
}

pub(crate) fn seconds(value: f64) -> String {
    match value {
        0.0 => "0 s".to_string(),
        value if value >= 99.5 => format!("{value:.0} s"),
        value if value >= 1.0 => format!("{value:.2} s"),
        value if value >= 1e-3 => format!("{:.2} ms", 1e3 * value),
        value => format!("{:.2} us", 1e6 * value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let cases = [
            (0.0, "0 B"),
            (12.0, "12 B"),
            (999.0, "999 B"),
            (1490.0, "1.49 kB"),
            (16_909_000_000.0, "16.9 GB"),
            (124e6, "124 MB"),
            (999_999.0, "1.00 MB"),
        ];
        for (value, text) in cases {
            assert_eq!(si(value, "B"), text);
        }
        assert_eq!(
            (
                seconds(2.5e-6),
                seconds(0.0123),
                seconds(3.0),
                seconds(120.0)
            ),
            (
                "2.50 us".into(),
                "12.30 ms".into(),
                "3.00 s".into(),
                "120 s".into()
            )
        );
    }
}
