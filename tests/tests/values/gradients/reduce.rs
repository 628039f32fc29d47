use halite_core::tree::Leaf;
use halite_ir::{Reduction, WindowAttributes};
use halite_nn::{Padding, grad};
use halite_tests::eval::{eval, host};

use crate::gradients::Case;

#[test]
fn reductions_over_dimensions() {
    let x = || Case::noise(&[&[2, 3, 4]]);
    x().check("sum", |_, x| vec![x[0].sum([0, 2]), x[0].sum_keep([1])]);
    x().check("max", |_, x| vec![x[0].max([0, 2]), x[0].max_keep([1])]);
    x().check("min", |_, x| vec![x[0].min([1])]);
    x().check("product", |_, x| vec![x[0].prod([0, 2]), x[0].prod([1])]);
    x().check("mean and variance", |_, x| {
        vec![x[0].mean([1]), x[0].var([0, 2]), x[0].mean_all()]
    });
    x().check("softmax", |_, x| vec![x[0].softmax(1)]);
    x().check("log softmax", |_, x| vec![x[0].log_softmax(2)]);
    x().check("logsumexp", |_, x| vec![x[0].logsumexp([0, 1])]);
}

#[test]
fn cumulative_reductions() {
    let x = || Case::noise(&[&[2, 7]]);
    x().check("cumsum", |_, x| vec![x[0].cumsum(1), x[0].cumsum(0)]);
    x().check("cumprod", |_, x| vec![x[0].cumprod(1)]);
    x().check("cummax", |_, x| vec![x[0].cummax(1)]);
    x().check("cummin", |_, x| vec![x[0].cummin(1)]);
    x().check("cumlogsumexp", |_, x| vec![x[0].cumlogsumexp(1)]);
}

fn window(sizes: [usize; 2], strides: [usize; 2], padding: [(i64, i64); 2]) -> WindowAttributes {
    WindowAttributes {
        sizes: sizes.to_vec(),
        strides: strides.to_vec(),
        base_dilations: vec![1, 1],
        window_dilations: vec![1, 1],
        padding: padding.to_vec(),
    }
}

#[test]
fn reductions_over_windows() {
    let plain = window([2, 3], [1, 2], [(0, 1), (2, 1)]);
    for kind in [Reduction::Sum, Reduction::Max, Reduction::Min] {
        let window = plain.clone();
        Case::noise(&[&[5, 6]]).check(&format!("window {kind:?}"), move |_, x| {
            vec![x[0].reduce_window(kind, window.clone())]
        });
    }
    let wide = window([5, 6], [2, 1], [(1, 1), (2, 0)]);
    for kind in [Reduction::Max, Reduction::Min] {
        let window = wide.clone();
        Case::noise(&[&[7, 8]]).check(&format!("wide window {kind:?}"), move |_, x| {
            vec![x[0].reduce_window(kind, window.clone())]
        });
    }
    let dilated = WindowAttributes {
        base_dilations: vec![2, 1],
        window_dilations: vec![1, 2],
        ..plain
    };
    Case::noise(&[&[5, 6]]).check("dilated window sum", move |_, x| {
        vec![x[0].reduce_window(Reduction::Sum, dilated.clone())]
    });
}

#[test]
fn pools() {
    let x = || Case::noise(&[&[2, 5, 6, 3]]);
    x().check("max pool in tiles", |_, x| {
        vec![x[0].max_pool([2, 2], [], Padding::Valid)]
    });
    x().check("max pool that overlaps", |_, x| {
        vec![x[0].max_pool([3, 3], [2, 2], Padding::Same)]
    });
    x().check("average pool in tiles", |_, x| {
        vec![x[0].avg_pool([2, 3], [], Padding::Valid)]
    });
    x().check("average pool that overlaps", |_, x| {
        vec![x[0].avg_pool([3, 2], [1, 2], Padding::Same)]
    });
    x().check("global average", |_, x| {
        vec![x[0].avg_pool([5, 6], [], Padding::Valid)]
    });
}

#[test]
fn max_pool_gradient_goes_to_first_of_equals() {
    let results = eval(
        |_, x| {
            let tiles = x[0].max_pool([2], [], Padding::Valid).sum_all();
            let overlapping = x[0].max_pool([2], [1], Padding::Valid).sum_all();
            let wide = x[1].max_pool([30], [], Padding::Valid).sum_all();
            vec![
                grad(tiles, &Leaf(x[0])).0,
                grad(overlapping, &Leaf(x[0])).0,
                grad(wide, &Leaf(x[1])).0,
            ]
        },
        &[
            host(&[1.0, 1.0, 0.0, 5.0], &[1, 4, 1]),
            host(&[2.0; 30], &[1, 30, 1]),
        ],
    );
    assert_eq!(results[0], host(&[1.0, 0.0, 0.0, 1.0], &[1, 4, 1]));
    assert_eq!(results[1], host(&[1.0, 1.0, 0.0, 1.0], &[1, 4, 1]));
    let first: Vec<f64> = (0..30).map(|i| if i == 0 { 1.0 } else { 0.0 }).collect();
    assert_eq!(results[2], host(&first, &[1, 30, 1]));
}
