use std::sync::Arc;

use halite_core::{Array, DType, Mesh, PartitionSpec, Sharding, TensorType, Tree, tree::Leaf};
use halite_nn::{
    BatchNorm, GroupNorm, Init, LayerNorm, Param, RmsNorm, Tensor, Trace, grad, init, jit,
    optim::{clip_global_norm, global_norm},
    rng,
};
use halite_tests::eval::{client, host};

use super::{assert_close, results};

const INF: f32 = f32::INFINITY;

/// A training step of batch norm, without its next state.
fn batch_norm<'t>(cx: &'t Trace, x: Tensor<'t>) -> Tensor<'t> {
    let norm = init(cx, &BatchNorm::new(2), rng::constant_key(cx, rng::key(0)));
    let y = norm.forward(x);
    let _ = norm.map_leaves(|_, leaf| cx.updated(leaf));
    y
}

fn clipped(gradient: &[f32]) -> Vec<Vec<f32>> {
    results(
        |cx, given| {
            let model = Leaf(Param::new(given[0].dims(), Init::Zeros));
            let (Leaf(clipped), norm) = clip_global_norm(cx, &model, Leaf(given[0]), 1.0);
            vec![clipped, norm]
        },
        &[host(gradient, &[gradient.len()])],
    )
}

#[test]
fn norm_whose_square_overflows_clips() {
    for (gradient, expected, norm) in [
        ([1e20f32, 3.0, 0.0], [1.0, 3e-20, 0.0], 1e20f32),
        ([-3e38, 0.0, 0.0], [-1.0, 0.0, 0.0], 3e38),
        ([3e30, 4e30, 0.0], [0.6, 0.8, 0.0], 5e30),
        ([0.3, 0.4, 0.0], [0.3, 0.4, 0.0], 0.5),
        ([3.0, 4.0, 0.0], [0.6, 0.8, 0.0], 5.0),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 0.0),
    ] {
        let found = clipped(&gradient);
        assert_close(&found[0], &expected);
        let error = (found[1][0] - norm).abs() / norm.max(f32::MIN_POSITIVE);
        assert!(error < 1e-6, "{found:?}, not {norm}");
    }
    let found = clipped(&[3e-25, 4e-25]);
    assert!((found[1][0] / 5e-25 - 1.0).abs() < 1e-6, "{found:?}");
}

/// The norm is infinite, and the gradients are as long as they should be.
#[test]
fn norm_beyond_its_type_clips() {
    let found = clipped(&[3e38, -3e38, 0.0]);
    let half = std::f32::consts::FRAC_1_SQRT_2;
    assert_close(&found[0], &[half, -half, 0.0]);
    assert_eq!(found[1], [INF]);
}

#[test]
fn gradient_that_is_not_finite_makes_all_nan() {
    for gradient in [[INF, 3.0, 0.0], [f32::NAN, 1.0, 2.0]] {
        let found = clipped(&gradient);
        assert!(
            found[0].iter().all(|x| x.is_nan()),
            "{gradient:?}: {found:?}"
        );
    }
}

#[test]
fn norm_of_several_types_is_that_of_all_elements() {
    let found = results(
        |cx, given| {
            let narrow = given[0].convert(DType::F16);
            let (empty, scalar) = (
                cx.full(1.0, &TensorType::new(DType::F32, [0, 3])),
                given[1].sum_all(),
            );
            let norm = global_norm(cx, &vec![Leaf(narrow), Leaf(empty), Leaf(scalar)]);
            let wide = global_norm(cx, &[Leaf(given[0].convert(DType::F64) * 1e200)]);
            vec![
                norm,
                (wide * 1e-200).convert(DType::F32),
                global_norm(cx, &Vec::<Leaf<_>>::new()),
            ]
        },
        &[host(&[60000.0f32, 0.0], &[2]), host(&[80000.0f32], &[1])],
    );
    assert_close(&found.concat(), &[100_000.0, 60000.0, 0.0]);
}

/// Numbers of mean `mean` and deviation 1.
fn around(mean: f32, count: usize) -> Vec<f32> {
    let spread = |index: usize| (index * 37 % 64) as f32 / 18.472_953 - 31.5 / 18.472_953;
    (0..count).map(|index| mean + spread(index)).collect()
}

#[test]
fn batch_norm_is_exact_far_from_zero() {
    for (mean, samples) in [(1e4, 64), (-1e4, 64), (1e4, 1 << 18), (0.0, 64)] {
        let found = results(
            |cx, given| {
                cx.set_mode(true, None);
                let norm = init(cx, &BatchNorm::new(1), rng::constant_key(cx, rng::key(0)));
                let y = norm.forward(given[0]);
                let loss = (y * given[1]).sum_all();
                let slope = grad(loss, &given[0]);
                vec![
                    y.square().mean_all().sqrt(),
                    y.mean_all(),
                    cx.updated(norm.variance).sum_all(),
                    cx.updated(norm.mean).sum_all(),
                    // Orthogonal to a constant and to the result.
                    slope.sum_all() / slope.abs().sum_all(),
                    (slope * y).sum_all() / slope.abs().sum_all(),
                    slope.abs().mean_all() * 4.0,
                ]
            },
            &[
                host(&around(mean, samples), &[samples, 1]),
                host(
                    &around(0.0, samples)
                        .iter()
                        .map(|x| x * x * x)
                        .collect::<Vec<_>>(),
                    &[samples, 1],
                ),
            ],
        );
        let found = found.concat();
        println!("{mean}, {samples}: {found:?}");
        let count = samples as f32;
        let variance = 0.9 + 0.1 * count / (count - 1.0);
        // The inputs are rounded to 2^-10.
        for (index, expected) in [(0, 1.0), (1, 0.0), (2, variance), (4, 0.0), (5, 0.0)] {
            assert!(
                (found[index] - expected).abs() < 2e-3,
                "{index} of {found:?}, {mean}, {samples}"
            );
        }
        assert!(
            (found[3] - 0.1 * mean).abs() < 1e-3 * mean.abs().max(1.0),
            "{found:?}"
        );
        assert!(found[6] > 0.1 && found[6] < 10.0, "{found:?}");
    }
}

#[test]
fn batch_norm_over_devices_is_that_of_the_whole_batch() {
    if !halite_tests::eval::has_devices(4) {
        return;
    }
    let mesh = Arc::new(Mesh::new([("data", 4)], client().local_devices()[..4].to_vec()).unwrap());
    let norm = jit(client(), |cx, [x]| {
        cx.set_mode(true, None);
        let norm = init(cx, &BatchNorm::new(2), rng::constant_key(cx, rng::key(0)));
        let y = norm.forward(x);
        [y, cx.updated(norm.mean), cx.updated(norm.variance)]
    });
    // Each device has another mean.
    let values: Vec<f32> = (0..64).map(|index| 1e4 + (index / 8) as f32).collect();
    let x = host(&values, &[32, 2]);
    let rows = Sharding::new(&mesh, PartitionSpec::first("data")).unwrap();
    let x = Array::upload(client(), &x, &rows).unwrap();
    let [y, mean, variance] = norm.on(&mesh).run([&x]).unwrap();
    let expected = values.iter().map(|x| (x - 10_003.5) / 5.25f32.sqrt());
    let y = y.to_vec::<f32>().unwrap();
    let close = |(found, expected): (&f32, f32)| (found - expected).abs() < 1e-3;
    assert!(y.iter().zip(expected).all(close), "{y:?}");
    assert_close(&mean.to_vec::<f32>().unwrap(), &[1000.35; 2]);
    assert_close(
        &variance.to_vec::<f32>().unwrap(),
        &[0.9 + 0.525 * 32.0 / 31.0; 2],
    );
}

#[test]
fn layer_norms_are_exact_far_from_zero() {
    for (mean, features) in [(1e4, 64), (1e4, 4096), (3e4, 1 << 15)] {
        let found = results(
            move |cx, given| {
                let key = rng::constant_key(cx, rng::key(0));
                let layer = init(cx, &LayerNorm::new(features), key).forward(given[0]);
                let group = init(cx, &GroupNorm::new(1, 4), key);
                let group = group.forward(given[0].reshape([1, features / 4, 4]));
                [layer, group]
                    .into_iter()
                    .flat_map(|y: Tensor<'_>| [y.mean_all(), y.square().mean_all().sqrt()])
                    .collect()
            },
            &[host(&around(mean, features), &[1, features])],
        );
        println!("{mean}, {features}: {found:?}");
        for (found, expected) in found.concat().into_iter().zip([0.0, 1.0, 0.0, 1.0]) {
            assert!(
                (found - expected).abs() < 1e-2,
                "{found}, {mean}, {features}"
            );
        }
    }
}

#[test]
fn mean_square_that_overflows_is_nan() {
    let found = results(
        |cx, given| {
            cx.set_mode(true, None);
            let (x, key) = (given[0], rng::constant_key(cx, rng::key(0)));
            vec![
                init(cx, &RmsNorm::new(2), key).forward(x),
                init(cx, &LayerNorm::new(2), key).forward(x),
                init(cx, &GroupNorm::new(1, 2), key).forward(x),
                batch_norm(cx, x),
            ]
        },
        &[host(&[1e20f32, 3.0, 1.0, 2.0], &[2, 2])],
    );
    let root = 2.5f32.sqrt();
    assert_close(&found[0], &[f32::NAN, f32::NAN, 1.0 / root, 2.0 / root]);
    for found in &found[1..3] {
        assert!(found[..2].iter().all(|x| x.is_nan()), "{found:?}");
        assert!(
            found[2..].iter().all(|x| (x.abs() - 1.0).abs() < 1e-3),
            "{found:?}"
        );
    }
    assert!(
        found[3][0].is_nan() && found[3][2].is_nan() && found[3][1].is_finite(),
        "{found:?}"
    );
}

#[test]
fn norms_of_f16_are_summed_in_f32() {
    let found = results(
        |cx, given| {
            cx.set_mode(true, None);
            let (x, key) = (
                given[0].convert(DType::F16),
                rng::constant_key(cx, rng::key(0)),
            );
            let outputs = [
                init(cx, &RmsNorm::new(2), key).forward(x),
                init(cx, &LayerNorm::new(2), key).forward(x),
                batch_norm(cx, x),
            ];
            outputs.map(|y| y.convert(DType::F32)).to_vec()
        },
        &[host(&[60000.0f32, 30000.0, -60000.0, 60000.0], &[2, 2])],
    );
    let root = 2.5f32.sqrt();
    let close = |found: &[f32], expected: &[f32]| {
        let pairs = found.iter().zip(expected);
        assert!(
            pairs.clone().all(|(a, b)| (a - b).abs() < 1e-3),
            "{found:?}, {expected:?}"
        );
    };
    close(&found[0], &[2.0 / root, 1.0 / root, -1.0, 1.0]);
    close(&found[1], &[1.0, -1.0, -1.0, 1.0]);
    close(&found[2], &[1.0, -1.0, -1.0, 1.0]);
}
