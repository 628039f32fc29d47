//! Suggestions for a plan that does not fit.

use super::{
    Excess, Fit, Plan,
    text::{per_device, si},
};
use crate::ir::Remat;

/// Returns suggestions for a plan that does not fit, the most effective first. `remat` is the
/// rematerialization that the step has already.
pub(super) fn advice(plan: &Plan, remat: Option<Remat>) -> Vec<String> {
    let Fit::TooLarge {
        required,
        available,
        what,
    } = plan.fit
    else {
        return Vec::new();
    };
    let mut lines = smaller_state(plan, available);
    if what != Excess::Arguments {
        lines.extend(smaller_activations(plan, remat));
    }
    let required = si(required as f64, "B");
    lines.push(format!("a device with more than {required} of memory"));
    lines
}

/// Returns ways to reduce the state per device, if the state is a large part of its memory.
fn smaller_state(plan: &Plan, available: u64) -> Vec<String> {
    let (state, devices) = (plan.arguments, plan.devices);
    let is_sharded = plan.strategy.contains("fsdp");
    let mut lines = Vec::new();
    if !is_sharded && state > available / 4 && devices > 1 {
        let shard = si(state as f64 / devices as f64, "B");
        lines.push(format!(
            "shard the state: with fsdp over the {devices} devices, about {shard} on each"
        ));
    }
    if state > available / 2 {
        let factor = (2.0 * state as f64 / available as f64).ceil() as usize;
        let more = if is_sharded {
            "more shards"
        } else {
            "more devices and fsdp"
        };
        lines.push(format!(
            "{more}: on {factor} times as many devices, the state takes half of the memory"
        ));
    }
    lines
}

/// Returns ways to reduce the memory of activations.
fn smaller_activations(plan: &Plan, remat: Option<Remat>) -> Vec<String> {
    let mut lines = Vec::new();
    if plan.batch_size > plan.devices {
        let samples = per_device(plan);
        lines.push(format!(
            "a smaller batch (--batch-size; now {samples} samples per device): smaller activations"
        ));
    }
    let recomputed = match remat {
        None => Some("activations are recomputed in the backward pass instead of saved"),
        Some(Remat::SaveDots) => {
            Some("results of matrix multiplications, now saved, are recomputed too")
        }
        Some(Remat::Full) => None,
    };
    lines.extend(recomputed.map(|what| format!("rematerialization (--remat full): {what}")));
    if plan.work.contractions_in_16_bits < plan.work.contractions / 2.0 {
        lines.push("bf16 (--precision bf16-mixed): activations of half the size".into());
    }
    if !plan.strategy.contains("tp") && plan.devices > 1 {
        let both = if plan.strategy.contains("fsdp") {
            "fsdp+tp"
        } else {
            "dp+tp"
        };
        lines.push(format!(
            "tensor parallelism ({both}, with an axis `model`): each device computes a part of \
             each layer"
        ));
    }
    if plan.batch_size <= plan.devices {
        lines.push("shorter samples (--context, of a transformer): smaller activations".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

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
                .map(|line| line.split([':', ',', ';']).next().unwrap())
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
            &["shard the state", "more devices and fsdp", larger],
        );
        check(
            "fsdp",
            10 * GB,
            4,
            1.0,
            Some(Remat::Full),
            &[
                "more shards",
                "tensor parallelism (fsdp+tp",
                "shorter samples (--context",
                larger,
            ],
        );
        let (batch, remat) = (
            "a smaller batch (--batch-size",
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
