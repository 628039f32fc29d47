//! Mistakes in calls of layers and losses: their lines and messages. No program runs.

use halite_core::{DType, TensorType, Tree, tree::Of};
use halite_nn::{
    BatchNorm, Conv2d, CrossEntropy, Dropout, Embedding, GroupNorm, LayerNorm, Linear, Param,
    RmsNorm, Schedule, Tensor, Trace, accuracy, cross_entropy, init, mse, rng, soft_cross_entropy,
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
