#!/usr/bin/env python3
"""Values of scikit-learn that `src/metrics/tests.rs` compares with.

    python3 -m venv V && V/bin/pip install scikit-learn==1.9.1 numpy && V/bin/python scikit_learn.py

Writes `scikit_learn.json` beside this file.
"""
import json, pathlib
import numpy as np
from sklearn import metrics

random = np.random.default_rng(0)


def ranking(samples, distinct, shift):
    """Scores with `distinct` values, so that many of them tie."""
    targets = random.random(samples) < 0.3
    targets[:2] = [False, True]
    scores = random.normal(size=samples) + shift * targets
    scores = np.round(scores * distinct) / distinct
    weights = random.choice([0.0, 0.5, 1.0, 2.0], size=samples)
    weights[:2] = 1.0
    return {
        "scores": scores.tolist(),
        "targets": targets.tolist(),
        "weights": weights.tolist(),
        "roc_auc": metrics.roc_auc_score(targets, scores),
        "weighted_roc_auc": metrics.roc_auc_score(targets, scores, sample_weight=weights),
        "average_precision": metrics.average_precision_score(targets, scores),
        "weighted_average_precision":
            metrics.average_precision_score(targets, scores, sample_weight=weights),
    }


def averages(function, targets, predicted):
    one = lambda average: function(targets, predicted, average=average, zero_division=0)
    return {"by_class": one(None).tolist(), "macro": one("macro"), "micro": one("micro")}


def classes(samples, count, never_predicted):
    targets = random.integers(0, count, samples)
    predicted = np.where(random.random(samples) < 0.6, targets, random.integers(0, count, samples))
    predicted[predicted == never_predicted] = 0
    return {
        "targets": targets.tolist(),
        "predicted": predicted.tolist(),
        "classes": count,
        "matrix": metrics.confusion_matrix(targets, predicted, labels=range(count)).tolist(),
        "accuracy": metrics.accuracy_score(targets, predicted),
        "precision": averages(metrics.precision_score, targets, predicted),
        "recall": averages(metrics.recall_score, targets, predicted),
        "f1": averages(metrics.f1_score, targets, predicted),
        "iou": averages(metrics.jaccard_score, targets, predicted),
    }


def labels(samples, count):
    """Several labels a sample."""
    targets = (random.random((samples, count)) < 0.4).astype(int)
    predicted = np.where(random.random((samples, count)) < 0.7, targets, 1 - targets)
    # A label that is never predicted.
    predicted[:, -1] = 0
    return {
        "targets": targets.tolist(),
        "predicted": predicted.tolist(),
        "precision": averages(metrics.precision_score, targets, predicted),
        "recall": averages(metrics.recall_score, targets, predicted),
        "f1": averages(metrics.f1_score, targets, predicted),
    }


golden = {
    "ranking": [ranking(*case) for case in [(7, 2, 1), (40, 1000, 0.5), (60, 2, 1), (50, 4, 0)]],
    "classes": [classes(*case) for case in [(9, 2, -1), (60, 4, -1), (50, 5, 3)]],
    "labels": [labels(40, 3)],
}
text = json.dumps(golden).replace('{"', '\n{"')
pathlib.Path(__file__).with_suffix(".json").write_text(text.strip() + "\n")
