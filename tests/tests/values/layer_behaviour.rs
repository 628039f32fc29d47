//! Edge cases of layers, losses, metrics and optimizers on the CPU plugin.

use halite_core::{DType, HostArray, TensorType, Tree, tree::Leaf};
use halite_nn::{
    Adam, BatchNorm, CrossEntropy, Init, LayerNorm, Linear, Mean, Param, Schedule, Sgd, Tensor,
    Trace, correct_top_k, cross_entropy, grad, init, optim, rng,
};
use halite_tests::eval::{client, eval, host};

fn floats(array: &HostArray) -> &[f32] {
    array.as_slice().expect("it is f32")
}

/// Initial values of a model.
fn first<'t, M: Tree<Leaf = Param>>(
    cx: &'t Trace,
    model: &M,
) -> halite_core::tree::Of<M, Tensor<'t>> {
    init(cx, model, rng::constant_key(cx, rng::key(0)))
}

fn row<'t>(cx: &'t Trace, values: &[f64]) -> Tensor<'t> {
    let values: Vec<Tensor<'_>> = values
        .iter()
        .map(|&value| cx.scalar(value, DType::F32))
        .collect();
    cx.stack(&values, 0)
}

#[test]
fn invalid_target_makes_the_loss_nan() {
    let logits = host(&[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0], &[2, 3]);
    let (wrong, right) = (host(&[7i32, 1], &[2]), host(&[1i32, 1], &[2]));
    let results = eval(
        |cx, given| {
            let &[logits, wrong, right] = given else {
                panic!("three inputs")
            };
            let options = CrossEntropy::new;
            let ignored = options().ignore(7).loss(logits, wrong);
            vec![
                cross_entropy(logits, wrong).mean_all(),
                ignored.value(),
                options()
                    .weights(row(cx, &[0.0, 2.0]))
                    .loss(logits, wrong)
                    .value(),
                cross_entropy(logits, right).mean_all(),
                options().ignore(1).loss(logits, right).value(),
                grad(ignored.value(), &Leaf(logits)).0.sum([1]),
            ]
        },
        &[logits, wrong, right],
    );
    let values: Vec<f32> = results[..5].iter().map(|value| floats(value)[0]).collect();
    let one = (1.0 + 1f32.exp() + (-1f32).exp()).ln();
    assert!(values[0].is_nan());
    for value in &values[1..4] {
        assert!((value - one).abs() < 1e-6, "{values:?}, not {one}");
    }
    assert_eq!(values[4], 0.0, "a mean over nothing");
    assert!(
        floats(&results[5]).iter().all(|slope| slope.abs() < 1e-6),
        "what is ignored has no slope, and no NaN"
    );
}

#[test]
fn bf16_loss_is_summed_in_f32() {
    let results = eval(
        |_, given| {
            let f32 = cross_entropy(given[0], given[1]).mean_all();
            let bf16 = cross_entropy(given[0].convert(DType::Bf16), given[1]).mean_all();
            let huge = cross_entropy(given[0] * 1e30, given[1]).mean_all();
            vec![f32, bf16, huge]
        },
        &[
            host(&[0.5f32, -1.0, 2.0, 3.0], &[2, 2]),
            host(&[0u8, 1], &[2]),
        ],
    );
    let value = |index: usize| floats(&results[index])[0];
    assert!(
        (value(0) - value(1)).abs() < 1e-6,
        "these logits are exact in bf16"
    );
    assert_eq!(value(2), 0.0);
}

#[test]
fn accuracy_ranks_ties_by_class_and_nan_first() {
    let logits = [
        [1.0f32, 3.0, 2.0],
        [2.0, 2.0, 1.0],
        [2.0, 2.0, 1.0],
        [f32::NAN, 0.0, 1.0],
        [0.0, 1.0, 2.0],
        [5.0, 1.0, 2.0],
        [f32::NAN, 0.0, 1.0],
    ];
    let target = [1i32, 0, 1, 0, 3, 2, 2];
    let results = eval(
        |_, given| {
            (1..=3)
                .map(|k| correct_top_k(given[0], given[1], k))
                .collect()
        },
        &[host(logits.as_flattened(), &[7, 3]), host(&target, &[7])],
    );
    assert_eq!(floats(&results[0]), [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(floats(&results[1]), [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
    assert_eq!(floats(&results[2]), [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn relu_has_zero_slope_at_zero() {
    let results = eval(
        |_, given| {
            let y = given[0].relu();
            vec![y, grad(y.sum_all(), &Leaf(given[0])).0]
        },
        &[host(&[-1.0f32, 0.0, -0.0, 2.0, f32::NAN], &[5])],
    );
    assert_eq!(floats(&results[0])[..4], [0.0, 0.0, 0.0, 2.0]);
    assert!(floats(&results[0])[4].is_nan());
    assert_eq!(floats(&results[1])[..4], [0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn reused_batch_norm_updates_for_each_batch() {
    let results = eval(
        |cx, given| {
            let layer = first(cx, &BatchNorm::new(1).momentum(0.5));
            cx.set_mode(false, None);
            layer.forward(given[0]);
            let untouched = cx.updated(layer.mean);
            cx.set_mode(true, None);
            layer.forward(given[0]);
            layer.forward(given[0] * 3.0);
            let half = layer.forward(given[0].convert(DType::Bf16));
            let apart = half.convert(DType::F32) - layer.forward(given[0]);
            vec![
                untouched,
                cx.updated(layer.mean) * 1.0,
                apart,
                half.convert(DType::F32),
                cx.updated(layer.variance),
            ]
        },
        &[host(&[1.0f32, 3.0], &[2, 1])],
    );
    assert_eq!(floats(&results[0]), [0.0]);
    // 0 -> 1 -> 3.5 -> 2.75 -> 2.375
    assert_eq!(floats(&results[1]), [2.375]);
    assert!(floats(&results[2]).iter().all(|apart| apart.abs() < 0.01));
}

#[test]
fn norm_of_a_constant_has_finite_gradients() {
    let results = eval(
        |cx, given| {
            let x = given[0];
            cx.set_mode(true, None);
            let layer = first(cx, &LayerNorm::new(4)).forward(x);
            let norm = first(cx, &BatchNorm::new(4));
            let batch = norm.forward(x);
            let _statistics = norm.map_leaves(|_, leaf| cx.updated(leaf));
            let slopes = [layer, batch].map(|y| grad((y * y + y).sum_all(), &Leaf(x)).0);
            vec![layer, batch, slopes[0], slopes[1]]
        },
        &[host(&[7.0f32; 12], &[3, 4])],
    );
    for result in &results {
        assert!(
            floats(result)
                .iter()
                .all(|value| value.is_finite() && value.abs() < 1e-2),
            "{result:?}"
        );
    }
}

#[derive(Tree)]
struct Model<L> {
    layer: Linear<L>,
    norm: BatchNorm<L>,
    tied: Option<L>,
}

fn model() -> Model<Param> {
    Model {
        layer: Linear::new(3, 2),
        norm: BatchNorm::new(2),
        tied: Some(Param::new([2], Init::Ones).frozen()),
    }
}

#[test]
fn frozen_leaves_have_no_slots() {
    let slots = optim::slots(&Adam::new(0.1), &model());
    assert_eq!(
        slots.paths(),
        [
            "layer.weight.first",
            "layer.weight.second",
            "layer.bias.first",
            "layer.bias.second",
            "norm.scale.first",
            "norm.scale.second",
            "norm.bias.first",
            "norm.bias.second",
        ]
    );
    assert!(optim::slots(&Sgd::new(0.1), &model()).paths().is_empty());
    assert_eq!(
        optim::slots(&Sgd::new(0.1).momentum(0.9), &model()).paths()[0],
        "layer.weight.velocity"
    );
    let same = slots.rebuild(slots.leaves());
    assert_eq!(same.paths(), slots.paths());
}

#[test]
fn frozen_leaves_are_not_updated() {
    let results = eval(
        |cx, _| {
            let params = first(cx, &model());
            let adam = Adam::new(Schedule::constant(0.1));
            let slots = first(cx, &optim::slots(&adam, &model()));
            let grads = Tree::leaf_refs(&params).map_leaves(|_, param| param.ones_like());
            let before: Vec<Tensor<'_>> = Tree::leaf_refs(&params)
                .map_leaves(|_, param| *param)
                .into_leaves();
            let step = cx.scalar(0.0, DType::S32);
            let (after, slots) = optim::update(&adam, cx, step, &model(), params, grads, slots);
            let mut outputs: Vec<Tensor<'_>> = after
                .into_leaves()
                .into_iter()
                .zip(before)
                .map(|(new, old)| new - old)
                .collect();
            outputs.extend(slots.into_leaves());
            outputs
        },
        &[],
    );
    let changes: Vec<f32> = results[..7]
        .iter()
        .map(|change| floats(change)[0])
        .collect();
    // weight, bias, scale, bias, running mean, running variance, tied
    for (index, (change, expected)) in changes
        .iter()
        .zip([-0.1, -0.1, -0.1, -0.1, 0.0, 0.0, 0.0])
        .enumerate()
    {
        assert!(
            (change - expected).abs() < 1e-5,
            "leaf {index} changes by {change}, not {expected}"
        );
    }
    assert_eq!(results.len(), 7 + 8);
}

#[test]
fn bf16_parameters_have_f32_updates() {
    let results = eval(
        |cx, _| {
            let model = Leaf(Param::new([2, 2], Init::Constant(1.0)).with_dtype(DType::Bf16));
            let sgd = Sgd::new(0.25).momentum(0.5);
            let slots = first(cx, &optim::slots(&sgd, &model));
            assert_eq!(slots.leaves()[0].dtype(), DType::F32);
            let (params, grads) = (first(cx, &model), Leaf(cx.full(0.5, &model.0.ty)));
            let (Leaf(param), slots) = optim::update(
                &sgd,
                cx,
                cx.scalar(0.0, DType::U32),
                &model,
                params,
                grads,
                slots,
            );
            assert_eq!(param.dtype(), DType::Bf16);
            vec![param.convert(DType::F32), *slots.leaves()[0]]
        },
        &[],
    );
    assert_eq!(floats(&results[0]), [0.875; 4]);
    assert_eq!(floats(&results[1]), [0.5; 4]);
}

#[test]
fn clipping_scales_large_gradients_only() {
    let results = eval(
        |cx, given| {
            let model = [given[0], given[1]]
                .map(|leaf| Leaf(Param::new(leaf.dims(), Init::Zeros)))
                .to_vec();
            let grads = || vec![Leaf(given[0]), Leaf(given[1])];
            let (small, norm) = optim::clip_global_norm(cx, &model, grads(), 10.0);
            let (large, _) = optim::clip_global_norm(cx, &model, grads(), 1.0);
            let infinite = vec![Leaf(given[0] / 0.0), Leaf(given[1])];
            let (broken, _) = optim::clip_global_norm(cx, &model, infinite, 1.0);
            let values = optim::clip_value(cx, grads(), 2.0);
            let none: Vec<Leaf<Tensor<'_>>> = vec![];
            vec![
                norm,
                small[0].0,
                optim::global_norm(cx, &large),
                broken[0].0,
                values[1].0,
                optim::global_norm(cx, &none),
            ]
        },
        &[host(&[3.0f32, 0.0], &[2]), host(&[-4.0f32], &[1])],
    );
    assert_eq!(floats(&results[0]), [5.0]);
    assert_eq!(floats(&results[1]), [3.0, 0.0]);
    assert!((floats(&results[2])[0] - 1.0).abs() < 1e-5);
    assert!(floats(&results[3])[0].is_nan());
    assert_eq!(floats(&results[4]), [-2.0]);
    assert_eq!(floats(&results[5]), [0.0]);
}

#[test]
fn small_model_learns_xor() {
    let results = eval(
        |cx, given| {
            let description = vec![Linear::new(2, 16), Linear::new(16, 2)];
            let adam = Adam::new(Schedule::warmup(0.05, 5).then(Schedule::cosine(0.05, 55)));
            let (mut params, mut slots) = (
                first(cx, &description),
                first(cx, &optim::slots(&adam, &description)),
            );
            let mut losses = Vec::new();
            for step in 0..60 {
                let logits = params[1].forward(params[0].forward(given[0]).gelu());
                let loss = cross_entropy(logits, given[1]).mean_all();
                losses.push(loss);
                let grads = grad(loss, &params);
                let step = cx.scalar(f64::from(step), DType::U32);
                (params, slots) =
                    optim::update(&adam, cx, step, &description, params, grads, slots);
            }
            vec![losses[0], losses[59]]
        },
        &[
            host(&[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], &[4, 2]),
            host(&[0u8, 1, 1, 0], &[4]),
        ],
    );
    let (before, after) = (floats(&results[0])[0], floats(&results[1])[0]);
    assert!(
        before > 0.5 && after < 0.1,
        "the loss goes from {before} to {after}"
    );
}

#[test]
fn result_types_follow_the_input() {
    let cx = Trace::new();
    for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
        let x = cx.input(TensorType::new(dtype, [2, 3, 4]), "x");
        let layer = LayerNorm::new(4).map_leaves(|_, param| cx.full(1.0, &param.ty));
        assert_eq!(layer.forward(x).ty(), x.ty());
        assert_eq!(x.gelu().ty(), x.ty());
        assert_eq!(x.softplus().ty(), x.ty());
        let accumulated = if dtype == DType::F64 {
            DType::F64
        } else {
            DType::F32
        };
        assert_eq!(halite_nn::mse(x, x).mean_all().dtype(), accumulated);
    }
    assert!(cx.mistakes().is_empty(), "{:?}", cx.mistakes());
}

#[test]
fn means_of_small_types_use_f32() {
    let results = eval(
        |_, given| {
            let short = [DType::F16, DType::Bf16, DType::U8, DType::Bool]
                .map(|dtype| given[0].convert(dtype));
            let plain = short.iter().map(|&ones| Mean::of(ones));
            let weighted = short.iter().map(|&ones| Mean::weighted(ones, ones));
            plain
                .chain(weighted)
                .flat_map(|mean| [mean.weight, mean.value()])
                .collect()
        },
        &[host(&[1.0f32; 70_001], &[70_001])],
    );
    // XLA divides approximately on GPUs (decision 0054).
    let apart = match client().platform().name.as_ref() {
        "cuda" => f32::EPSILON,
        _ => 0.0,
    };
    for mean in results.chunks(2) {
        assert_eq!(floats(&mean[0]), [70_001.0]);
        let mean = floats(&mean[1])[0];
        assert!((mean - 1.0).abs() <= apart, "{mean}");
    }
}

#[test]
fn one_hot_of_u8_does_not_wrap() {
    let results = eval(
        |_, given| vec![given[0].one_hot(600, DType::F32)],
        &[host(&[3u8, 255], &[2])],
    );
    let mut expected = vec![0.0f32; 1200];
    (expected[3], expected[600 + 255]) = (1.0, 1.0);
    assert_eq!(floats(&results[0]), expected);
}
