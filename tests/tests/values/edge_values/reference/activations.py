"""Activation functions, with the limits of their formulas at infinity as PyTorch has them."""
import numpy as np

from elementwise import PI, along, erfc, sigmoid, softplus
from make import L, row
from values import FLOATS, NUMBERS

ROOT_HALF = 1 / np.sqrt(L(2))


def normal(x):
    return erfc(-x * ROOT_HALF) / 2


def density(x):
    return np.exp(-x * x / 2) / np.sqrt(2 * PI)


def gelu_tanh(x):
    inner = np.sqrt(2 / PI) * (x + L("0.044715") * x**3)
    # (1 + tanh) / 2 without cancellation
    return x * sigmoid(2 * inner)


def gelu_tanh_slope(x):
    inner = np.sqrt(2 / PI) * (x + L("0.044715") * x**3)
    slope = np.sqrt(2 / PI) * (1 + 3 * L("0.044715") * x**2)
    bell = 2 * sigmoid(2 * inner) * sigmoid(-2 * inner) * slope * x
    return sigmoid(2 * inner) + np.where(np.isfinite(bell), bell, np.where(np.isnan(x), x, 0))


def bounded(product):
    """A factor that vanishes faster than the other grows."""
    return lambda x: np.where(np.isinf(x), 0, product(x))


def elu(x):
    return np.where(x > 0, x, np.expm1(x))


SCALE, ALPHA = L("1.0507009873554805"), L("1.6732632423543772")
inside = lambda x: np.where(np.isnan(x), x, (x > -3) & (x < 3))
silu_bell = bounded(lambda x: x * sigmoid(x) * sigmoid(-x))
mish_bell = bounded(lambda x: x * sigmoid(x) * np.cosh(softplus(x)) ** -2)
ACTIVATIONS = [
    ("relu6", lambda x: np.where(np.isnan(x), x, np.clip(x, 0, 6)), lambda x: (x > 0) & (x < 6)),
    ("leaky_relu", lambda x: np.where(x > 0, x, x * L("0.01")), lambda x: np.where(x > 0, 1, L("0.01"))),
    ("elu", elu, lambda x: np.where(x > 0, 1, np.exp(x))),
    ("selu", lambda x: SCALE * np.where(x > 0, x, ALPHA * np.expm1(x)), lambda x: SCALE * np.where(x > 0, 1, ALPHA * np.exp(x))),
    ("gelu", lambda x: x * normal(x), lambda x: normal(x) + bounded(lambda x: x * density(x))(x)),
    ("gelu_tanh", gelu_tanh, gelu_tanh_slope),
    ("silu", lambda x: x * sigmoid(x), lambda x: sigmoid(x) + silu_bell(x)),
    ("mish", lambda x: x * np.tanh(softplus(x)), lambda x: np.tanh(softplus(x)) + mish_bell(x)),
    ("softplus", softplus, sigmoid),
    ("log_sigmoid", lambda x: -softplus(-x), lambda x: sigmoid(-x)),
    ("hard_sigmoid", lambda x: np.where(np.isnan(x), x, np.clip(x + 3, 0, 6) / 6), lambda x: ((x > -3) & (x < 3)) / L(6)),
    ("hard_swish", lambda x: x * np.where(np.isnan(x), x, np.clip(x + 3, 0, 6) / 6),
     lambda x: np.where(np.isnan(x), x, np.clip(x + 3, 0, 6) / 6) + np.where((x > -3) & (x < 3), x / 6, 0)),
]
for name, function, derivative in ACTIVATIONS:
    row(name, "each", NUMBERS if name == "relu6" else FLOATS, function, along(derivative))


def glu(x):
    half = x.shape[1] // 2
    return x[:, :half] * sigmoid(x[:, half : 2 * half])


def glu_back(x, c):
    half = x.shape[1] // 2
    a, b = x[:, :half], x[:, half : 2 * half]
    rest = np.zeros((len(x), x.shape[1] - 2 * half), L)
    return np.concatenate([c * sigmoid(b), c * a * sigmoid(b) * sigmoid(-b), rest], 1)


row("glu", "rows", FLOATS, glu, glu_back)
