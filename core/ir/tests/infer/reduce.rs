//! Reductions, windows and sort.

use expect_test::expect;
use halite_ir::{Extreme, Op, Reduction, WindowAttributes};

use crate::infer::check;

/// Windows of 2 by 2 that do not overlap, with changes.
fn window(change: fn(&mut WindowAttributes)) -> WindowAttributes {
    let mut window = WindowAttributes {
        sizes: vec![2, 2],
        strides: vec![2, 2],
        base_dilations: vec![1, 1],
        window_dilations: vec![1, 1],
        padding: vec![(0, 0), (0, 0)],
    };
    change(&mut window);
    window
}

#[test]
fn reduce_errors() {
    let reduce = |kind, dims: &[usize]| Op::Reduce {
        kind,
        dims: dims.to_vec(),
    };
    let arg_reduce = |kind, dim| Op::ArgReduce { kind, dim };
    check(
        [
            (reduce(Reduction::Sum, &[2]), "f32[2,3]"),
            (reduce(Reduction::Sum, &[1, 0]), "f32[2,3]"),
            (reduce(Reduction::Sum, &[0, 0]), "f32[2,3]"),
            (reduce(Reduction::Sum, &[0]), "bool[2]"),
            (reduce(Reduction::And, &[0]), "f32[2]"),
            (arg_reduce(Extreme::Max, 0), "f32[0,2]"),
            (arg_reduce(Extreme::Min, 1), "f32[2]"),
            (arg_reduce(Extreme::Max, 0), "u8[2147483648]"),
        ],
        expect![[r#"
            reduce_sum: dimension 2 of f32[2, 3], whose dimensions are 0 to 1
            reduce_sum: dimensions [1, 0] of f32[2, 3] must be in ascending order
            reduce_sum: dimension 0 of f32[2, 3] appears twice in [0, 0]
            reduce_sum: takes integers and floats, not bool[2] (convert first)
            reduce_and: takes bool and integers, not f32[2]
            argmax: dimension 0 of f32[0, 2] has 0 elements; it must have 1 to 2147483647
            argmin: dimension 1 of f32[2], whose only dimension is 0
            argmax: dimension 0 of u8[2147483648] has 2147483648 elements; it must have 1 to 2147483647
        "#]],
    );
}

#[test]
fn window_errors() {
    let windows = |change| Op::ReduceWindow {
        kind: Reduction::Sum,
        window: window(change),
    };
    let scatter = |change| Op::SelectAndScatter {
        kind: Extreme::Max,
        window: window(change),
    };
    check(
        [
            (windows(|w| w.sizes = vec![2]), "f32[4,4]"),
            (windows(|w| w.sizes = vec![2, 0]), "f32[4,4]"),
            (windows(|w| w.strides = vec![0, 1]), "f32[4,4]"),
            (windows(|w| w.padding = vec![(0, 0)]), "f32[4,4]"),
            (windows(|w| w.padding = vec![(0, 0), (0, -1)]), "f32[4,4]"),
            (
                windows(|w| w.padding = vec![(i64::MAX, i64::MAX), (0, 0)]),
                "f32[4,4]",
            ),
            (
                windows(|w| w.window_dilations = vec![usize::MAX, 1]),
                "f32[4,4]",
            ),
            (scatter(|_| ()), "f32[4,4] f32[2,3]"),
            (
                scatter(|w| w.window_dilations = vec![1, 2]),
                "f32[4,4] f32[2,1]",
            ),
        ],
        expect![[r#"
            reduce_window: 1 window sizes [2] for f32[4, 4], which has 2 dimensions
            reduce_window: window sizes [2, 0]: number 1 is 0, it must be 1 or more
            reduce_window: window strides [0, 1]: number 0 is 0, it must be 1 or more
            reduce_window: 1 paddings [(0, 0)] for f32[4, 4], which has 2 dimensions
            reduce_window: padding (0, -1) of dimension 1 of f32[4, 4] is negative; slice first
            reduce_window: windows along dimension 0 of f32[4, 4]: the padding is 9223372036854775807; its magnitude must not exceed 2^60
            reduce_window: window dilations [18446744073709551615, 1]: number 0 is 18446744073709551615, it must be at most 9223372036854775807
            select_and_scatter: the source is f32[2, 3], the windows of f32[4, 4] are f32[2, 2]
            select_and_scatter: the window has dilations; they are all to be 1
        "#]],
    );
}

#[test]
fn sort_errors() {
    let sort = |dim| Op::Sort {
        dim,
        descending: false,
        by_bits: false,
    };
    check(
        [
            (sort(0), ""),
            (sort(1), "f32[3]"),
            (sort(0), "f32[3] f32[4]"),
        ],
        expect![[r#"
            sort: takes one operand or more, got none
            sort: dimension 1 of f32[3], whose only dimension is 0
            sort: f32[3] and f32[4] are sorted together, and must have the same dimensions
        "#]],
    );
}
