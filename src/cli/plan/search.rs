//! `halite plan --search`: the shardings to try, and their comparison.

use halite::{MeshShape, Result, plan::Plan, train::Strategy};
use serde_json::json;

/// One sharding with its plan, or the reason why it has none.
pub(super) type Row<'a> = (&'a MeshShape, &'a Strategy, Result<Plan, String>);

/// Sorts the plans and prints them as a table, with details of the best: first those that fit,
/// fastest first; then those that exceed the memory, by size; then failures.
pub(super) fn compare(rows: &mut [Row<'_>], as_json: bool) {
    rows.sort_by(|(.., a), (.., b)| {
        let ((group, number), (other, than)) = (rank(a), rank(b));
        group.cmp(&other).then(number.total_cmp(&than))
    });
    if as_json {
        say!(
            "{}",
            rows.iter().map(json_of).collect::<serde_json::Value>()
        );
        return;
    }
    say_table(rows);
    match rows {
        [(.., Ok(best)), ..] if best.fits() && best.estimate.is_some() => {
            say!("\nfastest estimate that fits:\n\n{best}")
        }
        [(.., Ok(least)), ..] if least.fits() => {
            say!("\nno time estimate for this target; least memory:\n\n{least}");
        }
        [(.., Ok(least)), ..] => say!("\nnothing fits; least memory:\n\n{least}"),
        _ => {}
    }
}

/// Returns the group of a plan, and its order in the group.
fn rank(plan: &Result<Plan, String>) -> (u8, f64) {
    match plan {
        Ok(plan) => {
            let memory = plan.required() as f64;
            // Without a time estimate they are compared by memory.
            let seconds = (plan.estimate.as_ref())
                .map_or(memory, |estimate| estimate.step_seconds_without_overlap);
            if plan.fits() {
                (0, seconds)
            } else {
                (1, memory)
            }
        }
        Err(_) => (2, 0.0),
    }
}

fn json_of((axes, strategy, plan): &Row<'_>) -> serde_json::Value {
    match plan {
        Ok(plan) => value(plan),
        Err(error) => {
            json!({"mesh": axes.to_string(), "strategy": strategy.to_string(), "error": error})
        }
    }
}

fn say_table(rows: &[Row<'_>]) {
    say!(
        "{:<10} {:<22} {:>10}  {:<5} {:>12} {:>12}  {:>9}",
        "strategy",
        "mesh",
        "peak",
        "fits",
        "step, best",
        "no overlap",
        "MFU"
    );
    for (axes, strategy, plan) in rows {
        let row = plan
            .as_ref()
            .map_or_else(|_| format!("{:>10}  failed, see below", "-"), Plan::row);
        let (axes, strategy) = (axes.to_string(), strategy.to_string());
        say!("{strategy:<10} {axes:<22} {row}");
    }
    for (.., plan) in rows {
        if let Err(error) = plan {
            say!("\nfailed: {error}");
        }
    }
}

/// Builds the shape of a mesh from distinct axes.
pub(super) fn axes(axes: &[(&'static str, usize)]) -> MeshShape {
    MeshShape::new(axes.iter().copied()).expect("distinct axes of a target's devices")
}

/// Returns the shardings that `--search` tries: each strategy alone, and with tensor parallelism
/// over 2, 4 and 8 devices.
pub(super) fn candidates(devices: usize) -> Vec<(MeshShape, Strategy)> {
    let (dp, fsdp, tp) = (
        Strategy::data_parallel(),
        Strategy::fsdp(),
        Strategy::tensor_parallel(),
    );
    let mut all = vec![(axes(&[("data", devices)]), dp.clone())];
    if devices > 1 {
        all.push((axes(&[("fsdp", devices)]), fsdp.clone()));
    }
    for model in [2, 4, 8]
        .into_iter()
        .filter(|model| devices.is_multiple_of(*model) && devices > *model)
    {
        all.push((
            axes(&[("data", devices / model), ("model", model)]),
            dp.clone().and(tp.clone()),
        ));
        all.push((
            axes(&[("fsdp", devices / model), ("model", model)]),
            fsdp.clone().and(tp.clone()),
        ));
    }
    all
}

/// Returns a plan as JSON.
pub(super) fn value(plan: &Plan) -> serde_json::Value {
    serde_json::to_value(plan).expect("a plan has names and numbers only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_use_all_devices() {
        for devices in [1, 4, 12, 256] {
            for (axes, strategy) in candidates(devices) {
                assert_eq!(axes.size(), devices, "{strategy}");
            }
        }
        assert_eq!(candidates(1).len(), 1);
    }
}
