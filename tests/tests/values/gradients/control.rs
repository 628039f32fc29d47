use halite_core::{DType, tree::Leaf};
use halite_nn::grad;
use halite_tests::eval::{eval, host, try_eval};

use crate::gradients::Case;

#[test]
fn the_branch_that_ran_has_the_gradient() {
    for index in [0, 1, 2, 7] {
        Case::noise(&[&[3], &[3]])
            .with(&[host::<i32>(&[index], &[])])
            .check(&format!("case {index}"), |cx, x| {
                let (a, b) = (x[0], x[1]);
                let outside = a.sin();
                let chosen = cx.case(x[2], 3, |branch| match branch {
                    0 => (Leaf(a * outside), Leaf(b)),
                    1 => (Leaf(b.exp() * a), Leaf(outside)),
                    _ => (Leaf(b * 2.0), Leaf(b * b)),
                });
                vec![chosen.0.0, chosen.1.0]
            });
    }
}

#[test]
fn branches_within_branches() {
    for (x, y) in [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0)] {
        Case::at(&[host(&[x], &[]), host(&[y], &[])]).check(&format!("cond {x} {y}"), |cx, at| {
            let (x, y) = (at[0], at[1]);
            let scale = x.cos() + 2.0;
            let Leaf(result) = cx.cond(
                x.gt(0.0),
                || {
                    let inner = (x * scale).sin();
                    cx.cond(y.gt(0.0), || Leaf(inner * y * scale), || Leaf(inner.exp()))
                },
                || Leaf(x * x * y),
            );
            vec![result]
        });
    }
}

#[test]
fn a_gradient_stopped_in_a_branch_stays_stopped() {
    let results = eval(
        |cx, x| {
            let x = x[0];
            let Leaf(y) = cx.cond(
                x.gt(0.0),
                || Leaf((x * 3.0).stop_gradient() * x + x.stop_gradient() * x),
                || Leaf(x),
            );
            vec![y, grad(y, &Leaf(x)).0]
        },
        &[host(&[2.0], &[])],
    );
    assert_eq!(results, [host(&[16.0], &[]), host(&[8.0], &[])]);
}

#[test]
fn nested_loops_capture_values() {
    let results = eval(
        |cx, x| {
            let (limit, factor) = (x[0], x[1]);
            let grown = cx.while_loop(
                (
                    Leaf(cx.scalar(1.0, DType::F64)),
                    Leaf(cx.scalar(0.0, DType::S32)),
                ),
                |state| state.0.0.lt(limit),
                |(value, count)| (Leaf(value.0 * factor), Leaf(count.0 + 1)),
            );
            // Sum over i < 4 of sum over j < 3 of (i * j + factor).
            let sum = cx.repeat(4, Leaf(cx.scalar(0.0, DType::F64)), |i, Leaf(sum)| {
                let i = i.convert(DType::F64);
                cx.repeat(3, Leaf(sum), |j, Leaf(sum)| {
                    Leaf(sum + i * j.convert(DType::F64) + factor)
                })
            });
            let none = cx.repeat(0, Leaf(factor), |_, Leaf(x)| Leaf(x * 2.0));
            vec![grown.0.0, grown.1.0, sum.0, none.0]
        },
        &[host(&[100.0], &[]), host(&[3.0], &[])],
    );
    assert_eq!(
        results,
        [
            host(&[243.0], &[]),
            host(&[5i32], &[]),
            host(&[18.0 + 36.0], &[]),
            host(&[3.0], &[])
        ]
    );
}

#[test]
fn a_loop_takes_gradients_in_its_body() {
    // Ten steps of gradient descent on (w - 3)^2, on the device.
    let results = eval(
        |cx, x| {
            let target = x[0];
            let Leaf(w) = cx.repeat(10, Leaf(cx.scalar(0.0, DType::F64)), |_, Leaf(w)| {
                let loss = (w - target).square();
                Leaf(w - grad(loss, &Leaf(w)).0 * 0.25)
            });
            vec![w]
        },
        &[host(&[3.0], &[])],
    );
    let w = results[0].item::<f64>().unwrap();
    assert!((w - 3.0 * (1.0 - 0.5f64.powi(10))).abs() < 1e-12, "{w}");
}

#[test]
fn while_has_no_gradient() {
    let error = try_eval(
        |cx, x| {
            let Leaf(y) = cx.while_loop(Leaf(x[0]), |x| x.0.lt(3.0), |Leaf(x)| Leaf(x * 2.0));
            vec![grad(y, &Leaf(x[0])).0]
        },
        &[host(&[1.0], &[])],
    )
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("control.rs:") && error.contains("grad: `while` has no gradient here"),
        "{error}"
    );
    assert!(error.contains("use `scan` or `repeat`"), "{error}");
}
