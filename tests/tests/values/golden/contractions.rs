//! Dot products and convolutions.

use halite_ir::{ConvolutionAttributes, ConvolutionDims, DotAttributes};
use halite_nn::{ConvOptions, Padding};
use halite_tests::{functions, golden::Given};

functions! {
    dot_general(g) g.x().dot_general(g.y(), DotAttributes {
        lhs_batching: g.list("left_batch"),
        rhs_batching: g.list("right_batch"),
        lhs_contracting: g.list("left_contract"),
        rhs_contracting: g.list("right_contract"),
        ..DotAttributes::default()
    }, g.dtype("result"));
    matmul(g) g.x().matmul(g.y());

    conv(g) g.x().conv(g.input("kernel"), &ConvOptions {
        strides: g.get_or_default("strides"),
        padding: padding(g),
        input_dilation: g.get_or_default("input_dilation"),
        kernel_dilation: g.get_or_default("kernel_dilation"),
        groups: g.get_or_default("groups"),
    });
    convolution(g) g.x().conv_general(g.input("kernel"), ConvolutionAttributes {
        input: dims(g, "input"),
        kernel: dims(g, "kernel"),
        output: dims(g, "output"),
        strides: g.list("strides"),
        padding: g.get("padding"),
        input_dilation: g.list("input_dilation"),
        kernel_dilation: g.list("kernel_dilation"),
        reversal: g.get("reversal"),
        feature_groups: g.size("feature_groups"),
        batch_groups: g.size("batch_groups"),
        precision: Vec::new(),
    }, g.dtype("result"));
}

/// `(batch, feature, spatial..)`.
fn dims(g: &Given<'_>, name: &str) -> ConvolutionDims {
    let dims = g.list(name);
    ConvolutionDims {
        batch: dims[0],
        feature: dims[1],
        spatial: dims[2..].to_vec(),
    }
}

/// Attribute `padding`: `"SAME"`, `"VALID"`, or pairs.
pub(crate) fn padding(g: &Given<'_>) -> Padding {
    match g.get::<serde_json::Value>("padding").as_str() {
        Some("SAME") => Padding::Same,
        Some("VALID") => Padding::Valid,
        _ => Padding::Explicit(g.get("padding")),
    }
}
