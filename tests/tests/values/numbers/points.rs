//! Gradients at points where a factor is 0, a bound is crossed, or a square would overflow.

use halite_core::{DType, tree::Leaf};
use halite_nn::{Dropout, Tensor, grad, rng};
use halite_tests::eval::{Function, eval, host};

type Gate = for<'t> fn(Tensor<'t>) -> Tensor<'t>;

/// Results of `function` at `inputs` as vectors.
#[track_caller]
fn at(function: impl Function, inputs: &[&[f64]]) -> Vec<Vec<f64>> {
    let inputs: Vec<_> = inputs.iter().map(|x| host(x, &[x.len()])).collect();
    let results = eval(function, &inputs);
    let values = |array: &halite_core::HostArray| array.as_slice::<f64>().unwrap().to_vec();
    results.iter().map(values).collect()
}

#[test]
fn mixed_second_derivatives_of_pow_agree() {
    let (a, b) = (
        [4.0, 2.0, 0.5, 3.0, 1.0, 1.0],
        [0.0, 0.0, 0.0, 1.0, 0.0, 1.0],
    );
    let results = at(
        |_, x| {
            let power = x[0].pow(x[1]).sum_all();
            let by_a = grad(power, &Leaf(x[0])).0;
            let by_b = grad(power, &Leaf(x[1])).0;
            vec![
                grad(by_a.sum_all(), &Leaf(x[1])).0,
                grad(by_b.sum_all(), &Leaf(x[0])).0,
                grad(by_a.sum_all(), &Leaf(x[0])).0,
                grad(by_b.sum_all(), &Leaf(x[1])).0,
            ]
        },
        &[&a, &b],
    );
    for (at, (&a, &b)) in a.iter().zip(&b).enumerate() {
        let expected = [
            a.powf(b - 1.0) * (1.0 + b * a.ln()),
            a.powf(b - 1.0) * (1.0 + b * a.ln()),
            b * (b - 1.0) * a.powf(b - 2.0),
            a.powf(b) * a.ln().powi(2),
        ];
        for (result, expected) in results.iter().zip(expected) {
            assert!(
                (result[at] - expected).abs() < 1e-12,
                "{a}^{b}: {results:?}"
            );
        }
    }
}

#[test]
fn gradients_of_pow_at_zero() {
    let inf = f64::INFINITY;
    let results = at(
        |_, x| {
            let power = x[0].pow(x[1]);
            vec![
                grad(power.sum_all(), &Leaf(x[0])).0,
                grad(power.sum_all(), &Leaf(x[1])).0,
            ]
        },
        &[
            &[0.0, 0.0, 0.0, 0.0, f64::NAN, 1e-310, -2.0],
            &[0.0, 1.0, 2.0, -1.0, 0.0, 0.0, 0.0],
        ],
    );
    assert_eq!(results[0], [0.0, 1.0, 0.0, -inf, 0.0, 0.0, 0.0]);
    assert_eq!(results[1][..4], [0.0, 0.0, 0.0, -inf]);
}

#[test]
fn crossed_bounds_give_all_to_the_upper_one() {
    let results = at(
        |_, x| {
            let y = x[1].clamp(x[0], x[2]);
            let by = |at: usize| grad(y.sum_all(), &Leaf(x[at])).0;
            vec![y, by(0), by(1), by(2)]
        },
        &[
            &[2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 1.0],
            &[0.0, 1.5, 3.0, -1.0, 0.5, 2.0, 0.0],
            &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        ],
    );
    assert_eq!(results[0], [1.0, 1.0, 1.0, 0.0, 0.5, 1.0, 1.0]);
    assert_eq!(results[1], [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(results[2], [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(results[3], [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn crossed_scalar_bounds_give_all_to_the_upper_one() {
    let results = eval(
        |_, x| {
            let [low, high] =
                [x[1].slice_dim(0, ..1), x[1].slice_dim(0, 1..)].map(|x| x.reshape([]));
            let y = x[0].clamp(low, high);
            vec![
                grad(y.sum_all(), &Leaf(x[1])).0,
                grad(y.sum_all(), &Leaf(x[0])).0,
            ]
        },
        &[host(&[0.0, 1.5, 3.0], &[3]), host(&[2.0, 1.0], &[2])],
    );
    assert_eq!(results[0].as_slice::<f64>().unwrap(), [0.0, 3.0]);
    assert_eq!(results[1].as_slice::<f64>().unwrap(), [0.0; 3]);
}

#[test]
fn angle_has_its_gradient_at_any_scale() {
    for scale in [1e-200, 1.0, 1e200] {
        let results = at(
            move |_, x| {
                let angle = (x[0] * scale).atan2(x[1] * scale);
                // The gradients by the scaled coordinates are these divided by the scale.
                vec![
                    grad(angle.sum_all(), &Leaf(x[0])).0,
                    grad(angle.sum_all(), &Leaf(x[1])).0,
                ]
            },
            &[&[1.0, 0.0, 2.0, -1.0], &[1.0, 1.0, 0.0, 2.0]],
        );
        let expected = [[0.5, 1.0, 0.0, 0.4], [-0.5, 0.0, -0.5, 0.2]];
        for (result, expected) in results.iter().zip(expected) {
            for (result, expected) in result.iter().zip(expected) {
                assert!((result - expected).abs() < 1e-12, "{scale}: {results:?}");
            }
        }
    }
}

#[test]
fn gates_have_their_gradient_at_any_size() {
    let functions: [(&str, Gate); 4] = [
        ("gelu", |x| x.gelu()),
        ("gelu_tanh", |x| x.gelu_tanh()),
        ("silu", |x| x.silu()),
        ("mish", |x| x.mish()),
    ];
    for (name, function) in functions {
        for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
            let results = at(
                move |_, x| {
                    // Both the product with the cotangent and the cube are beyond the type.
                    let x = x[0].convert(dtype);
                    let y = function(x);
                    let slope = grad((y * 1024.0).sum_all(), &Leaf(x)).0;
                    let second = grad(slope.sum_all(), &Leaf(x)).0;
                    [y, slope, second].map(|x| x.convert(DType::F64)).to_vec()
                },
                &[&[100.0, -200.0, 60000.0, -60000.0, 3e38, -3e38, f64::INFINITY]],
            );
            let largest = if dtype == DType::F16 {
                f64::INFINITY
            } else {
                2.9e38
            };
            assert!(
                results[0][4] >= largest && results[0][2] > 59000.0,
                "{name} {dtype}"
            );
            // e^-200 is not 0 in f64.
            let without_tail = |slopes: &[f64]| -> Vec<f64> {
                let cut = |&slope: &f64| if slope.abs() < 1e-60 { 0.0 } else { slope };
                slopes.iter().map(cut).collect()
            };
            let slopes = [1024.0, 0.0, 1024.0, 0.0, 1024.0, 0.0, 1024.0];
            assert_eq!(without_tail(&results[1]), slopes, "{name} of {dtype}");
            assert_eq!(without_tail(&results[2]), [0.0; 7], "{name} of {dtype}");
        }
    }
}

#[test]
fn logarithms_of_sums_have_gradients_at_infinity() {
    let inf = f64::INFINITY;
    let results = at(
        |_, x| {
            let sum = x[0].log_add_exp(x[1]);
            vec![
                sum,
                grad(sum.sum_all(), &Leaf(x[0])).0,
                grad(sum.sum_all(), &Leaf(x[1])).0,
            ]
        },
        &[&[inf, 1.0, -inf, 0.0, -inf], &[1.0, inf, 2.0, 0.0, -inf]],
    );
    assert_eq!(results[0], [inf, inf, 2.0, 2f64.ln(), -inf]);
    assert_eq!(results[1], [1.0, 0.0, 0.0, 0.5, 0.5]);
    assert_eq!(results[2], [0.0, 1.0, 1.0, 0.5, 0.5]);
    let results = at(
        |_, x| {
            let rows = x[0].reshape([2, 2]);
            let sums = rows.logsumexp([1]);
            vec![sums, grad(sums.sum_all(), &Leaf(x[0])).0]
        },
        &[&[-inf, -inf, -inf, 3.0]],
    );
    assert_eq!(results[0], [-inf, 3.0]);
    assert_eq!(results[1], [0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn inverse_error_function_is_steep_at_its_ends() {
    for dtype in [DType::F32, DType::F64] {
        let results = at(
            move |_, x| {
                let x = x[0].convert(dtype);
                let y = x.erf_inv();
                let slope = grad(y.sum_all(), &Leaf(x)).0;
                vec![y.convert(DType::F64), slope.convert(DType::F64)]
            },
            &[&[1.0, -1.0, 0.0]],
        );
        let inf = f64::INFINITY;
        assert_eq!(results[0], [inf, -inf, 0.0], "{dtype}");
        assert_eq!(results[1][..2], [inf, inf], "{dtype}");
        assert!(
            (results[1][2] - std::f64::consts::PI.sqrt() / 2.0).abs() < 1e-6,
            "{results:?}"
        );
    }
}

#[test]
fn gradient_of_a_padding_value_ignores_what_is_inside() {
    let results = eval(
        |cx, x| {
            let value = x[1].reshape([]);
            let padded = x[0].pad_interior(value, vec![2], vec![-1], vec![1]);
            let slope = grad((padded * x[2]).sum_all(), &Leaf(x[1])).0;
            let _ = cx;
            vec![padded, slope]
        },
        &[
            host(&[1.0, 2.0, 3.0], &[3]),
            host(&[5.0], &[1]),
            host(&[1.0, 2.0, f64::INFINITY, 4.0, 1e30, 6.0], &[6]),
        ],
    );
    assert_eq!(
        results[0].as_slice::<f64>().unwrap(),
        [5.0, 5.0, 1.0, 5.0, 2.0, 5.0]
    );
    assert_eq!(results[1].as_slice::<f64>().unwrap(), [13.0]);
}

#[test]
fn dropped_elements_do_not_matter() {
    let results = at(
        |cx, x| {
            cx.set_mode(true, Some(rng::constant_key(cx, rng::key(1))));
            let y = Dropout::new(0.5).forward(x[0]);
            let kept = y.ne(0.0);
            let cleared = kept.select(y, 0.0);
            vec![
                kept.convert(DType::F64),
                grad(cleared.sum_all(), &Leaf(x[0])).0,
                y,
            ]
        },
        &[&[f64::NAN; 64]],
    );
    let (kept, slopes, values) = (&results[0], &results[1], &results[2]);
    assert!(kept.contains(&0.0) && kept.contains(&1.0));
    for at in 0..64 {
        assert_eq!(values[at].is_nan(), kept[at] == 1.0);
        assert_eq!(slopes[at], 2.0 * kept[at]);
    }
}

#[test]
fn slope_of_exp_m1_keeps_its_digits() {
    let results = at(
        |_, x| {
            let x = x[0].convert(DType::F32);
            vec![grad(x.exp_m1().sum_all(), &Leaf(x)).0.convert(DType::F64)]
        },
        &[&[-10.0, -15.0, -40.0]],
    );
    for (slope, x) in results[0].iter().zip([-10.0f64, -15.0, -40.0]) {
        assert!((slope / x.exp() - 1.0).abs() < 1e-5, "{slope} at {x}");
    }
}

#[test]
fn cumulative_extremes_share_nothing_with_padding() {
    let inf = f64::INFINITY;
    let results = at(
        |_, x| {
            let largest = x[0].cummax(0);
            let smallest = (-x[0]).cummin(0);
            let sums = x[0].cumlogsumexp(0);
            vec![
                largest,
                grad((largest * x[1]).sum_all(), &Leaf(x[0])).0,
                grad((smallest * x[1]).sum_all(), &Leaf(x[0])).0,
                grad((sums * x[1]).sum_all(), &Leaf(x[0])).0,
            ]
        },
        &[&[-inf, -inf, 2.0], &[1.0, 10.0, 100.0]],
    );
    assert_eq!(results[0], [-inf, -inf, 2.0]);
    assert_eq!(results[1], [6.0, 5.0, 100.0]);
    assert_eq!(results[2], [-6.0, -5.0, -100.0]);
    assert_eq!(results[3], [6.0, 5.0, 100.0]);
}
