//! Marks of faults that are known and not mended yet. A mark that nothing needs fails the campaign:
//! whoever mends a fault removes its mark.

use crate::{
    differences::{Allow::Known, Difference, EVERYWHERE, differs},
    table::{ALL, FLOATS},
};

pub(crate) const KNOWN: &[Difference] = differs! {
    ["atan2", "numbers"], Gradient, FLOATS, EVERYWHERE, Known("infinite and subnormal angles"), "";
    ["silu", "mish", "glu", "gelu", "gelu_tanh"], Gradient, FLOATS, EVERYWHERE,
        Known("a cotangent times x overflows"), "";
    ["div"], Gradient, FLOATS, EVERYWHERE, Known("division before multiplication"), "";
    ["erf_inv"], Gradient, FLOATS, EVERYWHERE, Known("infinite slope of erf_inv"), "";
    ["mean_weighted"], Both, FLOATS, EVERYWHERE, Known("sums beyond f32"), "";
    ["global_norm", "clip"], Both, ALL, EVERYWHERE, Known("a norm beyond the type"), "";
};
