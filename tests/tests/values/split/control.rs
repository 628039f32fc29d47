//! Loops, branches and random numbers.

use halite_core::{DType, tree::Leaf};
use halite_nn::{ScanOptions, Tensor, Trace, rng};
use halite_tests::random::Random;

use crate::split::operations::Drawn;

/// A loop or a branch that depends on values of all devices.
pub(crate) fn control<'t>(
    random: &mut Random,
    cx: &'t Trace,
    x: Tensor<'t>,
    _: &[Tensor<'t>],
) -> Drawn<'t> {
    let dim = random.below(x.rank().max(1));
    if x.rank() == 0 {
        return None;
    }
    Some(match random.below(5) {
        0 => {
            let until = |x: &Leaf<Tensor<'t>>| x.0.abs().sum_all().lt(50.0);
            let last = cx.while_loop(Leaf(x.stop_gradient()), until, |x| Leaf(x.0 * 1.5 + 0.1));
            ("while_loop".to_owned(), last.0)
        }
        1 => {
            let is_positive = x.sum_all().gt(0.0);
            let chosen = cx.cond(is_positive, || Leaf(x.sin()), || Leaf(x.cummax(dim)));
            (format!("cond of sin and cummax({dim})"), chosen.0)
        }
        2 => {
            let index = (x.sum_all() * 3.0).convert(DType::S32);
            let chosen = cx.case(index, 3, |branch| match branch {
                0 => Leaf(x.tanh()),
                1 => Leaf(x.cumsum(dim)),
                _ => Leaf(x.softmax(dim)),
            });
            (format!("case of tanh, cumsum and softmax({dim})"), chosen.0)
        }
        3 => {
            let zeros = x.index(0, 0).zeros_like();
            let reverse = random.percent(50);
            let step = |sum: Leaf<Tensor<'t>>, x: Leaf<Tensor<'t>>| {
                let next = sum.0 * 0.5 + x.0.tanh();
                (Leaf(next), Leaf(next * x.0))
            };
            let (_, steps) = if reverse {
                let options = ScanOptions {
                    reverse,
                    ..ScanOptions::default()
                };
                cx.scan_with(options, Leaf(zeros), Leaf(x), step)
            } else {
                cx.scan(Leaf(zeros), Leaf(x), step)
            };
            (format!("scan, reverse: {reverse}"), steps.0)
        }
        _ => {
            let kept = cx.checkpoint(|| Leaf(x.tanh().cumprod(dim))).0;
            (
                format!("checkpoint of cumprod({dim})"),
                kept.optimization_barrier(),
            )
        }
    })
}

/// Random numbers of every kind, which depend on the key alone.
pub(crate) fn numbers<'t>(
    random: &mut Random,
    cx: &'t Trace,
    x: Tensor<'t>,
    _: &[Tensor<'t>],
) -> Drawn<'t> {
    let (dims, ty) = (x.dims(), x.dtype());
    let size = *dims.first()?;
    let key = keys(random, cx);
    let kind = random.below(8);
    let drawn = match kind {
        0 => rng::normal(key, &dims, ty),
        1 => rng::truncated_normal(key, &dims, ty, -1.0, 2.0),
        2 => rng::bernoulli(key, &dims, 0.3).convert(ty),
        3 => rng::gumbel(key, &dims, ty),
        4 => rng::integers(key, &dims, -5, 20).convert(ty),
        5 => rng::bits(key, &dims, DType::U8).convert(ty) / 256.0,
        6 => return Some(("permutation".into(), x.take(rng::permutation(key, size), 0))),
        _ => {
            let places = rng::categorical(key, x.stop_gradient());
            return Some((
                "categorical".into(),
                places.convert(ty) * x.index(x.rank() - 1, 0),
            ));
        }
    };
    let names = [
        "normal",
        "truncated_normal",
        "bernoulli",
        "gumbel",
        "integers",
        "bits",
    ];
    Some((names[kind].to_owned(), x + drawn))
}

fn keys<'t>(random: &mut Random, cx: &'t Trace) -> Tensor<'t> {
    let key = rng::constant_key(cx, rng::key(7));
    match random.below(4) {
        0 => rng::split::<2>(key)[1],
        1 => rng::row(rng::split_many(key, 3), 2),
        2 => rng::fold_in(key, 5.0),
        _ => rng::row(rng::fold_in_many(key, &[3, 1 << 40]), 1),
    }
}
