//! Operations that move elements by indices known only when they run.

use expect_test::expect;
use halite_ir::{GatherAttributes, Op, Reduction, ScatterAttributes};

use crate::infer::check;

/// Gathers rows of `[6, 4]` by indices `[3, 1]`, with changes.
fn gather(change: fn(&mut GatherAttributes)) -> Op {
    let mut gather = GatherAttributes {
        offset_dims: vec![1],
        collapsed_slice_dims: vec![0],
        operand_batching_dims: vec![],
        start_indices_batching_dims: vec![],
        start_index_map: vec![0],
        index_vector_dim: 1,
        slice_sizes: vec![1, 4],
        indices_are_sorted: false,
    };
    change(&mut gather);
    Op::Gather(gather)
}

/// Writes rows of `[6, 4]` by indices `[3, 1]`.
fn rows() -> ScatterAttributes {
    ScatterAttributes {
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        ..ScatterAttributes::default()
    }
}

/// Adds rows, with changes.
fn scatter(change: fn(&mut ScatterAttributes)) -> Op {
    let mut scatter = rows();
    change(&mut scatter);
    Op::Scatter(scatter, Some(Reduction::Sum))
}

#[test]
fn gather_errors() {
    check(
        [
            (gather(|_| ()), "f32[6,4] f32[3]"),
            (gather(|g| g.index_vector_dim = 2), "f32[6,4] s32[3]"),
            (gather(|g| g.index_vector_dim = 0), "f32[6,4] s32[3]"),
            (gather(|g| g.start_index_map = vec![2]), "f32[6,4] s32[3]"),
            (gather(|g| g.slice_sizes = vec![1]), "f32[6,4] s32[3]"),
            (gather(|g| g.slice_sizes = vec![1, 5]), "f32[6,4] s32[3]"),
            (gather(|g| g.slice_sizes = vec![2, 4]), "f32[6,4] s32[3]"),
            (gather(|g| g.offset_dims = vec![]), "f32[6,4] s32[3]"),
            (gather(|g| g.offset_dims = vec![2]), "f32[6,4] s32[3]"),
            (
                gather(|g| g.collapsed_slice_dims = vec![1, 0]),
                "f32[6,4] s32[3]",
            ),
            (
                gather(|g| g.operand_batching_dims = vec![0]),
                "f32[6,4] s32[3]",
            ),
            (
                gather(|g| g.operand_batching_dims = vec![1]),
                "f32[6,4] s32[3]",
            ),
            (
                gather(|g| {
                    (g.operand_batching_dims, g.start_indices_batching_dims) = (vec![1], vec![0])
                }),
                "f32[6,4] s32[3]",
            ),
            (
                gather(|g| {
                    (g.operand_batching_dims, g.start_indices_batching_dims) = (vec![1], vec![1])
                }),
                "f32[6,4] s32[3,1]",
            ),
        ],
        expect![[r#"
            gather: the indices are f32[3]; they must be integers
            gather: index vector dimension 2 of the indices s32[3]; it must be at most 1
            gather: each index of s32[3] has 3 components, and 1 dimensions [0] of f32[6, 4] are indexed
            gather: indexed dimension 2 of f32[6, 4], whose dimensions are 0 to 1
            gather: 1 slice sizes [1] for f32[6, 4], which has 2 dimensions
            gather: slice size 5 in dimension 1 of f32[6, 4], which has 4
            gather: slice size 2 in dimension 0 of f32[6, 4], which is collapsed; it must be 1
            gather: window dimensions [] are 0, windows of f32[6, 4] have 1 dimensions
            gather: window dimensions [2] must be ascending and below 2
            gather: dropped dimensions [1, 0] of f32[6, 4] must be in ascending order
            gather: dimension 0 of f32[6, 4] is batched, and so is neither dropped nor indexed
            gather: batching dimensions [1] of f32[6, 4] and [] of the indices s32[3] are paired
            gather: batching dimension 1 of f32[6, 4] is 4, dimension 0 of the indices s32[3] is 3
            gather: dimension 1 of the indices s32[3, 1] holds their components, not a batch
        "#]],
    );
}

#[test]
fn scatter_errors() {
    check(
        [
            (scatter(|_| ()), "f32[6,4] f32[3] f32[3,4]"),
            (scatter(|_| ()), "f32[6,4] s32[3] s32[3,4]"),
            (scatter(|_| ()), "f32[6,4] s32[3] f32[3]"),
            (scatter(|_| ()), "f32[6,4] s32[3] f32[2,4]"),
            (scatter(|_| ()), "f32[6,4] s32[3] f32[3,5]"),
            (
                Op::Scatter(rows(), Some(Reduction::And)),
                "f32[6,4] s32[3] f32[3,4]",
            ),
            (
                scatter(|s| s.update_window_dims = vec![0, 1]),
                "f32[6,4] s32[3] f32[3,4]",
            ),
            (
                scatter(|s| s.update_window_dims = vec![9]),
                "f32[6,4] s32[3] f32[3,4]",
            ),
        ],
        expect![[r#"
            scatter: the indices are f32[3]; they must be integers
            scatter: the updates s32[3, 4] and f32[6, 4] must have the same element type
            scatter: the updates f32[3] have 1 dimensions, the indices s32[3] give 1 and windows of f32[6, 4] 1
            scatter: dimension 0 of the updates f32[2, 4] is 2, the indices s32[3] imply 3
            scatter: dimension 1 of the updates f32[3, 5] is a window of 5, dimension 1 of f32[6, 4] has 4
            scatter: takes bool and integers, not f32[6, 4]
            scatter: window dimensions [0, 1] are 2, windows of f32[6, 4] have 1 dimensions
            scatter: window dimensions [9] must be ascending and below 2
        "#]],
    );
}

#[test]
fn dynamic_slice_errors() {
    let slice = |sizes: &[usize]| Op::DynamicSlice {
        sizes: sizes.to_vec(),
    };
    check(
        [
            (slice(&[2]), ""),
            (slice(&[4]), "f32[3] s32[]"),
            (slice(&[2]), "f32[3]"),
            (slice(&[2]), "f32[3] f32[]"),
            (slice(&[2, 2]), "f32[3,3] s32[] s64[]"),
            (Op::DynamicUpdateSlice, "f32[3]"),
            (Op::DynamicUpdateSlice, "f32[3] f32[4] s32[]"),
            (Op::DynamicUpdateSlice, "f32[3] s32[2] s32[]"),
        ],
        expect![[r#"
            dynamic_slice: takes one operand or more, got none
            dynamic_slice: dimension 0 of the slice f32[4] is 4, of f32[3] only 3
            dynamic_slice: start indices are none; f32[3] takes 1 integer scalars of one type
            dynamic_slice: start indices are 1 (f32[]); f32[3] takes 1 integer scalars of one type
            dynamic_slice: start indices are 2 (s32[], s64[]); f32[3, 3] takes 2 integer scalars of one type
            dynamic_update_slice: takes an operand, an update and start indices, got 1 (f32[3])
            dynamic_update_slice: dimension 0 of the update f32[4] is 4, of f32[3] only 3
            dynamic_update_slice: the update s32[2] and f32[3] must have the same element type and rank
        "#]],
    );
}
