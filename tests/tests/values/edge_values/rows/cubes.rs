//! Operations on three dimensions: reductions and windows over some of them, sorts, reads and
//! writes at indices, moves and broadcasts.

use halite_core::{DType, Element};
use halite_ir::{
    Extreme, GatherAttributes, Literal, Op, Reduction, ScatterAttributes, WindowAttributes,
};
use halite_nn::{Padding, Tensor, Trace};

use crate::edge_values::table::rows;

rows! {
    "reductions" Cubes ALL [0] ["reduce"] |x| reductions(x[0].dtype())
        .flat_map(|kind| [&[1][..], &[0, 2], &[]].map(|dims| x[0].reduce(kind, dims)))
        .collect::<Vec<_>>();
    "windows" Cubes ALL [0] ["reduce_window"] |x| reductions(x[0].dtype())
        .flat_map(|kind| windows().map(|window| x[0].reduce_window(kind, window)))
        .collect::<Vec<_>>();
    "windows_of_sums_or_extremes" Cubes FLOATS [0] ["reduce_window"] |x| differentiable(x[0]);
    "pools" Cubes FLOATS [0] ["max_pool", "avg_pool"] |x| pools(x[0]);
    "selected_and_scattered" Cubes NUMBERS [] [] |x| selected(x[0]);
    "sorts" Cubes ALL [0] ["sort", "argsort", "top_k", "Trace::sort_by"] |x| sorts(x[0]);
    "extremes" Cubes NUMBERS [0] ["arg_reduce", "max", "min", "argmin"] |x| extremes(x[0]);
    "cumulative" Cubes NUMBERS [0] ["cumsum", "cumprod", "cummax", "cummin"]
        |x| vec![x[0].cumsum(1), x[0].cumprod(1), x[0].cummax(1), x[0].cummin(2)];
    "reads" Cubes ALL [0] ["take", "take_along", "dynamic_slice", "dynamic_update_slice"]
        |x| reads(x[0]);
    "gathers" Cubes ALL [0] ["gather"] |x| gathers(x[0]);
    "writes" Cubes ALL [0] ["scatter_set", "scatter"] |x| writes(x[0]);
    "sums_at_indices" Cubes NUMBERS [0] ["scatter_add"] |x| {
        let index = indices(x[0].trace(), &[2i32, 0, 2], &[3]);
        vec![x[0].scatter_add(index, x[0].slice_dim(1, ..3), 1)]
    };
    "narrow_reductions" Cubes NARROW [0] ["reduce"] |x| {
        let x = (x[0] * 1.3).optimization_barrier();
        // Not by methods, which widen their operand.
        let reduce = |kind, dims: &[usize]| {
            let dims = dims.to_vec();
            x.trace().push_one(Op::Reduce { kind, dims }, &[x])
        };
        let all = [&[1][..], &[0, 2], &[0, 1, 2]];
        all.map(|dims| reduce(Reduction::Sum, dims)).to_vec()
    };
    "rounded" Cubes FLOATS [0] ["scatter"] |x| rounded(x[0]);
    "shapes" Cubes ALL [0] ["transpose", "reverse", "broadcast_in_dim", "pad_interior", "reshape"]
        |x| shapes(x[0]);
    "choices" Cubes NUMBERS [0] ["select", "clamp"] |x| {
        let (x, other) = (x[0], x[0].reverse([0, 1, 2]));
        let [low, high] = [1i32, 2].map(|value| indices(x.trace(), &[value], &[]).convert(x.dtype()));
        let is_large = x.max([0, 1, 2]).gt(1);
        vec![
            is_large.select(x, other),
            x.lt(other).select(x, low),
            x.clamp(low, high),
            x.clamp(other, other + 1),
            x.slice_dim(0, ..1).gt(0).select(x.slice_dim(1, ..1), other),
        ]
    };
    "broadcasts" Cubes NUMBERS [0] ["add", "sub", "mul", "maximum", "minimum"]
        |x| broadcasts(x[0]);
}

/// Those that a type has.
fn reductions(dtype: DType) -> impl Iterator<Item = Reduction> {
    use Reduction::{And, Max, Min, Or, Product, Sum};
    let kinds: &[Reduction] = match dtype {
        DType::Bool => &[And, Or],
        dtype if dtype.is_integer() => &[Sum, Product, Max, Min, And, Or],
        _ => &[Sum, Product, Max, Min],
    };
    kinds.iter().copied()
}

/// Plain, with strides, with dilations, and cumulative.
fn windows() -> [WindowAttributes; 4] {
    let window = |stride, dilation| WindowAttributes {
        sizes: vec![1, 2, 3],
        strides: vec![1, stride, 1],
        base_dilations: vec![1, dilation, 1],
        window_dilations: vec![1, 1, dilation],
        padding: vec![(0, 0), (1, 0), (0, 2)],
    };
    let cumulative = WindowAttributes {
        sizes: vec![1, 6, 1],
        padding: vec![(0, 0), (5, 0), (0, 0)],
        ..window(1, 1)
    };
    [window(1, 1), window(2, 1), window(1, 2), cumulative]
}

/// Windows that have gradients: of any attributes for sums, without dilations for extremes.
fn differentiable(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let [plain, strided, _, cumulative] = windows();
    let wide = WindowAttributes {
        sizes: vec![1, 5, 6],
        strides: vec![1, 2, 1],
        padding: vec![(0, 0), (1, 1), (2, 0)],
        ..plain.clone()
    };
    let sums = windows().map(|window| x.reduce_window(Reduction::Sum, window));
    let extremes = [Reduction::Max, Reduction::Min].map(|kind| {
        [&plain, &strided, &cumulative, &wide].map(|window| x.reduce_window(kind, window.clone()))
    });
    [&sums[..], extremes.as_flattened()].concat()
}

fn pools(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let images = x.reshape([2, 2, 6, x.dims()[2]]);
    vec![
        x.max_pool([2], [2], Padding::Valid),
        x.max_pool([3], [2], Padding::Same),
        x.max_pool([3], [1], Padding::Explicit(vec![(1, 1)])),
        x.avg_pool([2], [1], Padding::Same),
        images.max_pool([2, 2], [], Padding::Valid),
        images.max_pool([2, 3], [1, 2], Padding::Same),
        images.avg_pool([2, 3], [1, 2], Padding::Same),
    ]
}

/// Sums of what goes to the extreme of each window.
fn selected(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let window = |stride, padding| WindowAttributes {
        sizes: vec![1, 3, 1],
        strides: vec![1, stride, 1],
        base_dilations: vec![1; 3],
        window_dilations: vec![1; 3],
        padding: vec![(0, 0), padding, (0, 0)],
    };
    let source = x.slice_dim(1, ..4).reverse([0]);
    let both = [Extreme::Max, Extreme::Min].map(|kind| {
        let op = |window| Op::SelectAndScatter { kind, window };
        let cx = x.trace();
        [
            cx.push_one(op(window(1, (0, 0))), &[x, source]),
            cx.push_one(op(window(2, (0, 1))), &[x, source.slice_dim(1, ..3)]),
        ]
    });
    both.concat()
}

fn sorts(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let count = x.dims()[2].min(2);
    let places = x.trace().iota(&x.ty().with_dtype(DType::S32), 2);
    let together = x.trace().sort_by(&[x, places], 0, true);
    let (largest, at) = (x.top_k(count, 2), x.top_k(2, 1).1);
    vec![
        x.sort(1, false),
        x.sort(2, true),
        x.argsort(1, true),
        largest.0,
        largest.1,
        at,
        together[0],
        together[1],
    ]
}

fn extremes(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let (value, place) = x.arg_reduce(Extreme::Max, 1);
    let (smallest, first) = x.arg_reduce(Extreme::Min, 0);
    vec![
        value,
        place,
        smallest,
        first,
        x.max([0]),
        x.min([0, 1]),
        x.argmin(0),
    ]
}

fn indices<'t, T: Element>(cx: &'t Trace, values: &[T], dims: &[usize]) -> Tensor<'t> {
    let literal = Literal::new(values, dims).expect("a value for each element");
    cx.push_one(Op::Constant(literal), &[])
}

/// At indices of which some are out of range.
fn reads(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let (cx, size) = (x.trace(), x.dims()[2]);
    let at = indices(cx, &[2i32, 0, 2, 9, -4, 1], &[2, 3]);
    let along = indices(cx, &[2u8, 0, 2, 200, 1, 0, 0, 5], &[4, 2, 1]);
    let starts = |values: [i32; 3]| values.map(|value| indices(cx, &[value], &[]));
    let update = x.slice([0..2, 0..3, 0..size.min(2)]);
    vec![
        x.take(at, 0),
        x.take(at, 1),
        x.take_along(along.broadcast_to([4, 2, size]), 1),
        x.dynamic_slice(&starts([1, 2, 3]), [2, 3, size.min(2)]),
        x.dynamic_slice(&starts([-3, 9, 1]), [2, 3, size.min(2)]),
        x.dynamic_update_slice(update, &starts([1, 2, 3])),
        x.dynamic_update_slice(update, &starts([9, -3, 1])),
    ]
}

/// By vectors of two indices, of windows, and of one element for each batch.
fn gathers(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let cx = x.trace();
    let gather = |attributes: GatherAttributes, at| x.gather(at, attributes);
    let plain = GatherAttributes {
        offset_dims: vec![],
        collapsed_slice_dims: vec![],
        operand_batching_dims: vec![],
        start_indices_batching_dims: vec![],
        start_index_map: vec![2, 0],
        index_vector_dim: 1,
        slice_sizes: vec![2, 6, 3],
        indices_are_sorted: false,
    };
    let vectors = GatherAttributes {
        offset_dims: vec![0],
        collapsed_slice_dims: vec![0, 2],
        index_vector_dim: 0,
        slice_sizes: vec![1, 6, 1],
        ..plain.clone()
    };
    let windows = GatherAttributes {
        offset_dims: vec![1, 2, 3],
        ..plain.clone()
    };
    let batches = GatherAttributes {
        collapsed_slice_dims: vec![2],
        operand_batching_dims: vec![0, 1],
        start_indices_batching_dims: vec![0, 1],
        start_index_map: vec![2],
        index_vector_dim: 2,
        slice_sizes: vec![1, 1, 1],
        ..plain
    };
    let labels: Vec<i32> = (0..24).map(|at| at * 7 % 8).collect();
    vec![
        gather(vectors, indices(cx, &[4u32, 0, 2, 1], &[2, 2])),
        gather(windows, indices(cx, &[0i32, 1, 1, 0, 7, 7], &[3, 2])),
        gather(batches, indices(cx, &labels, &[4, 6])),
    ]
}

/// In every way at equal indices, without equal ones, in windows of which some hang over an end,
/// and in batches.
fn writes(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let cx = x.trace();
    let parts = x.slice_dim(1, ..3).reverse([1]);
    let windows = ScatterAttributes {
        update_window_dims: vec![0, 1, 3],
        inserted_window_dims: vec![],
        ..columns(false)
    };
    let batches = ScatterAttributes {
        update_window_dims: vec![2],
        inserted_window_dims: vec![1],
        input_batching_dims: vec![0],
        scatter_indices_batching_dims: vec![0],
        index_vector_dim: 2,
        ..columns(false)
    };
    let equal = indices(cx, &[3i32, 0, 3], &[3]);
    let different = indices(cx, &[3i32, 0, 7], &[3]);
    // Windows of two columns.
    let pairs = indices(cx, &[4i32, 5, -1], &[3, 1]);
    let pieces = x.transpose([1, 0, 2]).slice_dim(0, ..3).unsqueeze(1);
    let pieces = pieces
        .broadcast_to([3, 2, 4, x.dims()[2]])
        .transpose([2, 1, 0, 3]);
    let each = indices(cx, &[1i32, 3, 0, 2, 5, 4, 2, 9], &[4, 2]);
    let mut all = vec![x.scatter_set(different, parts, 1)];
    for kind in reductions(x.dtype()) {
        let scatter = |at, updates, how| x.scatter(at, updates, how, Some(kind));
        // The derivative of a product at equal indices is an error.
        let is_product = kind == Reduction::Product;
        let at = if is_product { different } else { equal };
        all.push(scatter(at, parts, columns(is_product)));
        all.push(scatter(different, parts, columns(true)));
        if kind == Reduction::Sum || x.dtype() == DType::Bool {
            all.push(scatter(pairs, pieces, windows.clone()));
            all.push(scatter(each, x.slice_dim(1, 2..4), batches.clone()));
        }
    }
    all.push(x.scatter(different, parts, columns(true), None));
    // The last one stays.
    all.push(x.scatter_set(equal, parts, 1));
    all
}

/// Sums and products of two numbers that have as many digits as the type, which are rounded once.
fn rounded(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let x = (x * 1.3).optimization_barrier();
    let (parts, different) = (x.slice_dim(1, ..3), indices(x.trace(), &[3i32, 0, 7], &[3]));
    let window = WindowAttributes {
        sizes: vec![1, 2, 1],
        strides: vec![1; 3],
        base_dilations: vec![1; 3],
        window_dilations: vec![1; 3],
        padding: vec![(0, 0); 3],
    };
    let kinds = [Reduction::Sum, Reduction::Product];
    let written = kinds.map(|kind| x.scatter(different, parts, columns(true), Some(kind)));
    // Not by a method, which widens its operand.
    let reduced = kinds.map(|kind| {
        let window = window.clone();
        x.trace().push_one(Op::ReduceWindow { kind, window }, &[x])
    });
    [written, reduced].concat()
}

/// Writes of whole columns.
fn columns(unique_indices: bool) -> ScatterAttributes {
    ScatterAttributes {
        update_window_dims: vec![0, 2],
        inserted_window_dims: vec![1],
        scatter_dims_to_operand_dims: vec![1],
        index_vector_dim: 1,
        unique_indices,
        ..ScatterAttributes::default()
    }
}

fn shapes(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let (cx, size) = (x.trace(), x.dims()[2]);
    // The first element, or 1 without elements.
    let one = indices(cx, &[1i32], &[1]).convert(x.dtype());
    let fill = cx.concat(&[x.flatten(), one], 0).index(0, 0);
    vec![
        x.transpose([2, 0, 1]),
        x.reverse([0, 2]),
        x.reshape([6, 2, size, 2]),
        x.slice_strided([1, 0, 0], [4, 6, size], [2, 3, 1]),
        x.slice([2..2, 0..6, 0..size]),
        x.index(1, 2).broadcast_in_dim([size, 3, 4], [2, 0]),
        x.slice_dim(1, ..1)
            .broadcast_in_dim([size, 5, 4], [2, 1, 0]),
        x.unsqueeze(1).broadcast_to([4, 5, 6, size]),
        cx.concat(&[x, x.slice_dim(1, 2..3), x.slice_dim(1, ..0)], 1),
        x.pad_interior(fill, [-1, 2, 0], [1, -1, 1], [1, 0, 2]),
        x.pad_interior(fill, [-2, 1, 0], [1, -3, 0], [2, 1, 0]),
    ]
}

fn broadcasts(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let (row, column) = (
        x.index(0, 1).index(0, 1),
        x.slice_dim(2, ..x.dims()[2].min(1)),
    );
    let scalar = x.max([0, 1, 2]);
    vec![
        x + row,
        x * column,
        scalar - x,
        column.maximum(row),
        row.minimum(x),
        (2 * x + 1) * (3 - x),
        x * x + x,
    ]
}
