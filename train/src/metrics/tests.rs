//! The functions beside scikit-learn, and at the edges.

use std::path::Path;

use halite_core::ErrorKind;
use serde_json::Value;

use super::*;

/// Cases of `tests/metrics/scikit_learn.py`.
fn golden(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metrics/scikit_learn.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    all[name].as_array().unwrap().clone()
}

fn list<T>(value: &Value, of: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    let values = value.as_array().unwrap().iter();
    values.map(|value| of(value).unwrap()).collect()
}

fn indices(value: &Value) -> Vec<usize> {
    list(value, |value| value.as_u64().map(|value| value as usize))
}

fn check(value: f64, expected: &Value, what: &str) {
    let expected = expected.as_f64().unwrap();
    assert!(
        (value - expected).abs() < 1e-14,
        "{what}: {value}, expected {expected}"
    );
}

fn check_averages(
    counts: &[ClassCounts],
    of: fn(ClassCounts) -> f64,
    expected: &Value,
    what: &str,
) {
    let by_class: Vec<f64> = counts.iter().map(|counts| of(*counts)).collect();
    let expected_by_class = expected["by_class"].as_array().unwrap();
    assert_eq!(by_class.len(), expected_by_class.len());
    for (value, expected) in by_class.iter().zip(expected_by_class) {
        check(*value, expected, what);
    }
    check(macro_average(by_class), &expected["macro"], what);
    check(of(micro_average(counts)), &expected["micro"], what);
}

#[test]
fn rankings_are_those_of_scikit_learn() {
    for case in golden("ranking") {
        let (scores, weights) = (
            list(&case["scores"], Value::as_f64),
            list(&case["weights"], Value::as_f64),
        );
        let targets = list(&case["targets"], Value::as_bool);
        let values = [
            ("roc_auc", roc_auc(&scores, &targets)),
            (
                "weighted_roc_auc",
                weighted_roc_auc(&scores, &targets, &weights),
            ),
            ("average_precision", average_precision(&scores, &targets)),
            (
                "weighted_average_precision",
                weighted_average_precision(&scores, &targets, &weights),
            ),
        ];
        for (name, value) in values {
            check(value.unwrap(), &case[name], name);
        }
    }
}

#[test]
fn classes_are_counted_as_by_scikit_learn() {
    for case in golden("classes") {
        let (predicted, targets) = (indices(&case["predicted"]), indices(&case["targets"]));
        let matrix = confusion(&predicted, &targets, index_of(&case["classes"])).unwrap();
        let rows = case["matrix"].as_array().unwrap().iter();
        let expected: Vec<f64> = rows.flat_map(|row| list(row, Value::as_f64)).collect();
        assert_eq!(matrix.counts(), expected);
        check(matrix.accuracy(), &case["accuracy"], "accuracy");
        let counts = matrix.by_class();
        check_averages(
            &counts,
            ClassCounts::precision,
            &case["precision"],
            "precision",
        );
        check_averages(&counts, ClassCounts::recall, &case["recall"], "recall");
        check_averages(&counts, ClassCounts::f1, &case["f1"], "f1");
        check_averages(&counts, ClassCounts::iou, &case["iou"], "iou");
    }
}

fn index_of(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

#[test]
fn order_of_samples_does_not_change_a_bit() {
    let case = &golden("ranking")[2];
    let (mut scores, mut weights) = (
        list(&case["scores"], Value::as_f64),
        list(&case["weights"], |weight| weight.as_f64().map(|w| w / 3.0)),
    );
    let mut targets = list(&case["targets"], Value::as_bool);
    let all = |scores: &[f64], targets: &[bool], weights: &[f64]| {
        [
            weighted_roc_auc(scores, targets, weights).unwrap(),
            weighted_average_precision(scores, targets, weights).unwrap(),
        ]
        .map(f64::to_bits)
    };
    let before = all(&scores, &targets, &weights);
    scores.reverse();
    targets.reverse();
    weights.reverse();
    assert_eq!(all(&scores, &targets, &weights), before);
}

#[test]
fn one_class_has_no_roc_auc() {
    for targets in [[true; 2], [false; 2]] {
        assert!(roc_auc(&[0.1, 0.2], &targets).unwrap().is_nan());
    }
    assert!(roc_auc(&[], &[]).unwrap().is_nan());
    assert!(average_precision(&[0.1], &[false]).unwrap().is_nan());
    assert_eq!(average_precision(&[0.1], &[true]).unwrap(), 1.0);
}

#[test]
fn signed_zeros_and_infinities_rank() {
    assert_eq!(roc_auc(&[0.0, -0.0], &[true, false]).unwrap(), 0.5);
    let scores = [f64::NEG_INFINITY, 0.0, f64::INFINITY];
    assert_eq!(roc_auc(&scores, &[false, false, true]).unwrap(), 1.0);
}

#[test]
fn nan_score_is_an_error_with_its_sample() {
    let error = roc_auc(&[0.1, f64::NAN], &[true, false]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged);
    assert!(error.to_string().contains("sample 1 is NaN"), "{error}");
}

#[test]
fn invalid_rows_are_errors() {
    let errors = [
        roc_auc(&[0.1], &[]).unwrap_err(),
        weighted_roc_auc(&[0.1], &[true], &[-1.0]).unwrap_err(),
        weighted_roc_auc(&[0.1], &[true], &[f64::NAN]).unwrap_err(),
        confusion(&[2], &[0], 2).unwrap_err(),
        confusion(&[0], &[2], 2).unwrap_err(),
        confusion(&[0], &[], 2).unwrap_err(),
    ];
    let expected = [
        "roc_auc: 1 scores, 0 targets and 1 weights; expected equally many",
        "roc_auc: the weight of sample 0 is -1; expected 0 or more",
        "roc_auc: the weight of sample 0 is NaN; expected 0 or more",
        "confusion: the predicted class is 2; there are 2 classes, from 0; in sample 0",
        "confusion: the target is 2; there are 2 classes, from 0; in sample 0",
        "confusion: 1 predicted classes and 0 targets; expected equally many",
    ];
    assert_eq!(errors.map(|error| error.to_string()), expected);
}

#[test]
fn class_without_samples_and_predictions_is_left_out() {
    let matrix = confusion(&[0, 0], &[0, 1], 3).unwrap();
    assert!(matrix.class(2).f1().is_nan());
    assert_eq!(matrix.class(1).precision(), 0.0);
    let precision = matrix.by_class().into_iter().map(ClassCounts::precision);
    assert_eq!(macro_average(precision), 0.25);
    assert!(ConfusionMatrix::new(0).accuracy().is_nan());
}
