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
