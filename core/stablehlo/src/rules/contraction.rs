//! Matrix multiplication and convolution.

use super::{
    Check, TensorLike, ensure,
    list::{Items, check_dims, check_items, without},
    take,
    window::Window,
};
use crate::{ConvolutionAttributes, ConvolutionDims, DotAttributes, ElementClass, ElementType};

/// Checks that `element`, the type of the result's elements, can hold those of the operands. It need
/// not be the same: JAX emits products of `bf16` as `f32`, and of an `f32` and an `i32` matrix as
/// `f32`.
fn check_element<T: TensorLike>(operands: [&T; 2], element: ElementType) -> Check {
    let order = |element: ElementType| match element.class() {
        ElementClass::Bool => 0,
        ElementClass::Signed | ElementClass::Unsigned => 1,
        ElementClass::Float => 2,
        ElementClass::Complex => 3,
    };
    let [left, right] = operands;
    ensure!(
        operands
            .iter()
            .all(|ty| order(ty.element()) <= order(element)),
        "elements of the result are {element}, which cannot hold those of {left} and {right}"
    );
    Ok(())
}

/// The product of two operands: batching dimensions first, then those that are not contracted.
///
/// # Errors
/// If the pairs of dimensions do not fit, or `element` cannot hold the operands' elements.
pub fn dot<T: TensorLike>(operands: &[&T], dot: &DotAttributes, element: ElementType) -> Check<T> {
    let [left, right] = take(operands)?;
    let paired = [
        ("batch", &dot.lhs_batching, &dot.rhs_batching),
        ("contracting", &dot.lhs_contracting, &dot.rhs_contracting),
    ];
    for (what, of_left, of_right) in paired {
        ensure!(
            of_left.len() == of_right.len(),
            "{what} dimensions {} of {left} and {} of {right} are paired",
            Items(of_left),
            Items(of_right)
        );
    }
    let used_left = [&dot.lhs_batching[..], &dot.lhs_contracting].concat();
    let used_right = [&dot.rhs_batching[..], &dot.rhs_contracting].concat();
    check_dims("batch or contracting dimension", &used_left, left)?;
    check_dims("batch or contracting dimension", &used_right, right)?;
    for (what, of_left, of_right) in paired {
        for (&l, &r) in of_left.iter().zip(of_right) {
            let (in_left, in_right) = (left.dims()[l], right.dims()[r]);
            ensure!(
                in_left == in_right,
                "{what} dimension {l} of {left} is {in_left}, dimension {r} of {right} is {in_right}"
            );
        }
    }
    check_element([left, right], element)?;
    let batch = dot.lhs_batching.iter().map(|&dim| left.dims()[dim]);
    let mut dims: Vec<usize> = batch.collect();
    dims.extend(without(left.dims(), &used_left));
    dims.extend(without(right.dims(), &used_right));
    left.with_dims(&dims).with_element(element)
}

/// The convolution of an input with a kernel.
///
/// # Errors
/// If the attributes do not fit the operands, or `element` cannot hold their elements.
pub fn convolution<T: TensorLike>(
    operands: &[&T],
    conv: &ConvolutionAttributes,
    element: ElementType,
) -> Check<T> {
    let [x, kernel] = take(operands)?;
    ensure!(
        x.rank() >= 2 && x.rank() == kernel.rank(),
        "{x} and the kernel {kernel} must have the same rank, 2 or more"
    );
    check_element([x, kernel], element)?;
    for (what, dims) in [
        ("input", &conv.input),
        ("kernel", &conv.kernel),
        ("output", &conv.output),
    ] {
        check_roles(what, dims, x.rank())?;
    }
    check_windows(conv, x)?;
    check_groups(conv, x, kernel)?;
    let mut dims = vec![0; x.rank()];
    dims[conv.output.batch] = x.dims()[conv.input.batch] / conv.batch_groups;
    dims[conv.output.feature] = kernel.dims()[conv.kernel.batch];
    for (i, &dim) in conv.output.spatial.iter().enumerate() {
        let window = Window {
            size: x.dims()[conv.input.spatial[i]],
            base_dilation: conv.input_dilation[i],
            padding: conv.padding[i],
            window: kernel.dims()[conv.kernel.spatial[i]],
            window_dilation: conv.kernel_dilation[i],
            stride: conv.strides[i],
        };
        let positions = window.positions();
        dims[dim] = positions.map_err(|why| format!("spatial dimension {i} of {x}: {why}"))?;
    }
    x.with_dims(&dims).with_element(element)
}

/// Checks that each of `rank` dimensions has one role.
fn check_roles(what: &str, dims: &ConvolutionDims, rank: usize) -> Check {
    let mut all = vec![dims.batch, dims.feature];
    all.extend(&dims.spatial);
    all.sort_unstable();
    ensure!(
        all.iter().copied().eq(0..rank),
        "the {what}'s dimensions: batch {}, feature {}, spatial {}; each of 0 to {} must appear once",
        dims.batch,
        dims.feature,
        Items(&dims.spatial),
        rank - 1
    );
    Ok(())
}

/// Checks strides, paddings and dilations: one for each spatial dimension.
fn check_windows<T: TensorLike>(conv: &ConvolutionAttributes, x: &T) -> Check {
    let spatial = x.rank() - 2;
    let steps = [
        ("strides", &conv.strides),
        ("input dilations", &conv.input_dilation),
        ("kernel dilations", &conv.kernel_dilation),
    ];
    let others = [
        ("paddings", conv.padding.len()),
        ("reversals", conv.reversal.len()),
    ];
    let counts = steps.map(|(what, steps)| (what, steps.len()));
    for (what, count) in counts.into_iter().chain(others) {
        ensure!(
            count == spatial,
            "{count} {what} for {x}, which has {spatial} spatial dimensions"
        );
    }
    (steps.into_iter()).try_for_each(|(what, steps)| check_items(what, steps, 1))
}

/// Checks that groups divide the batch and the features.
fn check_groups<T: TensorLike>(conv: &ConvolutionAttributes, x: &T, kernel: &T) -> Check {
    let (features, batches) = (conv.feature_groups, conv.batch_groups);
    ensure!(
        features >= 1 && batches >= 1 && (features == 1 || batches == 1),
        "{features} feature groups and {batches} batch groups; both must be 1 or more, one of them 1"
    );
    let of_input = x.dims()[conv.input.feature];
    let of_kernel = kernel.dims()[conv.kernel.feature];
    ensure!(
        of_input.is_multiple_of(features) && of_input / features == of_kernel,
        "{x} has {of_input} features (dimension {}) in {features} group{}, the kernel {kernel} takes \
         {of_kernel} (dimension {})",
        conv.input.feature,
        if features == 1 { "" } else { "s" },
        conv.kernel.feature
    );
    let outputs = kernel.dims()[conv.kernel.batch];
    ensure!(
        outputs.is_multiple_of(features) && outputs.is_multiple_of(batches),
        "the kernel {kernel} gives {outputs} features (dimension {}), not a multiple of {} groups",
        conv.kernel.batch,
        features.max(batches)
    );
    let batch = x.dims()[conv.input.batch];
    ensure!(
        batch.is_multiple_of(batches),
        "the batch of {x} is {batch} (dimension {}), not a multiple of {batches} batch groups",
        conv.input.batch
    );
    Ok(())
}
