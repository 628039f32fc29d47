use halite_core::{DType, tree::Leaf};
use halite_nn::{
    CrossEntropy, Mean, Tensor, bce_with_logits, correct, grad, huber, kl_divergence, mae, mse,
    soft_cross_entropy,
};
use halite_tests::eval::host;

use super::{assert_close, results, row};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

/// The weighted mean of what a loss gives for each sample, and its gradient by the guesses, with
/// weights 1, 0 and 1.
#[track_caller]
fn weighted(
    each: impl for<'t> Fn(Tensor<'t>, Tensor<'t>) -> Tensor<'t> + Send + Sync + 'static,
    guess: &[f32],
    target: &[f32],
) -> [Vec<f32>; 2] {
    let of_three = |values: &[f32]| host(values, &[3, values.len() / 3]);
    let values = results(
        move |cx, given| {
            let loss = Mean::weighted(each(given[0], given[1]), row(cx, &[1.0, 0.0, 1.0])).value();
            vec![loss, grad(loss, &given[0])]
        },
        &[of_three(guess), of_three(target)],
    );
    values.try_into().unwrap()
}

#[test]
fn weight_zero_leaves_out_what_is_not_finite() {
    type Each = for<'t> fn(Tensor<'t>, Tensor<'t>) -> Tensor<'t>;
    let losses: [(&str, Each); 12] = [
        ("mse", |x, y| mse(x, y).sum([1])),
        ("mae", |x, y| mae(x, y).sum([1])),
        ("huber", |x, y| huber(x, y, 1.0).mean([1])),
        ("bce", |x, y| bce_with_logits(x, y).sum([1])),
        ("square", |x, y| (x - y).square().sum([1])),
        ("largest", |x, y| ((x - y).abs() * y).max([1])),
        ("root", |x, y| (x - y).square().sum([1]).sqrt()),
        ("log", |x, y| (x * y).log().sum([1])),
        ("quotient", |x, y| {
            (x / y).exp().sum([1]) / (y.sum([1]) * 2.0)
        }),
        ("flat", |x, y| {
            let flat = ((x - y).square() * y).reshape([2, 3]);
            flat.reshape([3, 2]).sum([1]).reshape([1, 3]).reshape([3])
        }),
        ("transposed", |x, y| {
            let (x, y) = (x.transpose([1, 0]), y.transpose([1, 0]));
            (x - y).pow(y).sum([0]) * x.sum([0])
        }),
        ("power", |x, y| {
            x.pow(y)
                .tanh()
                .sum([1])
                .convert(DType::F64)
                .convert(DType::F32)
        }),
    ];
    let guess = [0.5, 2.0, 0.25, 0.75, 1.5, 3.0];
    for bad in [NAN, INF, -INF, 0.0] {
        for (name, each) in losses {
            let [expected, slope] = weighted(each, &guess, &[0.25, 1.0, 0.5, 1.25, 0.125, 2.0]);
            let (mut x, mut y) = (guess, [0.25, 1.0, bad, bad, 0.125, 2.0]);
            let found = weighted(each, &x, &y);
            println!("{name} with targets of {bad}: {found:?}");
            assert_close(&found[0], &expected);
            assert_close(&found[1], &slope);
            assert_eq!(&found[1][2..4], [0.0; 2]);
            // In the guess, too.
            (x[2], x[3], y[2]) = (bad, bad, 1.0);
            let found = weighted(each, &x, &y);
            println!("{name} with guesses of {bad}: {found:?}");
            assert_close(&found[0], &expected);
            assert_close(&found[1], &slope);
        }
    }
}

#[test]
fn weight_zero_leaves_the_gradient_of_parameters_finite() {
    let inputs = [
        host(&[2.0f32], &[]),
        host(&[1.0f32, NAN, 3.0], &[3]),
        host(&[1.0f32, 2.0, INF], &[3]),
        host(&[1.0f32, 0.0, 0.0], &[3]),
    ];
    let found = results(
        |cx, given| {
            let &[slope, x, y, weight] = given else {
                panic!("four inputs")
            };
            let plain = Mean::weighted((x * slope - y).square(), weight).value();
            let recomputed =
                cx.checkpoint(|| Leaf(Mean::weighted((x * slope - y).square(), weight).value()));
            let stacked = Leaf(cx.stack(&[x, x], 0));
            let (Leaf(sum), _) = cx.scan(Leaf(slope * 0.0), stacked, |Leaf(sum), Leaf(x)| {
                let loss = Mean::weighted((x * slope - y).square(), weight).value();
                (Leaf(sum + loss), Leaf(loss))
            });
            [plain, recomputed.0, sum]
                .into_iter()
                .flat_map(|loss| [loss, grad(loss, &slope)])
                .collect()
        },
        &inputs,
    );
    // (2 - 1)² and 2 (2 - 1).
    assert_close(&found.concat(), &[1.0, 2.0, 1.0, 2.0, 2.0, 4.0]);
}

#[test]
fn weight_zero_leaves_second_derivatives_finite() {
    let found = results(
        |_, given| {
            let &[slope, x, y, weight] = given else {
                panic!("four inputs")
            };
            let loss = Mean::weighted((x * slope - y).square() * x.exp(), weight).value();
            let first = grad(loss, &slope);
            let by_input = grad(loss, &x);
            vec![
                first,
                grad(first, &slope),
                grad(by_input.square().sum_all(), &slope),
                grad(by_input.square().sum_all(), &x),
            ]
        },
        &[
            host(&[2.0f32], &[]),
            host(&[1.0f32, NAN, 3.0], &[3]),
            host(&[1.0f32, 2.0, INF], &[3]),
            host(&[1.0f32, 0.0, 0.0], &[3]),
        ],
    );
    // (x s - y)² e^x at x = y = 1 and s = 2; by x it is 5 e, which grows by 8 e and 17 e.
    let e = 1f32.exp();
    let expected = [2.0 * e, 2.0 * e, 80.0 * e * e, 170.0 * e * e, 0.0, 0.0];
    assert_close(&found.concat(), &expected);
}

/// Weights may be learned: where the value is finite, a weight of 0 has the gradient that any other
/// has, and so has the gradient of the parameters by it.
#[test]
fn weight_of_zero_has_a_gradient() {
    let found = results(
        |_, given| {
            let &[slope, x, weight] = given else {
                panic!("three inputs")
            };
            let total = Mean::weighted((x * slope).square(), weight).total;
            let by_slope = grad(total, &slope);
            vec![grad(total, &weight), grad(by_slope, &weight)]
        },
        &[
            host(&[2.0f32], &[]),
            host(&[1.0f32, 3.0, NAN], &[3]),
            host(&[1.0f32, 0.0, 0.0], &[3]),
        ],
    );
    // (x s)² and 2 x² s.
    assert_close(&found.concat(), &[4.0, 36.0, 0.0, 4.0, 36.0, 0.0]);
}

#[test]
fn weight_zero_leaves_a_row_of_cross_entropy_out() {
    let of_row = |bad: f32, target: i32| {
        let logits = host(&[1.0f32, 2.0, 0.5, bad, bad, 1.0], &[2, 3]);
        results(
            |cx, given| {
                let &[logits, target] = given else {
                    panic!("two inputs")
                };
                let classes = row(cx, &[1.0, 0.5, 2.0]);
                let weights = row(cx, &[2.0, 0.0]);
                let options = CrossEntropy::new();
                [
                    options.weights(weights),
                    options.weights(weights).label_smoothing(0.1),
                    options.weights(weights).class_weights(classes),
                    (options.weights(weights).class_weights(classes)).label_smoothing(0.1),
                    options.ignore(2),
                    options.ignore(2).label_smoothing(0.1),
                ]
                .into_iter()
                .flat_map(|options| {
                    let loss = options.loss(logits, target).value();
                    [loss, grad(loss, &logits)]
                })
                .collect()
            },
            &[logits, host(&[0i32, target], &[2])],
        )
    };
    let expected = of_row(1.0, 2).concat();
    assert!(expected.iter().all(|value| value.is_finite()));
    for bad in [NAN, INF, -INF] {
        assert_close(&of_row(bad, 2).concat(), &expected);
    }
}

#[test]
fn class_of_weight_zero_counts_nothing() {
    let logits = host(&[0.0f32, 0.0, -INF, 0.0, 0.0, -INF], &[2, 3]);
    let found = results(
        |cx, given| {
            let &[logits, target] = given else {
                panic!("two inputs")
            };
            let options = CrossEntropy::new().class_weights(row(cx, &[1.0, 1.0, 0.0]));
            let plain = options.loss(logits, target).value();
            let smooth = options.label_smoothing(0.3).loss(logits, target).value();
            vec![plain, grad(plain, &logits), smooth, grad(smooth, &logits)]
        },
        &[logits, host(&[0i32, 2], &[2])],
    );
    let log = 2f32.ln();
    // Smoothing: (0.7 log + 0.1 * 2 log) + 0.1 * 2 log, over a weight of 1.
    let slopes = [-0.5, 0.5, 0.0, 0.0, 0.0, 0.0];
    assert_close(&found[..2].concat(), &[&[log][..], &slopes].concat());
    assert_close(&found[2], &[1.1 * log]);
    assert!(found[3].iter().all(|slope| slope.is_finite()), "{found:?}");
}

#[test]
fn target_of_zero_leaves_out_an_infinite_logit() {
    let found = results(
        |_, given| {
            let &[logits, target] = given else {
                panic!("two inputs")
            };
            let (soft, kl) = (
                soft_cross_entropy(logits, target).mean_all(),
                kl_divergence(logits, target).mean_all(),
            );
            vec![soft, grad(soft, &logits), kl, grad(kl, &logits)]
        },
        &[
            host(&[0.0f32, 0.0, -INF], &[1, 3]),
            host(&[0.25f32, 0.75, 0.0], &[1, 3]),
        ],
    );
    let log = 2f32.ln();
    let kl = log + 0.25 * 0.25f32.ln() + 0.75 * 0.75f32.ln();
    let slopes = [0.25, -0.25, 0.0];
    let expected = [&[log][..], &slopes, &[kl], &slopes].concat();
    assert_close(&found.concat(), &expected);
}

#[test]
fn binary_cross_entropy_of_infinite_logits_is_its_limit() {
    let logits = [INF, INF, -INF, -INF, INF, 0.0, 0.0, 100.0, -100.0, 0.5, NAN];
    let targets = [1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 1.0, 1.0, 1.0, 0.25, 1.0];
    let found = results(
        |_, given| {
            let each = bce_with_logits(given[0], given[1]);
            vec![
                each,
                grad(each.sum_all(), &given[0]),
                grad(each.sum_all(), &given[1]),
            ]
        },
        &[host(&logits, &[11]), host(&targets, &[11])],
    );
    let log = 2f32.ln();
    let middle = (1.0 + 0.5f32.exp()).ln() - 0.125;
    assert_close(
        &found[0],
        &[0.0, INF, 0.0, INF, INF, log, log, 0.0, 100.0, middle, NAN],
    );
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    let slopes: Vec<f32> = (logits.iter().zip(targets))
        .map(|(&x, y)| sigmoid(x) - y)
        .collect();
    assert_close(&found[1], &slopes);
    assert_close(&found[2][5..10], &[0.0, 0.0, -100.0, 100.0, -0.5]);
    let mean = results(
        |_, given| vec![bce_with_logits(given[0], given[1]).mean_all()],
        &[host(&[INF, -INF], &[2]), host(&[1.0f32, 0.0], &[2])],
    );
    assert_eq!(mean, [[0.0]]);
}

#[test]
fn huber_has_a_slope_at_infinity() {
    let found = results(
        |_, given| {
            let each = huber(given[0], given[1], 2.0);
            vec![each, grad(each.sum_all(), &given[0])]
        },
        &[
            host(&[INF, -1e30, 1.0, 2.0, -3.0, 0.0], &[6]),
            host(&[0.0f32; 6], &[6]),
        ],
    );
    assert_close(&found[0], &[INF, 2e30, 0.5, 2.0, 4.0, 0.0]);
    assert_close(&found[1], &[2.0, -2.0, 1.0, 2.0, -2.0, 0.0]);
}

/// No rule of an absolute value may cut the second derivative where its operand is 0.
#[test]
fn losses_have_second_derivatives_at_zero() {
    let found = results(
        |_, given| {
            let &[x, y] = given else { panic!("two inputs") };
            let losses = [bce_with_logits(x, y), huber(x, y, 2.0)];
            let second = losses.map(|each| {
                let slope = grad(each.sum_all(), &x);
                grad(slope.sum_all(), &x)
            });
            second.to_vec()
        },
        &[
            host(&[0.0f32, 0.0, 0.5, -4.0], &[4]),
            host(&[0.0f32, 1.0, 0.5, 0.0], &[4]),
        ],
    );
    let curve = |x: f32| 1.0 / (2.0 + x.exp() + (-x).exp());
    assert_close(&found[0], &[0.25, 0.25, curve(0.5), curve(4.0)]);
    assert_close(&found[1], &[1.0, 1.0, 1.0, 0.0]);
}

#[test]
fn mean_of_nothing_is_zero() {
    let found = results(
        |cx, given| {
            let weights = row(cx, &[0.0, 0.0]);
            let loss = Mean::weighted(given[0].log(), weights).value();
            let target = cx.arange(2, DType::S32);
            let cross = CrossEntropy::new().weights(weights);
            let logits = given[0].unsqueeze(1).broadcast_to([2, 2]);
            let cross = cross.loss(logits, target).value();
            let right = Mean::weighted(correct(logits, target), weights).value();
            vec![
                loss,
                grad(loss, &given[0]),
                cross,
                grad(cross, &given[0]),
                right,
            ]
        },
        &[host(&[NAN, -1.0], &[2])],
    );
    assert_eq!(found.concat(), [0.0; 7]);
}

#[test]
fn value_that_counts_elsewhere_keeps_its_gradient() {
    let found = results(
        |cx, given| {
            let x = given[0];
            let square = x * x;
            let loss = Mean::weighted(square * x, row(cx, &[1.0, 0.0, 1.0])).total;
            let both = loss + Mean::weighted(square, row(cx, &[0.0, 1.0, 1.0])).total;
            vec![grad(both, &x), grad(loss + square.sum_all(), &x)]
        },
        &[host(&[1.0f32, 2.0, 3.0], &[3])],
    );
    assert_close(&found[0], &[3.0, 4.0, 27.0 + 6.0]);
    assert_close(&found[1], &[3.0 + 2.0, 4.0, 27.0 + 6.0]);
}
