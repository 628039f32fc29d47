use halite_core::HostArray;
use halite_ir::{GatherAttributes, Reduction, ScatterAttributes};
use halite_tests::eval::host;

use crate::gradients::Case;

fn indices(values: &[i32], dims: &[usize]) -> HostArray {
    host(values, dims)
}

#[test]
fn gather_gradients_add_at_clamped_indices() {
    let at = indices(&[2, 0, 2, 9, -4, 1], &[2, 3]);
    Case::noise(&[&[4, 3]])
        .with(std::slice::from_ref(&at))
        .check("take rows", |_, x| vec![x[0].take(x[1], 0)]);
    Case::noise(&[&[2, 3, 2]])
        .with(&[at])
        .check("take in the middle", |_, x| vec![x[0].take(x[1], 1)]);
    let along = indices(&[2, 0, 2, 9, -4, 1, 0, 0], &[2, 4]);
    Case::noise(&[&[2, 3]])
        .with(&[along])
        .check("take along", |_, x| vec![x[0].take_along(x[1], 1)]);
    let one = indices(&[2, 7], &[2, 1]);
    Case::noise(&[&[2, 3]])
        .with(&[one])
        .check("take one along", |_, x| vec![x[0].take_along(x[1], 1)]);
    let one = host::<u8>(&[3, 200], &[2, 1]);
    Case::noise(&[&[2, 600]])
        .with(&[one])
        .check("take one along by u8", |_, x| {
            vec![x[0].take_along(x[1], 1)]
        });
    let small = host::<u8>(&[1, 200], &[2]);
    Case::noise(&[&[300]])
        .with(&[small])
        .check("take by u8", |_, x| vec![x[0].take(x[1], 0)]);
}

#[test]
fn gathered_windows_add_back() {
    let gather = GatherAttributes {
        offset_dims: vec![1, 2],
        collapsed_slice_dims: vec![],
        operand_batching_dims: vec![],
        start_indices_batching_dims: vec![],
        start_index_map: vec![1, 0],
        index_vector_dim: 1,
        slice_sizes: vec![2, 3],
        indices_are_sorted: false,
    };
    let at = indices(&[0, 1, 1, 0, 7, 7], &[3, 2]);
    Case::noise(&[&[4, 5]])
        .with(&[at])
        .check("gather windows", move |_, x| {
            vec![x[0].gather(x[1], gather.clone())]
        });
}

#[test]
fn writes_at_indices_pass_it_to_what_stays() {
    let all_different = indices(&[3, 0, 9], &[3]);
    let with_equals = indices(&[3, 0, 3, -1], &[4]);
    let x = |rows: usize, at: &HostArray| {
        Case::noise(&[&[4, 2], &[rows, 2]]).with(std::slice::from_ref(at))
    };
    x(4, &with_equals).check("scatter add", |_, x| vec![x[0].scatter_add(x[2], x[1], 0)]);
    x(3, &all_different).check("scatter set", |_, x| vec![x[0].scatter_set(x[2], x[1], 0)]);
    x(4, &with_equals).check("scatter set with equal indices", |_, x| {
        vec![x[0].scatter_set(x[2], x[1], 0)]
    });
    let scatter = |unique_indices| ScatterAttributes {
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        input_batching_dims: vec![],
        scatter_indices_batching_dims: vec![],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        unique_indices,
        indices_are_sorted: false,
    };
    for kind in [Reduction::Max, Reduction::Min] {
        let scatter = scatter(false);
        x(4, &with_equals).check(&format!("scatter {kind:?}"), move |_, x| {
            vec![x[0].scatter(x[2], x[1], scatter.clone(), Some(kind))]
        });
    }
    for combine in [None, Some(Reduction::Product)] {
        let scatter = scatter(true);
        x(3, &all_different).check(&format!("unique {combine:?}"), move |_, x| {
            vec![x[0].scatter(x[2], x[1], scatter.clone(), combine)]
        });
    }
}

#[test]
fn skipped_scatter_windows_have_zero_gradients() {
    let scatter = ScatterAttributes {
        update_window_dims: vec![1],
        inserted_window_dims: vec![],
        input_batching_dims: vec![],
        scatter_indices_batching_dims: vec![],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        unique_indices: false,
        indices_are_sorted: false,
    };
    // A window of 2 in 5: the first fits, the others hang over an end.
    let at = indices(&[3, 4, -1], &[3, 1]);
    Case::noise(&[&[5], &[3, 2]])
        .with(&[at])
        .check("windows", move |_, x| {
            vec![x[0].scatter(x[2], x[1], scatter.clone(), Some(Reduction::Sum))]
        });
}

#[test]
fn sorted_elements_go_back_to_where_they_came_from() {
    Case::noise(&[&[3, 5]]).check("sort", |_, x| vec![x[0].sort(1, false)]);
    Case::noise(&[&[3, 5]]).check("sort descending", |_, x| vec![x[0].sort(0, true)]);
    Case::noise(&[&[7], &[7]]).check("sort together", |cx, x| cx.sort_by(x, 0, true));
    Case::noise(&[&[3, 5]]).check("top k", |_, x| vec![x[0].top_k(2, 1).0]);
    Case::noise(&[&[3, 5]]).check("arg reduce", |_, x| {
        vec![x[0].arg_reduce(halite_ir::Extreme::Max, 1).0]
    });
    Case::noise(&[&[3, 5]]).check("arg reduce to the smallest", |_, x| {
        vec![x[0].arg_reduce(halite_ir::Extreme::Min, 0).0]
    });
}
