"""Losses, metrics, norms and optimizer steps. Of losses over a batch every row is a batch of its own."""
import numpy as np

from elementwise import softplus
from make import CURRENT, L, row, wide
from reductions import NOT_EMPTY, log_softmax, logsumexp
from values import ALL, FLOATS, INTEGERS, facts


def target(x):
    return np.arange(len(x)) % x.shape[1]


def picked(x, at):
    return np.take_along_axis(x, at[:, None], 1)[:, 0]


def negative_log_likelihood(x):
    # Subtracted before it is summed, so that small losses keep their digits.
    return -picked(log_softmax(x), target(x))


def smoothed(x):
    logs = log_softmax(x)
    return 0.9 * -picked(logs, target(x)) + L("0.1") * -logs.mean(1)


def distribution(x):
    """0 in the middle, equal elsewhere."""
    size = x.shape[1]
    return np.array([1.0] if size == 1 else [0.0 if at == size // 2 else 1 / (size - 1) for at in range(size)], L)


def expected(x, weights):
    """Sums of products in which 0 times anything is 0."""
    return np.where(weights == 0, 0, x * weights).sum(1)


def soft(x):
    return -expected(log_softmax(x), distribution(x))


def divergence(x):
    by = distribution(x)
    return soft(x) + np.where(by > 0, by * np.log(np.where(by > 0, by, 1)), 0).sum()


for name, function in [("cross_entropy", negative_log_likelihood), ("cross_entropy_smoothed", smoothed), ("soft_cross_entropy", soft), ("kl_divergence", divergence)]:
    row(name, "rows", FLOATS, function, result=wide, sizes=NOT_EMPTY)


row("nll_loss", "rows", FLOATS, lambda x: (-picked(x, target(x)), -picked(x, target(x))), result=wide, sizes=NOT_EMPTY)


def place(x, at):
    """How many classes rank before: larger logits, NaN, and equal ones of lower classes."""
    return np.array([sum(1 for other, value in enumerate(logits) if not value <= logits[t] or (value == logits[t] and other < t)) for logits, t in zip(x, at)])


def correct(x, most):
    at = target(x)
    return ((place(x, at) < most) & ~np.isnan(picked(x, at))).astype(np.float32)


row("correct", "rows", FLOATS, lambda x: (correct(x, 1), correct(x, 2), correct(x, 1), correct(x, 2)), sizes=NOT_EMPTY)


# ---- labels of every integer type ----
def of_labels(function, otherwise):
    return lambda labels, logits: np.array([function(logits[at], int(label)) if 0 <= int(label) < 4 else otherwise for at, label in enumerate(labels)], L)


nll = lambda logits, label: logsumexp(logits[None])[0] - logits[label]
ignoring = lambda labels, logits: np.array([0 if int(label) == 1 else nll(logits[at], int(label)) if 0 <= int(label) < 4 else np.nan for at, label in enumerate(labels)], L)
right = lambda logits, label: sum(value > logits[label] or (value == logits[label] and at < label) for at, value in enumerate(logits)) == 0
row("labels", "labels", INTEGERS, lambda labels, logits: (of_labels(nll, np.nan)(labels, logits), ignoring(labels, logits), of_labels(right, 0)(labels, logits)), result=lambda _: "f32")


# ---- pairs of prediction and target ----
def huber(a, b):
    distance = np.abs(a - b)
    return np.where(distance <= 1, distance**2 / 2, distance - L(0.5))


def bce(a, b):
    share = np.where(np.isnan(b), b, np.clip(b, 0, 1))
    # 0 times infinity is 0: a label of 1 has no part of the other.
    return np.where(share == 1, 0, (1 - share) * softplus(a)) + np.where(share == 0, 0, share * softplus(-a))


sides = lambda slope: (lambda a, b, c: c * slope(a - b), lambda a, b, c: -c * slope(a - b))
row("mse", "pairs", FLOATS, lambda a, b: (a - b) ** 2, *sides(lambda d: 2 * d), result=wide)
row("mae", "pairs", FLOATS, lambda a, b: np.abs(a - b), *sides(np.sign), result=wide)
row("huber", "pairs", FLOATS, huber, *sides(lambda d: np.clip(d, -1, 1)), result=wide)
row("bce_with_logits", "pairs", FLOATS, bce, result=wide)
by_row = lambda each: lambda x: in_range(each(x, np.ones_like(x)).sum(1)) / L(x.shape[1])
for name, function in [("mse", lambda a, b: (a - b) ** 2), ("mae", lambda a, b: np.abs(a - b)), ("huber", huber), ("bce_with_logits", bce)]:
    row(f"{name}_mean", "rows", FLOATS, by_row(function), result=wide, sizes=NOT_EMPTY)


def weighted(x):
    """Weights 0, 1, 0, 1, ..; 0 if there are none."""
    by = (np.arange(x.shape[1]) % 2).astype(L)
    return np.where(by == 0, 0, x.astype(L)).sum(1) / max(by.sum(), 1)


row("mean_weighted", "rows", ALL, weighted, lambda x, c: np.broadcast_to(c[:, None] * (np.arange(x.shape[1]) % 2) / max(x.shape[1] // 2, 1), x.shape), result=wide, sizes=NOT_EMPTY)


# ---- norms ----
def norm(x):
    return np.sqrt((x.astype(L) ** 2).sum(1))


row("global_norm", "rows", ALL, norm, result=wide)


def clipped(x):
    """By norm to 1, by value to 2."""
    size = norm(x)[:, None]
    return np.where(np.isfinite(size), x * np.minimum(1 / (size + L("1e-6")), 1), np.nan), np.where(np.isnan(x), x, np.clip(x, -2, 2))


row("clip", "rows", FLOATS, clipped, sizes=NOT_EMPTY)

# ---- the first update of a parameter by a gradient, in the type of sums ----
RATE = L("0.125")


def in_range(x):
    """Infinite beyond the largest number of the type of sums."""
    return np.where(np.abs(x) > facts(wide(CURRENT[0]))["max"], np.copysign(np.inf, x), x)


def sgd(param, grad):
    return [param - RATE * in_range(by) for by in (grad, grad + L(0.5) * param, grad, grad + L("0.9") * grad)]


row("sgd", "pairs", FLOATS, sgd)


def adam(decay_in_gradient, decay_in_value):
    def step(param, grad):
        if decay_in_gradient:
            grad = in_range(grad + decay_in_gradient * param)
        if decay_in_value:
            param = param * (1 - RATE * decay_in_value)
        # Corrected, both moments are those of the gradient and of its square, which has the range of the type of sums.
        square = grad * grad
        square = np.where(square < facts(wide(CURRENT[0]))["smallest_subnormal"], 0, square)
        square = np.where(np.isinf(in_range(square * L("0.001"))), np.inf, square)
        return param - RATE * grad / (np.sqrt(square) + L("1e-8"))

    return step


row("adam", "pairs", FLOATS, lambda param, grad: (adam(0, 0)(param, grad), adam(L(0.5), 0)(param, grad)))
row("adam_w", "pairs", FLOATS, adam(0, L("0.01")))
