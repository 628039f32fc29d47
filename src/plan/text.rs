//! A plan as text: a table, and suggestions.

use std::fmt;

use super::{Excess, Fit, Plan};
use crate::{backends::Target, ir::Remat};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, value: &str| {
            writeln!(f, "{}", format!("{name:<22}{value}").trim_end())
        };
        row(
            f,
            "target",
            &format!("{} ({} x {})", self.target, self.devices, self.device),
        )?;
        row(
            f,
            "sharding",
            &format!("{} on {}, {}", self.strategy, self.mesh, self.precision),
        )?;
        row(
            f,
            "batch",
            &format!(
                "{} samples, {} on each device",
                self.batch_size,
                per_device(self)
            ),
        )?;
        row(f, "parameters", &si(self.parameters as f64, ""))?;
        match self.memory {
            Some(memory) => {
                row(f, "memory on a device", "")?;
                row(f, "  arguments", &si(memory.arguments as f64, "B"))?;
                row(
                    f,
                    "  outputs",
                    &format!(
                        "{} ({} in the arguments' place)",
                        si(memory.outputs as f64, "B"),
                        si(memory.aliased as f64, "B")
                    ),
                )?;
                row(f, "  temporary", &si(memory.temporary as f64, "B"))?;
                row(f, "  program", &si(memory.code as f64, "B"))?;
                row(f, "  peak", &si(memory.peak as f64, "B"))?;
            }
            None => row(
                f,
                "arguments",
                &format!("{} on each device", si(self.arguments as f64, "B")),
            )?,
        }
        row(f, "fits", &verdict(self.fit))?;
        let work = &self.work;
        row(
            f,
            "operations",
            &format!("{} a step over all devices", si(work.flops, "FLOP")),
        )?;
        row(
            f,
            "  contractions",
            &format!(
                "{}, {} of them in 16 bits",
                si(work.contractions, "FLOP"),
                percent(work.contractions_in_16_bits, work.contractions)
            ),
        )?;
        if let Some(flops) = work.model_flops.filter(|flops| *flops != work.contractions) {
            row(f, "  without recomputing", &si(flops, "FLOP"))?;
        }
        row(
            f,
            "  intensity",
            &format!("{:.1} FLOP for each byte of contractions", work.intensity),
        )?;
        if !work.counted_once.is_empty() {
            row(
                f,
                "  counted once",
                &format!(
                    "loops with unknown trip counts at {}",
                    work.counted_once.join(", ")
                ),
            )?;
        }
        if let Some(collectives) = &self.collectives {
            row(
                f,
                "collectives",
                if collectives.is_empty() {
                    "none"
                } else {
                    "in one step"
                },
            )?;
            for one in collectives {
                let value = format!(
                    "{} x, groups of {}, {} in all, each device sends {}",
                    one.count,
                    one.group,
                    si(one.bytes as f64, "B"),
                    si(one.sent, "B")
                );
                row(f, &format!("  {}", one.kind), &value)?;
            }
            if self.collective_loops_counted_once > 0 {
                let note = format!(
                    "{} loops whose trip counts the compiled program does not give",
                    self.collective_loops_counted_once
                );
                row(f, "  counted once", &note)?;
            }
        }
        if let Some(estimate) = &self.estimate {
            row(
                f,
                "at best, a step takes",
                &format!(
                    "{} if all overlaps ({} bound), {} if nothing does",
                    seconds(estimate.step_seconds),
                    estimate.bound(),
                    seconds(estimate.step_seconds_without_overlap)
                ),
            )?;
            row(f, "  arithmetic", &seconds(estimate.compute_seconds))?;
            row(f, "  memory", &seconds(estimate.memory_seconds))?;
            let crosses = self
                .target
                .parse()
                .is_ok_and(|target: Target| target.crosses_network());
            let without = if crosses {
                ", without what crosses the data centre's network"
            } else {
                ""
            };
            row(
                f,
                "  network",
                &format!("{}{without}", seconds(estimate.network_seconds)),
            )?;
            row(
                f,
                "  MFU at best",
                &format!(
                    "{:.0} % to {:.0} % of {}/s",
                    100.0 * estimate.mfu_without_overlap,
                    100.0 * estimate.mfu,
                    si(estimate.peak_flops, "FLOP")
                ),
            )?;
            row(f, "  numbers from", &estimate.source)?;
        }
        let executable = self.executable.map_or(String::new(), |bytes| {
            format!(", executable {}", si(bytes as f64, "B"))
        });
        row(
            f,
            "program",
            &format!(
                "{} of StableHLO{executable}",
                si(self.stablehlo as f64, "B")
            ),
        )?;
        let compiled = match self.compile_seconds {
            0.0 => "nothing compiled".to_owned(),
            took => format!("compile {}", seconds(took)),
        };
        write!(
            f,
            "{:<22}trace {}, {compiled}",
            "took",
            seconds(self.trace_seconds)
        )?;
        if !self.advice.is_empty() {
            write!(f, "\nwhat would help")?;
            for line in &self.advice {
                write!(f, "\n  {line}")?;
            }
        }
        Ok(())
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
fn per_device(plan: &Plan) -> String {
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

/// Suggestions for a plan that does not fit. `remat` is the rematerialization that it has already.
pub(super) fn advice(plan: &Plan, remat: Option<Remat>) -> Vec<String> {
    let Fit::TooLarge {
        required,
        available,
        what,
    } = plan.fit
    else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let state = plan.arguments;
    let (sharded, by_layers) = (plan.strategy.contains("fsdp"), plan.strategy.contains("tp"));
    if !sharded && state > available / 4 && plan.devices > 1 {
        lines.push(format!(
            "split the state: with fsdp over the {} devices each has about {} of it",
            plan.devices,
            si(state as f64 / plan.devices as f64, "B")
        ));
    }
    if state > available / 2 {
        let factor = (2.0 * state as f64 / available as f64).ceil() as usize;
        let what = if sharded {
            "more shards"
        } else {
            "more devices and fsdp"
        };
        lines.push(format!(
            "{what}: on {factor} times the devices the state takes half of the memory"
        ));
    }
    if what != Excess::Arguments {
        if plan.batch_size > plan.devices {
            let now = per_device(plan);
            lines.push(format!("a smaller batch (--batch-size): {now} samples on each device now; activations shrink with it"));
        }
        let saved = match remat {
            None => Some("activations are recomputed in the backward pass instead of saved"),
            Some(Remat::SaveDots) => {
                Some("results of matrix multiplications are recomputed too, which are saved now")
            }
            Some(Remat::Full) => None,
        };
        if let Some(saved) = saved {
            lines.push(format!("rematerialization (--remat full): {saved}"));
        }
        if plan.work.contractions_in_16_bits < plan.work.contractions / 2.0 {
            lines.push("bf16 (--precision bf16-mixed): activations of half the size".into());
        }
        if !by_layers && plan.devices > 1 {
            let both = if sharded { "fsdp+tp" } else { "dp+tp" };
            lines.push(format!("split layers too ({both}, with an axis `model`): each device then computes a part of each"));
        }
        if plan.batch_size <= plan.devices {
            lines.push(
                "shorter samples (--context, of a transformer): activations shrink with them"
                    .into(),
            );
        }
    }
    lines.push(format!(
        "a device with more than {} of memory",
        si(required as f64, "B")
    ));
    lines
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

    #[test]
    fn advice_omits_options_already_used() {
        const GB: u64 = 1_000_000_000;
        let check = |strategy: &str,
                     arguments: u64,
                     batch: usize,
                     in_16_bits: f64,
                     remat,
                     expected: &[&str]| {
            let plan: Plan = serde_json::from_value(serde_json::json!({
                "target": "tpu:v5e:2x2", "device": "TPU v5 lite", "devices": 4, "mesh": "mesh(data=4)", "strategy": strategy,
                "precision": "f32", "batch_size": batch, "parameters": 1, "memory": null, "arguments": arguments,
                "fit": {"verdict": "too_large", "required": 30 * GB, "available": 16 * GB,
                    "what": if arguments > 16 * GB { "arguments" } else { "compiler" }},
                "work": {"flops": 1.0, "contractions": 1.0, "contractions_in_16_bits": in_16_bits, "transcendentals": 0.0,
                    "contraction_bytes": 1.0, "unfused_bytes": 1.0, "intensity": 1.0, "model_flops": null, "counted_once": []},
                "collectives": null, "collective_loops_counted_once": 0, "estimate": null, "executable": null, "stablehlo": 1,
                "trace_seconds": 0.0, "compile_seconds": 0.0, "advice": [],
            }))
            .unwrap();
            let lines = advice(&plan, remat);
            let starts: Vec<&str> = lines
                .iter()
                .map(|line| line.split([':', ',']).next().unwrap())
                .collect();
            assert_eq!(starts, expected, "{lines:?}");
        };
        let larger = "a device with more than 30.0 GB of memory";
        check(
            "dp",
            20 * GB,
            32,
            1.0,
            Some(Remat::Full),
            &["split the state", "more devices and fsdp", larger],
        );
        check(
            "fsdp",
            10 * GB,
            4,
            1.0,
            Some(Remat::Full),
            &[
                "more shards",
                "split layers too (fsdp+tp",
                "shorter samples (--context",
                larger,
            ],
        );
        let (batch, remat) = (
            "a smaller batch (--batch-size)",
            "rematerialization (--remat full)",
        );
        check(
            "dp+tp",
            GB,
            32,
            0.0,
            None,
            &[batch, remat, "bf16 (--precision bf16-mixed)", larger],
        );
        check(
            "fsdp+tp",
            GB,
            32,
            1.0,
            Some(Remat::SaveDots),
            &[batch, remat, larger],
        );
        check("fsdp+tp", GB, 32, 1.0, Some(Remat::Full), &[batch, larger]);
    }
}
