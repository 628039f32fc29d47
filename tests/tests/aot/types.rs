//! Operations of every element type, lowered and compiled for an NVIDIA GPU: none is refused.

use halite_backends::OpenTarget;
use halite_core::{
    CompileOptions, DType, MeshShape, TensorType,
    tree::{Empty, Leaf},
};
use halite_ir::{
    ConvolutionAttributes, ConvolutionDims, DotAttributes, Reduction, ScatterAttributes,
    WindowAttributes,
};
use halite_nn::{Function, ShardedType, Tensor, grad, lower};

use halite_tests::targets::target;

/// An operation on a tensor of three dimensions.
type Rule = for<'t> fn(Tensor<'t>) -> Vec<Tensor<'t>>;

struct Row {
    name: &'static str,
    takes: fn(DType) -> bool,
    rule: Rule,
}

const ANY: fn(DType) -> bool = |_| true;
const NUMBERS: fn(DType) -> bool = |dtype| dtype != DType::Bool;
const INTEGERS: fn(DType) -> bool = DType::is_integer;
const FLOATS: fn(DType) -> bool = DType::is_float;

macro_rules! rows {
    ($($name:literal $takes:ident $rule:expr;)*) => {
        &[$(Row { name: $name, takes: $takes, rule: $rule }),*]
    };
}

const ROWS: &[Row] = rows! {
    "products" NUMBERS |x| {
        let y = x.transpose([0, 2, 1]);
        let (long, short) = (x.reshape([x.ty().elements()]), x.sum([0, 2]));
        vec![x.matmul(y), long.tensordot(long, &[(0, 0)]), short.unsqueeze(0).matmul(short.unsqueeze(1))]
    };
    "products to wider types" NUMBERS |x| wider(x.dtype()).map(|result| {
        x.dot_general(x, DotAttributes {
            lhs_batching: vec![0],
            rhs_batching: vec![0],
            lhs_contracting: vec![2],
            rhs_contracting: vec![2],
            ..DotAttributes::default()
        }, result)
    }).collect();
    "convolutions of sequences" NUMBERS |x| convolutions(x, 1);
    "convolutions of images" NUMBERS |x| convolutions(x, 2);
    "convolutions of few places" FLOATS |x| few_places(x);
    "convolutions of volumes" NUMBERS |x| convolutions(x, 3);
    "gradients of convolutions" FLOATS |x| (1..=2).flat_map(|spatial| gradients(x, spatial)).collect();
    "reductions" ANY |x| reductions(x.dtype()).map(|kind| x.reduce(kind, [1])).collect();
    "windows" ANY |x| reductions(x.dtype()).flat_map(|kind| {
        [windows(1, 1), windows(2, 1), windows(1, 2)].map(|window| x.reduce_window(kind, window))
    }).collect();
    "pools" FLOATS |x| {
        let pools = vec![
            x.max_pool([2], [2], halite_nn::Padding::Valid),
            x.avg_pool([2], [1], halite_nn::Padding::Same),
        ];
        let slopes = pools.iter().map(|y| grad(y.sum_all(), &Leaf(x)).0);
        let slopes: Vec<_> = slopes.collect();
        [pools, slopes].concat()
    };
    "sorts" ANY |x| vec![
        x.sort(1, false),
        x.sort(2, true),
        x.argsort(1, true),
        x.top_k(x.dims()[2].min(2), 2).0,
        x.top_k(x.dims()[1].min(2), 1).1,
    ];
    "extremes" NUMBERS |x| vec![x.argmax(1), x.max([0]), x.min([0, 1, 2])];
    "cumulative" ANY |x| vec![x.cumprod(1), x.cummax(1), x.cummin(2)];
    "cumulative sums" NUMBERS |x| vec![x.cumsum(1)];
    "reads" ANY |x| {
        let cx = x.trace();
        let index = cx.arange(3, DType::S32);
        let start = cx.scalar(1.0, DType::F32).convert(DType::S32);
        vec![
            x.take(index, 1),
            x.dynamic_slice(&[start, start, start], x.dims().iter().map(|&size| size.min(2)).collect::<Vec<_>>()),
            x.dynamic_update_slice(x.slice_dim(1, ..1), &[start, start, start]),
        ]
    };
    "writes" ANY |x| writes(x);
    "shapes" ANY |x| vec![
        x.transpose([2, 0, 1]),
        x.reverse([0, 2]),
        x.unsqueeze(1).broadcast_to([x.dims()[0], 5, x.dims()[1], x.dims()[2]]),
        x.trace().concat(&[x, x], 1),
        x.eq(x),
        x.eq(x).select(x, x),
    ];
    "conversions" ANY |x| DType::computed().map(|dtype| x.convert(dtype)).collect();
    "arithmetic of integers" INTEGERS |x| vec![x / 3, x % 3, x.pow(x), x.shift_left(x), x.shift_right_logical(x)];
    "gradients of writes" FLOATS |x| {
        let cx = x.trace();
        let index = cx.arange(3, DType::S32) % 2;
        let parts = x.slice_dim(1, ..3);
        let y = [x.scatter_set(index, parts, 1), x.scatter_add(index, parts, 1), x.sort(1, false)];
        y.map(|y| grad((y * y).sum_all(), &Leaf(x)).0).to_vec()
    };
    "functions" FLOATS |x| vec![
        x.exp(), x.log(), x.sin(), x.cos(), x.tanh(), x.sqrt(), x.rsqrt(), x.cbrt(), x.erf(),
        x.atan2(x), x.pow(x), x.sigmoid(), x.gelu(), x.softmax(1), x.erf_inv(), x.round(), x.floor(),
    ];
};

/// The type, and wider ones of its family.
fn wider(dtype: DType) -> impl Iterator<Item = DType> {
    let family = |dtype: DType| (dtype.is_float(), dtype.is_signed_integer());
    let from = dtype;
    DType::computed().filter(move |&to| {
        to == from || to != DType::Bool && family(from) == family(to) && from.size() < to.size()
    })
}

fn reductions(dtype: DType) -> impl Iterator<Item = Reduction> {
    use Reduction::{And, Max, Min, Or, Product, Sum};
    let kinds: &[Reduction] = match dtype {
        DType::Bool => &[And, Or],
        dtype if dtype.is_integer() => &[Sum, Product, Max, Min, And, Or],
        _ => &[Sum, Product, Max, Min],
    };
    kinds.iter().copied()
}

fn windows(stride: usize, dilation: usize) -> WindowAttributes {
    WindowAttributes {
        sizes: vec![1, 2, 3],
        strides: vec![1, stride, 1],
        base_dilations: vec![1, dilation, 1],
        window_dilations: vec![1, 1, dilation],
        padding: vec![(0, 0), (1, 0), (0, 2)],
    }
}

fn writes(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let cx = x.trace();
    let index = cx.arange(3, DType::S32) % 2;
    let parts = x.slice_dim(1, ..3);
    let scatter = |combine, unique_indices| {
        let attributes = ScatterAttributes {
            update_window_dims: vec![0, 2],
            inserted_window_dims: vec![1],
            scatter_dims_to_operand_dims: vec![1],
            index_vector_dim: 1,
            unique_indices,
            ..ScatterAttributes::default()
        };
        x.scatter(index, parts, attributes, combine)
    };
    let ways = reductions(x.dtype()).map(Some).chain([None]);
    ways.flat_map(|way| [scatter(way, false), scatter(way, true)])
        .collect()
}

/// Convolutions of the same elements with this number of spatial dimensions: each variation, in groups
/// of the features, of the batch and in none.
fn convolutions(x: Tensor<'_>, spatial: usize) -> Vec<Tensor<'_>> {
    pairs(x, spatial)
        .into_iter()
        .map(|(x, kernel, conv)| x.conv_general(kernel, conv, x.dtype()))
        .collect()
}

/// Gradients of these convolutions.
fn gradients(x: Tensor<'_>, spatial: usize) -> Vec<Tensor<'_>> {
    pairs(x, spatial)
        .into_iter()
        .flat_map(both_gradients)
        .collect()
}

fn both_gradients<'t>(
    (x, kernel, conv): (Tensor<'t>, Tensor<'t>, ConvolutionAttributes),
) -> [Tensor<'t>; 2] {
    let y = x.conv_general(kernel, conv, x.dtype());
    grad((y * y).sum_all(), &[x, kernel].map(Leaf)).map(|gradient| gradient.0)
}

/// Stride, dilations of the input and of the kernel, and whether none, all or the first of the spatial
/// dimensions are reversed.
const VARIATIONS: [[usize; 4]; 7] = [
    [1, 1, 1, 0],
    [2, 2, 2, 1],
    [2, 1, 1, 0],
    [1, 2, 1, 0],
    [1, 1, 2, 0],
    [1, 1, 1, 1],
    [1, 1, 1, 2],
];

/// Operands of convolutions, made of the elements of `x`; without any if it has none.
fn pairs(x: Tensor<'_>, spatial: usize) -> Vec<(Tensor<'_>, Tensor<'_>, ConvolutionAttributes)> {
    let batch = if x.ty().elements() == 0 { 0 } else { 4 };
    let variations = if spatial == 3 {
        &VARIATIONS[..2]
    } else {
        &VARIATIONS
    };
    let groups = [(1, 1), (2, 1), (1, 2), (4, 1), (1, 4)];
    let each = variations
        .iter()
        .flat_map(|variation| groups.map(|groups| (variation, groups)));
    each.map(|(variation, groups)| {
        let conv = convolution(spatial, *variation, groups);
        let input = filled(x, &[&[batch], &vec![4; spatial][..], &[4]].concat());
        let kernel = filled(x, &[&vec![2; spatial][..], &[4 / groups.0, 4]].concat());
        (input, kernel, conv)
    })
    .collect()
}

/// Convolutions of dilated inputs by kernels of more places, which XLA's CPU compiler ends the process
/// on (decision 0051).
fn few_places(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let sizes = [1, 2, 3]
        .into_iter()
        .flat_map(|size| [(size, 1), (size, 2), (size, 3)]);
    let each = sizes.map(|(size, kernel)| {
        let mut conv = convolution(2, [1, 1, 1, 0], (1, 1));
        (conv.input_dilation, conv.padding) = (vec![1, 2], vec![(1, 0), (0, kernel as i64)]);
        let input = filled(x, &[1, 1, size, 1]);
        input.conv_general(filled(x, &[2, kernel, 1, 1]), conv, x.dtype())
    });
    each.collect()
}

/// The elements of `x`, repeated.
fn filled<'t>(x: Tensor<'t>, dims: &[usize]) -> Tensor<'t> {
    let (count, given) = (dims.iter().product::<usize>(), x.ty().elements());
    if given == 0 {
        return x.trace().full(1.0, &TensorType::new(x.dtype(), dims));
    }
    let copies = vec![x.reshape([given]); 1 + count / given];
    x.trace()
        .concat(&copies, 0)
        .slice_dim(0, ..count)
        .reshape(dims)
}

fn convolution(
    spatial: usize,
    [stride, of_input, of_kernel, reversal]: [usize; 4],
    (feature_groups, batch_groups): (usize, usize),
) -> ConvolutionAttributes {
    let dims = |batch, feature, first| ConvolutionDims {
        batch,
        feature,
        spatial: (first..first + spatial).collect(),
    };
    ConvolutionAttributes {
        input: dims(0, spatial + 1, 1),
        kernel: dims(spatial + 1, spatial, 0),
        output: dims(0, spatial + 1, 1),
        strides: vec![stride; spatial],
        padding: vec![(1, 0); spatial],
        input_dilation: vec![of_input; spatial],
        kernel_dilation: vec![of_kernel; spatial],
        reversal: (0..spatial)
            .map(|i| reversal == 1 || reversal == 2 && i == 0)
            .collect(),
        feature_groups,
        batch_groups,
        precision: Vec::new(),
    }
}

/// Compiles a rule for a tensor of this type.
fn compile(target: &OpenTarget, rule: Rule, ty: &TensorType) -> Result<(), String> {
    type Many = Vec<Leaf<()>>;
    let function = Function::<_, Leaf<()>, Many>::stateless(move |_, Leaf(x)| {
        rule(x).into_iter().map(Leaf).collect()
    });
    let mesh = MeshShape::new([("data", 1)]).unwrap();
    let capabilities = target.target().capabilities().unwrap();
    let inputs = Leaf(ShardedType::replicated(ty.clone()));
    let lowered = lower(&function, &Empty::new(), &inputs, &mesh, &capabilities);
    let lowered = lowered.map_err(|error| format!("is not lowered: {error}"))?;
    let compiled = target.compile(&lowered.program, &CompileOptions::default());
    compiled.map(|_| ()).map_err(|error| {
        let text = error.to_string();
        format!("is refused: {}", &text[..text.len().min(400)])
    })
}

/// The sizes of an operand: some, and none.
const SIZES: [[usize; 3]; 3] = [[4, 6, 8], [0, 6, 8], [4, 6, 0]];

/// Environment variable with the name of the only row.
const ONLY: &str = "HALITE_AOT_ONLY";

/// Compiles the rows for all types, which takes minutes; by default for some.
const ALL: &str = "HALITE_AOT_TYPES";
const BY_DEFAULT: [DType; 3] = [DType::F32, DType::Bf16, DType::U64];

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn cuda_compiles_every_type() {
    let target = target("cuda:h100:1x1").unwrap();
    let only = std::env::var(ONLY).ok();
    let is_wanted = |row: &Row| only.as_deref().is_none_or(|only| only == row.name);
    let mut refused = Vec::new();
    let all = std::env::var_os(ALL).is_some();
    for dtype in DType::computed().filter(|dtype| all || BY_DEFAULT.contains(dtype)) {
        // Sizes of 0 in a float and in an integer.
        let sizes = match dtype {
            DType::F32 | DType::S32 => &SIZES[..],
            _ => &SIZES[..1],
        };
        for row in ROWS
            .iter()
            .filter(|row| (row.takes)(dtype) && is_wanted(row))
        {
            for ty in sizes.iter().map(|dims| TensorType::new(dtype, dims)) {
                let result = compile(&target, row.rule, &ty);
                refused.extend(
                    result
                        .err()
                        .map(|error| format!("{} of {ty} {error}", row.name)),
                );
            }
        }
    }
    assert!(
        refused.is_empty(),
        "{}:\n{}",
        refused.len(),
        refused.join("\n")
    );
}
