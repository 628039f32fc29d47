//! Which element of a window the gradient of `max_pool` goes to in corner cases.

use halite_core::{HostArray, tree::Leaf};
use halite_nn::{Padding, grad};
use halite_tests::eval::{eval, host};

/// The gradient of the sum over a max pool of `x`, a sequence, with windows of 3, `stride`, and one
/// element of padding at each edge.
fn pooled(x: &[f64], stride: usize) -> Vec<f64> {
    let results = eval(
        move |_, x| {
            let padding = Padding::Explicit(vec![(1, 1)]);
            vec![grad(x[0].max_pool([3], [stride], padding).sum_all(), &Leaf(x[0])).0]
        },
        &[host(x, &[1, x.len(), 1])],
    );
    HostArray::as_slice::<f64>(&results[0]).unwrap().to_vec()
}

#[test]
fn first_nan_of_a_window_gets_the_gradient() {
    assert_eq!(
        pooled(&[1.0, 9.0, 3.0, f64::NAN, 5.0, f64::NAN, 0.0, 7.0], 3),
        [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    );
}

#[test]
fn padding_never_gets_the_gradient() {
    let lowest = f64::NEG_INFINITY;
    assert_eq!(pooled(&[lowest; 5], 3), [1.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(
        pooled(&[lowest, lowest, 1.0, lowest, lowest], 1),
        [1.0, 0.0, 3.0, 1.0, 0.0]
    );
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
