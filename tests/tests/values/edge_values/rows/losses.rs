//! Losses, metrics, norms and optimizer steps.

use halite_core::{DType, Family, tree::Leaf};
use halite_nn::{
    Adam, AdamW, CrossEntropy, Init, Mean, NllLoss, Optimizer, Param, Sgd, Tensor, accuracy,
    bce_with_logits, correct, correct_top_k, cross_entropy, huber, kl_divergence, mae, mse,
    nll_loss,
    optim::{Moments, Slots, Velocity, clip_global_norm, clip_value, global_norm, update},
    soft_cross_entropy, top_k_accuracy,
};

use super::{of_each, of_pairs};

use crate::edge_values::table::rows;

rows! {
    "cross_entropy" Rows FLOATS [0] ["cross_entropy", "Mean::value"]
        |x| of_each(x[0], |row, target| cross_entropy(row, target).mean_all());
    "cross_entropy_smoothed" Rows FLOATS [0] [
        "CrossEntropy::new", "CrossEntropy::label_smoothing", "CrossEntropy::loss"
    ] |x| {
        let loss = CrossEntropy::new().label_smoothing(0.1);
        of_each(x[0], |row, target| loss.loss(row, target).value())
    };
    "nll_loss" Rows FLOATS [0] [
        "nll_loss", "NllLoss::new", "NllLoss::loss", "NllLoss::ignore", "NllLoss::class_weights",
        "NllLoss::weights"
    ] |x| {
        let ones = |size: usize| x[0].trace().scalar(1.0, DType::F32).broadcast_to([size]);
        let size = x[0].dims()[1];
        let loss = NllLoss::new().ignore(-100).class_weights(ones(size)).weights(ones(1));
        (
            of_each(x[0], |row, target| nll_loss(row, target).mean_all()),
            of_each(x[0], |row, target| loss.loss(row, target).total),
        )
    };
    "soft_cross_entropy" Rows FLOATS [0] ["soft_cross_entropy"]
        |x| of_each(x[0], |row, _| soft_cross_entropy(row, distribution(row)).mean_all());
    "kl_divergence" Rows FLOATS [0] ["kl_divergence"]
        |x| of_each(x[0], |row, _| kl_divergence(row, distribution(row)).mean_all());
    "correct" Rows FLOATS [] ["correct", "correct_top_k", "accuracy", "top_k_accuracy"] |x| {
        let targets = x[0].trace().arange(x[0].dims()[0], DType::S32) % x[0].dims()[1].max(1);
        vec![
            correct(x[0], targets),
            correct_top_k(x[0], targets, 2),
            of_each(x[0], |row, target| accuracy(row, target).value()),
            of_each(x[0], |row, target| top_k_accuracy(row, target, 2).value()),
        ]
    };
    "labels" Labels INTEGERS [] [
        "cross_entropy", "correct", "CrossEntropy::ignore", "CrossEntropy::class_weights",
        "CrossEntropy::weights"
    ] |x| labelled(x[0], x[1]);
    "mse" Pairs FLOATS [0, 1] ["mse"] |x| mse(x[0], x[1]);
    "mae" Pairs FLOATS [0, 1] ["mae"] |x| mae(x[0], x[1]);
    "huber" Pairs FLOATS [0, 1] ["huber"] |x| huber(x[0], x[1], 1.0);
    "bce_with_logits" Pairs FLOATS [0] ["bce_with_logits"]
        |x| bce_with_logits(x[0], x[1].clamp(0.0, 1.0));
    "mse_mean" Rows FLOATS [0] ["mse", "Mean::of"]
        |x| of_each(x[0], |row, _| Mean::of(mse(row, row.ones_like())).value());
    "mae_mean" Rows FLOATS [0] ["mae"]
        |x| of_each(x[0], |row, _| mae(row, row.ones_like()).mean_all());
    "huber_mean" Rows FLOATS [0] ["huber"]
        |x| of_each(x[0], |row, _| huber(row, row.ones_like(), 1.0).mean_all());
    "bce_with_logits_mean" Rows FLOATS [0] ["bce_with_logits"]
        |x| of_each(x[0], |row, _| bce_with_logits(row, row.ones_like()).mean_all());
    "mean_weighted" Rows ALL [0] ["Mean::weighted"] |x| of_each(x[0], |row, _| {
        let weights = row.trace().arange(row.dims()[1], DType::S32) % 2;
        Mean::weighted(row, weights.convert(DType::F32).unsqueeze(0)).value()
    });
    "global_norm" Rows ALL [0] ["global_norm"]
        |x| of_each(x[0], |row, _| global_norm(row.trace(), &vec![row]));
    "clip" Rows FLOATS [] [
        "clip_global_norm", "clip_value", "GlobalNorm::of_trained", "GlobalNorm::clip",
        "GlobalNorm::value"
    ] |x| {
        let (cx, size) = (x[0].trace(), x[0].dims()[1]);
        let clipped = of_each(x[0], |row, _| {
            let model = vec![Param::new([1, size], Init::Zeros)];
            clip_global_norm(cx, &model, vec![Leaf(row)], 1.0).0[0].0.squeeze(0)
        });
        (clipped, clip_value(cx, vec![x[0]], 2.0)[0].0)
    };
    "sgd" Pairs FLOATS [] [
        "update", "Sgd::new", "Sgd::weight_decay", "Sgd::momentum", "Sgd::dampening",
        "Sgd::nesterov"
    ] |x| {
        let sgd = || Sgd::new(0.125);
        vec![
            stepped(&sgd(), x, || Velocity { velocity: None }),
            stepped(&sgd().weight_decay(0.5), x, || Velocity { velocity: None }),
            stepped(&sgd().momentum(0.9).dampening(0.5), x, || velocity(x)),
            stepped(&sgd().momentum(0.9).nesterov(), x, || velocity(x)),
        ]
    };
    "adam" Pairs FLOATS [] ["Adam::new", "Adam::weight_decay"] |x| (
        stepped(&Adam::new(0.125), x, || moments(x)),
        stepped(&Adam::new(0.125).weight_decay(0.5), x, || moments(x)),
    );
    "adam_w" Pairs FLOATS [] ["AdamW::new", "AdamW::weight_decay"]
        |x| stepped(&AdamW::new(0.125), x, || moments(x));
}

/// 0 in the middle, equal elsewhere.
fn distribution(row: Tensor<'_>) -> Tensor<'_> {
    let size = row.dims()[1];
    if size == 1 {
        return row.ones_like();
    }
    let place = row.trace().arange(size, DType::S32);
    let share = row
        .trace()
        .scalar(1.0 / (size.max(2) - 1) as f64, DType::F64);
    let shares = place.eq(size / 2).select(share.zeros_like(), share);
    // Kept wide, or the shares of 16 bits would not be those of the reference.
    shares.unsqueeze(0)
}

fn labelled<'t>(labels: Tensor<'t>, logits: Tensor<'t>) -> Vec<Tensor<'t>> {
    let cx = logits.trace();
    let ones = |size: usize| cx.scalar(1.0, DType::F32).broadcast_to([size]);
    let careful = CrossEntropy::new()
        .ignore(1)
        .class_weights(ones(4))
        .weights(ones(1));
    let losses = |loss: CrossEntropy<'t>| {
        of_pairs(logits, labels, |row, label| {
            loss.loss(row.unsqueeze(0), label.unsqueeze(0)).total
        })
    };
    vec![
        losses(CrossEntropy::new()),
        losses(careful),
        correct(logits, labels),
    ]
}

/// The parameter `x[0]` after the first update by the gradient `x[1]`.
fn stepped<'t, O: Optimizer>(
    optimizer: &O,
    x: &[Tensor<'t>],
    slot: impl Fn() -> <O::Slot as Family>::Of<Tensor<'t>>,
) -> Tensor<'t> {
    let (cx, ty) = (x[0].trace(), x[0].ty());
    let model = vec![Param::new(ty.dims(), Init::Zeros).with_dtype(ty.dtype())];
    let slots = Slots::of(&model, |_, _| Some(slot()));
    let step = cx.scalar(0.0, DType::S32);
    let [params, grads] = [0, 1].map(|at| vec![Leaf(x[at])]);
    let (params, _) = update(optimizer, cx, step, &model, params, grads, slots);
    params[0].0
}

fn velocity<'t>(x: &[Tensor<'t>]) -> Velocity<Tensor<'t>> {
    let zeros = x[0].convert(in_sums(x[0].dtype())).zeros_like();
    Velocity {
        velocity: Some(zeros),
    }
}

fn moments<'t>(x: &[Tensor<'t>]) -> Moments<Tensor<'t>> {
    let zeros = x[0].convert(in_sums(x[0].dtype())).zeros_like();
    Moments {
        first: zeros,
        second: zeros,
    }
}

/// The element type of losses and of optimizer steps.
fn in_sums(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}
