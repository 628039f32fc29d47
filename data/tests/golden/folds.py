"""Writes folds.json: folds of scikit-learn's GroupKFold and StratifiedKFold.

Sizes of groups are distinct, or there are at most 16 groups: NumPy sorts more of them in an order
that depends on the processor where sizes are equal.
"""

import json
import pathlib

import numpy
from sklearn.model_selection import GroupKFold, StratifiedKFold


def fold_of_each(splitter, labels, groups=None):
    folds = numpy.full(len(labels), -1)
    for fold, (_, validation) in enumerate(splitter.split(numpy.zeros(len(labels)), labels, groups)):
        folds[validation] = fold
    return folds.tolist()


random = numpy.random.default_rng(31)
cases = {"group": [], "stratified": []}
for groups, k in [(5, 2), (12, 5), (16, 3), (30, 5)]:
    sizes = random.permutation(numpy.arange(1, groups + 1))
    if groups <= 16:
        sizes = random.integers(1, 5, groups)
    labels = random.permutation(numpy.repeat(numpy.arange(groups), sizes))
    folds = fold_of_each(GroupKFold(k), labels, labels)
    cases["group"].append({"k": k, "labels": labels.tolist(), "folds": folds})
for classes, count, k in [(2, 20, 5), (3, 50, 4), (7, 101, 3)]:
    labels = random.integers(0, classes, count) ** 2 % classes
    folds = fold_of_each(StratifiedKFold(k), labels)
    cases["stratified"].append({"k": k, "labels": labels.tolist(), "folds": folds})
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(cases) + "\n")
