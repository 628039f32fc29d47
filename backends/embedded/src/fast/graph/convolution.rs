//! Convolutions: as products of matrices of patches, or by the kernel that has groups, padding and
//! dilated inputs.

use halite_kernels::{ConvDim, ConvGeometry, Convolution};
use halite_stablehlo::{ConvolutionAttributes, ElementType, OpKind, RankedType};

use super::{
    super::{
        contract::{self, padded_input},
        direct::convolution::{Convolve, Pass},
        place::Place,
    },
    Kind,
    build::Builder,
};

impl Builder<'_> {
    /// The result of a convolution. `None` if it has no kernel.
    pub(super) fn convolution(
        &mut self,
        attributes: &ConvolutionAttributes,
        operands: [&Place; 2],
        ty: &RankedType,
    ) -> Option<Place> {
        let [x, kernel] = self.contracted(operands, ty)?;
        let wide = RankedType::new(x.element, &ty.dims[..]);
        let result = match self.direct_convolution(attributes, [&x, &kernel], &wide) {
            Some(result) => result,
            None => self.product_of_patches(attributes, [&x, &kernel], &wide)?,
        };
        Some(self.converted(&result, ty.element))
    }

    fn product_of_patches(
        &mut self,
        attributes: &ConvolutionAttributes,
        operands: [&Place; 2],
        ty: &RankedType,
    ) -> Option<Place> {
        let [x, kernel] = operands;
        let x = padded_input(x, attributes, ty.elements())?;
        let x = self.without_gaps(&x);
        let (product, order) = contract::convolution(&x, kernel, attributes, ty)?;
        let groups = attributes.feature_groups * attributes.batch_groups;
        let mut permuted: Vec<_> = order.iter().map(|&dim| ty.dims[dim]).collect();
        let result_dims = permuted.clone();
        let operands = vec![x, kernel.clone()];
        if groups == 1 {
            let permuted = RankedType::new(ty.element, permuted);
            let result = self.node(Kind::Product(Box::new(product)), operands, &permuted);
            return Some(in_order(result, &order));
        }
        // The groups come first, and belong before the features of each.
        let features = permuted.pop()?;
        permuted.push(features / groups);
        permuted.insert(0, groups);
        let of_product = RankedType::new(ty.element, permuted.clone());
        let result = self.node(Kind::Product(Box::new(product)), operands, &of_product);
        let rank = permuted.len();
        let mut permutation: Vec<_> = (1..rank).collect();
        permutation.insert(rank - 2, 0);
        let moved: Vec<_> = permutation.iter().map(|&dim| permuted[dim]).collect();
        let moved = RankedType::new(ty.element, moved);
        let result = Place::moved(&result, &OpKind::Transpose { permutation }, &moved, None)?;
        let result = self.whole(&result);
        let dims = RankedType::new(ty.element, result_dims);
        let result = Place::moved(&result, &OpKind::Reshape, &dims, None)?;
        Some(in_order(result, &order))
    }

    /// The result of a convolution in groups, or of a dilated or padded input, of which it needs no
    /// copy. `None` if it is none of these, or its sizes or types have no kernel.
    fn direct_convolution(
        &mut self,
        attributes: &ConvolutionAttributes,
        operands: [&Place; 2],
        ty: &RankedType,
    ) -> Option<Place> {
        let [x, kernel] = operands;
        let ConvolutionAttributes {
            input,
            kernel: of_kernel,
            output,
            feature_groups,
            batch_groups,
            ..
        } = attributes;
        let groups = feature_groups * batch_groups;
        let is_dilated = attributes
            .input_dilation
            .iter()
            .any(|&dilation| dilation > 1);
        let is_padded = attributes.padding.iter().any(|&sizes| sizes != (0, 0));
        let is_empty = [x.elements(), kernel.elements(), ty.elements()].contains(&0);
        let is_plain = groups == 1 && !is_dilated && !is_padded;
        if is_plain || is_empty || ty.element != ElementType::F32 {
            return None;
        }
        // In a kernel gradient, the batch is the features of the forward pass, which are neighbors.
        let [of_batch, of_features] =
            [input.batch, input.feature].map(|dim| x.view.dims[dim].stride);
        let results = output.spatial.iter().map(|&dim| ty.dims[dim]);
        let taps = (of_kernel.spatial.iter()).map(|&dim| kernel.view.dims[dim].size);
        let is_small = results.product::<usize>() <= taps.product::<usize>();
        let has_batch_last = groups == 1 && of_batch == 1 && of_features != 1;
        let pass = match *batch_groups > 1 || has_batch_last && is_small {
            true => Pass::KernelGradient,
            false => Pass::Forward,
        };
        let spatial = (0..input.spatial.len()).map(|number| {
            let size = |place: &Place, dim: usize| place.view.dims[dim].size;
            let result = ty.dims[output.spatial[number]];
            let sizes = [
                size(x, input.spatial[number]),
                size(kernel, of_kernel.spatial[number]),
                result,
            ];
            spatial_dim(attributes, pass, number, sizes)
        });
        let spatial = spatial.collect::<Option<Vec<_>>>()?;
        let [batch, features] = [input.batch, input.feature].map(|dim| x.view.dims[dim].size);
        let outputs = kernel.view.dims[of_kernel.batch].size;
        let (batch, features) = match pass {
            Pass::Forward => (batch, features),
            Pass::KernelGradient => (features, batch),
        };
        let geometry = ConvGeometry {
            batch,
            features,
            outputs,
            groups,
            spatial,
        };
        let convolution = Convolution::new(geometry).ok()?;
        let around =
            |first: &[usize], spatial: &[usize], last: &[usize]| [first, spatial, last].concat();
        let (first, last) = (input.batch, input.feature);
        let (of_x, of_y, of_result) = match pass {
            Pass::Forward => (
                around(&[first], &input.spatial, &[last]),
                around(
                    &[],
                    &of_kernel.spatial,
                    &[of_kernel.feature, of_kernel.batch],
                ),
                around(&[output.batch], &output.spatial, &[output.feature]),
            ),
            Pass::KernelGradient => (
                around(&[last], &input.spatial, &[first]),
                around(&[of_kernel.feature], &of_kernel.spatial, &[of_kernel.batch]),
                around(&[], &output.spatial, &[output.batch, output.feature]),
            ),
        };
        let reversed = (of_kernel.spatial.iter().enumerate())
            .filter(|&(number, _)| attributes.reversal.get(number) == Some(&true));
        let dims = reversed.map(|(_, &dim)| dim).collect();
        let kernel = Place::moved(kernel, &OpKind::Reverse { dims }, &kernel.ty(), None)?;
        let operands = [permuted(x, of_x)?, permuted(&kernel, of_y)?];
        let dims: Vec<_> = of_result.iter().map(|&dim| ty.dims[dim]).collect();
        let of_kernel = RankedType::new(ty.element, dims);
        let result = self.direct(Convolve { convolution, pass }, &operands, &of_kernel);
        Some(in_order(result, &of_result))
    }
}

/// A spatial dimension of the kernel's geometry, by the sizes of input, kernel and result.
fn spatial_dim(
    attributes: &ConvolutionAttributes,
    pass: Pass,
    number: usize,
    sizes: [usize; 3],
) -> Option<ConvDim> {
    let [input, kernel, result] = sizes;
    let (stride, dilation) = (
        attributes.strides[number],
        attributes.kernel_dilation[number],
    );
    let (low, high) = attributes.padding[number];
    let dim = ConvDim {
        input,
        kernel,
        input_dilation: attributes.input_dilation[number],
        stride,
        dilation,
        low: isize::try_from(low).ok()?,
        high: isize::try_from(high).ok()?,
    };
    if pass == Pass::Forward {
        return Some(dim);
    }
    // Windows are where the gradient of the result has elements, and these are the steps of the
    // kernel. What they do not reach behind the input is cut off.
    let of = |size: usize, step: usize| (size as i128 - 1) * step as i128;
    let read = of(kernel, dilation) + of(result, stride) + 1;
    let high = read - (of(input, dim.input_dilation) + 1) - i128::from(low);
    Some(ConvDim {
        kernel: result,
        stride: dilation,
        dilation: stride,
        high: isize::try_from(high).ok()?,
        ..dim
    })
}

/// A view with the dimensions in another order.
fn permuted(place: &Place, permutation: Vec<usize>) -> Option<Place> {
    let dims = place.ty().dims;
    let moved: Vec<_> = permutation.iter().map(|&dim| dims[dim]).collect();
    let ty = RankedType::new(place.element, moved);
    Place::moved(place, &OpKind::Transpose { permutation }, &ty, None)
}

/// The value whose dimensions a result has in this order.
fn in_order(mut result: Place, order: &[usize]) -> Place {
    let dims = result.view.dims.clone();
    for (&dim, of) in order.iter().zip(dims) {
        result.view.dims[dim] = of;
    }
    result
}
