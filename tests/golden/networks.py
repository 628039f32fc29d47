"""Layers, losses, optimizers. Optimizers are torch.optim's formulas, written out in float64."""
import jax, numpy as np
from jax import lax
from jax import nn, random
from jax import numpy as jnp

from make import Draw, SHORT, case

draw = Draw("networks")
inf, nan = np.inf, np.nan

# ---- layers ----
values = {"x": draw.normal(2, 3, 4), "weight": draw.normal(4, 5), "bias": draw.normal(5)}
case("layers", "linear", "bias", values, lambda x, weight, bias: x @ weight + bias, grad="all")
case("layers", "linear", "no_bias", {"x": values["x"], "weight": values["weight"]}, lambda x, weight: x @ weight, grad="all")
values = {"x": draw.normal(2, 6, 6, 4), "weight": draw.normal(3, 3, 2, 6), "bias": draw.normal(6)}
convolve = lambda x, weight, bias: lax.conv_general_dilated(x, weight, (2, 2), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2) + bias
case("layers", "conv2d", "groups_stride_padding", values, convolve, grad="all")
case("layers", "embedding", "", {"table": draw.normal(5, 3), "ids": draw.integers(0, 5, 2, 4)}, lambda table, ids: table[ids], grad="table")
case("layers", "attend", "", {"table": draw.normal(5, 3), "x": draw.normal(2, 3)}, lambda table, x: x @ table.T, grad="all")
for name, pool in [("global_avg_pool", lambda x: x.mean((1, 2))), ("global_max_pool", lambda x: x.max((1, 2)))]:
    case("layers", name, "", {"x": draw.distinct(2, 3, 3, 2)}, pool, grad="x")


def batch_norm(x, scale, bias, mean, variance):
    dims = tuple(range(x.ndim - 1))
    m, v, count = x.mean(dims), x.var(dims), float(np.prod(x.shape[:-1]))
    y = (x - m) * lax.rsqrt(v + 1e-5) * scale + bias
    return y, 0.9 * mean + 0.1 * lax.stop_gradient(m), 0.9 * variance + 0.1 * lax.stop_gradient(v) * (count / (count - 1))


def batch_norm_evaluation(x, scale, bias, mean, variance):
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias


for dtype in ["float32", "float64"]:
    for variant, dims in [("flat", (6, 3)), ("image", (2, 3, 3, 4))]:
        features = dims[-1]
        values = {"x": draw.normal(*dims, dtype=dtype) + 3, "scale": draw.uniform(0.5, 2, features, dtype=dtype), "bias": draw.normal(features, dtype=dtype),
                  "mean": draw.normal(features, dtype=dtype) + 3, "variance": draw.uniform(0.5, 2, features, dtype=dtype)}
        loose = 3e-5 if dtype == "float32" else None
        case("layers", "batch_norm", f"{variant}.{SHORT[dtype]}", values, batch_norm, grad="x scale bias", tolerance=loose)
        case("layers", "batch_norm_evaluation", f"{variant}.{SHORT[dtype]}", values, batch_norm_evaluation, grad="x scale bias", tolerance=loose)


def standard(x, dims):
    centred = x - x.mean(dims, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(dims, keepdims=True) + 1e-5)


def group_norm(x, scale, bias, groups):
    return standard(x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups), (1, 3)).reshape(x.shape) * scale + bias


for dtype in ["float32", "float64"]:
    loose = 2e-5 if dtype == "float32" else None
    x, scale, bias = draw.normal(2, 3, 6, dtype=dtype), draw.uniform(0.5, 2, 6, dtype=dtype), draw.normal(6, dtype=dtype)
    case("layers", "layer_norm", SHORT[dtype], {"x": x, "scale": scale, "bias": bias}, lambda x, scale, bias: standard(x, -1) * scale + bias, grad="all", tolerance=loose)
    case("layers", "layer_norm", f"no_bias.{SHORT[dtype]}", {"x": x, "scale": scale}, lambda x, scale: standard(x, -1) * scale, grad="all", tolerance=loose)
    case("layers", "rms_norm", SHORT[dtype], {"x": x, "scale": scale}, lambda x, scale: x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale, grad="all",
         tolerance=loose)
    for groups in (1, 2, 6):
        x = draw.normal(2, 2, 3, 6, dtype=dtype)
        case("layers", "group_norm", f"{groups}.{SHORT[dtype]}", {"x": x, "scale": scale, "bias": bias}, lambda x, scale, bias: group_norm(x, scale, bias, groups),
             grad="all", tolerance=loose, groups=groups)


def dropout(key, x):
    """The first key that a step gives is its key with 0 folded in."""
    key = random.fold_in(random.wrap_key_data(key, impl="threefry2x32"), 0)
    return jnp.where(random.bernoulli(key, np.float32(0.7), x.shape), x * np.float32(1 / 0.7), 0)


case("layers", "dropout", "", {"key": np.array([0, 42], "uint32"), "x": draw.normal(5, 6)}, dropout, grad="x")


def network(x, kernel, scale, bias, dense, target):
    """Convolution, batch norm, relu, pooling, dense layer, cross entropy: a whole step's loss."""
    y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = nn.relu(batch_norm(y, scale, bias, 0, 1)[0])
    y = lax.reduce_window(y, -inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    logits = y.reshape(y.shape[0], -1) @ dense
    return -jnp.take_along_axis(nn.log_softmax(logits, 1), target[:, None], 1).mean()


values = {"x": draw.normal(4, 6, 6, 2), "kernel": draw.normal(3, 3, 2, 3), "scale": draw.uniform(0.5, 2, 3), "bias": draw.normal(3), "dense": draw.normal(27, 4) * 0.2,
          "target": draw.integers(0, 4, 4)}
case("layers", "network", "", values, network, grad="x kernel scale bias dense", tolerance=3e-5)

# ---- losses ----
def cross_entropy(logits, target, smoothing=0.0, ignore=None, class_weights=None, weights=None):
    """As torch.nn.CrossEntropyLoss, and with a weight for each sample."""
    classes = logits.shape[-1]
    log = nn.log_softmax(logits, -1)
    safe = jnp.clip(target, 0, classes - 1)
    share = jnp.ones(target.shape, log.dtype) if weights is None else weights
    if ignore is not None:
        share = jnp.where(target == ignore, 0, share)
    per_class = jnp.ones(classes, log.dtype) if class_weights is None else class_weights
    own = per_class[safe]
    loss = -(1 - smoothing) * own * jnp.take_along_axis(log, safe[..., None], -1)[..., 0] - smoothing / classes * (log * per_class).sum(-1)
    return (loss * share).sum() / (own * share).sum()


for dtype in ["float32", "float64"]:
    logits, target = draw.normal(6, 4, dtype=dtype, scale=3), draw.integers(0, 4, 6)
    some = {"logits": logits, "target": target}
    short = SHORT[dtype]
    case("losses", "cross_entropy", short, some, cross_entropy, grad="logits")
    case("losses", "cross_entropy", f"{short}.smoothing", some, lambda x, y: cross_entropy(x, y, smoothing=0.1), grad="logits", smoothing=0.1)
    ignored = {"logits": logits, "target": np.where(np.arange(6) % 3 == 0, -100, target).astype("int32")}
    case("losses", "cross_entropy", f"{short}.ignore", ignored, lambda x, y: cross_entropy(x, y, ignore=-100), grad="logits", ignore=-100)
    case("losses", "cross_entropy", f"{short}.smoothing_ignore", ignored, lambda x, y: cross_entropy(x, y, smoothing=0.2, ignore=-100), grad="logits", smoothing=0.2,
         ignore=-100)
    weighted = some | {"class_weights": draw.uniform(0.2, 2, 4, dtype=dtype)}
    case("losses", "cross_entropy", f"{short}.class_weights", weighted, lambda x, y, c: cross_entropy(x, y, class_weights=c), grad="logits")
    case("losses", "cross_entropy", f"{short}.class_weights_smoothing", weighted, lambda x, y, c: cross_entropy(x, y, smoothing=0.3, class_weights=c), grad="logits",
         smoothing=0.3)
    sampled = some | {"weights": np.array([1, 0, 0.5, 2, 1, 0], dtype)}
    case("losses", "cross_entropy", f"{short}.weights", sampled, lambda x, y, w: cross_entropy(x, y, weights=w), grad="logits")
    targets = nn.softmax(jnp.asarray(draw.normal(6, 4, dtype=dtype)), -1)
    distributions = {"logits": logits, "target": np.asarray(targets)}
    case("losses", "soft_cross_entropy", short, distributions, lambda x, y: -(y * nn.log_softmax(x, -1)).sum(-1).mean(), grad="all")
    case("losses", "kl_divergence", short, distributions, lambda x, y: (y * (jnp.log(y) - nn.log_softmax(x, -1))).sum(-1).mean(), grad="all")
    pair = {"x": draw.normal(3, 4, dtype=dtype, scale=2), "y": draw.normal(3, 4, dtype=dtype)}
    case("losses", "mse", short, pair, lambda x, y: ((x - y) ** 2).mean(), grad="all")
    case("losses", "mae", short, pair, lambda x, y: jnp.abs(x - y).mean(), grad="all")
    huber = lambda x, y: jnp.where(jnp.abs(x - y) <= 0.8, 0.5 * (x - y) ** 2, 0.8 * (jnp.abs(x - y) - 0.4)).mean()
    case("losses", "huber", short, pair, huber, grad="all", delta=0.8)
    bce = lambda x, y: (nn.softplus(x) - x * y).mean()
    case("losses", "bce_with_logits", short, {"x": pair["x"], "y": draw.uniform(0, 1, 3, 4, dtype=dtype)}, bce, grad="all")
case("losses", "bce_with_logits", "large", {"x": np.array([80, -80, 200, -200], "float32"), "y": np.array([1, 0, 0, 1], "float32")}, bce, grad="all")
large = {"logits": np.array([[1e4, 0, -1e4], [200, 200, 0]], "float32"), "target": np.array([1, 0], "int32")}
case("losses", "cross_entropy", "large", large, cross_entropy, grad="logits")
sequence = {"logits": draw.normal(2, 3, 5), "target": draw.integers(0, 5, 2, 3, dtype="uint8")}
case("losses", "cross_entropy", "sequence_u8", sequence, lambda x, y: cross_entropy(x, y.astype("int32")), grad="logits")
half = {"logits": draw.normal(4, 3).astype(jnp.bfloat16), "target": draw.integers(0, 3, 4)}
case("losses", "cross_entropy", "bf16", half, lambda x, y: cross_entropy(x.astype("float32"), y), grad="logits")
logits, target = draw.normal(8, 5), draw.integers(0, 5, 8)
ranks = lambda x, y: (-x).argsort(-1).argsort(-1)[jnp.arange(8), y]
for k in (1, 3):
    case("losses", "top_k_accuracy", str(k), {"logits": logits, "target": target}, lambda x, y: (ranks(x, y) < k).astype("float32").mean(), k=k)

# ---- optimizers: `weight: [3, 4]` and `bias: [4]`, five steps with given gradients ----
# (They and the cross entropies were compared with torch 2.15 once: equal to 1e-7.)
STEPS = 5


def sgd(rate, momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0):
    def step(value, grad, slot, t):
        grad = grad + weight_decay * value
        if momentum:
            slot["v"] = grad if t == 1 else momentum * slot["v"] + (1 - dampening) * grad
            grad = grad + momentum * slot["v"] if nesterov else slot["v"]
        return value - rate * grad
    return step


def adam(rate, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.0, decoupled=False):
    def step(value, grad, slot, t):
        if decoupled:
            value = value - rate * weight_decay * value
        else:
            grad = grad + weight_decay * value
        slot["m"] = b1 * slot.get("m", 0) + (1 - b1) * grad
        slot["v"] = b2 * slot.get("v", 0) + (1 - b2) * grad * grad
        return value - rate / (1 - b1**t) * slot["m"] / (np.sqrt(slot["v"]) / np.sqrt(1 - b2**t) + eps)
    return step


def train(rule, values):
    results = []
    for name in ("weight", "bias"):
        value, slot = values[name].astype("float64"), {}
        for t in range(1, STEPS + 1):
            value = rule(value, values[f"{name}_grads"][t - 1].astype("float64"), slot, t)
        results.append(value.astype(values[name].dtype))
    return results


OPTIMIZERS = [
    ("sgd", "plain", sgd, dict(rate=0.1)),
    ("sgd", "momentum", sgd, dict(rate=0.1, momentum=0.9)),
    ("sgd", "nesterov", sgd, dict(rate=0.1, momentum=0.9, nesterov=True)),
    ("sgd", "dampening", sgd, dict(rate=0.1, momentum=0.8, dampening=0.3)),
    ("sgd", "weight_decay", sgd, dict(rate=0.1, momentum=0.9, weight_decay=0.05)),
    ("adam", "defaults", adam, dict(rate=0.01)),
    ("adam", "betas", adam, dict(rate=0.02, b1=0.8, b2=0.95, eps=1e-3)),
    ("adam", "weight_decay", adam, dict(rate=0.01, weight_decay=0.1)),
    ("adamw", "defaults", adam, dict(rate=0.01, weight_decay=0.01, decoupled=True)),
    ("adamw", "strong", adam, dict(rate=0.05, b1=0.5, b2=0.9, weight_decay=0.3, decoupled=True)),
]
for name, variant, rule, options in OPTIMIZERS:
    for dtype in ["float32", "float64"]:
        values = {"weight": draw.normal(3, 4, dtype=dtype), "bias": draw.normal(4, dtype=dtype), "weight_grads": draw.normal(STEPS, 3, 4, dtype=dtype),
                  "bias_grads": draw.normal(STEPS, 4, dtype=dtype)}
        results = train(rule(**options), values)
        attributes = {key: value for key, value in options.items() if key != "decoupled"}
        # Rates and corrections are f32 numbers, whatever the parameters are.
        case("optimizers", name, f"{variant}.{SHORT[dtype]}", values, lambda *_: results, tolerance=4e-6 if dtype == "float32" else 5e-7, **attributes)
grads = {"a": draw.normal(3, 2), "b": draw.normal(4)}
for variant, limit in [("over", 0.5), ("under", 100.0)]:
    def clip(a, b):
        norm = jnp.sqrt((a**2).sum() + (b**2).sum())
        factor = jnp.minimum(1.0, limit / (norm + 1e-6))
        return a * factor, b * factor, norm
    case("optimizers", "clip_global_norm", variant, grads, clip, max=limit)
case("optimizers", "clip_value", "", grads, lambda a, b: (jnp.clip(a, -0.5, 0.5), jnp.clip(b, -0.5, 0.5)), max=0.5)
