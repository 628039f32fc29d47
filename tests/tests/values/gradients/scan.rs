use halite_core::{
    DType, TensorType,
    tree::{Empty, Leaf},
};
use halite_ir::Remat;
use halite_nn::{ScanOptions, Tensor, Trace, grad};
use halite_tests::eval::{eval, host, noise};

use crate::gradients::Case;

/// A recurrent network: `h = tanh(x w + h u + b)`, its states and the last one.
fn recurrent<'t>(cx: &'t Trace, x: &[Tensor<'t>], reverse: bool) -> Vec<Tensor<'t>> {
    let [xs, h, w, u, b] = x[..5] else {
        unreachable!()
    };
    let (Leaf(last), Leaf(states)) = cx.scan_with(
        ScanOptions {
            reverse,
            ..ScanOptions::default()
        },
        Leaf(h),
        Leaf(xs),
        |Leaf(h), Leaf(x)| {
            let h = (x.matmul(w) + h.matmul(u) + b).tanh();
            (Leaf(h), Leaf(h))
        },
    );
    vec![last, states]
}

const RECURRENT: [&[usize]; 5] = [&[5, 2, 3], &[2, 4], &[3, 4], &[4, 4], &[4]];

#[test]
fn a_recurrent_network_in_both_directions() {
    for reverse in [false, true] {
        Case::within(-0.7, 0.7, &RECURRENT).check(&format!("reverse {reverse}"), move |cx, x| {
            recurrent(cx, x, reverse)
        });
    }
}

/// The gradient of the sum of `y sin(y)` by all of `x`.
fn slopes<'t>(outputs: &[Tensor<'t>], x: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
    let loss = outputs
        .iter()
        .map(|&y| (y.sin() * y).sum_all())
        .reduce(|a, b| a + b)
        .expect("outputs");
    let leaves: Vec<_> = x.iter().map(|&x| Leaf(x)).collect();
    grad(loss, &leaves).into_iter().map(|Leaf(g)| g).collect()
}

#[test]
fn scan_gradient_equals_unrolled_gradient() {
    for reverse in [false, true] {
        let inputs: Vec<_> = RECURRENT
            .iter()
            .zip(1..)
            .map(|(dims, seed)| noise(seed, dims, -0.7, 0.7))
            .collect();
        let results = eval(
            move |cx, x| {
                let [xs, mut h, w, u, b] = x[..] else {
                    unreachable!()
                };
                let mut states = vec![None; 5];
                for iteration in if reverse {
                    [4, 3, 2, 1, 0]
                } else {
                    [0, 1, 2, 3, 4]
                } {
                    h = (xs.index(0, iteration).matmul(w) + h.matmul(u) + b).tanh();
                    states[iteration] = Some(h.reshape([1, 2, 4]));
                }
                let states: Vec<_> = states.into_iter().flatten().collect();
                let unrolled = slopes(&[h, cx.concat(&states, 0)], x);
                slopes(&recurrent(cx, x, reverse), x)
                    .into_iter()
                    .zip(unrolled)
                    .map(|(a, b)| (a - b).abs().sum_all())
                    .collect()
            },
            &inputs,
        );
        for (difference, what) in results.iter().zip(["xs", "h", "w", "u", "b"]) {
            let difference = difference.item::<f64>().unwrap();
            assert!(
                difference < 1e-12,
                "{what}, reverse {reverse}: {difference}"
            );
        }
    }
}

#[test]
fn carried_integers_have_no_gradient() {
    Case::noise(&[&[3], &[3]])
        .with(&[host::<i32>(&[2], &[])])
        .check("mixed", |cx, x| {
            let (a, b, n) = (x[0], x[1], x[2]);
            // `c` has a gradient only through the first iteration.
            let init = (
                Leaf(n),
                Leaf(cx.full(1.0, &TensorType::new(DType::F64, [3]))),
                Leaf(a),
            );
            let ((Leaf(count), Leaf(c), Leaf(last)), Leaf(ys)) = cx.scan_with(
                ScanOptions {
                    length: Some(4),
                    reverse: false,
                },
                init,
                Empty::new(),
                |(Leaf(n), Leaf(c), Leaf(a)), _| {
                    let factor = n.convert(DType::F64);
                    let y = (a * c).sin() * factor + b.exp();
                    ((Leaf(n + 1), Leaf(c * b), Leaf(a.cos() + c)), Leaf(y))
                },
            );
            vec![last, c, ys, count.convert(DType::F64)]
        });
}

#[test]
fn the_first_carried_value_alone_has_a_gradient() {
    // The gradient stops between iterations, but not before the first.
    let results = eval(
        |cx, x| {
            let (Leaf(last), Leaf(ys)) = cx.scan_with(
                ScanOptions {
                    length: Some(3),
                    reverse: false,
                },
                Leaf(x[0]),
                Empty::new(),
                |Leaf(c), _| (Leaf((c * 2.0).stop_gradient()), Leaf(c * c)),
            );
            vec![ys, grad(ys.sum_all() + last, &Leaf(x[0])).0]
        },
        &[host(&[3.0], &[])],
    );
    assert_eq!(
        results,
        [host(&[9.0, 36.0, 144.0], &[3]), host(&[6.0], &[])]
    );
}

#[test]
fn scans_nest_in_scans_or_branches() {
    Case::within(-0.9, 0.9, &[&[3, 2], &[4, 2], &[2, 2]]).check("nested", |cx, x| {
        let (rows, columns, w) = (x[0], x[1], x[2]);
        let zero = Leaf(cx.scalar(0.5, DType::F64));
        let (Leaf(sum), Leaf(all)) = cx.scan(zero, Leaf(rows), |Leaf(sum), Leaf(row)| {
            let moved = row.reshape([1, 2]).matmul(w).reshape([2]);
            let (Leaf(inner), Leaf(products)) =
                cx.scan(Leaf(sum), Leaf(columns), |Leaf(sum), Leaf(column)| {
                    let Leaf(product) = cx.cond(
                        (row * column).sum_all().gt(0.0),
                        || Leaf((moved * column).sin()),
                        || Leaf(moved.exp() * column + sum),
                    );
                    (Leaf(sum.cos() + product.sum_all()), Leaf(product))
                });
            (Leaf(inner), Leaf(products))
        });
        vec![sum, all]
    });
}

/// `exp(sin(h w) x)`, and `sin(h w) x h`.
fn layer<'t>(
    h: Tensor<'t>,
    x: Tensor<'t>,
    w: Tensor<'t>,
    remat: Remat,
) -> (Leaf<Tensor<'t>>, Leaf<Tensor<'t>>) {
    h.trace().checkpoint_with(remat, || {
        let y = (h.reshape([1, 2]).matmul(w).sin() * x).reshape([2]);
        (Leaf(y.exp()), Leaf(y * h))
    })
}

#[test]
fn checkpoints_inside_or_around_scans() {
    for remat in [Remat::Full, Remat::SaveDots] {
        Case::within(-0.9, 0.9, &[&[3, 2], &[2, 2], &[2]]).check(
            &format!("{remat:?}"),
            move |cx, x| {
                let (xs, w, h) = (x[0], x[1], x[2]);
                let (Leaf(one), Leaf(other)) = layer(h, w.index(0, 1), w, remat);
                let (Leaf(last), Leaf(ys)) = cx.checkpoint_with(remat, || {
                    cx.scan(Leaf(one), Leaf(xs), |Leaf(h), Leaf(x)| {
                        let (Leaf(y), Leaf(z)) = layer(h, x, w, remat);
                        (Leaf(y.sin() + z), Leaf(z))
                    })
                });
                vec![last, ys, other]
            },
        );
    }
}

#[test]
fn stop_gradient_in_a_body_holds_in_second_gradient() {
    let results = eval(
        |cx, x| {
            let x = x[0];
            fn body<'t>(y: Tensor<'t>, x: Tensor<'t>) -> Tensor<'t> {
                y * x.stop_gradient() * x
            }
            let (Leaf(scanned), _) = cx.scan_with(
                ScanOptions {
                    length: Some(1),
                    reverse: false,
                },
                Leaf(x),
                Empty::new(),
                |Leaf(y), nothing: Empty<Tensor<'_>>| (Leaf(body(y, x)), nothing),
            );
            let Leaf(checked) = cx.checkpoint(|| Leaf(body(x, x)));
            [scanned, checked, body(x, x)]
                .into_iter()
                .flat_map(|y| {
                    let Leaf(first) = grad(y, &Leaf(x));
                    [y, first, grad(first, &Leaf(x)).0]
                })
                .collect()
        },
        &[host(&[3.0], &[])],
    );
    // x s x: 2 s x, then 2 s.
    let expected = [27.0, 18.0, 6.0].map(|value| host(&[value], &[]));
    assert_eq!(results, [&expected[..], &expected, &expected].concat());
}

#[test]
fn no_turns_give_back_what_flows_into_them() {
    Case::noise(&[&[3], &[2]]).check("none", |cx, x| {
        let empty = cx.full(0.0, &TensorType::new(DType::F64, [0, 2]));
        let (Leaf(last), Leaf(ys)) = cx.scan(Leaf(x[0]), Leaf(empty), |Leaf(h), Leaf(y)| {
            (Leaf(h.sin() * x[1].sum_all()), Leaf(y * x[1]))
        });
        vec![last * 2.0, ys]
    });
}

#[test]
fn sums_of_invariants_in_16_bits_are_taken_in_32() {
    // 1000 times 1 is not 1000 in bf16, where the sum stops at 256.
    let results = eval(
        |cx, x| {
            let w = x[0].convert(DType::Bf16);
            let options = ScanOptions {
                length: Some(1000),
                reverse: false,
            };
            let (_, Leaf(ys)) = cx.scan_with(
                options,
                Empty::new(),
                Empty::new(),
                |nothing: Empty<_>, _: Empty<_>| (nothing, Leaf(w + 1.0)),
            );
            vec![
                grad(ys.convert(DType::F32).sum_all(), &Leaf(w))
                    .0
                    .convert(DType::F64),
            ]
        },
        &[host(&[1.0], &[])],
    );
    assert_eq!(results, [host(&[1000.0], &[])]);
}
