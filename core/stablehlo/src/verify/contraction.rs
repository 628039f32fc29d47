//! Matrix multiplication and convolution.

use crate::{
    ConvolutionAttributes, ConvolutionDims, DotAttributes, ElementClass, ElementType, RankedType,
    Type,
};

use super::{
    list::{List, check_all_dims, check_count, list, without},
    typed::{Check, Typed, ensure, tensor},
    window::Window,
};

/// The element type of the result. It need not be that of the operands, but must hold their
/// elements: JAX emits products of `bf16` as `f32`, and of an `f32` and an `i32` matrix as `f32`.
fn element(op: &Typed<'_>, left: &RankedType, right: &RankedType) -> Check<ElementType> {
    let [y] = op.declared()?;
    let order = |ty: &RankedType| match ty.element.class() {
        ElementClass::Bool => 0,
        ElementClass::Signed | ElementClass::Unsigned => 1,
        ElementClass::Float => 2,
        ElementClass::Complex => 3,
    };
    ensure!(
        order(left).max(order(right)) <= order(y),
        "the element types are {} and {}, and {} of the result, which cannot hold them",
        left.element,
        right.element,
        y.element
    );
    Ok(y.element)
}

pub(super) fn dot_general(op: &Typed<'_>, dot: &DotAttributes) -> Check<Vec<Type>> {
    let [left, right] = op.tensors()?;
    let batching = [
        list("lhs_batching_dimensions", &dot.lhs_batching),
        list("rhs_batching_dimensions", &dot.rhs_batching),
    ];
    let contracting = [
        list("lhs_contracting_dimensions", &dot.lhs_contracting),
        list("rhs_contracting_dimensions", &dot.rhs_contracting),
    ];
    check_all_dims(&[batching[0], contracting[0]], left.rank())?;
    check_all_dims(&[batching[1], contracting[1]], right.rank())?;
    check_pairs(batching, left, right)?;
    check_pairs(contracting, left, right)?;
    let free = |ty: &RankedType, side: usize| {
        without(
            &ty.dims,
            &[batching[side].items, contracting[side].items].concat(),
        )
    };
    let batch: Vec<usize> = dot.lhs_batching.iter().map(|&dim| left.dims[dim]).collect();
    let dims = [batch, free(left, 0), free(right, 1)].concat();
    Ok(vec![tensor(element(op, left, right)?, dims)])
}

/// Checks that dimensions of the operands, in the order of the lists, have the same sizes.
fn check_pairs(lists: [List<'_>; 2], left: &RankedType, right: &RankedType) -> Check {
    lists[1].check_count(lists[0].items.len())?;
    for (&of_left, &of_right) in lists[0].items.iter().zip(lists[1].items) {
        ensure!(
            left.dims[of_left] == right.dims[of_right],
            "dimension {of_left} of {left} and {of_right} of {right} differ; `{}` and `{}` must \
             have dimensions of the same sizes",
            lists[0].name,
            lists[1].name
        );
    }
    Ok(())
}

pub(super) fn convolution(op: &Typed<'_>, conv: &ConvolutionAttributes) -> Check<Vec<Type>> {
    let [x, kernel] = op.tensors()?;
    ensure!(
        x.rank() == kernel.rank() && x.rank() >= 2,
        "the operands are {x} and {kernel}; they must have one rank of at least 2"
    );
    check_lists(conv, x.rank())?;
    let batch = x.dims[conv.input.batch];
    let outputs = kernel.dims[conv.kernel.batch];
    check_groups(conv, x, kernel)?;
    let mut dims = vec![0; x.rank()];
    dims[conv.output.batch] = batch / conv.batch_groups;
    dims[conv.output.feature] = outputs;
    for (dim, &of_output) in conv.output.spatial.iter().enumerate() {
        let window = Window {
            size: x.dims[conv.input.spatial[dim]],
            base_dilation: conv.input_dilation[dim],
            padding: conv.padding[dim],
            window: kernel.dims[conv.kernel.spatial[dim]],
            window_dilation: conv.kernel_dilation[dim],
            stride: conv.strides[dim],
        };
        dims[of_output] = window.positions()?;
    }
    Ok(vec![tensor(element(op, x, kernel)?, dims)])
}

/// Checks the lists of attributes for operands of rank `rank`.
fn check_lists(conv: &ConvolutionAttributes, rank: usize) -> Check {
    let spatial = rank - 2;
    for (of, dims) in [
        (
            ["input_spatial_dimensions", "input_dimensions"],
            &conv.input,
        ),
        (
            ["kernel_spatial_dimensions", "kernel_dimensions"],
            &conv.kernel,
        ),
        (
            ["output_spatial_dimensions", "output_dimensions"],
            &conv.output,
        ),
    ] {
        let ConvolutionDims {
            batch,
            feature,
            spatial: of_space,
        } = dims;
        list(of[0], of_space).check_count(spatial)?;
        let all = [&[*batch, *feature], &**of_space].concat();
        list(of[1], &all).check_dims(rank)?;
    }
    for (name, items) in [
        ("window_strides", &conv.strides),
        ("lhs_dilation", &conv.input_dilation),
        ("rhs_dilation", &conv.kernel_dilation),
    ] {
        list(name, items).check_count(spatial)?;
        list(name, items).check_positive()?;
    }
    check_count("padding", conv.padding.len(), spatial)?;
    check_count("window_reversal", conv.reversal.len(), spatial)
}

/// Checks that features and batches are multiples of the numbers of groups.
fn check_groups(conv: &ConvolutionAttributes, x: &RankedType, kernel: &RankedType) -> Check {
    let (features, batches) = (conv.feature_groups, conv.batch_groups);
    ensure!(
        features >= 1 && batches >= 1 && (features == 1 || batches == 1),
        "`feature_group_count` is {features} and `batch_group_count` {batches}; one must be 1 and \
         the other at least 1"
    );
    let input_features = x.dims[conv.input.feature];
    let outputs = kernel.dims[conv.kernel.batch];
    for (what, size, groups) in [
        ("batch of the input", x.dims[conv.input.batch], batches),
        ("feature of the input", input_features, features),
        ("output feature of the kernel", outputs, batches),
        ("output feature of the kernel", outputs, features),
    ] {
        ensure!(
            size.is_multiple_of(groups),
            "the {what} is {size}; it must be a multiple of the number of groups, {groups}"
        );
    }
    let needed = input_features / features;
    ensure!(
        kernel.dims[conv.kernel.feature] == needed,
        "the input feature of the kernel {kernel} is {}; it must be {needed}, the features of {x} \
         in each of {features} groups",
        kernel.dims[conv.kernel.feature]
    );
    Ok(())
}
