//! Loops, branches and incomplete programs.

use expect_test::expect;
use halite_core::{
    DType,
    tree::{Empty, Leaf},
};
use halite_nn::{Mean, ScanOptions, Tensor, Trace, grad};

use crate::shared::{check, input};

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
                    cx.metric("inside", Mean::of(x));
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
            +19: update: the state is f32[4, 2], its update is f32[2]; scan over the state to update a slice in each iteration, or give all of it
            +25: cond: `inside` is reported in a body that may not run; return it, and report it outside
            +35: add: operand 0 belongs to another trace, or to the body of a loop or branch that is closed; return it from the body instead (operand 1 is `x`)
        "#]],
    );
}

#[test]
fn too_large_residuals_are_a_mistake() {
    check(
        |cx| {
            for width in [1 << 10, 1 << 40] {
                let x = input(cx, "x", &[width]);
                let Leaf(last) = cx.repeat(1 << 30, Leaf(x), |_, Leaf(x)| Leaf(x.sin()));
                let _ = grad(last.sum_all(), &Leaf(x));
            }
        },
        expect![[r#"
            +4: scan: its gradient saves a value for each step: f32[1073741824, 1099511627776] is larger than any address space
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
    let message = |inputs: &[Tensor<'_>], outputs: &[Tensor<'_>]| {
        cx.graph(inputs, outputs).unwrap_err().to_string()
    };
    assert!(
        message(&[x], &[sum])
            .starts_with("trace: `y` (f32[2]) is used at nn/tests/operation_mistakes/control.rs:"),
        "{}",
        message(&[x], &[sum])
    );
    assert_eq!(
        message(&[x, y], &[kept.unwrap()]),
        "trace: output 0, a tensor f32[2] from the body of a loop or branch, is neither an input of the program nor computed by it"
    );
    assert!(cx.graph(&[x, y], &[sum, x, sum]).is_ok());
}
