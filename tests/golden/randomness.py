"""Random numbers: `jax.random` with its default generator, the partitionable Threefry. Keys are given as two words."""
import jax, numpy as np
from jax import numpy as jnp
from jax import random

from make import Draw, SHORT, case

words = lambda *values: np.array(values, "uint32")
KEYS = {"zero": words(0, 0), "small": words(0, 42), "large": words(0xDEADBEEF, 0xFFFFFFFF)}


def with_key(compute):
    return lambda key, *rest: compute(random.wrap_key_data(key, impl="threefry2x32"), *rest)


for seed in [0, 42, 2**40 + 7]:
    case("random", "seed", str(seed), {}, lambda: random.key_data(random.key(seed)), seed=seed)
for variant, key in KEYS.items():
    case("random", "split_key", variant, {"key": key}, with_key(lambda key: random.key_data(random.split(key, 3))), count=3)
    case("random", "fold_in", variant, {"key": key, "number": np.array(7, "uint32")}, with_key(lambda key, n: random.key_data(random.fold_in(key, n))))
    for dtype in ["uint8", "uint16", "uint32", "uint64"]:
        case("random", "bits", f"{variant}.{SHORT[dtype]}", {"key": key}, with_key(lambda key: random.bits(key, (3, 5), dtype)), dims=[3, 5], dtype=SHORT[dtype])
key = KEYS["small"]
case("random", "bits", "scalar", {"key": key}, with_key(lambda key: random.bits(key, (), "uint32")), dims=[], dtype="u32")
for dtype in ["float32", "float64"]:
    short = SHORT[dtype]
    case("random", "uniform", short, {"key": key}, with_key(lambda key: random.uniform(key, (4, 6), dtype)), tolerance=0, dims=[4, 6], dtype=short, low=0, high=1)
    case("random", "uniform", f"{short}.range", {"key": key}, with_key(lambda key: random.uniform(key, (9,), dtype, -3, 5)), dims=[9], dtype=short, low=-3, high=5)
    case("random", "normal", short, {"key": key}, with_key(lambda key: random.normal(key, (5, 8), dtype)), dims=[5, 8], dtype=short)
    case("random", "truncated_normal", short, {"key": key}, with_key(lambda key: random.truncated_normal(key, -2, 2, (20,), dtype)), dims=[20], dtype=short, low=-2, high=2)
    case("random", "gumbel", short, {"key": key}, with_key(lambda key: random.gumbel(key, (12,), dtype)), dims=[12], dtype=short)
case("random", "bernoulli", "f32", {"key": key}, with_key(lambda key: random.bernoulli(key, np.float32(0.3), (30,))), dims=[30], probability=0.3)
for variant, low, high in [("small", 0, 10), ("negative", -100, 101), ("wide", -(2**31), 2**31 - 1), ("power", 0, 64)]:
    case("random", "integers", variant, {"key": key}, with_key(lambda key: random.randint(key, (16,), low, high, "int32")), dims=[16], low=low, high=high)
case("random", "permutation", "10", {"key": key}, with_key(lambda key: random.permutation(key, jnp.arange(10, dtype="int32"))), count=10)
logits = Draw("categorical").normal(20, 4)
case("random", "categorical", "rows", {"key": key, "logits": logits}, with_key(lambda key, logits: random.categorical(key, logits).astype("int32")))
