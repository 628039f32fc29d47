"""Attention, rotary positions, and whole transformers of GPT-2's and Llama's form: logits, gradients, and losses while they learn."""
import jax, numpy as np
from jax import nn
from jax import numpy as jnp

from make import Draw, case

draw = Draw("transformers")
inf = np.inf
TOLERANCE = 2e-5


def attention(q, k, v, allowed=None, bias=None):
    """q: [batch, time, heads, width]; k, v: [batch, source, kv heads, width]. A position that may look at none gets 0."""
    groups = q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(x, groups, 2) for x in (k, v))
    scores = jnp.einsum("bthw,bshw->bhts", q, k) / np.sqrt(q.shape[3]).astype(q.dtype)
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = jnp.where(allowed, scores, -inf)
    some = jnp.isfinite(scores).any(-1, keepdims=True)
    weights = jnp.where(some, nn.softmax(jnp.where(some, scores, 0), -1), 0)
    return jnp.einsum("bhts,bshv->bthv", weights, v)


def tensors(heads=2, kv_heads=2, time=5, source=5, values=4):
    return {"q": draw.normal(2, time, heads, 4), "k": draw.normal(2, source, kv_heads, 4), "v": draw.normal(2, source, kv_heads, values)}


case("transformers", "masked_attention", "plain", tensors(time=3, values=6), attention, grad="all", tolerance=TOLERANCE, mask="none")
case("transformers", "masked_attention", "causal", tensors(), lambda q, k, v: attention(q, k, v, np.tril(np.ones((5, 5), bool))), grad="all", tolerance=TOLERANCE, mask="causal")
case("transformers", "masked_attention", "causal.grouped", tensors(6, 2, 3, 5), lambda q, k, v: attention(q, k, v, np.tril(np.ones((3, 5), bool), 2)), grad="all",
     tolerance=TOLERANCE, mask="causal")
for name, shape in [("all", (2, 4, 3, 5)), ("grouped", (2, 1, 3, 5)), ("padding", (2, 1, 1, 5)), ("matrix", (3, 5))]:
    allowed = draw.uniform(0, 1, *shape) < 0.6
    if name != "padding":
        allowed[..., 0, :] = False  # the first position may look at none
    values = tensors(4, 2, 3) | {"mask": allowed}
    case("transformers", "masked_attention", f"where.{name}", values, lambda q, k, v, mask: attention(q, k, v, allowed=mask), grad="q k v", tolerance=TOLERANCE, mask="where")
    values = tensors(4, 4, 3) | {"mask": np.where(allowed, draw.normal(*shape), -inf).astype("float32")}
    case("transformers", "masked_attention", f"add.{name}", values, lambda q, k, v, mask: attention(q, k, v, bias=mask), grad="q k v", tolerance=TOLERANCE, mask="add")


def rotary(x, theta):
    """Feature i is paired with i + width / 2. Angles are f32, as everywhere."""
    width = x.shape[-1]
    frequencies = (theta ** (-np.arange(0, width, 2) / width)).astype("float32")
    angles = np.arange(x.shape[1], dtype="float32")[:, None, None] * np.concatenate([frequencies, frequencies])
    turned = jnp.concatenate([-x[..., width // 2 :], x[..., : width // 2]], -1)
    return x * jnp.cos(angles) + turned * jnp.sin(angles)


case("transformers", "rotary", "", {"x": draw.normal(2, 6, 3, 8)}, lambda x: rotary(x, 100.0), grad="x", tolerance=TOLERANCE, theta=100.0)


def norm(p, name, x, form):
    if form == "llama":
        return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * p[f"{name}.scale"]
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p[f"{name}.scale"] + p[f"{name}.bias"]


def logits(p, tokens, form):
    """Layer by layer, with the parameters of all layers stacked."""
    x = p["tokens.table"][tokens]
    if form == "gpt2":
        x = x + p["positions.table"][: tokens.shape[1]]
    for layer in range(p["blocks.attention_norm.scale"].shape[0]):
        b = {key.removeprefix("blocks."): value[layer] for key, value in p.items() if key.startswith("blocks.")}
        y = norm(b, "attention_norm", x, form)
        q, k, v = (jnp.einsum("btf,fhw->bthw", y, b[f"attention.{name}.weight"]) + b.get(f"attention.{name}.bias", 0) for name in "qkv")
        if form == "llama":
            q, k = rotary(q, 10000.0), rotary(k, 10000.0)
        y = attention(q, k, v, np.tril(np.ones((tokens.shape[1],) * 2, bool)))
        x = x + jnp.einsum("bthw,hwf->btf", y, b["attention.o.weight"]) + b.get("attention.o.bias", 0)
        y = norm(b, "mlp_norm", x, form)
        up = y @ b["mlp.up.weight"] + b.get("mlp.up.bias", 0)
        inside = nn.silu(y @ b["mlp.gate.weight"]) * up if form == "llama" else nn.gelu(up, approximate=True)
        x = x + inside @ b["mlp.down.weight"] + b.get("mlp.down.bias", 0)
    x = norm(p, "norm", x, form)
    return x @ (p["head.weight"] if form == "llama" else p["tokens.table"].T)


def next_token_loss(p, tokens, form):
    log = nn.log_softmax(logits(p, tokens[:, :-1], form), -1)
    return -jnp.take_along_axis(log, tokens[:, 1:, None], -1).mean()


LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, CONTEXT = 2, 12, 3, 20, 19, 8


def parameters(form):
    """In the order of halite's fields. GPT-2: as many heads of keys as of queries, biases, tied; Llama: one head of keys and values, untied."""
    kv, head = (1 if form == "llama" else HEADS), WIDTH // HEADS
    gpt2 = form == "gpt2"
    shapes = {"tokens.table": (VOCABULARY, WIDTH)}
    shapes |= {"positions.table": (CONTEXT, WIDTH)} if gpt2 else {}
    norm_of = lambda name, *dims: {f"{name}.scale": dims} | ({f"{name}.bias": dims} if gpt2 else {})
    dense = lambda name, weight, bias: {f"{name}.weight": (LAYERS, *weight)} | ({f"{name}.bias": (LAYERS, *bias)} if gpt2 else {})
    shapes |= norm_of("blocks.attention_norm", LAYERS, WIDTH)
    for name, heads in [("q", HEADS), ("k", kv), ("v", kv)]:
        shapes |= dense(f"blocks.attention.{name}", (WIDTH, heads, head), (heads, head))
    shapes |= dense("blocks.attention.o", (HEADS, head, WIDTH), (WIDTH,))
    shapes |= norm_of("blocks.mlp_norm", LAYERS, WIDTH)
    shapes |= dense("blocks.mlp.up", (WIDTH, HIDDEN), (HIDDEN,))
    shapes |= {} if gpt2 else dense("blocks.mlp.gate", (WIDTH, HIDDEN), (HIDDEN,))
    shapes |= dense("blocks.mlp.down", (HIDDEN, WIDTH), (WIDTH,))
    shapes |= norm_of("norm", WIDTH)
    shapes |= {} if gpt2 else {"head.weight": (WIDTH, VOCABULARY)}
    return {name: draw.normal(*dims, scale=0.3) + (1 if name.endswith("scale") else 0) for name, dims in shapes.items()}


def training(p, tokens, form, steps, rate):
    """The loss before each of so many steps of Adam on the same batch."""
    m, v = ({key: jnp.zeros_like(value) for key, value in p.items()} for _ in range(2))
    losses = []
    for t in range(1, steps + 1):
        loss, grads = jax.value_and_grad(next_token_loss)(p, tokens, form)
        losses.append(loss)
        m = {key: 0.9 * m[key] + 0.1 * grads[key] for key in p}
        v = {key: 0.999 * v[key] + 0.001 * grads[key] ** 2 for key in p}
        p = {key: p[key] - rate * (m[key] / (1 - 0.9**t)) / (jnp.sqrt(v[key] / (1 - 0.999**t)) + 1e-8) for key in p}
    return jnp.stack(losses)


for form in ("gpt2", "llama"):
    values = parameters(form) | {"ids": draw.integers(0, VOCABULARY, 3, CONTEXT)}
    shape = dict(form=form, layers=LAYERS, width=WIDTH, heads=HEADS, hidden=HIDDEN, vocabulary=VOCABULARY, context=CONTEXT)
    split = lambda arguments: (dict(zip(list(values)[:-1], arguments[:-1])), arguments[-1])

    def both(*arguments):
        p, ids = split(arguments)
        return logits(p, ids[:, :-1], form), next_token_loss(p, ids, form)

    # A bias of keys adds the same to all scores of a query, which softmax does not see; turned keys are another matter.
    moving = [name for name in values if name not in ("ids", "blocks.attention.k.bias")]
    case("transformers", "transformer", form, values, both, grad=moving, tolerance=TOLERANCE, **shape)
    case("transformers", "transformer_training", form, values, lambda *arguments: training(*split(arguments), form, 10, 1e-2), tolerance=1e-4, steps=10, rate=1e-2, **shape)
