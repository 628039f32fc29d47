//! Checks for NaN and infinities in metrics and checkpoints.

use std::collections::HashSet;

use half::{bf16, f16};
use halite_core::{DType, Error, ErrorKind, HostArray, Result};

use crate::{
    callback::NotFinite,
    cause::Cause,
    window::{WINDOW, Window, WindowMetric},
};

/// Checks that every metric of a window is finite, and every gradient that is watched: `anomaly` is
/// the first one that is not.
///
/// # Errors
/// The metric or the parameter, and the step, with the cause that `cause` finds for the step.
pub(crate) fn check_metrics(
    not_finite: Option<&NotFinite>,
    anomaly: Option<&NotFinite>,
    cause: impl FnOnce(u64) -> Cause,
) -> Result<()> {
    let gradient = anomaly.map(|NotFinite { metric, step }| {
        (
            *step,
            format!("the gradient of `{metric}` is not finite at step {step}"),
        )
    });
    let metric = not_finite.map(|NotFinite { metric, step }| {
        (*step, format!("`{metric}` is not finite at step {step}"))
    });
    let (step, what) = match (metric, gradient) {
        (None, None) => return Ok(()),
        (Some(one), None) | (None, Some(one)) => one,
        (Some((step, metric)), Some((first, gradient))) => {
            (step.min(first), format!("{metric}, and {gradient}"))
        }
    };
    Err(diverged(&what, &cause(step)))
}

/// The first metric of a window that is not finite.
pub(crate) fn first_not_finite(metrics: &[WindowMetric]) -> Option<NotFinite> {
    metrics
        .iter()
        .filter_map(|metric| {
            Some(NotFinite {
                metric: metric.name.clone(),
                step: metric.bad_step?,
            })
        })
        .min_by_key(|found| found.step)
}

/// Checks that every metric of a pass over a dataset is finite.
///
/// # Errors
/// The metric, with the cause that `cause` finds.
pub(crate) fn check_scores(metrics: &[WindowMetric], cause: impl FnOnce() -> Cause) -> Result<()> {
    match metrics.iter().find(|metric| metric.bad_step.is_some()) {
        None => Ok(()),
        Some(metric) => {
            let message = format!(
                "`{}` is not finite: {}",
                metric.name,
                match cause() {
                    Cause::Data(what) =>
                        format!("the data is the cause: {what}. Repair or remove such samples"),
                    Cause::NotData { labels } => format!(
                        "the data is finite{}: the model has diverged",
                        in_range(labels)
                    ),
                    Cause::Unknown =>
                        "the model has diverged, or the data has an invalid label or a number \
                                   that is not finite"
                            .to_string(),
                }
            );
            Err(Error::new(ErrorKind::Diverged, "validate", message))
        }
    }
}

/// Checks that a run can resume from this array of a checkpoint, best from the window first. The
/// steps since the last window was read may have diverged, and a step with a finite loss can have a
/// gradient that is not finite.
///
/// # Errors
/// The metric and its step, or the array with the value; and the cause of a step that `cause`
/// finds.
pub(crate) fn check_array(
    name: &str,
    array: &HostArray,
    window: &Window,
    trained: &HashSet<String>,
    step: u64,
    cause: impl Fn(u64) -> Cause,
) -> Result<()> {
    if name == WINDOW {
        let metrics = window.read(array)?;
        return check_metrics(first_not_finite(&metrics).as_ref(), None, &cause);
    }
    // Arrays that are not trained may be infinite on purpose, such as masks. A slot that is infinite
    // has overflowed, and stops its parameter for good.
    let must_be_finite = ["slots.", "average."]
        .iter()
        .any(|part| name.starts_with(part));
    let bad = if trained.contains(name) || must_be_finite {
        find(array, |value| !value.is_finite())
    } else {
        find(array, f64::is_nan)
    };
    match bad? {
        None => Ok(()),
        Some(value) => Err(diverged(
            &format!("after step {step} an element of `{name}` is {value}"),
            &cause(step),
        )),
    }
}

fn diverged(what: &str, cause: &Cause) -> Error {
    const RATE: &str = "A smaller learning rate or `gradient_clip_val` often helps";
    let advice = match cause {
        Cause::Data(what) => {
            format!(
                "The data is the cause: {what}. Repair or remove such samples; another learning \
                 rate does not help"
            )
        }
        Cause::NotData { labels } => format!(
            "The batch of that step is finite{}: the model has diverged, or divides by 0 or takes \
             the logarithm of 0. {RATE}",
            in_range(*labels)
        ),
        Cause::Unknown => {
            format!(
                "The model has diverged, or the data has an invalid label or a number that is not \
                 finite. {RATE}"
            )
        }
    };
    let message =
        format!("{what}; training stopped, and the checkpoints are from before. {advice}");
    Error::new(ErrorKind::Diverged, "fit", message)
}

fn in_range(labels: bool) -> &'static str {
    if labels {
        ", and every label is valid"
    } else {
        ""
    }
}

/// The first element of a float array that is `bad`.
fn find(array: &HostArray, bad: impl Fn(f64) -> bool) -> Result<Option<f64>> {
    fn first<T: Copy + Into<f64>>(values: &[T], bad: impl Fn(f64) -> bool) -> Option<f64> {
        values
            .iter()
            .map(|&value| value.into())
            .find(|&value| bad(value))
    }
    Ok(match array.ty().dtype() {
        DType::F16 => first(array.as_slice::<f16>()?, bad),
        DType::Bf16 => first(array.as_slice::<bf16>()?, bad),
        DType::F32 => first(array.as_slice::<f32>()?, bad),
        DType::F64 => first(array.as_slice::<f64>()?, bad),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trained_arrays_must_be_finite() {
        let window = Window::of(["loss"]);
        let check = |name: &str, array: HostArray| {
            let trained = HashSet::from(["model.weight".to_string()]);
            check_array(name, &array, &window, &trained, 7, |_| Cause::Unknown)
                .map_err(|error| error.to_string())
        };
        let f32s = |value: f32| HostArray::from_slice(&[1.0, value], [2]).unwrap();
        assert_eq!(check(WINDOW, window.empty()), Ok(()));
        assert_eq!(check("model.weight", f32s(f32::MAX)), Ok(()));
        assert_eq!(check("model.mask", f32s(f32::NEG_INFINITY)), Ok(()));
        assert_eq!(check("step", HostArray::scalar(u32::MAX)), Ok(()));
        for (name, array, value) in [
            ("model.weight", f32s(f32::INFINITY), "inf"),
            ("model.mask", f32s(f32::NAN), "NaN"),
            (
                "slots.weight.first",
                HostArray::from_slice(&[bf16::NAN], [1]).unwrap(),
                "NaN",
            ),
            ("slots.weight.second", f32s(f32::INFINITY), "inf"),
            ("model.weight", HostArray::scalar(f16::NEG_INFINITY), "-inf"),
            ("model.weight", HostArray::scalar(f64::INFINITY), "inf"),
        ] {
            let error = check(name, array).unwrap_err();
            assert!(
                error.contains(&format!("after step 7 an element of `{name}` is {value};")),
                "{error}"
            );
        }
    }
}
