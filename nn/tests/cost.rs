//! Cost of gradients, compared with manual counts.

use halite_core::{DType, TensorType, tree::Leaf};
use halite_ir::{cost, optimize};
use halite_nn::{ConvOptions, Padding, Trace, grad};

#[test]
fn convolution_gradients_cost_as_much_as_forward() {
    // Each multiplication of the forward pass has one in each gradient.
    for (strides, groups, expected) in [
        // 5 positions per dimension, the first and the last with 2 of 3 taps: 13. Two images, 4 features
        // to 8.
        (1, 1, 2 * 13 * 13 * 4 * 8),
        // 3 positions, at 0, 2, 4: 7 taps.
        (2, 1, 2 * 7 * 7 * 4 * 8),
        // Each of 8 results sees 2 of 4 features.
        (2, 2, 2 * 7 * 7 * 2 * 8),
    ] {
        let cx = &Trace::new();
        let x = cx.input(TensorType::new(DType::F32, [2, 5, 5, 4]), "x");
        let kernel = cx.input(TensorType::new(DType::F32, [3, 3, 4 / groups, 8]), "kernel");
        let options = ConvOptions {
            strides: vec![strides; 2],
            padding: Padding::Explicit(vec![(1, 1); 2]),
            groups,
            ..ConvOptions::default()
        };
        let y = x.conv(kernel, &options);
        let convolution =
            |outputs: &[_]| cost(&optimize(cx.graph(&[x, kernel], outputs).unwrap())).convolution;
        assert_eq!(
            convolution(&[y]),
            2.0 * f64::from(expected),
            "strides {strides}, groups {groups}"
        );
        let (Leaf(by_x), Leaf(by_kernel)) = grad(y.sum_all(), &(Leaf(x), Leaf(kernel)));
        assert_eq!(
            convolution(&[by_x]),
            2.0 * f64::from(expected),
            "by x: strides {strides}, groups {groups}"
        );
        assert_eq!(
            convolution(&[by_kernel]),
            2.0 * f64::from(expected),
            "by kernel: strides {strides}, groups {groups}"
        );
    }
}
