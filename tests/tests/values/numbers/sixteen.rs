//! Floats of 16 bits beside the same function in `f64`: values and gradients are rounded once.

use half::{bf16, f16};
use halite_core::{DType, tree::Leaf};
use halite_nn::{Padding, Tensor, Trace, grad};
use halite_tests::eval::{eval, has_devices, host, try_eval_replicas};

type Function = for<'t> fn(Tensor<'t>) -> Tensor<'t>;

/// A number rounded to a type of 16 bits.
fn rounded(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64(value).to_f64(),
        _ => bf16::from_f64(value).to_f64(),
    }
}

/// Distance from a number to its neighbour.
fn spacing(value: f64, dtype: DType) -> f64 {
    let (digits, smallest) = match dtype {
        DType::F16 => (10, -14),
        _ => (7, -126),
    };
    let exponent = value.abs().log2().floor().max(f64::from(smallest));
    (exponent - f64::from(digits)).exp2()
}

/// Compares value and gradient of `function` at `x` in 16 bits with those in `f64`.
#[track_caller]
fn check(name: &str, function: Function, x: &[f64], dims: &[usize]) {
    for dtype in [DType::F16, DType::Bf16] {
        let x: Vec<f64> = x.iter().map(|&x| rounded(x, dtype)).collect();
        let x: Vec<f64> = x
            .into_iter()
            .map(|x| if x.is_finite() { x } else { 1.0 })
            .collect();
        let results = eval(
            move |_, x| {
                let narrow = x[0].convert(dtype);
                let both = [narrow, x[0]].map(|x| {
                    let y = function(x);
                    // In f64, so that the sum of the results does not overflow.
                    let slope = grad(y.convert(DType::F64).sum_all(), &Leaf(x)).0;
                    [y, slope].map(|x| x.convert(DType::F64))
                });
                both.concat()
            },
            &[host(&x, dims)],
        );
        let [values, slopes, wanted, wanted_slopes] =
            [0, 1, 2, 3].map(|at| results[at].as_slice::<f64>().unwrap());
        let pairs = [
            ("value", values, wanted),
            ("gradient", slopes, wanted_slopes),
        ];
        for (what, given, wanted) in pairs {
            for (at, (&given, &exact)) in given.iter().zip(wanted).enumerate() {
                let wanted = rounded(exact, dtype);
                // One place in the last digit, and what f32 loses of terms near 1.
                let tolerance = spacing(wanted, dtype) + 1e-6;
                let is_close = (given - wanted).abs() <= tolerance;
                assert!(
                    given == wanted || is_close || (given.is_nan() && wanted.is_nan()),
                    "{what} of {name} in {dtype} at {:?}: {given}, expected {wanted} ({exact})",
                    x.get(at)
                );
            }
        }
    }
}

#[test]
fn sums_are_accumulated_in_f32() {
    let count = 70_000;
    let small = vec![0.01; count];
    let large: Vec<f64> = (0..1000).map(|i| 100.0 + f64::from(i % 7)).collect();
    let mixed: Vec<f64> = (0..3000).map(|i| f64::from(i % 11) - 4.0).collect();
    let spread = [200.0, -200.0, 100.0, 0.0];
    let near_one: Vec<f64> = (0..700)
        .map(|i| 1.0 + 0.01 * f64::from(i % 3 - 1))
        .collect();
    check("mean of many", |x| x.mean_all(), &small, &[count]);
    check("mean of large ones", |x| x.mean_all(), &large, &[1000]);
    check("mean over a dimension", |x| x.mean([0]), &large, &[500, 2]);
    check("mean, kept", |x| x.mean_keep([1]), &large, &[2, 500]);
    check("variance", |x| x.var([0]), &spread, &[4]);
    check("variance of many", |x| x.var_keep([0]), &mixed, &[3000]);
    check("sum", |x| x.sum_all(), &mixed, &[3000]);
    check("sum that overflows", |x| x.sum_all(), &large, &[1000]);
    check("product", |x| x.prod([0]), &near_one, &[700]);
    check("cumulative sum", |x| x.cumsum(0), &mixed, &[3000]);
    check("cumulative product", |x| x.cumprod(0), &near_one, &[700]);
    check(
        "cumulative logsumexp",
        |x| x.cumlogsumexp(0),
        &mixed[..300],
        &[300],
    );
    check("logsumexp", |x| x.logsumexp([0]), &mixed, &[3000]);
    check("softmax", |x| x.softmax(0), &small, &[count]);
    check("log_softmax", |x| x.log_softmax(0), &mixed, &[3000]);
}

#[test]
fn windows_are_accumulated_in_f32() {
    let large: Vec<f64> = (0..1000).map(|i| 100.0 + f64::from(i % 7)).collect();
    let mixed: Vec<f64> = (0..3000).map(|i| f64::from(i % 11) - 4.0).collect();
    let spread = [200.0, -200.0, 100.0, 0.0];
    let count = 70_000;
    check(
        "average pool",
        |x| x.avg_pool([70_000], [], Padding::Valid),
        &vec![1.0; count],
        &[1, count, 1],
    );
    check(
        "average pool with overlap",
        |x| x.avg_pool([400], [100], Padding::Same),
        &large,
        &[1, 1000, 1],
    );
    check(
        "max pool with overlap",
        |x| x.max_pool([300], [1], Padding::Valid),
        &mixed[..1000],
        &[1, 1000, 1],
    );
    check(
        "broadcast",
        |x| x.broadcast_to([5000, 3]),
        &spread[..3],
        &[3],
    );
    check(
        "repeated reads",
        |x| {
            let cx = x.trace();
            let zeros = cx.arange(3000, DType::S32) / 1000;
            x.take(zeros, 0)
        },
        &spread,
        &[4],
    );
    check(
        "product of matrices",
        |x| x.reshape([1, 3000]).matmul(x.reshape([3000, 1])),
        &mixed,
        &[3000],
    );
}

#[test]
fn scattered_sums_are_accumulated_in_f32() {
    for dtype in [DType::F16, DType::Bf16] {
        let results = eval(
            move |cx, x| {
                let ones = x[0].convert(dtype);
                let nowhere = cx.arange(5000, DType::S32) / 5000;
                let table = (x[0].slice_dim(0, ..2) - 1.0).convert(dtype);
                vec![table.scatter_add(nowhere, ones, 0).convert(DType::F64)]
            },
            &[host(&[1.0; 5000], &[5000])],
        );
        let sums = results[0].as_slice::<f64>().unwrap();
        assert_eq!(sums, [rounded(5000.0, dtype), 0.0], "{dtype}");
    }
}

#[test]
fn means_over_devices_do_not_overflow() {
    if !has_devices(2) {
        return;
    }
    let inputs = [60000.0, 50016.0].map(|x| vec![host(&[f16::from_f64(x); 2], &[2])]);
    for results in try_eval_replicas(&means_over_devices, &inputs).unwrap() {
        for result in &results {
            let means = result.as_slice::<f16>().unwrap();
            assert!(
                means.iter().all(|mean| mean.to_f64() == 55008.0),
                "{means:?}"
            );
        }
    }
}

fn means_over_devices<'t>(_: &'t Trace, x: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
    let both = || vec![vec![0, 1]];
    vec![
        x[0].all_reduce_mean(both()),
        x[0].reduce_scatter_mean(0, both()),
    ]
}

#[test]
fn dropout_scales_before_it_rounds() {
    use halite_nn::{Dropout, rng};
    for dtype in [DType::F16, DType::Bf16] {
        let results = eval(
            move |cx, x| {
                cx.set_mode(true, Some(rng::constant_key(cx, rng::key(3))));
                let x = x[0].convert(dtype);
                let y = Dropout::new(0.1).forward(x);
                let slope = grad(y.sum_all(), &Leaf(x)).0;
                let far = Dropout::new(1.0 - 1e-6).forward(x);
                vec![
                    y.convert(DType::F64),
                    slope.convert(DType::F64),
                    far.convert(DType::F64),
                ]
            },
            &[host(&[3.0; 100], &[100])],
        );
        let [values, slopes, far] = [0, 1, 2].map(|at| results[at].as_slice::<f64>().unwrap());
        assert!(values.iter().any(|&y| y != 0.0), "{values:?}");
        assert!(
            values
                .iter()
                .all(|&y| y == 0.0 || y == rounded(3.0 / 0.9, dtype)),
            "{values:?}"
        );
        assert!(
            slopes
                .iter()
                .all(|&y| y == 0.0 || y == rounded(1.0 / 0.9, dtype)),
            "{slopes:?}"
        );
        assert!(far.iter().all(|y| !y.is_nan()), "{far:?}");
    }
}

#[test]
fn classes_are_drawn_without_rounding() {
    // In bf16 the noise beside 100 is one of a few numbers, and the first of equal ones won.
    for dtype in [DType::F16, DType::Bf16] {
        let results = eval(
            move |cx, x| {
                let key = halite_nn::rng::constant_key(cx, halite_nn::rng::key(5));
                let drawn = halite_nn::rng::categorical(key, x[0].convert(dtype));
                vec![drawn.convert(DType::F64).mean_all()]
            },
            &[host(&[200.0; 20_000], &[10_000, 2])],
        );
        let mean = results[0].item::<f64>().unwrap();
        assert!((mean - 0.5).abs() < 0.02, "{dtype}: {mean}");
    }
}
