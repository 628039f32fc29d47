"""Which tokens top-k and top-p sampling draw from, in numpy, from the definition.

python sampling.py > sampling.json    (numpy 2, transformers 5.24 and torch for the comparison)

Equal logits count together: a token is kept if one that is as likely is. Without equal logits the
result is that of `transformers`, which this script checks.
"""

import json

import numpy as np
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper


def kept(logits, top_k, top_p):
    """Whether each token is kept. `None` leaves a filter out."""
    order = np.sort(logits.astype(np.float64))[::-1]
    least = order[top_k - 1] if top_k else -np.inf
    mask = logits >= least
    if top_p is None:
        return mask
    weights = np.where(mask, np.exp(logits.astype(np.float64) - order[0]), 0.0)
    probabilities = weights / weights.sum()
    total, last = 0.0, None
    for index in np.argsort(-logits, kind="stable"):
        if not mask[index] or total >= top_p:
            break
        total += probabilities[index]
        last = logits[index]
    return logits >= last


def case(logits, top_k, top_p):
    logits = np.asarray(logits, np.float32)
    mask = kept(logits, top_k, top_p)
    if len(set(logits.tolist())) == len(logits):
        scores = torch.tensor(logits)[None]
        if top_k:
            scores = TopKLogitsWarper(top_k)(None, scores)
        if top_p and top_p < 1:
            scores = TopPLogitsWarper(top_p)(None, scores)
        assert (torch.isfinite(scores)[0].numpy() == (mask & np.isfinite(logits))).all()
    values = [None if value == -np.inf else float(value) for value in logits]
    return {"logits": values, "top_k": top_k, "top_p": top_p, "kept": mask.tolist()}


random = np.random.default_rng(1)
cases = []
for top_k in [None, 1, 3, 12]:
    for top_p in [None, 1e-9, 0.3, 0.77, 0.999]:
        plain = random.normal(0, 2, 12).astype(np.float32)
        tied = random.integers(-2, 3, 12).astype(np.float32)
        masked = np.where(random.random(12) < 0.4, -np.inf, plain)
        masked[5] = 0.25
        cases += [case(logits, top_k, top_p) for logits in (plain, tied, masked, np.zeros(12))]
print(json.dumps(cases))
