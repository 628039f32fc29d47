//! Mistakes in calls of layers and losses: their lines and messages. No program runs.

use halite_core::{
    DType, TensorType, Tree,
    tree::{Leaf, Of},
};
use halite_nn::{
    BatchNorm, Conv2d, CrossEntropy, Dropout, Embedding, GroupNorm, Gru, InstanceNorm, LayerNorm,
    Linear, Lstm, Param, RmsNorm, Schedule, Tensor, Trace, accuracy, cross_entropy, huber, init,
    mse,
    optim::{clip_global_norm, clip_value},
    rng, soft_cross_entropy,
};

/// The model's leaves as inputs of the trace, named by their paths.
fn traced<'t, M: Tree<Leaf = Param>>(cx: &'t Trace, model: &M) -> Of<M, Tensor<'t>> {
    Tree::leaf_refs(model).map_leaves(|path, param| cx.input(param.ty.clone(), path.to_string()))
}

/// Checks that `call` makes one mistake, in this file, whose message contains all of `parts`.
#[track_caller]
fn check(call: impl for<'t> FnOnce(&'t Trace), parts: &[&str]) {
    let cx = Trace::new();
    call(&cx);
    let mistakes = cx.mistakes();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    let text = mistakes[0].to_string();
    assert!(text.contains("tests/mistakes.rs:"), "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

fn f32<'t>(cx: &'t Trace, dims: &[usize]) -> Tensor<'t> {
    cx.input(TensorType::new(DType::F32, dims), "x")
}

fn key(cx: &Trace) -> Tensor<'_> {
    rng::constant_key(cx, rng::key(0))
}

fn s32<'t>(cx: &'t Trace, dims: &[usize]) -> Tensor<'t> {
    cx.input(TensorType::new(DType::S32, dims), "ids")
}

#[test]
fn layer_shape_error_names_line_shapes_parameter() {
    check(
        |cx| {
            let _ = traced(cx, &vec![Linear::new(4, 5)])[0].forward(f32(cx, &[2, 3]));
        },
        &["f32[2, 3]", "f32[4, 5]", "`0.weight`"],
    );
    check(
        |cx| {
            let _ = traced(cx, &Conv2d::new(3, 8, 3)).forward(f32(cx, &[2, 3, 32, 32]));
        },
        &[
            "convolution",
            "f32[2, 3, 32, 32]",
            "f32[3, 3, 3, 8]",
            "`weight`",
        ],
    );
    check(
        |cx| {
            let _ = traced(cx, &Conv2d::new(3, 8, 3)).forward(f32(cx, &[32, 32, 3]));
        },
        &["f32[32, 32, 3]", "f32[3, 3, 3, 8]"],
    );
    check(
        |cx| {
            let _ = traced(cx, &LayerNorm::new(8)).forward(f32(cx, &[2, 7]));
        },
        &["layer norm", "f32[2, 7]", "f32[8]", "`scale`"],
    );
    check(
        |cx| {
            let _ = traced(cx, &RmsNorm::new(8)).forward(s32(cx, &[2, 8]));
        },
        &["rms norm", "s32[2, 8]"],
    );
    check(
        |cx| {
            let _ = traced(cx, &BatchNorm::new(8)).forward(f32(cx, &[]));
        },
        &["batch norm", "f32[]", "f32[8]"],
    );
    check(
        |cx| {
            let _ = traced(cx, &GroupNorm::new(3, 8)).forward(f32(cx, &[2, 4, 8]));
        },
        &["group norm", "3 groups", "f32[2, 4, 8]"],
    );
    check(
        |cx| {
            let _ = traced(cx, &Embedding::new(8, 2)).forward(f32(cx, &[2]));
        },
        &["f32[2]", "integers"],
    );
}

#[test]
fn losses_do_not_broadcast() {
    check(
        |cx| {
            let _ = mse(f32(cx, &[8, 1]), f32(cx, &[8]));
        },
        &["mse", "f32[8, 1]", "f32[8]", "equal dimensions"],
    );
    check(
        |cx| {
            let _ = cross_entropy(f32(cx, &[8, 10]), s32(cx, &[8, 1]));
        },
        &["cross entropy", "f32[8, 10]", "s32[8, 1]"],
    );
    check(
        |cx| {
            let _ = cross_entropy(f32(cx, &[8, 10]), f32(cx, &[8]));
        },
        &["cross entropy", "integers"],
    );
    check(
        |cx| {
            let _ = accuracy(f32(cx, &[8, 10]), s32(cx, &[9]));
        },
        &["accuracy", "s32[9]"],
    );
    check(
        |cx| {
            let _ = soft_cross_entropy(f32(cx, &[8, 10]), f32(cx, &[8]));
        },
        &["soft cross entropy"],
    );
    check(
        |cx| {
            let _ = CrossEntropy::new()
                .label_smoothing(1.5)
                .loss(f32(cx, &[8, 10]), s32(cx, &[8]));
        },
        &["label smoothing 1.5"],
    );
}

#[test]
fn options_out_of_range_are_mistakes() {
    check(
        |cx| {
            let _ = Dropout::new(-0.1).forward(f32(cx, &[2]));
        },
        &["dropout", "-0.1"],
    );
    check(
        |cx| {
            let _ = Dropout::new(f64::NAN).forward(f32(cx, &[2]));
        },
        &["dropout", "NaN"],
    );
    check(
        |cx| {
            cx.set_mode(true, None);
            Dropout::new(0.5).forward(f32(cx, &[2]));
        },
        &["random key"],
    );
    check(
        |cx| {
            let _ = Schedule::constant(1.0).at(f32(cx, &[2]));
        },
        &["schedule", "f32[2]"],
    );
    check(
        |cx| {
            let _ = init(cx, &Linear::new(2, 2), f32(cx, &[2]));
        },
        &["random key", "f32[2]"],
    );
    check(
        |cx| {
            let _ = rng::integers(key(cx), [2], 3, 3);
        },
        &["random integers", "3..3"],
    );
    check(
        |cx| {
            let _ = rng::bits(key(cx), [2], DType::F32);
        },
        &["random bits", "f32"],
    );
    check(
        |cx| {
            let _ = rng::normal(key(cx), [2], DType::S32);
        },
        &["random normal", "s32"],
    );
    for delta in [0.0, -1.0, f64::NAN] {
        check(
            |cx| {
                let _ = huber(f32(cx, &[2]), f32(cx, &[2]), delta);
            },
            &["huber", &format!("delta {delta}")],
        );
    }
    check(
        |cx| {
            let _ = rng::truncated_normal(key(cx), [2], DType::F32, 2.0, -2.0);
        },
        &["random truncated normal", "2..-2"],
    );
}

/// A limit below 0 would turn all gradients around.
#[test]
fn clipping_to_no_positive_limit_is_a_mistake() {
    for limit in [0.0, -1.0, f64::NAN] {
        let limit_is = format!("is {limit}; expected a number above 0");
        check(
            |cx| {
                let (model, grad) = (Param::new([2], halite_nn::Init::Zeros), f32(cx, &[2]));
                let _ = clip_global_norm(cx, &model, Leaf(grad), limit);
            },
            &["`max_norm`", &limit_is],
        );
        check(
            |cx| {
                let _ = clip_value(cx, Leaf(f32(cx, &[2])), limit);
            },
            &["`max`", &limit_is],
        );
    }
}

/// The distance of one value from its mean is 0, whatever the value is.
#[test]
fn norm_of_one_value_is_a_mistake() {
    let one = &["has one value for each mean"];
    check(
        |cx| {
            cx.set_mode(true, None);
            let _ = traced(cx, &BatchNorm::new(8)).forward(f32(cx, &[1, 8]));
        },
        one,
    );
    for dims in [&[4, 8][..], &[4, 1, 8], &[4, 1, 1, 8]] {
        check(
            |cx| {
                let _ = traced(cx, &InstanceNorm::new(8)).forward(f32(cx, dims));
            },
            one,
        );
        check(
            |cx| {
                let _ = traced(cx, &GroupNorm::new(8, 8)).forward(f32(cx, dims));
            },
            one,
        );
    }
    let cx = Trace::new();
    traced(&cx, &GroupNorm::new(4, 8)).forward(f32(&cx, &[4, 8]));
    traced(&cx, &InstanceNorm::new(8)).forward(f32(&cx, &[1, 2, 8]));
    cx.set_mode(false, None);
    traced(&cx, &BatchNorm::new(8)).forward(f32(&cx, &[1, 8]));
    assert!(cx.check().is_ok(), "{:?}", cx.mistakes());
}

#[test]
fn norm_settings_out_of_range_are_mistakes() {
    for momentum in [-0.1, 1.5, f64::NAN] {
        check(
            |cx| {
                let norm = BatchNorm::new(8).momentum(momentum);
                let _ = traced(cx, &norm).forward(f32(cx, &[2, 8]));
            },
            &[
                "batch norm",
                &format!("momentum {momentum}; expected 0 to 1"),
            ],
        );
    }
    let eps_is = "eps -1; expected 0 or a positive number";
    check(
        |cx| {
            let _ = traced(cx, &BatchNorm::new(8).eps(-1.0)).forward(f32(cx, &[2, 8]));
        },
        &["batch norm", eps_is],
    );
    check(
        |cx| {
            let _ = traced(cx, &LayerNorm::new(8).eps(-1.0)).forward(f32(cx, &[2, 8]));
        },
        &["layer norm", eps_is],
    );
}

#[test]
fn lengths_of_sequences_are_checked() {
    check(
        |cx| {
            let lengths = s32(cx, &[3]);
            traced(cx, &Gru::new(2, 4)).forward_padded(f32(cx, &[2, 5, 2]), lengths, None);
        },
        &["gru", "lengths of s32[3]", "expected integers [2]"],
    );
    check(
        |cx| {
            let lengths = f32(cx, &[2]);
            traced(cx, &Lstm::new(2, 4)).forward_padded(f32(cx, &[2, 5, 2]), lengths, None);
        },
        &["lstm", "lengths of f32[2]"],
    );
}

#[test]
fn empty_layers_do_not_panic() {
    let cx = Trace::new();
    cx.set_mode(false, None);
    for dims in [&[0, 4][..], &[4], &[2, 3, 4]] {
        traced(&cx, &Linear::new(4, 0)).forward(f32(&cx, dims));
        traced(&cx, &LayerNorm::new(4)).forward(f32(&cx, dims));
        traced(&cx, &BatchNorm::new(4)).forward(f32(&cx, dims));
    }
    traced(&cx, &Conv2d::new(3, 4, 3).groups(0)).forward(f32(&cx, &[1, 8, 8, 3]));
    rng::permutation(key(&cx), 0);
    assert!(cx.mistakes().is_empty(), "{:?}", cx.mistakes());
}
