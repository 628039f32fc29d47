//! Contractions.

use halite_stablehlo::{ElementClass, ElementType, RankedType};

use crate::operations::{
    compare::Tolerance,
    draft::Draft,
    family::Family,
    moves::{array, permutation},
    numbers::Range,
};

pub(crate) fn families() -> Vec<Family> {
    vec![
        Family::new("dot_general", |draft, element| {
            dot_general(draft, element, element)
        }),
        Family::new("dot_general", |draft, element| {
            dot_general(draft, element, wider(element)?)
        })
        .variant("to a wider type"),
        Family::new("convolution", convolution),
    ]
}

/// The type that products of this one are often added in.
fn wider(element: ElementType) -> Option<ElementType> {
    match element.class() {
        ElementClass::Signed if element.bits() <= 16 => Some(ElementType::S32),
        ElementClass::Unsigned if element.bits() <= 16 => Some(ElementType::U32),
        ElementClass::Float if element.bits() <= 16 => Some(ElementType::F32),
        _ => None,
    }
}

fn accumulation(element: ElementType, result: ElementType, count: usize) -> (Range, Tolerance) {
    match (element.class(), result.class()) {
        (ElementClass::Float | ElementClass::Complex, _) => {
            let magnitude = 32.0 * count as f64;
            (Range::Small, Tolerance::Absolute(magnitude))
        }
        _ => (Range::Any, Tolerance::Exact),
    }
}

fn dot_general(
    draft: &mut Draft<'_>,
    element: ElementType,
    result: ElementType,
) -> Option<Tolerance> {
    let mut sizes = |most: usize| {
        let count = draft.random.below(most + 1);
        draft.dims_of_rank(count)
    };
    let (batch, contracted, left, right) = (sizes(2), sizes(2), sizes(2), sizes(1));
    let count = contracted.iter().product();
    let (range, tolerance) = accumulation(element, result, count);
    // Dimensions of an operand in random order, with the places of the batching and contracted.
    let mut operand = |free: &[usize]| {
        let all = [&*batch, &*contracted, free].concat();
        let order = permutation(draft, all.len());
        let dims: Vec<_> = order.iter().map(|&at| all[at]).collect();
        let place = |at: usize| {
            order
                .iter()
                .position(|&dim| dim == at)
                .expect("a permutation")
        };
        let batching: Vec<_> = (0..batch.len()).map(place).collect();
        let contracting: Vec<_> = (batch.len()..batch.len() + contracted.len())
            .map(place)
            .collect();
        (draft.input(element, &dims, range), batching, contracting)
    };
    let (x, x_batching, x_contracting) = operand(&left);
    let (y, y_batching, y_contracting) = operand(&right);
    let text = format!(
        "dot_general {{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = \
         {x_batching:?}, rhs_batching_dimensions = {y_batching:?}, lhs_contracting_dimensions = \
         {x_contracting:?}, rhs_contracting_dimensions = {y_contracting:?}>}}"
    );
    let dims = |free: &[usize], contracting: &[usize], batching: &[usize], dims: &[usize]| {
        let is_free = |dim: &usize| !contracting.contains(dim) && !batching.contains(dim);
        debug_assert_eq!((0..dims.len()).filter(is_free).count(), free.len());
        (0..dims.len())
            .filter(is_free)
            .map(|dim| dims[dim])
            .collect::<Vec<_>>()
    };
    let all = [
        batch.clone(),
        dims(&left, &x_contracting, &x_batching, &x.ty.dims),
        dims(&right, &y_contracting, &y_batching, &y.ty.dims),
    ];
    let z = draft.op(text, &[&x, &y], RankedType::new(result, all.concat()));
    draft.output(z);
    Some(tolerance)
}

/// A dimension of the window of a convolution.
struct Spatial {
    input: usize,
    kernel: usize,
    output: usize,
    stride: i64,
    padding: [i64; 2],
    dilations: [i64; 2],
    is_reversed: bool,
}

impl Spatial {
    fn draw(draft: &mut Draft<'_>) -> Self {
        let input = draft.choose(&[0, 1, 2, 3, 4, 5, 7]);
        let kernel = draft.choose(&[1, 1, 2, 3]);
        let stride = draft.choose(&[1, 1, 2, 3]);
        let padding = [
            draft.choose(&[0, 0, 1, 2, -1]),
            draft.choose(&[0, 0, 1, 2, -1]),
        ];
        let dilations = [draft.choose(&[1, 1, 2]), draft.choose(&[1, 1, 2])];
        let dilated = |size: usize, by: i64| match size {
            0 => 0,
            _ => (size as i64 - 1) * by + 1,
        };
        let padded = dilated(input, dilations[0]) + padding.iter().sum::<i64>();
        let reach = dilated(kernel, dilations[1]);
        let output = if padded < reach {
            0
        } else {
            (padded - reach) / stride + 1
        } as usize;
        let is_reversed = draft.random.percent(25);
        Spatial {
            input,
            kernel,
            output,
            stride,
            padding,
            dilations,
            is_reversed,
        }
    }
}

fn convolution(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let rank = draft.choose(&[0, 1, 1, 2, 2, 3]);
    let spatial: Vec<_> = (0..rank).map(|_| Spatial::draw(draft)).collect();
    let (feature_groups, batch_groups) = draft.choose(&[(1, 1), (1, 1), (2, 1), (1, 2)]);
    let batch = batch_groups * draft.choose(&[1, 2, 3]);
    let features = draft.choose(&[1, 2, 3]);
    let outputs = feature_groups * batch_groups * draft.choose(&[1, 2]);
    let count = features * spatial.iter().map(|it| it.kernel).product::<usize>();
    let (range, tolerance) = accumulation(element, element, count);
    // Places of the two other dimensions and the spatial ones, and the sizes in this order.
    let mut laid_out = |others: [usize; 2], size: fn(&Spatial) -> usize| {
        let order = permutation(draft, rank + 2);
        let mut dims = vec![0; rank + 2];
        let all = others.into_iter().chain(spatial.iter().map(size));
        order
            .iter()
            .zip(all)
            .for_each(|(&place, size)| dims[place] = size);
        (order, dims)
    };
    let (x_order, x_dims) = laid_out([batch, features * feature_groups], |it| it.input);
    let (k_order, k_dims) = laid_out([features, outputs], |it| it.kernel);
    let (y_order, y_dims) = laid_out([batch / batch_groups, outputs], |it| it.output);
    let x = draft.input(element, &x_dims, range);
    let kernel = draft.input(element, &k_dims, range);
    let strides: Vec<_> = spatial.iter().map(|it| it.stride).collect();
    let dilations = |at: usize| {
        spatial
            .iter()
            .map(|it| it.dilations[at])
            .collect::<Vec<_>>()
    };
    let padding: Vec<_> = spatial
        .iter()
        .map(|it| format!("{:?}", it.padding))
        .collect();
    let reversal: Vec<_> = spatial.iter().map(|it| it.is_reversed).collect();
    let window = if rank == 0 {
        String::new()
    } else {
        format!(
            ", window_strides = {}, padding = dense<[{}]> : tensor<{rank}x2xi64>, lhs_dilation = \
             {}, rhs_dilation = {}, window_reversal = array<i1: {}>",
            array(&strides),
            padding.join(", "),
            array(&dilations(0)),
            array(&dilations(1)),
            reversal
                .iter()
                .map(bool::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        )
    };
    let text = format!(
        "convolution {{batch_group_count = {batch_groups} : i64, dimension_numbers = \
         #stablehlo.conv<raw input_batch_dimension = {}, input_feature_dimension = {}, \
         input_spatial_dimensions = {:?}, kernel_input_feature_dimension = {}, \
         kernel_output_feature_dimension = {}, kernel_spatial_dimensions = {:?}, \
         output_batch_dimension = {}, output_feature_dimension = {}, output_spatial_dimensions = \
         {:?}>, feature_group_count = {feature_groups} : i64{window}}}",
        x_order[0],
        x_order[1],
        &x_order[2..],
        k_order[0],
        k_order[1],
        &k_order[2..],
        y_order[0],
        y_order[1],
        &y_order[2..],
    );
    let y = draft.op(text, &[&x, &kernel], RankedType::new(element, y_dims));
    draft.output(y);
    Some(tolerance)
}
