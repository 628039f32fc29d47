use halite_core::{DType, tree::Leaf};
use halite_ir::{DotAttributes, UnaryOp};
use halite_nn::{Mean, Tensor, bce_with_logits, grad, huber, mse, vjp};
use halite_tests::eval::{eval, host};

use crate::gradients::Case;

#[test]
fn step_functions_have_zero_gradients() {
    let flat = [
        UnaryOp::Ceil,
        UnaryOp::Floor,
        UnaryOp::RoundNearestAfz,
        UnaryOp::RoundNearestEven,
        UnaryOp::Sign,
    ];
    let results = eval(
        move |cx, x| {
            let losses = flat.iter().map(|&op| x[0].unary(op).sum_all());
            let mut slopes: Vec<Tensor<'_>> =
                losses.map(|loss| grad(loss, &Leaf(x[0])).0).collect();
            // Without any path, `grad` is a mistake, and `vjp` gives zeros.
            let cut = [
                x[0].gt(0.0).convert(DType::F64).sum_all(),
                x[0].convert(DType::S32).convert(DType::F64).sum_all(),
                cx.scalar(1.0, DType::F64),
            ];
            slopes.extend(cut.map(|loss| vjp(&[loss], &[loss.ones_like()], &Leaf(x[0])).0));
            slopes
        },
        &[host(&[0.3, -1.7, 2.5], &[3])],
    );
    assert_eq!(results.len(), 8);
    assert!(
        results
            .iter()
            .all(|result| *result == host(&[0.0; 3], &[3]))
    );
}

fn at(points: &[&[f64]]) -> Case {
    let inputs: Vec<_> = points.iter().map(|x| host(x, &[x.len()])).collect();
    Case::at(&inputs)
}

/// Points at which a factor of a rule is 0, or a selection inside a rule switches.
#[test]
fn second_derivatives_hold_at_special_points() {
    let (a, b) = (
        [4.0, 2.0, 0.5, 1.0, 1.0, 3.0],
        [0.0, 0.0, 0.0, 0.0, 1.0, 2.0],
    );
    at(&[&a, &b]).check("power", |_, x| vec![x[0].pow(x[1])]);
    at(&[&[-1.5, 0.0, 2.0]]).check("integer powers", |_, x| {
        (0..5).map(|n| x[0].pow(f64::from(n))).collect()
    });
    at(&[&[1.0, 0.0, -2.0, 0.5], &[0.0, 2.0, 0.0, -1.0]])
        .check("atan2", |_, x| vec![x[0].atan2(x[1])]);
    at(&[&[0.0, 0.0, 2.0], &[0.0, 3.0, 0.0]]).check("multiply", |_, x| vec![x[0] * x[1]]);
    at(&[&[0.0, 3.0], &[1.0, -3.0]]).check("divide", |_, x| vec![x[0] / x[1]]);
    at(&[&[0.0, 0.9, -0.9]]).check("erf_inv", |_, x| vec![x[0].erf_inv()]);
    at(&[&[0.0, 3.0, 2.0, 0.5]]).check("product, one 0", |_, x| vec![x[0].prod([0])]);
    at(&[&[0.0, 3.0, 2.0, 0.0]]).check("product, two 0", |_, x| vec![x[0].prod([0]), x[0] * 2.0]);
    at(&[&[1.5, 0.0, 2.0, 0.0]]).check("cumulative product", |_, x| vec![x[0].cumprod(0)]);
    at(&[&[1.0, 30.0, -30.0], &[1.0, -30.0, 30.0]])
        .check("log_add_exp", |_, x| vec![x[0].log_add_exp(x[1])]);
    at(&[&[1.0, 1.0, 1.0, -2.0]]).check("logsumexp", |_, x| vec![x[0].logsumexp([0])]);
    at(&[&[1.0, 1.0, 1.0]]).check("variance", |_, x| vec![x[0].var([0]), x[0].softmax(0)]);
    at(&[&[0.0, 10.1, -10.1, 39.0]]).check("activations", |_, x| {
        vec![
            x[0].gelu(),
            x[0].gelu_tanh(),
            x[0].silu(),
            x[0].mish(),
            x[0].softplus(),
        ]
    });
    at(&[
        &[2.0, 2.0, 2.0, 0.0],
        &[0.0, 1.5, 3.0, -1.0],
        &[1.0, 1.0, 1.0, 1.0],
    ])
    .check("clamp", |_, x| vec![x[1].clamp(x[0], x[2])]);
}

/// Where a function of an absolute value or of a sign would have the curvature 0.
#[test]
fn second_derivatives_hold_at_zero() {
    at(&[&[0.0, 0.4, -0.4]]).check("functions", |_, x| {
        let x = x[0];
        vec![
            x.tanh(),
            x.sigmoid(),
            x.log_sigmoid(),
            x.exp_m1(),
            x.log_1p(),
            x.erf(),
            x.sin(),
            x.tan(),
            x.cos(),
            x.square(),
        ]
    });
    at(&[&[0.0, 0.0, 1.5, -0.4], &[0.0, 1.0, 1.5, 0.3]]).check("losses", |_, x| {
        vec![
            bce_with_logits(x[0], x[1]),
            huber(x[0], x[1], 2.0),
            mse(x[0], x[1]),
        ]
    });
    at(&[&[1.0, 2.0, 0.0], &[0.0, 3.0, 0.0]]).check("weighted mean", |_, x| {
        vec![Mean::weighted(x[0].square(), x[1]).total]
    });
    at(&[&[0.0, 0.0, 0.0, 0.0]]).check("norms of zeros", |_, x| {
        let centered = x[0] - x[0].mean_keep([0]);
        let root = (centered.square().mean_keep([0]) + 0.5).rsqrt();
        vec![centered * root, x[0].log_softmax(0)]
    });
}

#[test]
fn conversions_pass_it_on_in_the_other_type() {
    Case::noise(&[&[9]])
        .coarse()
        .check("convert", |_, x| vec![x[0].convert(DType::F32)]);
    Case::noise(&[&[9]])
        .coarse()
        .check("reduce precision", |_, x| {
            vec![x[0].reduce_precision(8, 23)]
        });
}

#[test]
fn corner_cases_are_those_of_jax() {
    let slopes = |function: fn(Tensor<'_>) -> Tensor<'_>, at: &[f64]| {
        let results = eval(
            move |_, x| vec![grad(function(x[0]).sum_all(), &halite_core::tree::Leaf(x[0])).0],
            &[host(at, &[at.len()])],
        );
        results[0].as_slice::<f64>().unwrap().to_vec()
    };
    assert_eq!(slopes(|x| x.relu(), &[-1.0, 0.0, 2.0]), [0.0, 0.0, 1.0]);
    assert_eq!(
        slopes(|x| x.maximum(1.0), &[0.0, 1.0, 2.0]),
        [0.0, 0.5, 1.0]
    );
    assert_eq!(
        slopes(|x| x.minimum(1.0), &[0.0, 1.0, 2.0]),
        [1.0, 0.5, 0.0]
    );
    assert_eq!(slopes(|x| x.abs(), &[-3.0, 0.0, 3.0]), [-1.0, 0.0, 1.0]);
    assert_eq!(slopes(|x| x.sqrt(), &[0.0, 4.0]), [f64::INFINITY, 0.25]);
    assert_eq!(slopes(|x| x.pow(0.0), &[0.0, 2.0]), [0.0, 0.0]);
    assert_eq!(slopes(|x| x.pow(2.0), &[0.0, -3.0]), [0.0, -6.0]);
    assert_eq!(slopes(|x| (x * 0.0 + 2.0).pow(x), &[0.0]), [2f64.ln()]);
    assert_eq!(slopes(|x| (x * 0.0).pow(x + 2.0), &[0.0]), [0.0]);
    assert_eq!(
        slopes(|x| x.clamp(0.0, 1.0), &[-1.0, 0.0, 0.5, 1.0, 2.0]),
        [0.0, 0.0, 1.0, 0.0, 0.0]
    );
    assert_eq!(slopes(|x| x.max([0]), &[1.0, 3.0, 3.0]), [0.0, 0.5, 0.5]);
    assert_eq!(slopes(|x| x.prod([0]), &[0.0, 3.0, 2.0]), [6.0, 0.0, 0.0]);
    assert_eq!(slopes(|x| x.prod([0]), &[0.0, 0.0, 2.0]), [0.0, 0.0, 0.0]);
}

#[test]
fn nothing_flows_through_a_stopped_gradient() {
    let results = eval(
        |_, x| {
            let loss = (x[0] * x[0].stop_gradient()).sum_all();
            vec![loss, grad(loss, &halite_core::tree::Leaf(x[0])).0]
        },
        &[host(&[2.0, 3.0], &[2])],
    );
    assert_eq!(results, [host(&[13.0], &[]), host(&[2.0, 3.0], &[2])]);
}

#[test]
fn narrow_products_go_back_narrow() {
    Case::noise(&[&[3, 4], &[4, 2]])
        .coarse()
        .check("f32 to f64", |_, x| {
            let dot = DotAttributes {
                lhs_batching: vec![],
                rhs_batching: vec![],
                lhs_contracting: vec![1],
                rhs_contracting: vec![0],
                ..DotAttributes::default()
            };
            vec![
                x[0].convert(DType::F32)
                    .dot_general(x[1].convert(DType::F32), dot, DType::F64),
            ]
        });
}

#[test]
fn barriers_let_it_through() {
    Case::noise(&[&[3], &[2]]).check("barrier", |cx, x| {
        let passed = cx.optimization_barrier(x);
        vec![passed[0].sin(), passed[1]]
    });
    Case::noise(&[&[3], &[2]]).check("barrier with an unused result", |cx, x| {
        vec![cx.optimization_barrier(x)[1]]
    });
}
