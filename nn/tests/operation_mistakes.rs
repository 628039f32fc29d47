//! Messages of mistakes: line, operation, values, and what would work; all reported at once.

use expect_test::{Expect, expect};
use halite_core::{
    DType, TensorType,
    tree::{Empty, Leaf},
};
use halite_ir::{CustomCall, Gather, Reduction};
use halite_nn::{
    ConvOptions, CrossEntropy, Mean, Over, Padding, ScanOptions, Tensor, Trace, grad, rng, vjp,
};

/// Checks the mistakes of `traced`, with lines relative to the call of `check`, without columns.
#[track_caller]
fn check(traced: impl for<'t> FnOnce(&'t Trace), expected: Expect) {
    let first = std::panic::Location::caller().line();
    let cx = Trace::new();
    traced(&cx);
    let line = |mistake: &halite_nn::Mistake| {
        assert!(
            mistake.location.file().ends_with("operation_mistakes.rs"),
            "{mistake}"
        );
        format!(
            "+{}: {}: {}\n",
            mistake.location.line() - first,
            mistake.op,
            mistake.message
        )
    };
    let told: String = cx.mistakes().iter().map(line).collect();
    expected.assert_eq(&told);
}

fn input<'t>(cx: &'t Trace, name: &str, dims: &[usize]) -> Tensor<'t> {
    cx.input(TensorType::new(DType::F32, dims), name)
}

#[test]
fn shape_error_names_line_op_shapes_parameter() {
    check(
        |cx| {
            let x = input(cx, "x", &[8, 784]);
            let weight = input(cx, "hidden.weight", &[512, 784]);
            let _ = x.matmul(weight);
        },
        expect![[r#"
            +4: dot: contracting dimension 1 of f32[8, 784] is 784, dimension 0 of f32[512, 784] is 512 (operand 0 is `x`, operand 1 is `hidden.weight`)
        "#]],
    );
}

#[test]
fn only_root_causes_are_reported() {
    check(
        |cx| {
            let x = input(cx, "x", &[2, 3]);
            let y = input(cx, "y", &[4]);
            let wrong = x + y;
            let follows = (wrong * 2.0).exp().sum([0]).reshape([7]).softmax(0);
            assert!(follows.is_error());
            let _ = x.reshape([5]);
            let _ = x.convert(DType::S32) * 0.5;
            let _ = x.and(x);
            let _ = x + x.convert(DType::F64);
        },
        expect![[r#"
            +4: add: shapes are not broadcastable: f32[2, 3] and f32[4]; aligned at the last dimension, sizes must be equal or 1 (operand 0 is `x`, operand 1 is `y`)
            +7: reshape: f32[2, 3] has 6 elements, f32[5] has 5; a reshape keeps them all (operand 0 is `x`)
            +8: number: s32 cannot represent 0.5; convert the tensor first
            +9: and: f32[2, 3] has elements of type f32; takes bool and integers (operand 0 is `x`, operand 1 is `x`)
            +10: add: f32[2, 3] and f64[2, 3] differ; elementwise operations need equal types (convert one first) (operand 0 is `x`)
        "#]],
    );
}

#[test]
fn missing_dimensions_are_mistakes() {
    check(
        |cx| {
            let x = input(cx, "x", &[2, 3]);
            let scalar = input(cx, "scalar", &[]);
            let _ = x.sum([2]);
            let _ = scalar.max([0]);
            let _ = x.mean([1, 1]);
            let _ = x.softmax(5);
            let _ = x.argmax(2);
            let _ = x.swap_dims(0, 2);
            let _ = scalar.t();
            let _ = x.squeeze(1);
            let _ = x.unsqueeze(3);
            let _ = x.transpose([0, 0]);
            let _ = x.slice_dim(1, 1..9);
            let _ = x.slice_dim(3, ..);
            let _ = x.split(1, 2);
            let _ = x.index(0, 2);
            let _ = x.cumsum(2);
            let _ = x.sort(2, false);
            let _ = x.top_k(4, 1);
            let _ = x.flatten_from(3);
            let _ = cx.concat(&[], 0);
            let _ = cx.concat(&[x, scalar], 0);
            let _ = x.broadcast_to([3]);
        },
        expect![[r#"
            +4: sum: dimension 2 of f32[2, 3], whose dimensions are 0 to 1 (operand 0 is `x`)
            +5: max: dimension 0 of f32[], which has none (operand 0 is `scalar`)
            +6: mean: dimension 1 appears twice in [1, 1] (operand 0 is `x`)
            +7: softmax: dimension 5 of f32[2, 3], whose dimensions are 0 to 1 (operand 0 is `x`)
            +8: argmax: dimension 2 of f32[2, 3], whose dimensions are 0 to 1 (operand 0 is `x`)
            +9: swap dimensions: dimension 2 of f32[2, 3], whose dimensions are 0 to 1 (operand 0 is `x`)
            +10: transpose: f32[] is not a matrix (operand 0 is `scalar`)
            +11: squeeze: dimension 1 of f32[2, 3] is not 1 (operand 0 is `x`)
            +12: unsqueeze: no place 3 in f32[2, 3]: places are 0 to 2 (operand 0 is `x`)
            +13: transpose: dimension 0 of f32[2, 3] appears twice in [0, 0] (operand 0 is `x`)
            +14: slice: 1..9 of dimension 1 of f32[2, 3], whose indices are 0..3 (operand 0 is `x`)
            +15: slice: dimension 3 of f32[2, 3], whose dimensions are 0 to 1 (operand 0 is `x`)
            +16: split: dimension 1 of f32[2, 3] cannot be split into 2 equal parts (operand 0 is `x`)
            +17: index: no 2 in dimension 0 of f32[2, 3] (operand 0 is `x`)
            +18: cumulative sum: dimension 2 of f32[2, 3], whose dimensions are 0 to 1 (operand 0 is `x`)
            +19: sort: dimension 2 of f32[2, 3], whose dimensions are 0 to 1 (operand 0 is `x`)
            +20: top k: 4 largest along dimension 1 of f32[2, 3] (operand 0 is `x`)
            +21: flatten: from dimension 3 of f32[2, 3], which has 2 (operand 0 is `x`)
            +22: concatenate: no tensors given
            +23: concatenate: f32[2, 3] and f32[] along dimension 0: the element type and all other dimensions must be equal (operand 0 is `x`, operand 1 is `scalar`)
            +24: broadcast: f32[2, 3] has more dimensions than [3] (operand 0 is `x`)
        "#]],
    );
}

#[test]
fn index_errors_name_what_is_expected() {
    check(
        |cx| {
            let x = input(cx, "x", &[2, 3]);
            let image = input(cx, "image", &[1, 8, 8, 3]);
            let kernel = input(cx, "conv.kernel", &[3, 3, 4, 16]);
            let _ = x.take(x, 0);
            let _ = x.one_hot(3, DType::F32);
            let _ = x.take_along(cx.iota(&TensorType::new(DType::S32, [3, 3]), 0), 1);
            let _ = x.gather(
                cx.arange(2, DType::S32),
                Gather {
                    offset_dims: vec![9],
                    collapsed_slice_dims: vec![4],
                    operand_batching_dims: vec![],
                    indices_batching_dims: vec![],
                    start_index_map: vec![],
                    index_vector_dim: 7,
                    slice_sizes: vec![],
                },
            );
            let _ = image.conv(kernel, &ConvOptions::default());
            let _ = image.conv(
                kernel,
                &ConvOptions {
                    strides: vec![1],
                    ..ConvOptions::default()
                },
            );
            let _ = image.conv(
                kernel,
                &ConvOptions {
                    strides: vec![0, 1],
                    ..ConvOptions::default()
                },
            );
            let _ = x.conv(kernel, &ConvOptions::default());
            let _ = image.max_pool([2], [], Padding::Valid);
            let _ = image.max_pool([2, 0], [], Padding::Valid);
            let _ = image.avg_pool([2, 2], [], Padding::Explicit(vec![(0, 0)]));
            let _ = image.max_pool([2, 2], [], Padding::Explicit(vec![(-1, 0), (0, 0)]));
            let _ = x.convert(DType::S32).mean([0]);
            let _ = x.all_gather(0, Over::ALL);
        },
        expect![[r#"
            +5: take: f32[2, 3] is not a tensor of integers; convert it first (operand 0 is `x`)
            +6: one hot: f32[2, 3] is not a tensor of integers; convert it first (operand 0 is `x`)
            +7: take along: indices s32[3, 3] along dimension 1 of f32[2, 3]: the other dimensions must be equal (operand 0 is `x`)
            +8: gather: index vector dimension 7 of the indices s32[2]; it must be at most 1 (operand 0 is `x`)
            +20: convolution: f32[1, 8, 8, 3] has 3 features (dimension 3) in 1 group, the kernel f32[3, 3, 4, 16] takes 4 (dimension 2) (operand 0 is `image`, operand 1 is `conv.kernel`)
            +21: window: 1 strides given for f32[1, 8, 8, 3], which needs 2 (operand 0 is `image`)
            +28: window: strides [0, 1]: each must be at least 1 (operand 0 is `image`)
            +35: convolution: f32[2, 3] with kernel f32[3, 3, 4, 16]; expected [batch, spatial.., in] and [spatial.., in, out] (operand 0 is `x`, operand 1 is `conv.kernel`)
            +36: max pool: 1 window sizes given for f32[1, 8, 8, 3], which needs 2 (operand 0 is `image`)
            +37: window: sizes [2, 0]: each must be at least 1 (operand 0 is `image`)
            +38: average pool: padding of 1 dimensions given for 2 spatial dimensions (operand 0 is `image`)
            +39: max pool: negative padding [(-1, 0), (0, 0)] (operand 0 is `image`)
            +40: mean: s32[2, 3] is not a tensor of floats; convert it first
            +41: all_gather: the groups are empty, and the result depends on their size: name the devices, such as [[0, 1]] (operand 0 is `x`)
        "#]],
    );
}

#[test]
fn control_flow_errors_name_the_leaf() {
    check(
        |cx| {
            let x = input(cx, "x", &[2]);
            let n = cx.scalar(0.0, DType::S32);
            let _ = cx.while_loop(
                vec![Leaf(x), Leaf(n)],
                |_| x.sum_all().gt(0.0),
                |s| vec![Leaf(s[0].0.sum([0])), Leaf(s[1].0)],
            );
            let _ = cx.while_loop(Leaf(x), |x| x.0.gt(0.0), |x| x);
            let _ = cx.repeat(3, vec![Leaf(x)], |_, s| vec![s[0], s[0]]);
            let _ = cx.cond(
                x.sum_all().gt(0.0),
                || (Leaf(x), Leaf(n)),
                || (Leaf(x), Leaf(n.convert(DType::F32))),
            );
            let _ = cx.cond(n, || Leaf(x), || Leaf(x));
            let _ = cx.case(x, 2, |_| Leaf(x));
            let _ = cx.cond(n.gt(0), || Leaf(x.reshape([3])), || Leaf(x));
        },
        expect![[r#"
            +4: while: `0` of the initial state is f32[2], `0` of the body's result is f32[]; the types must be equal
            +9: while: the condition returns bool[2]; it must return bool[]
            +10: repeat: the initial state and the body's result differ: the trees differ in structure: only the right has `1` (number of leaves: 1 left, 2 right)
            +11: cond: `1` of `on_false` is f32[], `1` of `on_true` is s32[]; the types must be equal
            +16: cond: the predicate is s32[]; it must be bool[]
            +17: case: the index is f32[2]; it must be s32[] (operand 0 is `x`)
            +18: reshape: f32[2] has 2 elements, f32[3] has 3; a reshape keeps them all (operand 0 is `x`)
        "#]],
    );
}

#[test]
fn tensor_of_a_closed_body_is_a_mistake() {
    check(
        |cx| {
            let x = input(cx, "x", &[2]);
            let mut kept = None;
            let _ = cx.cond(
                x.sum_all().gt(0.0),
                || {
                    kept = Some(x * 2.0);
                    Leaf(x)
                },
                || Leaf(x),
            );
            let kept = kept.unwrap();
            let _ = kept + x;
            let _ = cx.cond(x.sum_all().gt(0.0), || Leaf(kept), || Leaf(x));
            let _ = cx.while_loop(Leaf(x), |_| kept.sum_all().gt(0.0), |x| x);
            let _ = grad(x.sum_all(), &Leaf(kept));
            assert_eq!(
                cx.graph(&[x], &[x]).unwrap_err().message().lines().next(),
                Some("4 mistakes in the traced code:"),
                "the errors of the condition follow from its first"
            );
        },
        expect![[r#"
            +13: add: operand 0 belongs to another trace, or to the body of a loop or branch that is closed; return it from the body instead (operand 1 is `x`)
            +14: cond: the result belongs to another trace, or to the body of a loop or branch that is closed; return it from the body instead
            +15: reduce_sum: operand 0 belongs to another trace, or to the body of a loop or branch that is closed; return it from the body instead
            +16: grad: f32[2] belongs to another trace, or to the body of a loop or branch that is closed; return it from the body instead
        "#]],
    );
}

#[test]
fn scan_errors_are_explained() {
    check(
        |cx| {
            let (x, xs) = (input(cx, "x", &[2]), input(cx, "xs", &[4, 2]));
            let _ = cx.scan(Leaf(x), Leaf(cx.scalar(1.0, DType::F32)), |s, x| (s, x));
            let _ = cx.scan(Leaf(x), (Leaf(xs), Leaf(x)), |s, (x, _)| (s, x));
            let _ = cx.scan_with(
                ScanOptions {
                    length: Some(3),
                    reverse: true,
                },
                Leaf(x),
                Leaf(xs),
                |s, x| (s, x),
            );
            let _ = cx.scan(Leaf(x), Empty::new(), |s, nothing: Empty<Tensor<'_>>| {
                (s, nothing)
            });
            let _ = cx.scan(Leaf(x), Leaf(xs), |_, Leaf(x)| (Leaf(x.sum_all()), Leaf(x)));
            let _ = cx.repeat(usize::MAX, Leaf(x), |_, x| x);
            let (Leaf(last), Leaf(all)) = cx.scan(Leaf(x), Leaf(xs), |s, Leaf(x)| {
                cx.update(xs, x);
                (s, Leaf(x))
            });
            let _ = cx.repeat(2, Leaf(x), |_, Leaf(x)| Leaf(x + last));
            assert_eq!(all.ty().to_string(), "f32[4, 2]");
            let _ = cx.cond(
                x.sum_all().gt(0.0),
                || Leaf(x),
                || {
                    cx.metric("inside", x.mean_all());
                    Leaf(x)
                },
            );
            let mut kept = None;
            let _ = cx.checkpoint(|| Leaf(*kept.insert(x.sin())));
            let _ = kept.unwrap() + x;
        },
        expect![[r#"
            +3: scan: the scanned tensors is f32[]; it must have a first dimension to take slices of
            +4: scan: `0` of the scanned tensors, f32[4, 2], means 4 iterations; `1` of the scanned tensors is f32[2], whose first dimension is 2
            +5: scan: `length` means 3 iterations; the scanned tensors is f32[4, 2], whose first dimension is 4
            +14: scan: the number of iterations is unknown without scanned tensors; set `ScanOptions::length`
            +17: scan: the initial state is f32[2], the body's result is f32[]; the types must be equal
            +18: repeat: 18446744073709551615 iterations exceed the range of s32
            +19: update: the updated state is not a slice of the iteration; scan over it, or carry it
            +25: cond: `inside` is reported in a body that may not run; return it, and report it outside
            +35: add: operand 0 belongs to another trace, or to the body of a loop or branch that is closed; return it from the body instead (operand 1 is `x`)
        "#]],
    );
}

#[test]
fn incomplete_program_is_an_error() {
    let cx = Trace::new();
    let (x, y) = (input(&cx, "x", &[2]), input(&cx, "y", &[2]));
    let sum = x + y;
    let mut kept = None;
    let _ = cx.repeat(2, Leaf(x), |_, Leaf(x)| {
        kept = Some(x);
        Leaf(x * 2.0)
    });
    let told = |inputs: &[Tensor<'_>], outputs: &[Tensor<'_>]| {
        cx.graph(inputs, outputs).unwrap_err().to_string()
    };
    assert!(
        told(&[x], &[sum])
            .starts_with("trace: `y` (f32[2]) is used at nn/tests/operation_mistakes.rs:"),
        "{}",
        told(&[x], &[sum])
    );
    assert_eq!(
        told(&[x, y], &[kept.unwrap()]),
        "trace: output 0, a tensor f32[2] from the body of a loop or branch, is neither an input of the program nor computed by it"
    );
    assert!(cx.graph(&[x, y], &[sum, x, sum]).is_ok());
}

#[test]
fn missing_gradients_are_explained() {
    check(
        |cx| {
            let x = input(cx, "x", &[2]);
            let _ = grad(x, &Leaf(x));
            let _ = grad(x.sum_all().convert(DType::S32), &Leaf(x));
            let _ = vjp(&[x], &[x.sum_all()], &Leaf(x));
            let _ = vjp(&[x], &[], &Leaf(x));
            let looped = cx
                .while_loop(Leaf(x), |x| x.0.sum_all().lt(9.0), |Leaf(x)| Leaf(x * 2.0))
                .0;
            let _ = grad(looped.sum_all(), &Leaf(x));
            let call = CustomCall {
                target: "magic".into(),
                attributes: vec![],
                results: vec![x.ty()],
                side_effect: false,
            };
            let called = cx.custom_call(call, &[x])[0];
            let _ = grad(called.sum_all(), &Leaf(x));
            let _ = grad(
                x.bitcast(DType::S32).bitcast(DType::F32).sum_all(),
                &Leaf(x),
            );
            let _ = grad(
                x.convert(DType::F16)
                    .bitcast(DType::Bf16)
                    .convert(DType::F32)
                    .sum_all(),
                &Leaf(x),
            );
            let _ = grad(
                x.all_reduce(Reduction::Product, Over::ALL).sum_all(),
                &Leaf(x),
            );
            // With the gradient stopped, they are constants.
            let loss = (looped.stop_gradient() * x + called.stop_gradient()).sum_all();
            assert!(!grad(loss, &Leaf(x)).0.is_error());
        },
        expect![[r#"
            +3: grad: the loss is f32[2]; it must be a scalar of floats: reduce it first, as by `mean_all` (operand 0 is `x`)
            +4: grad: the loss is s32[]; it must be a scalar of floats: integers have no gradient
            +5: grad: the output is f32[2], its cotangent f32[]; the types must be equal
            +6: grad: 1 outputs and 0 cotangents; there must be one for each
            +8: grad: `while` has no gradient here: it has a dynamic trip count and cannot be differentiated in reverse mode; use `scan` or `repeat`, or take the gradient inside its body; or apply `stop_gradient`
            +17: grad: `custom_call` has no gradient here: the derivative of `magic` is unknown; give it to `vjp` in two parts, with its own backward call between them; or apply `stop_gradient`
            +19: grad: the loss, computed at nn/tests/operation_mistakes.rs:364:59, depends on none of `x` (f32[2]): every path is cut, as by `stop_gradient`, `argmax`, a comparison or a conversion to integers; nothing would be learned
            +25: grad: `bitcast_convert` has no gradient here: the bits of a number have no derivative; use `convert` to keep the value; or apply `stop_gradient`
            +31: grad: `all_reduce` has no gradient here: products over devices are not supported; sum logarithms instead; or apply `stop_gradient`
        "#]],
    );
}

#[test]
fn unused_inputs_have_zero_gradients() {
    check(
        |cx| {
            let (x, y) = (input(cx, "x", &[2]), input(cx, "y", &[3]));
            let gradients = grad(x.sum_all(), &vec![Leaf(x), Leaf(y)]);
            let types: Vec<String> = gradients
                .iter()
                .map(|gradient| gradient.0.ty().to_string())
                .collect();
            assert_eq!(types, ["f32[2]", "f32[3]"]);
        },
        expect![[""]],
    );
}

#[test]
fn gradient_operations_have_the_users_line() {
    #[track_caller]
    fn layer<'t>(x: Tensor<'t>, weight: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(std::panic::Location::caller());
        x.matmul(weight).relu().softmax(1)
    }
    let cx = Trace::new();
    let (x, weight) = (input(&cx, "x", &[2, 3]), input(&cx, "weight", &[3, 4]));
    let used_at = line!() + 1;
    let loss = layer(x, weight).square().sum_all();
    let slope = grad(loss, &Leaf(weight)).0;
    let graph = cx.graph(&[x, weight], &[slope]).unwrap();
    assert!(graph.nodes().len() > 10);
    for node in graph.nodes() {
        let origin = node.origin.unwrap();
        assert!(
            origin.file().ends_with("operation_mistakes.rs"),
            "{:?} comes from {origin}",
            node.op
        );
        assert!(
            (used_at..=used_at + 1).contains(&origin.line()),
            "{:?} comes from {origin}",
            node.op
        );
    }
}

#[test]
fn unrepresentable_number_is_a_mistake() {
    check(
        |cx| {
            let labels = cx.input(TensorType::new(DType::U8, [2]), "labels");
            let _ = labels.eq(-1);
            let _ = labels.ge(300);
            let _ = labels.convert(DType::Bool).eq(2);
            let _ = labels.convert(DType::S64) + 9_223_372_036_854_775_808.0;
            let _ = labels.convert(DType::S32).eq(f64::NAN);
            let held = [
                labels.eq(255),
                labels.convert(DType::S8).ge(-128),
                labels.convert(DType::Bool).eq(1),
            ];
            assert!(held.iter().all(|held| !held.is_error()));
        },
        expect![[r#"
            +3: number: u8 cannot represent -1; convert the tensor first
            +4: number: u8 cannot represent 300; convert the tensor first
            +5: number: bool cannot represent 2; convert the tensor first
            +6: number: s64 cannot represent 9223372036854776000; convert the tensor first
            +7: number: s32 cannot represent NaN; convert the tensor first
        "#]],
    );
}

#[test]
fn loss_weights_do_not_broadcast() {
    check(
        |cx| {
            let losses = input(cx, "losses", &[4]);
            let weights = input(cx, "weights", &[4, 1]);
            let _ = Mean::weighted(losses, weights);
            let (logits, target) = (
                input(cx, "logits", &[4, 3]),
                cx.input(TensorType::new(DType::U8, [4]), "target"),
            );
            let _ = CrossEntropy::new().weights(weights).loss(logits, target);
            let _ = CrossEntropy::new()
                .class_weights(losses)
                .loss(logits, target);
        },
        expect![[r#"
            +4: weighted mean: values f32[4] and weights f32[4, 1]; expected equal dimensions
            +9: cross entropy: weights f32[4, 1] for logits f32[4, 3]; expected dimensions [4]
            +12: cross entropy: class weights f32[4] for logits f32[4, 3]; expected dimensions [3]
        "#]],
    );
}

#[test]
fn oversized_random_draw_is_one_mistake() {
    check(
        |cx| {
            let key = rng::constant_key(cx, rng::key(0));
            let dims = [usize::MAX, 3];
            let noise = rng::normal(key, dims, DType::F32);
            let _ = (noise.flatten(), Mean::of(noise).value());
            let _ = rng::bits(key, [0, usize::MAX, usize::MAX], DType::U64);
            let _ = rng::integers(key, dims, 0, 9);
            let _ = rng::permutation(key, usize::MAX);
            let _ = rng::split_many(key, usize::MAX);
            let _ = rng::categorical(key, noise);
        },
        expect![[r#"
            +4: random normal: f32[18446744073709551615, 3] is larger than any address space
            +6: random bits: u64[0, 18446744073709551615, 18446744073709551615] is larger than any address space
            +7: random integers: s32[18446744073709551615, 3] is larger than any address space
            +8: random permutation: s32[18446744073709551615] is larger than any address space
            +9: random split: u32[18446744073709551615, 2] is larger than any address space
        "#]],
    );
}

#[test]
fn overflowing_windows_are_mistakes() {
    check(
        |cx| {
            let image = input(cx, "image", &[1, 8, 8, 3]);
            let kernel = input(cx, "kernel", &[3, 3, 3, 16]);
            let far = vec![usize::MAX; 2];
            for padding in [Padding::Valid, Padding::Same] {
                let of = |strides: &[usize]| ConvOptions {
                    strides: strides.into(),
                    padding: padding.clone(),
                    ..Default::default()
                };
                let _ = image.conv(
                    kernel,
                    &ConvOptions {
                        kernel_dilation: far.clone(),
                        ..of(&[])
                    },
                );
                let _ = image.conv(
                    kernel,
                    &ConvOptions {
                        input_dilation: far.clone(),
                        ..of(&[])
                    },
                );
                let _ = image.conv(kernel, &of(&far));
                let _ = image.avg_pool(&far, [], padding.clone());
            }
            let none = input(cx, "none", &[0, 1 << 40, 1 << 40]);
            let _ = (none.flatten_from(1), none.mean([1, 2]));
        },
        expect![[r#"
            +11: convolution: stride or dilation 18446744073709551615 is larger than 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +18: convolution: stride or dilation 18446744073709551615 is larger than 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +25: convolution: stride or dilation 18446744073709551615 is larger than 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +26: reduce_window: window sizes 18446744073709551615 is larger than 9223372036854775807 (operand 0 is `image`)
            +11: convolution: stride or dilation 18446744073709551615 is larger than 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +18: convolution: stride or dilation 18446744073709551615 is larger than 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +25: convolution: stride or dilation 18446744073709551615 is larger than 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +26: reduce_window: window sizes 18446744073709551615 is larger than 9223372036854775807 (operand 0 is `image`)
            +29: reshape: f32[0, 18446744073709551615] is larger than any address space (operand 0 is `none`)
        "#]],
    );
}
