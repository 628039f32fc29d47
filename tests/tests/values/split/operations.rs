//! The operations that programs are made of. Each takes a tensor of floats, or is left out if it does
//! not apply to it.

use halite_core::{DType, MeshShape, TensorType, tree::Leaf};
use halite_ir::{DotAttributes, Extreme, Reduction, Remat, WindowAttributes};
use halite_nn::{
    ConvOptions, Dropout, Mask, Padding, Tensor, Trace, attention, attention_in_blocks, rng,
};
use halite_tests::random::Random;

use crate::split::{
    by_hand::by_hand,
    control::{control, numbers},
};

/// A result and what it is called.
pub(crate) type Drawn<'t> = Option<(String, Tensor<'t>)>;
/// An operation on a tensor; the slice has all earlier ones.
type Operation = for<'t> fn(&mut Random, &'t Trace, Tensor<'t>, &[Tensor<'t>]) -> Drawn<'t>;

/// By kind. Those that partitioners treat as windows are there several times.
const OPERATIONS: [Operation; 35] = [
    pad,
    pad,
    pad,
    slice,
    cumulative,
    cumulative,
    pool,
    pool,
    window,
    convolution,
    convolution,
    convolution,
    convolution,
    concat,
    reverse,
    roll,
    reduce,
    arg_reduce,
    softmax,
    sort,
    top_k,
    take,
    scatter,
    dynamic,
    product,
    batched,
    batched,
    reshape,
    transpose,
    elementwise,
    triangle,
    body,
    control,
    control,
    numbers,
];

/// Most elements of a result.
const MOST_ELEMENTS: usize = 3000;

/// An operation on one of `pool`, most likely an input or the last.
pub(crate) fn draw<'t>(
    random: &mut Random,
    cx: &'t Trace,
    pool: &[Tensor<'t>],
    inputs: usize,
    devices: (&MeshShape, bool),
) -> Drawn<'t> {
    let index = match random.below(3) {
        0 => random.below(inputs),
        1 => pool.len() - 1,
        _ => random.below(pool.len()),
    };
    let (name, result) = match random.percent(5) {
        true => by_hand(random, cx, pool[index], devices)?,
        false => random.pick(&OPERATIONS)(random, cx, pool[index], pool)?,
    };
    let small = !result.is_error() && result.ty().elements() <= MOST_ELEMENTS;
    (small && result.ty().elements() > 0).then(|| (format!("{name} of %{index}"), result))
}

fn value(random: &mut Random) -> f64 {
    *random.pick(&[0.0, 0.0, 1.0, 5.0, -3.0])
}

fn dim(random: &mut Random, x: Tensor<'_>) -> Option<usize> {
    (x.rank() > 0).then(|| random.below(x.rank()))
}

fn pad<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let along = dim(random, x)?;
    let value = value(random);
    let (mut low, mut high, mut gaps) = (vec![0; x.rank()], vec![0; x.rank()], vec![0; x.rank()]);
    (low[along], high[along]) =
        *random.pick(&[(1, -1), (1, 0), (1, 1), (-1, 2), (2, -1), (-1, -1)]);
    gaps[along] = *random.pick(&[0, 0, 0, 1]);
    let name = format!("pad({value}, {low:?}, {high:?}, {gaps:?})");
    (x.dims()[along] > 2).then(|| (name, x.pad_interior(value, low, high, gaps)))
}

fn slice<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let along = dim(random, x)?;
    let size = x.dims()[along];
    let start = random.below(size);
    let limit = start + 1 + random.below(size - start);
    Some((
        format!("slice({along}, {start}..{limit})"),
        x.slice_dim(along, start..limit),
    ))
}

fn cumulative<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let kind = random.below(5);
    let result = match kind {
        0 => x.cumsum(dim),
        1 => x.cumprod(dim),
        2 => x.cummax(dim),
        3 => x.cummin(dim),
        _ => x.cumlogsumexp(dim),
    };
    let name = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"][kind];
    Some((format!("{name}({dim})"), result))
}

fn padding(random: &mut Random, spatial: usize) -> Padding {
    match random.below(3) {
        0 => Padding::Valid,
        1 => Padding::Same,
        _ => Padding::Explicit(
            (0..spatial)
                .map(|_| *random.pick(&[(1, 0), (1, 1), (0, 2)]))
                .collect(),
        ),
    }
}

fn pool<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let spatial = x.rank().checked_sub(2).filter(|&count| count > 0)?;
    let mut each = || -> Vec<usize> { (0..spatial).map(|_| *random.pick(&[1, 2, 2, 3])).collect() };
    let (sizes, strides) = (each(), each());
    let padding = padding(random, spatial);
    let name = format!("({sizes:?}, {strides:?}, {padding:?})");
    Some(match random.percent(50) {
        true => (
            format!("max_pool{name}"),
            x.max_pool(sizes, strides, padding),
        ),
        false => (
            format!("avg_pool{name}"),
            x.avg_pool(sizes, strides, padding),
        ),
    })
}

fn window<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let along = dim(random, x)?;
    let ones = vec![1; x.rank()];
    let mut window = WindowAttributes {
        sizes: ones.clone(),
        strides: ones.clone(),
        base_dilations: ones.clone(),
        window_dilations: ones,
        padding: vec![(0, 0); x.rank()],
    };
    window.sizes[along] = *random.pick(&[1, 2, 3]);
    window.strides[along] = *random.pick(&[1, 1, 2]);
    window.window_dilations[along] = *random.pick(&[1, 1, 2]);
    window.base_dilations[along] = *random.pick(&[1, 1, 2]);
    window.padding[along] = *random.pick(&[(0, 0), (1, 0), (0, 1), (1, 1)]);
    let name = format!("window sum({window:?})");
    Some((name, x.reduce_window(Reduction::Sum, window)))
}

/// With a kernel that is a part of another tensor, so that it may be sharded, or a constant.
fn convolution<'t>(
    random: &mut Random,
    cx: &'t Trace,
    x: Tensor<'t>,
    pool: &[Tensor<'t>],
) -> Drawn<'t> {
    let spatial = x.rank().checked_sub(2).filter(|&count| count > 0)?;
    let mut each =
        |of: &[usize]| -> Vec<usize> { (0..spatial).map(|_| *random.pick(of)).collect() };
    let (sizes, strides) = (each(&[1, 2, 3]), each(&[1, 1, 2]));
    let (input_dilation, kernel_dilation) = (each(&[1, 1, 1, 2]), each(&[1, 1, 2]));
    let features = x.dims()[spatial + 1];
    let groups = if features.is_multiple_of(2) {
        *random.pick(&[1, 1, 1, 2])
    } else {
        1
    };
    let outputs = groups * *random.pick(&[1, 2, 3]);
    let dims = [&sizes[..], &[features / groups, outputs]].concat();
    let count: usize = dims.iter().product();
    let source = *random.pick(pool);
    let kernel = match source.ty().elements() >= count && random.percent(60) {
        true => source.flatten().slice_dim(0, ..count).tanh(),
        false => cx.iota(&TensorType::new(x.dtype(), [count]), 0).sin(),
    };
    let options = ConvOptions {
        strides,
        padding: padding(random, spatial),
        input_dilation,
        kernel_dilation,
        groups,
    };
    let name = format!("conv({dims:?}, {options:?})");
    Some((name, x.conv(kernel.reshape(dims), &options)))
}

fn concat<'t>(random: &mut Random, cx: &'t Trace, x: Tensor<'t>, pool: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let alike: Vec<Tensor<'t>> = (pool.iter().copied())
        .filter(|other| other.dims() == x.dims())
        .collect();
    let other = *random.pick(&alike);
    Some((
        format!("concat({dim})"),
        cx.concat(&[x, other.tanh(), x], dim),
    ))
}

fn reverse<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    Some((format!("reverse({dim})"), x.reverse([dim])))
}

fn roll<'t>(random: &mut Random, cx: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let by = random.below(x.dims()[dim]);
    let parts = [x.slice_dim(dim, by..), x.slice_dim(dim, ..by)];
    Some((
        format!("roll({dim}, {by})"),
        cx.concat(&parts[..if by == 0 { 1 } else { 2 }], dim),
    ))
}

fn reduce<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let kind = random.below(6);
    let result = match kind {
        0 => x.sum_keep([dim]),
        1 => x.mean([dim]),
        2 => x.max_keep([dim]),
        3 => x.var([dim]),
        4 => x.logsumexp([dim]),
        _ => x.tanh().prod([dim]),
    };
    let name = ["sum", "mean", "max", "var", "logsumexp", "prod"][kind];
    Some((format!("{name}({dim})"), result))
}

fn arg_reduce<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let (value, place) = x.arg_reduce(*random.pick(&[Extreme::Max, Extreme::Min]), dim);
    Some((
        format!("arg_reduce({dim})"),
        value + place.convert(x.dtype()),
    ))
}

fn softmax<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    Some(match random.percent(50) {
        true => (format!("softmax({dim})"), x.softmax(dim)),
        false => (format!("log_softmax({dim})"), x.log_softmax(dim)),
    })
}

fn sort<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let descending = random.percent(50);
    let (sorted, _) = x.sort_with_indices(dim, descending);
    Some((format!("sort({dim}, {descending})"), sorted))
}

fn top_k<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let count = 1 + random.below(x.dims()[dim]);
    Some((format!("top_k({count}, {dim})"), x.top_k(count, dim).0))
}

/// Places along a dimension: every second one, from the last.
fn places<'t>(cx: &'t Trace, size: usize) -> Tensor<'t> {
    cx.arange(size.div_ceil(2), DType::S32) * -2.0 + (size - 1) as f64
}

fn take<'t>(random: &mut Random, cx: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    // Some places are out of range, and count as the nearest in range.
    let by = *random.pick(&[1.0, 1.0, 3.0]);
    let places = places(cx, x.dims()[dim]) * by - 1.0;
    Some((format!("take({dim}, {by})"), x.take(places, dim)))
}

fn scatter<'t>(random: &mut Random, cx: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let places = places(cx, x.dims()[dim]);
    let updates = x.slice_dim(dim, ..places.dims()[0]).sin();
    Some(match random.percent(50) {
        true => (
            format!("scatter_add({dim})"),
            x.scatter_add(places, updates, dim),
        ),
        false => (
            format!("scatter_set({dim})"),
            x.scatter_set(places, updates, dim),
        ),
    })
}

/// A slice at a computed place, or an update there.
fn dynamic<'t>(random: &mut Random, cx: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let mut sizes = x.dims();
    sizes[dim] = 1 + random.below(sizes[dim]);
    let starts: Vec<Tensor<'t>> = (0..x.rank())
        .map(|at| {
            if at == dim {
                x.sum_all().convert(DType::S32) + 1.0
            } else {
                cx.scalar(0.0, DType::S32)
            }
        })
        .collect();
    let part = x.dynamic_slice(&starts, &sizes);
    Some(match random.percent(50) {
        true => (format!("dynamic_slice({sizes:?})"), part),
        false => {
            let zeros = vec![cx.scalar(0.0, DType::S32); x.rank()];
            let updated = x.dynamic_update_slice(part.sin(), &zeros);
            (format!("dynamic_update_slice({sizes:?})"), updated)
        }
    })
}

/// A product of this with itself or another tensor along dimensions of one size.
fn product<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, pool: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let other = *random.pick(pool);
    let size = x.dims()[dim];
    let along = other.dims().into_iter().position(|other| other == size)?;
    let result = (x * (1.0 / size as f64)).tensordot(other, &[(dim, along)]);
    Some((
        format!("tensordot({dim}, {along}) with {:?}", other.dims()),
        result,
    ))
}

/// Products of batches of matrices: of one tensor's parts along its first dimensions.
fn batched<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, pool: &[Tensor<'t>]) -> Drawn<'t> {
    let alike: Vec<Tensor<'t>> = (pool.iter().copied())
        .filter(|other| other.dims() == x.dims())
        .collect();
    let (other, rank) = (random.pick(&alike).sin(), x.rank());
    let summed = rank.checked_sub(1).filter(|&last| last > 0)?;
    let scaled = x * (1.0 / x.dims()[summed] as f64);
    Some(match random.below(3) {
        0 if rank > 2 => {
            let transposed = other.swap_dims(rank - 2, rank - 1);
            ("matmul".to_owned(), scaled.matmul(transposed))
        }
        kind => {
            let batches: Vec<usize> = (0..if kind == 1 { 1 } else { summed }).collect();
            let dot = DotAttributes {
                lhs_batching: batches.clone(),
                rhs_batching: batches.clone(),
                lhs_contracting: vec![summed],
                rhs_contracting: vec![summed],
                ..DotAttributes::default()
            };
            (
                format!("dot_general, batches {batches:?}"),
                scaled.dot_general(other, dot, x.dtype()),
            )
        }
    })
}

fn reshape<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let mut dims = x.dims();
    if random.percent(50) && dim + 1 < dims.len() {
        let next = dims.remove(dim + 1);
        dims[dim] *= next;
    } else if dims[dim].is_multiple_of(2) {
        dims[dim] /= 2;
        dims.insert(dim, 2);
    }
    Some((format!("reshape({dims:?})"), x.reshape(dims)))
}

fn transpose<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let (a, b) = (dim(random, x)?, dim(random, x)?);
    Some((format!("swap_dims({a}, {b})"), x.swap_dims(a, b)))
}

fn elementwise<'t>(
    random: &mut Random,
    cx: &'t Trace,
    x: Tensor<'t>,
    pool: &[Tensor<'t>],
) -> Drawn<'t> {
    let alike: Vec<Tensor<'t>> = (pool.iter().copied())
        .filter(|other| other.dims() == x.dims())
        .collect();
    let other = *random.pick(&alike);
    let kind = random.below(5);
    let result = match kind {
        0 => x * other + 0.5,
        1 => x.maximum(other.sin()),
        2 => x.gt(0.1).select(x, other.tanh()),
        3 => {
            x + rng::uniform(
                rng::constant_key(cx, rng::key(3)),
                x.dims(),
                x.dtype(),
                0.0,
                1.0,
            )
        }
        _ => x.clamp(-0.5, 0.5) + x.relu(),
    };
    Some((
        ["mul", "maximum", "select", "noise", "clamp"][kind].to_owned(),
        result,
    ))
}

fn triangle<'t>(random: &mut Random, _: &'t Trace, x: Tensor<'t>, _: &[Tensor<'t>]) -> Drawn<'t> {
    let size = x.dims().last().copied()?;
    if x.rank() == 2 {
        return Some(("tril".to_owned(), x.tril(0)));
    }
    let heads = (x.rank() == 3 && size.is_multiple_of(2)).then(|| {
        let dims = [x.dims()[0], x.dims()[1], 2, size / 2];
        x.reshape(dims)
    })?;
    let mask = if random.percent(50) {
        Mask::Causal
    } else {
        Mask::None
    };
    let (keys, none) = (heads.sin(), Dropout::new(0.0));
    Some(match random.percent(70) {
        true => (
            "attention".to_owned(),
            attention(heads, keys, heads, mask, none),
        ),
        false => (
            "attention_in_blocks".to_owned(),
            attention_in_blocks(heads, keys, heads, mask, none, 3),
        ),
    })
}

/// Windows in the body of a scan, a checkpoint, or a loop over slices.
fn body<'t>(random: &mut Random, cx: &'t Trace, x: Tensor<'t>, pool: &[Tensor<'t>]) -> Drawn<'t> {
    let dim = dim(random, x)?;
    let operation = move |x: Tensor<'t>| x.cummax(dim).tanh() - x.cummin(dim);
    let _ = pool;
    Some(match random.below(3) {
        0 => (
            format!("repeat cummax - cummin({dim})"),
            cx.repeat(2, Leaf(x), |_, Leaf(x)| Leaf(operation(x))).0,
        ),
        1 => (
            format!("checkpoint cummax - cummin({dim})"),
            cx.checkpoint_with(Remat::Full, || Leaf(operation(x))).0,
        ),
        _ => (format!("cummax - cummin({dim})"), operation(x)),
    })
}
