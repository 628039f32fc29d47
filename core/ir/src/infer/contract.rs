//! Dot products and convolutions.

use halite_core::{DType, Result, TensorType};

use super::{Infer, is_number, reduce::window_positions};
use crate::{ConvolutionAttributes, ConvolutionDims, DotAttributes};

impl Infer<'_> {
    pub(super) fn dot(self, dot: &DotAttributes, result: DType) -> Result<Vec<TensorType>> {
        let [left, right] = self.take()?;
        self.product_types(left, right, result)?;
        let paired = [
            ("batch", &dot.lhs_batching, &dot.rhs_batching),
            ("contracting", &dot.lhs_contracting, &dot.rhs_contracting),
        ];
        for (what, of_left, of_right) in paired {
            if of_left.len() != of_right.len() {
                return self.fail(format!(
                    "{what} dimensions {of_left:?} of {left} and {of_right:?} of {right} are paired"
                ));
            }
        }
        let used_left = [&dot.lhs_batching[..], &dot.lhs_contracting].concat();
        let used_right = [&dot.rhs_batching[..], &dot.rhs_contracting].concat();
        self.distinct("batch or contracting dimension", &used_left, left)?;
        self.distinct("batch or contracting dimension", &used_right, right)?;
        for (what, of_left, of_right) in paired {
            for (&l, &r) in of_left.iter().zip(of_right) {
                let (in_left, in_right) = (left.dims()[l], right.dims()[r]);
                if in_left != in_right {
                    return self
                        .fail(format!("{what} dimension {l} of {left} is {in_left}, dimension {r} of {right} is {in_right}"));
                }
            }
        }
        let mut dims: Vec<usize> = dot
            .lhs_batching
            .iter()
            .map(|&dim| left.dims()[dim])
            .collect();
        for (ty, used) in [(left, &used_left), (right, &used_right)] {
            dims.extend(
                (0..ty.rank())
                    .filter(|dim| !used.contains(dim))
                    .map(|dim| ty.dims()[dim]),
            );
        }
        Ok(vec![TensorType::new(result, dims)])
    }

    pub(super) fn convolution(
        self,
        conv: &ConvolutionAttributes,
        result: DType,
    ) -> Result<Vec<TensorType>> {
        let [x, kernel] = self.take()?;
        self.product_types(x, kernel, result)?;
        if x.rank() < 2 || x.rank() != kernel.rank() {
            return self.fail(format!(
                "{x} and the kernel {kernel} must have the same rank, 2 or more"
            ));
        }
        for (what, dims) in [
            ("input", &conv.input),
            ("kernel", &conv.kernel),
            ("output", &conv.output),
        ] {
            self.conv_dims(what, dims, x.rank())?;
        }
        self.conv_windows(conv, x)?;
        self.conv_groups(conv, x, kernel)?;
        let mut dims = vec![0; x.rank()];
        dims[conv.output.batch] = x.dims()[conv.input.batch] / conv.batch_groups;
        dims[conv.output.feature] = kernel.dims()[conv.kernel.batch];
        for (i, &dim) in conv.output.spatial.iter().enumerate() {
            dims[dim] = self.conv_positions(conv, x, kernel, i)?;
        }
        Ok(vec![TensorType::new(result, dims)])
    }

    /// Strides, paddings and dilations: one for each spatial dimension, and printable.
    fn conv_windows(self, conv: &ConvolutionAttributes, x: &TensorType) -> Result<()> {
        let spatial = x.rank() - 2;
        let lists = [
            ("strides", conv.strides.len()),
            ("paddings", conv.padding.len()),
            ("input dilations", conv.input_dilation.len()),
            ("kernel dilations", conv.kernel_dilation.len()),
            ("reversals", conv.reversal.len()),
        ];
        if let Some((what, count)) = lists.into_iter().find(|&(_, count)| count != spatial) {
            return self.fail(format!(
                "{count} {what} for {x}, which has {spatial} spatial dimensions"
            ));
        }
        self.positive("strides", &conv.strides)?;
        self.positive("input dilations", &conv.input_dilation)?;
        self.positive("kernel dilations", &conv.kernel_dilation)?;
        let steps = [&conv.strides, &conv.input_dilation, &conv.kernel_dilation];
        for &value in steps.into_iter().flatten() {
            self.printable("stride or dilation", value)?;
        }
        Ok(())
    }

    /// Groups divide the batch and the features.
    fn conv_groups(
        self,
        conv: &ConvolutionAttributes,
        x: &TensorType,
        kernel: &TensorType,
    ) -> Result<()> {
        let (feature_groups, batch_groups) = (conv.feature_groups, conv.batch_groups);
        if feature_groups == 0 || batch_groups == 0 || (feature_groups > 1 && batch_groups > 1) {
            return self.fail(format!(
                "{feature_groups} feature groups and {batch_groups} batch groups; both must be 1 \
                 or more, one of them 1"
            ));
        }
        let in_features = x.dims()[conv.input.feature];
        let kernel_features = kernel.dims()[conv.kernel.feature];
        if !in_features.is_multiple_of(feature_groups)
            || in_features / feature_groups != kernel_features
        {
            return self.fail(format!(
                "{x} has {in_features} features (dimension {}) in {feature_groups} group{}, \
                 the kernel {kernel} takes {kernel_features} (dimension {})",
                conv.input.feature,
                if feature_groups == 1 { "" } else { "s" },
                conv.kernel.feature
            ));
        }
        let out_features = kernel.dims()[conv.kernel.batch];
        if !out_features.is_multiple_of(feature_groups)
            || !out_features.is_multiple_of(batch_groups)
        {
            let groups = feature_groups.max(batch_groups);
            return self.fail(format!(
                "the kernel {kernel} gives {out_features} features (dimension {}), \
                 not a multiple of {groups} groups",
                conv.kernel.batch
            ));
        }
        let batch = x.dims()[conv.input.batch];
        if !batch.is_multiple_of(batch_groups) {
            return self.fail(format!(
                "the batch of {x} is {batch} (dimension {}), \
                 not a multiple of {batch_groups} batch groups",
                conv.input.batch
            ));
        }
        Ok(())
    }

    /// Number of positions of the kernel along spatial dimension `i`.
    fn conv_positions(
        self,
        conv: &ConvolutionAttributes,
        x: &TensorType,
        kernel: &TensorType,
        i: usize,
    ) -> Result<usize> {
        let (of_x, of_kernel) = (conv.input.spatial[i], conv.kernel.spatial[i]);
        let size = kernel.dims()[of_kernel];
        if size == 0 {
            return self.fail(format!("dimension {of_kernel} of the kernel {kernel} is 0"));
        }
        let (low, high) = conv.padding[i];
        let padded =
            dilated(x.dims()[of_x], conv.input_dilation[i]) + i128::from(low) + i128::from(high);
        if padded < 0 {
            return self.fail(format!(
                "dimension {of_x} of {x}, padded by {low} and {high}, would have size {padded}"
            ));
        }
        let window = dilated(size, conv.kernel_dilation[i]);
        let positions = window_positions(padded, window, conv.strides[i]);
        self.size(|| format!("spatial dimension {i}"), positions)
    }

    /// Each of `rank` dimensions has one role.
    fn conv_dims(self, what: &str, dims: &ConvolutionDims, rank: usize) -> Result<()> {
        let mut all = vec![dims.batch, dims.feature];
        all.extend(&dims.spatial);
        all.sort_unstable();
        match all.iter().copied().eq(0..rank) {
            true => Ok(()),
            false => self.fail(format!(
                "the {what}'s dimensions: batch {}, feature {}, spatial {:?}; each of 0 to {} must appear once",
                dims.batch,
                dims.feature,
                dims.spatial,
                rank - 1
            )),
        }
    }

    /// Element types of two factors, and of a sum of products.
    fn product_types(self, left: &TensorType, right: &TensorType, result: DType) -> Result<()> {
        if left.dtype() != right.dtype() {
            return self.fail(format!(
                "{left} and {right} must have the same element type (convert one first)"
            ));
        }
        self.element(left, is_number, "integers and floats")?;
        let from = left.dtype();
        let wider = from == result
            || (from.size() < result.size()
                && (from.is_float() && result.is_float()
                    || from.is_signed_integer() && result.is_signed_integer()
                    || from.is_unsigned_integer() && result.is_unsigned_integer()));
        match wider {
            true => Ok(()),
            false => {
                self.fail(format!("{left} and {right} to a result of {result}; it must be {from} or a wider type of its family"))
            }
        }
    }
}

/// Size of a dimension with `dilation - 1` gaps between elements.
pub(super) fn dilated(size: usize, dilation: usize) -> i128 {
    match size {
        0 => 0,
        size => (size as i128 - 1) * dilation as i128 + 1,
    }
}
