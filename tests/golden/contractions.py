"""Dot products and convolutions."""
import numpy as np
from jax import lax
from jax import numpy as jnp

from make import Draw, SHORT, case, dtype_of

draw = Draw("contractions")

# ---- dot_general: (contracting, batch) of left and right ----
DOTS = [
    ("matrices", (3, 4), (4, 2), ([1], [0]), ([], [])),
    ("left_transposed", (4, 3), (4, 2), ([0], [0]), ([], [])),
    ("right_transposed", (3, 4), (2, 4), ([1], [1]), ([], [])),
    ("vectors", (5,), (5,), ([0], [0]), ([], [])),
    ("matrix_vector", (3, 4), (4,), ([1], [0]), ([], [])),
    ("outer", (3,), (4,), ([], []), ([], [])),
    ("batch", (2, 3, 4), (2, 4, 5), ([2], [1]), ([0], [0])),
    ("batch_not_in_front", (3, 2, 4), (4, 5, 2), ([2], [0]), ([1], [2])),
    ("two_batches", (2, 3, 4, 5), (3, 2, 5, 2), ([3], [2]), ([0, 1], [1, 0])),
    ("two_contractions", (2, 3, 4), (4, 3, 5), ([1, 2], [1, 0]), ([], [])),
    ("batch_and_two_contractions", (3, 2, 4, 2), (2, 4, 3, 5), ([1, 2], [0, 1]), ([0], [2])),
    ("batch_only", (2, 3), (2, 3), ([], []), ([0, 1], [0, 1])),
    ("attention", (2, 5, 3, 4), (2, 6, 3, 4), ([3], [3]), ([0, 2], [0, 2])),
    ("contracted_nothing", (2, 0), (0, 3), ([1], [0]), ([], [])),
    ("empty_result", (0, 2), (2, 3), ([1], [0]), ([], [])),
    ("free_in_front", (2, 3, 4, 5), (5, 6), ([3], [0]), ([], [])),
]


def dot_attributes(contracting, batch, result):
    return dict(left_contract=contracting[0], right_contract=contracting[1], left_batch=batch[0], right_batch=batch[1], result=result)


for variant, left, right, contracting, batch in DOTS:
    for dtype in ["float32", "float64"] if variant in ("matrices", "batch_not_in_front", "two_batches") else ["float32"]:
        values = {"x": draw.normal(*left, dtype=dtype), "y": draw.normal(*right, dtype=dtype)}
        case("dot", "dot_general", f"{variant}.{SHORT[dtype]}", values, lambda x, y: lax.dot_general(x, y, (contracting, batch)), grad="all",
             **dot_attributes(contracting, batch, SHORT[dtype]))
for dtype, result in [("int32", "int32"), ("int8", "int32"), ("uint8", "uint32"), ("int64", "int64"), ("bfloat16", "float32"), ("float16", "float32"), ("bfloat16", "bfloat16"),
                      ("float32", "float64")]:
    values = {"x": draw.integers(0, 5, 3, 4).astype(dtype_of(dtype)), "y": draw.integers(0, 5, 4, 2).astype(dtype_of(dtype))}
    dot = lambda x, y: lax.dot_general(x, y, (([1], [0]), ([], [])), preferred_element_type=dtype_of(result))
    grad = "all" if "float" in dtype and result == "float32" else ""
    case("dot", "dot_general", f"{SHORT[dtype]}_to_{SHORT[result]}", values, dot, grad=grad, **dot_attributes(([1], [0]), ([], []), SHORT[result]))
for variant, left, right in [("matrices", (3, 4), (4, 2)), ("dense", (2, 3, 4), (4, 5)), ("vector", (4,), (4, 3)), ("batch", (2, 3, 4), (2, 4, 5)), ("two_batches", (2, 3, 2, 4), (2, 3, 4, 2))]:
    values = {"x": draw.normal(*left), "y": draw.normal(*right)}
    case("dot", "matmul", variant, values, jnp.matmul, grad="all")

# ---- convolution: dimension numbers are (batch, feature, spatial..), of the kernel (output, input, spatial..) ----
NHWC = dict(input=(0, 3, 1, 2), kernel=(3, 2, 0, 1), output=(0, 3, 1, 2))
NCHW = dict(input=(0, 1, 2, 3), kernel=(0, 1, 2, 3), output=(0, 1, 2, 3))
ODD = dict(input=(2, 0, 3, 1), kernel=(1, 3, 2, 0), output=(3, 1, 0, 2))
NWC = dict(input=(0, 2, 1), kernel=(2, 1, 0), output=(0, 2, 1))
NCDHW = dict(input=(0, 1, 2, 3, 4), kernel=(0, 1, 2, 3, 4), output=(0, 1, 2, 3, 4))


def laid_out(sizes, spec):
    dims = [0] * len(sizes)
    for size, dim in zip(sizes, spec):
        dims[dim] = size
    return dims


def conv(group, variant, x, kernel, layout, padding, strides=None, input_dilation=None, kernel_dilation=None, reversal=None, feature_groups=1, batch_groups=1,
         dtype="float32", result=None, grad="all"):
    """`x`: (batch, feature, spatial..), `kernel`: (output, input, spatial..), whatever the layout."""
    rank = len(padding)
    ones, result = (1,) * rank, result or dtype
    strides, input_dilation, kernel_dilation = strides or ones, input_dilation or ones, kernel_dilation or ones
    reversal = reversal or (False,) * rank
    numbers = lax.ConvDimensionNumbers(layout["input"], layout["kernel"], layout["output"])

    def compute(x, kernel):
        turned = [dim for dim, reverse in zip(layout["kernel"][2:], reversal) if reverse]
        return lax.conv_general_dilated(x, lax.rev(kernel, turned), strides, padding, input_dilation, kernel_dilation, numbers, feature_groups, batch_groups,
                                        preferred_element_type=dtype_of(result))

    values = {"x": draw.normal(*laid_out(x, layout["input"])).astype(dtype_of(dtype)), "kernel": draw.normal(*laid_out(kernel, layout["kernel"])).astype(dtype_of(dtype))}
    if dtype.startswith("int"):
        values = {key: draw.integers(-5, 5, *value.shape, dtype=dtype) for key, value in values.items()}
    case(group, "convolution", variant, values, compute, grad=grad, **layout, padding=padding, strides=strides, input_dilation=input_dilation,
         kernel_dilation=kernel_dilation, reversal=reversal, feature_groups=feature_groups, batch_groups=batch_groups, result=SHORT[result])


conv("convolution", "nhwc", (2, 2, 5, 5), (3, 2, 3, 3), NHWC, [(1, 1), (1, 1)])
conv("convolution", "nchw", (2, 2, 5, 5), (3, 2, 3, 3), NCHW, [(1, 1), (1, 1)])
conv("convolution", "odd_layout", (2, 3, 4, 5), (2, 3, 2, 3), ODD, [(0, 1), (1, 1)])
conv("convolution", "f64", (1, 2, 4, 4), (2, 2, 3, 3), NHWC, [(1, 1), (1, 1)], dtype="float64")
conv("convolution", "one_by_one", (2, 3, 3, 3), (4, 3, 1, 1), NHWC, [(0, 0), (0, 0)])
conv("convolution", "valid", (1, 2, 6, 5), (2, 2, 3, 2), NCHW, [(0, 0), (0, 0)])
conv("convolution", "strides", (1, 2, 7, 8), (3, 2, 3, 3), NHWC, [(1, 1), (1, 1)], strides=(2, 2))
conv("convolution", "strides_leave_a_rest", (1, 1, 8, 9), (2, 1, 3, 2), NHWC, [(0, 0), (1, 0)], strides=(3, 2))
conv("convolution", "one_by_one_strides", (1, 2, 5, 5), (2, 2, 1, 1), NCHW, [(0, 0), (0, 0)], strides=(2, 2))
conv("convolution", "kernel_dilation", (1, 2, 7, 7), (2, 2, 3, 2), NHWC, [(2, 2), (0, 1)], kernel_dilation=(2, 3))
conv("convolution", "kernel_dilation_and_strides", (1, 1, 9, 8), (2, 1, 2, 3), NHWC, [(1, 1), (2, 1)], strides=(2, 3), kernel_dilation=(3, 2))
conv("convolution", "input_dilation", (1, 2, 3, 3), (2, 2, 3, 3), NHWC, [(2, 2), (1, 2)], input_dilation=(2, 2))
conv("convolution", "all_dilations", (1, 2, 4, 3), (2, 2, 2, 3), NCHW, [(2, 1), (3, 2)], strides=(2, 1), input_dilation=(2, 3), kernel_dilation=(1, 2))
conv("convolution", "negative_padding", (1, 2, 7, 6), (2, 2, 2, 2), NHWC, [(-1, 0), (1, -2)])
conv("convolution", "padding_over_kernel", (1, 1, 2, 2), (1, 1, 2, 2), NCHW, [(3, 3), (2, 4)])
conv("convolution_groups", "depthwise", (2, 4, 5, 5), (4, 1, 3, 3), NHWC, [(1, 1), (1, 1)], feature_groups=4)
conv("convolution_groups", "depthwise_times_two", (1, 3, 4, 4), (6, 1, 2, 2), NCHW, [(0, 1), (1, 0)], feature_groups=3)
conv("convolution_groups", "two_groups", (2, 4, 4, 4), (6, 2, 3, 3), NHWC, [(1, 1), (1, 1)], feature_groups=2)
conv("convolution_groups", "two_groups_strides_dilation", (1, 4, 7, 6), (4, 2, 2, 3), NCHW, [(1, 2), (2, 1)], strides=(2, 2), kernel_dilation=(2, 1), feature_groups=2)
conv("convolution_groups", "batch_groups", (4, 2, 5, 5), (6, 2, 3, 3), NHWC, [(1, 1), (0, 1)], batch_groups=2)
conv("convolution_groups", "batch_groups_strides", (6, 1, 5, 4), (3, 1, 2, 2), NCHW, [(0, 0), (1, 1)], strides=(2, 1), batch_groups=3)
conv("convolution_groups", "reversed", (1, 2, 5, 5), (2, 2, 3, 2), NHWC, [(1, 1), (0, 0)], reversal=(True, True))
conv("convolution_groups", "reversed_one_strides", (1, 2, 5, 6), (2, 2, 3, 2), NCHW, [(1, 1), (0, 0)], strides=(2, 2), reversal=(False, True))
conv("convolution_groups", "one_dimension", (2, 3, 8), (4, 3, 3), NWC, [(2, 0)], strides=(2,))
conv("convolution_groups", "one_dimension_causal", (2, 2, 6), (2, 2, 3), NWC, [(4, 0)], kernel_dilation=(2,))
conv("convolution_groups", "three_dimensions", (1, 2, 3, 4, 3), (2, 2, 2, 3, 2), NCDHW, [(1, 0), (1, 1), (0, 0)], strides=(1, 2, 1))
conv("convolution_groups", "no_dimensions", (3, 4), (2, 4), dict(input=(0, 1), kernel=(0, 1), output=(0, 1)), [])
conv("convolution_groups", "bf16_to_f32", (1, 2, 4, 4), (2, 2, 3, 3), NHWC, [(1, 1), (1, 1)], dtype="bfloat16", result="float32", grad="")
conv("convolution_groups", "s32", (1, 2, 4, 4), (2, 2, 3, 3), NHWC, [(1, 1), (1, 1)], dtype="int32", grad="")

# ---- what a user calls: `[batch, spatial.., in]` with `[spatial.., in / groups, out]` ----
for variant, x, kernel, padding, options in [
    ("valid", (2, 5, 6, 2), (3, 2, 2, 4), "VALID", {}),
    ("same", (1, 5, 6, 2), (3, 2, 2, 3), "SAME", {}),
    ("same_strides", (1, 7, 6, 2), (3, 3, 2, 3), "SAME", {"strides": (2, 3)}),
    ("same_dilated", (1, 7, 7, 1), (3, 2, 1, 2), "SAME", {"kernel_dilation": (2, 3)}),
    ("explicit", (1, 4, 5, 2), (3, 3, 2, 2), [(1, 2), (0, 1)], {"strides": (1, 2)}),
    ("transposed", (1, 3, 4, 2), (3, 3, 2, 2), [(2, 2), (1, 2)], {"input_dilation": (2, 3)}),
    ("depthwise", (1, 5, 5, 3), (3, 3, 1, 3), "SAME", {"groups": 3}),
    ("one_dimension", (2, 8, 3), (3, 3, 4), "SAME", {"strides": (2,)}),
    ("three_dimensions", (1, 3, 4, 3, 2), (2, 2, 2, 2, 2), "VALID", {}),
]:
    rank = len(x) - 2
    last = lax.conv_dimension_numbers(x, kernel, (f"N{'DHW'[3 - rank:]}C", f"{'DHW'[3 - rank:]}IO", f"N{'DHW'[3 - rank:]}C"))
    convolve = lambda x, kernel: lax.conv_general_dilated(x, kernel, options.get("strides", (1,) * rank), padding, lhs_dilation=options.get("input_dilation"), rhs_dilation=options.get("kernel_dilation"),
                                                          dimension_numbers=last, feature_group_count=options.get("groups", 1))
    case("convolution", "conv", variant, {"x": draw.normal(*x), "kernel": draw.normal(*kernel)}, convolve, grad="all", padding=padding, **options)
