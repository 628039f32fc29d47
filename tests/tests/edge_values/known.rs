//! Marks of faults that are known and not mended yet. A mark that nothing needs fails the campaign:
//! whoever mends a fault removes its mark.

use crate::{
    differences::{Allow::Known, CPU, Difference, EVERYWHERE, HALVES, differs},
    table::{ALL, FLOATS, INTEGERS},
};
use halite_core::DType;

const WIDE_INTEGERS: &[DType] = &[DType::S64, DType::U64];

pub(crate) const KNOWN: &[Difference] = differs! {
    ["sort", "argsort", "top_k", "columns_sorted"], Both, FLOATS, EVERYWHERE,
        Known("sorts order bits"), "";
    ["gelu", "gelu_tanh"], Function, FLOATS, EVERYWHERE, Known("x is doubled before it is halved"),
        "";
    ["mean", "var", "avg_pool", "sum", "cumsum", "columns", "columns_floats"], Both, HALVES,
        EVERYWHERE,
        Known("accumulators of 16 bits"), "";
    ["prod", "cumprod"], Both, HALVES, EVERYWHERE, Known("products in 16 bits"), "";
    ["silu", "mish", "glu", "gelu", "gelu_tanh"], Gradient, FLOATS, EVERYWHERE,
        Known("a cotangent times x overflows"), "";
    ["numbers"], Function, FLOATS, CPU, Known("XLA's arc tangent of whole vectors"), "";
    ["atan2", "numbers"], Gradient, FLOATS, EVERYWHERE, Known("squares without scaling"), "";
    ["div"], Gradient, FLOATS, EVERYWHERE, Known("division before multiplication"), "";
    ["log_add_exp"], Gradient, FLOATS, EVERYWHERE, Known("infinite logarithms"), "";
    ["erf_inv"], Gradient, FLOATS, EVERYWHERE, Known("infinite slope of erf_inv"), "";
    ["huber"], Gradient, FLOATS, EVERYWHERE, Known("infinite branch that is not selected"), "";
    ["soft_cross_entropy", "kl_divergence"], Both, FLOATS, EVERYWHERE,
        Known("0 times infinity in a loss"), "";
    ["bce_with_logits", "bce_with_logits_mean"], Function, FLOATS, EVERYWHERE,
        Known("infinite logits"), "";
    ["pow"], Gradient, FLOATS, EVERYWHERE, Known("negative powers of 0"), "";
    ["mean_weighted"], Both, FLOATS, EVERYWHERE, Known("a weight of 0"), "";
    ["labels"], Function, WIDE_INTEGERS, EVERYWHERE, Known("labels that wrap"), "";
    ["global_norm", "clip"], Both, ALL, EVERYWHERE, Known("norms overflow"), "";
    ["pow_integers"], Function, INTEGERS, CPU, Known("XLA takes six bits of an exponent"), "";
};
