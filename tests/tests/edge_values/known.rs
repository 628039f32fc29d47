//! Marks of faults that are known and not mended yet. A mark that nothing needs fails the campaign:
//! whoever mends a fault removes its mark.

use crate::{
    differences::{Allow::Known, Difference, EVERYWHERE, differs},
    table::{ALL, FLOATS},
};
pub(crate) const KNOWN: &[Difference] = differs! {
    ["silu", "mish", "glu", "gelu", "gelu_tanh"], Gradient, FLOATS, EVERYWHERE,
        Known("a cotangent times x overflows"), "";
    ["atan2", "numbers"], Gradient, FLOATS, EVERYWHERE, Known("squares without scaling"), "";
    ["div"], Gradient, FLOATS, EVERYWHERE, Known("division before multiplication"), "";
    ["log_add_exp"], Gradient, FLOATS, EVERYWHERE, Known("infinite logarithms"), "";
    ["erf_inv"], Gradient, FLOATS, EVERYWHERE, Known("infinite slope of erf_inv"), "";
    ["mean_weighted"], Both, FLOATS, EVERYWHERE, Known("a weight of 0"), "";
    ["global_norm", "clip"], Both, ALL, EVERYWHERE, Known("norms overflow"), "";
};
