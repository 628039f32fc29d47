//! Activation functions.

use crate::edge_values::table::rows;

rows! {
    "relu6" Each NUMBERS [0] ["relu6"] |x| x[0].relu6();
    "leaky_relu" Each FLOATS [0] ["leaky_relu"] |x| x[0].leaky_relu(0.01);
    "elu" Each FLOATS [0] ["elu"] |x| x[0].elu(1.0);
    "selu" Each FLOATS [0] ["selu"] |x| x[0].selu();
    "gelu" Each FLOATS [0] ["gelu"] |x| x[0].gelu();
    "gelu_tanh" Each FLOATS [0] ["gelu_tanh"] |x| x[0].gelu_tanh();
    "silu" Each FLOATS [0] ["silu"] |x| x[0].silu();
    "mish" Each FLOATS [0] ["mish"] |x| x[0].mish();
    "softplus" Each FLOATS [0] ["softplus"] |x| x[0].softplus();
    "log_sigmoid" Each FLOATS [0] ["log_sigmoid"] |x| x[0].log_sigmoid();
    "hard_sigmoid" Each FLOATS [0] ["hard_sigmoid"] |x| x[0].hard_sigmoid();
    "hard_swish" Each FLOATS [0] ["hard_swish"] |x| x[0].hard_swish();
    "glu" Rows FLOATS [0] ["glu"] |x| {
        let even = x[0].dims()[1] / 2 * 2;
        x[0].slice_dim(1, ..even).glu()
    };
}
