//! Folds of cross-validation, equal to those of scikit-learn.

use std::{cmp::Reverse, collections::BTreeMap};

use halite_core::{Error, Result};

/// Splits samples into `k` folds such that all samples of a group are in one fold, with about equal
/// numbers of samples, and returns the fold of each sample, from 0. `groups` has the group of each
/// sample: the patient or the study, so that a model is not validated with images of a patient that
/// it was trained with.
///
/// The largest group goes to the smallest fold, one after the other: the folds of scikit-learn's
/// `GroupKFold`. Of equally large groups, the last in ascending order is first.
///
/// ```
/// use halite_data::group_k_fold;
///
/// let studies = ["a", "a", "b", "c", "b", "a"];
/// let folds = group_k_fold(&studies, 3)?;
/// assert_eq!(folds, [0, 0, 1, 2, 1, 0]);
/// let (validation, train): (Vec<usize>, Vec<usize>) =
///     (0..studies.len()).partition(|&sample| folds[sample] == 0);
/// assert_eq!(validation, [0, 1, 5]);
/// // dataset.clone().subset(train)?, dataset.subset(validation)?
/// # assert_eq!(train, [2, 3, 4]);
/// # Ok::<(), halite_core::Error>(())
/// ```
///
/// # Errors
/// If `k` is below 2 or above the number of groups.
pub fn group_k_fold<T: Ord>(groups: &[T], k: usize) -> Result<Vec<usize>> {
    let mut samples = BTreeMap::<&T, Vec<usize>>::new();
    for (sample, group) in groups.iter().enumerate() {
        samples.entry(group).or_default().push(sample);
    }
    expect_folds("group k-fold", k, samples.len(), "groups")?;
    let mut by_size: Vec<Vec<usize>> = samples.into_values().rev().collect();
    by_size.sort_by_key(|group| Reverse(group.len()));
    let mut sizes = vec![0; k];
    let mut fold_of = vec![0; groups.len()];
    for group in by_size {
        let smallest = (0..k).min_by_key(|&fold| sizes[fold]).unwrap_or(0);
        sizes[smallest] += group.len();
        group
            .into_iter()
            .for_each(|sample| fold_of[sample] = smallest);
    }
    Ok(fold_of)
}

/// Splits samples into `k` folds with about the same proportions of the classes: the folds of
/// scikit-learn's `StratifiedKFold` without shuffling. `labels` has the class of each sample;
/// returns the fold of each sample, from 0.
///
/// # Errors
/// If `k` is below 2, or if no class has `k` samples.
pub fn stratified_k_fold<T: Ord>(labels: &[T], k: usize) -> Result<Vec<usize>> {
    let mut classes = BTreeMap::<&T, Vec<usize>>::new();
    for (sample, label) in labels.iter().enumerate() {
        classes.entry(label).or_default().push(sample);
    }
    let largest = classes.values().map(Vec::len).max().unwrap_or(0);
    expect_folds(
        "stratified k-fold",
        k,
        largest,
        "samples in its largest class",
    )?;
    // Classes in the order in which they first occur.
    let mut classes: Vec<Vec<usize>> = classes.into_values().collect();
    classes.sort_by_key(|samples| samples[0]);
    let mut fold_of = vec![0; labels.len()];
    let mut before = 0;
    for samples in classes {
        // Samples sorted by class are dealt to the folds in turn, which gives each fold's count;
        // the counts take the samples of the class in their order.
        let count = |fold| {
            let dealt = |until: usize| (until + k - 1 - fold) / k;
            dealt(before + samples.len()) - dealt(before)
        };
        let of_class = (0..k).flat_map(|fold| std::iter::repeat_n(fold, count(fold)));
        for (&sample, fold) in samples.iter().zip(of_class) {
            fold_of[sample] = fold;
        }
        before += samples.len();
    }
    Ok(fold_of)
}

fn expect_folds(what: &'static str, k: usize, most: usize, of: &str) -> Result<()> {
    if (2..=most).contains(&k) {
        return Ok(());
    }
    let expected = match most {
        0 | 1 => "at least 2 are needed".to_owned(),
        _ => format!("expected 2 to {most} folds"),
    };
    let message = format!("{k} folds of data with {most} {of}; {expected}");
    Err(Error::invalid(what, message))
}
