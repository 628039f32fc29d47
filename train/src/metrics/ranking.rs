//! Metrics of scores that rank samples: ROC-AUC and average precision.

use halite_core::{Error, ErrorKind, Result};

/// Area under the ROC curve: the probability that a positive sample has a larger score than a
/// negative one, where equal scores count one half. NaN unless there are samples of both classes.
///
/// The result does not depend on the order of the samples.
///
/// ```
/// use halite_train::metrics::roc_auc;
///
/// let auc = roc_auc(&[0.1, 0.4, 0.35, 0.8], &[false, false, true, true])?;
/// assert_eq!(auc, 0.75);
/// # Ok::<(), halite_core::Error>(())
/// ```
///
/// # Errors
/// If the lengths differ, or a score is NaN, with its index.
pub fn roc_auc(scores: &[f64], targets: &[bool]) -> Result<f64> {
    Ok(auc_of(&Ranked::new("roc_auc", scores, targets, None)?))
}

/// [`roc_auc`] of samples with weights, which are 0 or more: a sample of weight 2 counts like two.
///
/// ```
/// use halite_train::metrics::weighted_roc_auc;
///
/// let padded = [f64::NAN, 0.4, 0.8];
/// assert_eq!(weighted_roc_auc(&padded, &[true, false, true], &[0.0, 1.0, 1.0])?, 1.0);
/// # Ok::<(), halite_core::Error>(())
/// ```
///
/// # Errors
/// If the lengths differ, a score of a sample whose weight is not 0 is NaN, or a weight is negative
/// or not finite.
pub fn weighted_roc_auc(scores: &[f64], targets: &[bool], weights: &[f64]) -> Result<f64> {
    let ranked = Ranked::new("roc_auc", scores, targets, Some(weights))?;
    Ok(auc_of(&ranked))
}

/// Average precision: the sum over thresholds, from the largest score down, of the increase in
/// recall times the precision. Equal scores are one threshold, and nothing is interpolated. NaN if
/// no sample is positive.
///
/// ```
/// use halite_train::metrics::average_precision;
///
/// let value = average_precision(&[0.1, 0.4, 0.35, 0.8], &[false, false, true, true])?;
/// assert!((value - 5.0 / 6.0).abs() < 1e-15);
/// # Ok::<(), halite_core::Error>(())
/// ```
///
/// # Errors
/// If the lengths differ, or a score is NaN, with its index.
pub fn average_precision(scores: &[f64], targets: &[bool]) -> Result<f64> {
    let ranked = Ranked::new("average_precision", scores, targets, None)?;
    Ok(average_precision_of(&ranked))
}

/// [`average_precision`] of samples with weights, which are 0 or more.
///
/// # Errors
/// Those of [`weighted_roc_auc`].
pub fn weighted_average_precision(
    scores: &[f64],
    targets: &[bool],
    weights: &[f64],
) -> Result<f64> {
    let ranked = Ranked::new("average_precision", scores, targets, Some(weights))?;
    Ok(average_precision_of(&ranked))
}

/// Weights of the samples of each distinct score, from the smallest score up.
struct Ranked(Vec<Tied>);

/// Sums of weights of samples with one score.
#[derive(Default)]
struct Tied {
    positive: f64,
    negative: f64,
}

impl Ranked {
    fn new(op: &str, scores: &[f64], targets: &[bool], weights: Option<&[f64]>) -> Result<Self> {
        let weight_count = weights.map_or(scores.len(), <[f64]>::len);
        if scores.len() != targets.len() || scores.len() != weight_count {
            let message = format!(
                "{} scores, {} targets and {weight_count} weights; expected equally many",
                scores.len(),
                targets.len()
            );
            return Err(Error::invalid(op, message));
        }
        let mut rows = Vec::with_capacity(scores.len());
        for (index, (&score, &target)) in scores.iter().zip(targets).enumerate() {
            let weight = weights.map_or(1.0, |weights| weights[index]);
            if !(weight.is_finite() && weight >= 0.0) {
                let message =
                    format!("the weight of sample {index} is {weight}; expected 0 or more");
                return Err(Error::invalid(op, message));
            }
            if weight == 0.0 {
                continue;
            }
            if score.is_nan() {
                let message = format!("the score of sample {index} is NaN, which has no rank");
                return Err(Error::new(ErrorKind::Diverged, op, message));
            }
            rows.push((score, target, weight));
        }
        Ok(Ranked::of_rows(rows))
    }

    /// Ranks rows of a score that is not NaN, a target, and a weight above 0.
    fn of_rows(mut rows: Vec<(f64, bool, f64)>) -> Self {
        // -0 ties with 0.
        rows.iter_mut().for_each(|row| row.0 += 0.0);
        // Sums over a total order of the rows have the same bits for every order of the samples.
        rows.sort_unstable_by(|a, b| {
            let by_score = a.0.total_cmp(&b.0);
            by_score.then(a.1.cmp(&b.1)).then(a.2.total_cmp(&b.2))
        });
        let tied = rows.chunk_by(|a, b| a.0 == b.0).map(|rows| {
            let mut tied = Tied::default();
            for &(_, target, weight) in rows {
                *(if target {
                    &mut tied.positive
                } else {
                    &mut tied.negative
                }) += weight;
            }
            tied
        });
        Ranked(tied.collect())
    }

    fn positive(&self) -> f64 {
        self.0.iter().map(|tied| tied.positive).sum()
    }
}

/// ROC-AUC of rows of a score that is not NaN, a target, and a weight above 0.
pub(super) fn roc_auc_of_rows(rows: impl Iterator<Item = (f64, bool, f64)>) -> f64 {
    auc_of(&Ranked::of_rows(rows.collect()))
}

/// Average precision of such rows.
pub(super) fn average_precision_of_rows(rows: impl Iterator<Item = (f64, bool, f64)>) -> f64 {
    average_precision_of(&Ranked::of_rows(rows.collect()))
}

fn auc_of(ranked: &Ranked) -> f64 {
    let (mut below, mut area) = (0.0, 0.0);
    for tied in &ranked.0 {
        area += tied.positive * (below + tied.negative / 2.0);
        below += tied.negative;
    }
    // 0 / 0 is NaN where one of the classes has no samples.
    area / (ranked.positive() * below)
}

fn average_precision_of(ranked: &Ranked) -> f64 {
    let (mut found, mut predicted, mut sum) = (0.0, 0.0, 0.0);
    for tied in ranked.0.iter().rev() {
        found += tied.positive;
        predicted += tied.positive + tied.negative;
        sum += tied.positive * (found / predicted);
    }
    sum / found
}
