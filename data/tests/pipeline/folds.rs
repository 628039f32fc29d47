//! Folds beside scikit-learn's (`tests/golden/folds.py`).

use halite_core::Result;
use halite_data::{group_k_fold, stratified_k_fold};
use proptest::prelude::*;
use serde_json::Value;

fn numbers(value: &Value) -> Vec<usize> {
    serde_json::from_value(value.clone()).unwrap()
}

fn check(kind: &str, folds: fn(&[usize], usize) -> Result<Vec<usize>>) {
    let golden: Value = serde_json::from_str(include_str!("../golden/folds.json")).unwrap();
    let cases = golden[kind].as_array().unwrap();
    assert!(cases.len() >= 3);
    for case in cases {
        let k = case["k"].as_u64().unwrap() as usize;
        let folds = folds(&numbers(&case["labels"]), k).unwrap();
        assert_eq!(folds, numbers(&case["folds"]), "{kind}, {k} folds");
    }
}

#[test]
fn group_folds_are_those_of_scikit_learn() {
    check("group", group_k_fold);
}

#[test]
fn stratified_folds_are_those_of_scikit_learn() {
    check("stratified", stratified_k_fold);
}

#[test]
fn too_many_folds_are_an_error() {
    let error = group_k_fold(&["a", "b", "a"], 3).unwrap_err();
    assert_eq!(
        error.to_string(),
        "group k-fold: 3 folds of data with 2 groups; expected 2 to 2 folds"
    );
    assert!(group_k_fold(&["a", "b"], 1).is_err());
    assert!(group_k_fold::<u8>(&[], 0).is_err());
    assert!(stratified_k_fold(&[0, 0, 1], 3).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_group_is_in_two_folds(groups in proptest::collection::vec(0u8..20, 40..200), k in 2usize..6) {
        let folds = group_k_fold(&groups, k).unwrap();
        for (one, fold) in groups.iter().zip(&folds) {
            let mut same = groups.iter().zip(&folds).filter(|(group, _)| *group == one);
            prop_assert!(same.all(|(_, other)| other == fold));
        }
    }

    #[test]
    fn fold_sizes_of_a_class_differ_by_one(labels in proptest::collection::vec(0u8..3, 20..100), k in 2usize..6) {
        let folds = stratified_k_fold(&labels, k).unwrap();
        for class in 0..3 {
            let mut counts = vec![0; k];
            labels.iter().zip(&folds).filter(|(label, _)| **label == class).for_each(|(_, &fold)| counts[fold] += 1);
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
        }
    }
}
