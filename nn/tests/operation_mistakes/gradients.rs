//! Gradients that do not exist, and locations in the backward pass.

use expect_test::expect;
use halite_core::{DType, tree::Leaf};
use halite_ir::{CustomCall, Reduction};
use halite_nn::{Over, Tensor, Trace, grad, vjp};

use crate::shared::{check, input};

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
                ..CustomCall::default()
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
            +18: grad: `custom_call` has no gradient here: the derivative of `magic` is unknown; call it as a `CustomOp` with a rule (`CustomOp::gradient`); or apply `stop_gradient`
            +20: grad: the loss, computed at nn/tests/operation_mistakes/gradients.rs:33:59, depends on none of `x` (f32[2]): every path is cut, as by `stop_gradient`, `argmax`, a comparison or a conversion to integers; nothing would be learned
            +26: grad: `bitcast_convert` has no gradient here: the bits of a number have no derivative; use `convert` to keep the value; or apply `stop_gradient`
            +32: grad: `all_reduce` has no gradient here: products over devices are not supported; sum logarithms instead; or apply `stop_gradient`
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
            origin.file().ends_with("gradients.rs"),
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
