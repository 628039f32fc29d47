//! Gradients of every row, and gradients of these, against finite differences in `f64`.

use halite_core::{DType, HostArray};
use halite_tests::{
    differences::differences,
    eval::{noise, try_eval_on},
    parallel,
};

use crate::edge_values::{
    ONLY,
    job::Executor,
    split::types,
    table::{Form, Row, all},
};

/// Rows without slopes to measure, and why.
const WITHOUT: &[(&str, &str)] = &[
    ("same", "the gradient is stopped"),
    (
        "reduce_precision",
        "steps, through which the gradient passes",
    ),
    ("numbers", "quotients of 0"),
    ("nothing", "quotients of 0"),
    ("ceil", "flat between steps"),
    ("floor", "flat between steps"),
    ("round", "flat between steps"),
    ("round_away", "flat between steps"),
    ("sign", "flat between steps"),
    ("rounded", "products over windows have no gradient"),
    ("reduce_window", "products over windows have no gradient"),
    (
        "windows",
        "neither have products, nor extremes over dilated windows",
    ),
];

/// Ranges of the inputs: of both signs, and where logarithms and powers are finite.
const RANGES: [(f64, f64); 2] = [(-2.0, 2.0), (0.2, 0.9)];

const STEP: f64 = 1e-5;

/// Relative to 1, or to the measured derivative if that is larger.
const TOLERANCE: f64 = 1e-5;

/// Whether all results of a row have gradients that are slopes.
pub(crate) fn has_slopes(row: &Row) -> bool {
    !row.gradients.is_empty() && !WITHOUT.iter().any(|(name, _)| *name == row.name)
}

fn is_checked(row: &&Row) -> bool {
    let only = std::env::var(ONLY).ok();
    has_slopes(row)
        && row.dtypes.contains(&DType::F64)
        && !matches!(row.form, Form::Indices | Form::Labels)
        && only.is_none_or(|only| only == row.name)
}

/// What is wrong with the derivatives of a row along a direction. Those at points where they are
/// not finite do not count, as long as others are.
fn wrong(row: &'static Row) -> Option<String> {
    let (mut seen, mut wrong) = (0, Vec::new());
    for (low, high) in RANGES {
        let values = match derivatives(row, low, high) {
            Ok(values) => values,
            Err(error) => return Some(format!("{}: {error}", row.name)),
        };
        for (order, pair) in values.chunks(2).enumerate() {
            let (gradient, measured) = (pair[0], pair[1]);
            if !measured.is_finite() {
                continue;
            }
            seen += 1;
            let error = (gradient - measured).abs() / measured.abs().max(1.0);
            if error.is_nan() || error > TOLERANCE {
                let order = order + 1;
                wrong.push(format!(
                    "derivative {order} from {low} to {high} is {gradient}, measured {measured}"
                ));
            }
        }
    }
    if seen < 2 {
        wrong.push("no derivative is finite".to_owned());
    }
    (!wrong.is_empty()).then(|| format!("{}: {}", row.name, wrong.join("; ")))
}

/// The first and the second derivative, each with the central difference.
fn derivatives(row: &'static Row, low: f64, high: f64) -> halite_core::Result<Vec<f64>> {
    let points = types(row)
        .into_iter()
        .zip(1..)
        .map(|(ty, seed)| noise(seed, ty.dims(), low, high));
    let points: Vec<HostArray> = points.collect();
    let along = row
        .gradients
        .iter()
        .map(|&at| noise(100 + at as u64, points[at].ty().dims(), -1.0, 1.0));
    let inputs: Vec<HostArray> = points.iter().cloned().chain(along).collect();
    let program = differences(
        |_, x| (row.build)(x),
        points.len(),
        row.gradients.to_vec(),
        STEP,
    );
    let results = try_eval_on(Executor::Embedded.client(), program, &inputs)?;
    results.iter().map(HostArray::item::<f64>).collect()
}

#[test]
fn gradients_are_slopes() {
    let rows: Vec<&'static Row> = all().filter(is_checked).collect();
    let wrong: Vec<String> =
        parallel::map(2, 0..rows.len() as u64, |index| wrong(rows[index as usize]))
            .into_iter()
            .flatten()
            .collect();
    println!("{} rows", rows.len());
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
