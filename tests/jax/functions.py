"""Functions of JAX on one device: numpy, transformations, control flow, random numbers, .."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.experimental.layout import Format, Layout
from jax._src.interpreters import mlir

TOLERANCE = 2e-5

_rng = np.random.default_rng(0)
_x = _rng.standard_normal((6, 8)).astype(np.float32)
_y = _rng.standard_normal((8, 5)).astype(np.float32)
_square = (_x @ _x.T + 8 * np.eye(6)).astype(np.float32)
_integers = _rng.integers(-50, 50, (6, 8)).astype(np.int32)


def elementwise():
    unary = [jnp.sin, jnp.cos, jnp.tan, jnp.tanh, jnp.exp, jnp.expm1, jnp.abs, jnp.sign, jnp.floor,
             jnp.ceil, jnp.round, jnp.cbrt, jnp.square, jnp.arctan, jnp.sinh, jax.nn.sigmoid,
             jax.nn.gelu, jax.nn.softplus, jax.scipy.special.erf]
    positive = [jnp.log, jnp.log1p, jnp.sqrt, jax.lax.rsqrt, jax.scipy.special.gammaln]
    return [jax.jit(f)(_x) for f in unary] + [jax.jit(f)(np.abs(_x)) for f in positive]


def special_functions():
    s = jax.scipy.special
    inside = np.linspace(-0.99, 0.99, 48, dtype=np.float32)
    real = [(jnp.arcsin, inside), (jnp.arccos, inside), (jnp.arctan, _x), (jnp.sinh, _x),
            (jnp.cosh, _x), (jnp.arcsinh, _x), (jnp.arccosh, 1 + np.abs(_x)), (jnp.tan, _x),
            (jnp.arctanh, inside), (s.gammaln, _x), (s.digamma, np.abs(_x) + 0.1), (s.erfc, _x),
            (s.erfinv, inside), (s.i1e, _x), (s.erf, _x), (jnp.isinf, _x), (jnp.isneginf, _x),
            (functools.partial(s.polygamma, 2), np.abs(_x) + 0.5),
            (functools.partial(s.zeta, 3.5), np.abs(_x) + 0.5),
            (lambda x: jnp.nextafter(x, 1.0), _x), (jnp.var, _x), (jnp.std, _x),
            (functools.partial(jax.nn.gelu, approximate=False), _x),
            (functools.partial(s.multigammaln, d=2), np.abs(_x) + 1),
            (functools.partial(jax.lax.top_k, k=3), _x)]
    parts = [jnp.sinh, jnp.cosh, jnp.tan, jnp.arcsin, jnp.arccos, jnp.arctan, jnp.arcsinh,
             jnp.arccosh, jnp.arctanh, jnp.exp, jnp.expm1, jnp.log, jnp.log1p, jnp.sqrt]
    z = (_x + 1j * np.roll(_x, 1, 0)).astype(np.complex64)
    return [jax.jit(f)(x) for f, x in real] + [jax.jit(f)(z) for f in parts]


def complex_special_values():
    infinite = np.array([1e20, np.inf, -np.inf], np.complex64)
    z = np.array([complex(-np.inf, 1e20), complex(np.nan, 1e20)], np.complex64)
    return [jnp.expm1(infinite), jnp.exp(infinite), jnp.tan(z), jnp.sqrt(infinite)]


def binary():
    other = np.roll(_x, 1, 0)
    functions = [jnp.add, jnp.multiply, jnp.divide, jnp.maximum, jnp.arctan2, jnp.hypot,
                 jnp.logaddexp, jnp.floor_divide, jnp.fmod]
    return [f(_x, other) for f in functions] + [jnp.power(np.abs(_x), other)]


def integers():
    other = np.where(np.roll(_integers, 1, 0) == 0, 3, np.roll(_integers, 1, 0))
    functions = [jnp.add, jnp.multiply, jnp.floor_divide, jnp.remainder, jnp.bitwise_and,
                 jnp.bitwise_xor, jnp.minimum, jnp.gcd]
    x = jnp.array(_integers)
    return [f(x, other) for f in functions] + [x << 2, ~x]


def reductions():
    functions = [jnp.sum, jnp.mean, jnp.max, jnp.min, jnp.prod, jnp.std, jnp.var, jnp.argmax,
                 jnp.argmin, jnp.all, jnp.median, jnp.cumsum, jnp.cumprod, jnp.linalg.norm,
                 jax.nn.logsumexp, jax.nn.softmax]
    return [f(_x, axis=1) for f in functions] + [jnp.percentile(_x, 30.0)]


def shapes():
    x = jnp.array(_x)
    return [x.T, x.reshape(4, 12), jnp.flip(x, 1), jnp.roll(x, 3, 1), jnp.pad(x, ((1, 2), (0, 3))),
            jnp.concatenate([x, x]), jnp.stack([x, 2 * x], 1), jnp.tile(x, (2, 1)),
            jnp.repeat(x, 2, 0), jnp.tril(x), jnp.diag(x[:6, :6]), jnp.meshgrid(x[0], x[1]),
            jnp.split(x, 2, 1), x[1:5:2, ::-1], jnp.broadcast_to(x[0], (3, 8)),
            jnp.moveaxis(x, 0, 1)]


def indexing():
    x, rows = jnp.array(_x), jnp.array([3, 0, 5, 3])
    return [x[rows], x[rows, rows], jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
            x.at[rows].add(1.0), x.at[1, 2].set(7.0), x.at[rows].max(0.5),
            jnp.where(x > 0, x, 0.0), jnp.searchsorted(jnp.sort(x[0]), x[1]),
            jax.lax.dynamic_slice(x, (2, 3), (3, 2)), jnp.select([x > 1, x > 0], [x, 2 * x])]


def sorting():
    x = jnp.array(_x)
    return [jnp.sort(x, 0), jnp.argsort(x, 1), jnp.lexsort((x[0], x[1])), jax.lax.top_k(x, 3),
            jnp.unique(jnp.array(_integers) // 10, size=8)]


def products():
    dot = functools.partial(jnp.matmul, precision="highest")
    return [dot(_x, _y), jnp.einsum("ij,jk,k->i", _x, _y, _y[0], precision="highest"),
            jnp.outer(_x[0], _y[0]), jnp.kron(_x[:2, :2], _y[:2, :2]),
            jnp.tensordot(_x, _y, 1, precision="highest"),
            jax.lax.dot_general(_integers, _integers, (((1,), (1,)), ((), ())))]


def convolutions():
    images = _rng.standard_normal((2, 9, 9, 3)).astype(np.float32)
    kernel = _rng.standard_normal((3, 3, 3, 4)).astype(np.float32)
    convolve = functools.partial(jax.lax.conv_general_dilated, padding="SAME", precision="highest",
                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))
    window = (1, 2, 2, 1)
    pooled = jax.lax.reduce_window(images, -np.inf, jax.lax.max, window, window, "VALID")
    return [convolve(images, kernel, window_strides=(1, 1)),
            convolve(images, kernel, window_strides=(2, 2), rhs_dilation=(2, 1)), pooled]


def linear_algebra():
    q, r = jnp.linalg.qr(_square)
    return [jnp.linalg.cholesky(_square), jnp.linalg.solve(_square, _x), jnp.linalg.inv(_square),
            jnp.linalg.det(_square), q @ r,
            jax.scipy.linalg.solve_triangular(np.tril(_square), _x, lower=True)]


def transforms():
    # Complex numbers are values of programs, but not of arrays.
    functions = [lambda x: jnp.abs(jnp.fft.fft(x)), lambda x: jnp.fft.irfft(jnp.fft.rfft(x)),
                 lambda x: jnp.real(jnp.fft.fft2(x))]
    return [jax.jit(f)(_x) for f in functions]


def dtypes():
    return [jnp.array(_x).astype(dtype) for dtype in
            ["bfloat16", "float16", "int8", "uint8", "int32", "bool"]] + [
            (jnp.array(_x, "bfloat16") * 3 + 1), jnp.array(_x).view("int32")]


def _network(parameters, x):
    for weights, bias in parameters[:-1]:
        x = jax.nn.gelu(x @ weights + bias)
    weights, bias = parameters[-1]
    return jnp.sum((x @ weights + bias) ** 2)


_parameters = [(_y, np.zeros(5, np.float32)), (_y.T[:, :3], np.ones(3, np.float32))]


def gradients():
    return [jax.grad(_network)(_parameters, _x), jax.value_and_grad(_network, 1)(_parameters, _x),
            jax.jacfwd(jnp.tanh)(_x[0]), jax.hessian(lambda v: jnp.sum(jnp.sin(v) * v ** 2))(_x[0]),
            jax.jvp(jnp.cumsum, (_x[0],), (_x[1],)),
            jax.grad(lambda m: jnp.linalg.slogdet(m)[1])(_square),
            jax.grad(jax.checkpoint(lambda v: jnp.sum(jnp.exp(jnp.sin(v)))))(_x)]


def batching():
    per_row = jax.vmap(jax.grad(lambda row: jnp.sum(jax.nn.softmax(row) * jnp.arange(8.0))))
    return [per_row(_x), jax.vmap(jnp.dot, in_axes=(0, None))(_x, _y[:, 0]),
            jax.vmap(jnp.convolve)(_x, _x),
            jax.vmap(lambda m: jnp.linalg.inv(m))(jnp.stack([_square] * 2))]


def control_flow():
    def body(carry, row):
        carry = jnp.tanh(carry + row)
        return carry, carry * 2

    scan = lambda x: jax.lax.scan(body, x[0], x)
    next_number = lambda n: jnp.where(n % 2 == 0, n // 2, 3 * n + 1)
    collatz = lambda n: jax.lax.while_loop(
        lambda s: s[0] != 1, lambda s: (next_number(s[0]), s[1] + 1), (n, 0))
    branches = [lambda v: v + 1, lambda v: v * 2, lambda v: -v]
    return [jax.jit(scan)(_x), jax.grad(lambda x: jnp.sum(scan(x)[1]))(_x), collatz(27),
            jax.lax.fori_loop(0, 10, lambda i, v: v + i, 0.0),
            [jax.lax.switch(i, branches, _x) for i in range(3)],
            jax.vmap(lambda i: jax.lax.cond(i > 0, lambda: i * 2, lambda: i - 1))(_integers[0]),
            jax.lax.associative_scan(jnp.add, _x), jax.lax.map(jnp.sum, _x)]


def random_numbers():
    key = jax.random.key(42)
    keys = jax.random.split(key, 3)
    return [keys, jax.random.bits(key, (5,)), jax.random.uniform(key, (4, 3)),
            jax.random.normal(keys[0], (50,)), jax.random.randint(keys[1], (9,), 0, 100),
            jax.random.permutation(keys[2], 20), jax.random.bernoulli(key, 0.3, (30,)),
            jax.random.categorical(key, _x), jax.random.gamma(key, 2.0, (4,)),
            jax.random.truncated_normal(key, -1.0, 1.0, (8,))]


def donation():
    # JAX donates only on the platforms of a list of its own.
    mlir._platforms_with_donation.append(jax.default_backend())
    update = jax.jit(lambda state, x: jax.tree.map(lambda v: v + x, state), donate_argnums=0)
    state = {"a": jnp.ones((4, 4)), "b": jnp.zeros(3)}
    first = state["a"]
    for step in range(5):
        state = update(state, float(step))
    assert first.is_deleted(), "a donated array is still there"
    return state


def without_results():
    x = jnp.array(_x)
    functions = [lambda x: None, lambda x: ((), {"a": None}), lambda x: jax.lax.cond(
        x[0, 0] > 0, lambda: None, lambda: None)]
    for function in functions:
        assert not jax.tree.leaves(jax.jit(function, keep_unused=True)(x))
    assert jax.jit(lambda: None)() is None
    assert jax.jit(lambda x: None, donate_argnums=0, keep_unused=True)(jnp.ones(4)) is None
    compiled = jax.jit(lambda x: None, keep_unused=True).lower(x).compile()
    assert compiled.output_shardings is None and compiled.output_formats is None
    assert _reloaded(compiled)(x) is None
    return x


def _reloaded(compiled):
    return serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))


def executables():
    x = jnp.array(_x)
    compiled = jax.jit(lambda x: (x.T @ x, x[0, 0])).lower(x).compile()
    matrix, scalar = compiled.output_formats
    assert matrix.layout.major_to_minor == (0, 1) and scalar.layout.major_to_minor == ()
    assert compiled.input_formats[0][0].layout == x.format.layout
    return _reloaded(compiled)(x)


def transfers():
    device = jax.devices()[0]
    x = jax.device_put(_x, device)
    assert x.devices() == {device}
    return [x, jax.device_put(x, device) + 0, jnp.array(_x.T), np.asarray(x)[::2],
            jnp.zeros((0, 3)), jnp.float32(3)]


def errors():
    try:
        jax.jit(lambda x: jnp.linalg.eigh(x)).lower(_square).compile()
        failed = jax.default_backend() == "cpu"
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        failed = True
    x = jnp.ones(3)
    x.delete()
    try:
        np.asarray(x)
    except RuntimeError:
        return np.array([failed, True])
    return np.array([failed, False])


def documented_refusals():
    """What docs/writing-a-plugin.md says that JAX does not run on a plugin."""
    if jax.default_backend() == "cpu":
        return np.zeros((), np.float32)
    x = jnp.array(_square)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    refused = [
        (NotImplementedError, lambda: jnp.linalg.eigh(x)),
        (NotImplementedError, lambda: jnp.linalg.svd(x)),
        (NotImplementedError, lambda: jax.scipy.linalg.schur(x)),
        (NotImplementedError, lambda: jax.jit(lambda x: jax.debug.print("{}", x))(x)),
        (NotImplementedError, lambda: jax.jit(lambda x: jax.debug.callback(print, x))(x)),
        (ValueError, lambda: jax.jit(lambda x: jax.pure_callback(np.asarray, shape, x))(x)),
        (RuntimeError, lambda: jnp.arange(4, dtype=jnp.int4) + 1),
        (RuntimeError, lambda: jnp.ones(4, jnp.float4_e2m1fn)),
        (RuntimeError, lambda: jax.devices("cpu")),
        (RuntimeError, lambda: x.unsafe_buffer_pointer()),
        (RuntimeError, lambda: jax.jit(jnp.sin, compiler_options={"xla_flag": True})(x)),
        (RuntimeError, lambda: jax.device_put(x, Format(Layout((1, 0)), x.sharding))),
    ]
    for number, (error, function) in enumerate(refused):
        try:
            function()
        except error:
            continue
        raise AssertionError(f"refusal {number} of the list runs")
    inside = jax.jit(lambda x: (x.astype(jnp.int4) + 1).astype(jnp.int8))
    return 0 * inside(jnp.arange(4, dtype=jnp.int8)).sum().astype(float)
