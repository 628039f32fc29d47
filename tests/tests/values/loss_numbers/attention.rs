use halite_core::HostArray;
use halite_nn::{Dropout, Mask, Tensor, attention, attention_in_blocks, vjp};
use halite_tests::eval::host;

use super::{assert_close, results};

const NAN: f32 = f32::NAN;

fn waves(count: usize, by: f32) -> Vec<f32> {
    (0..count).map(|index| (index as f32 * by).sin()).collect()
}

/// Attention of 2 batch elements, 4 queries and source positions, 2 heads with 1 key head and a
/// width of 2, and the gradients of queries, keys and values.
fn attended(
    mask: impl for<'t> Fn(Tensor<'t>) -> Mask<'t> + Copy + Send + Sync + 'static,
    mask_values: HostArray,
    [q, k, v]: [&[f32]; 3],
) -> Vec<Vec<f32>> {
    let times = [q.len() / 8, k.len() / 4];
    let mut all = Vec::new();
    for block in [None, Some(3), Some(1)] {
        let found = results(
            move |cx, given| {
                let &[q, k, v, values] = given else {
                    panic!("four inputs")
                };
                let (mask, dropout) = (mask(values), Dropout::new(0.0));
                let y = match block {
                    None => attention(q, k, v, mask, dropout),
                    Some(block) => attention_in_blocks(q, k, v, mask, dropout, block),
                };
                let size = y.dims().iter().product::<usize>();
                let weights = cx.arange(size, q.dtype()).sin().reshape(y.dims());
                let slopes = vjp(&[y], &[weights], &vec![q, k, v]);
                [vec![y], slopes].concat()
            },
            &[
                host(q, &[2, times[0], 2, 2]),
                host(k, &[2, times[1], 1, 2]),
                host(v, &[2, times[1], 1, 2]),
                mask_values.clone(),
            ],
        );
        all.extend(found);
    }
    all
}

fn where_true(mask: Tensor<'_>) -> Mask<'_> {
    Mask::Where(mask)
}

fn added(bias: Tensor<'_>) -> Mask<'_> {
    Mask::Add(bias)
}

/// Checks that queries and source positions may hold anything where `bad` is true, given the
/// element of the batch and the position.
#[track_caller]
fn check(
    mask: impl for<'t> Fn(Tensor<'t>) -> Mask<'t> + Copy + Send + Sync + 'static,
    mask_values: HostArray,
    times: [usize; 2],
    bad: [impl Fn(usize, usize) -> bool; 2],
) {
    let [queries, source] = times;
    let (q, k, v) = (
        waves(8 * queries, 0.7),
        waves(4 * source, 0.4),
        waves(4 * source, 1.3),
    );
    let fill =
        |x: &[f32], times: usize, width: usize, bad: &dyn Fn(usize, usize) -> bool, with: f32| {
            let at = |index: usize| (index / (times * width), index / width % times);
            let filled = x.iter().enumerate().map(|(index, &x)| {
                let (batch, time) = at(index);
                if bad(batch, time) { with } else { x }
            });
            filled.collect::<Vec<f32>>()
        };
    let with = |value: f32| {
        let q = fill(&q, queries, 4, &bad[0], value);
        let k = fill(&k, source, 2, &bad[1], value);
        let v = fill(&v, source, 2, &bad[1], value);
        assert!(!value.is_nan() || q.iter().chain(&k).any(|x| x.is_nan()));
        attended(mask, mask_values.clone(), [&q, &k, &v])
    };
    let expected = with(0.0);
    for value in [NAN, f32::INFINITY, f32::NEG_INFINITY, 1e38] {
        let found = with(value);
        for (found, expected) in found.iter().zip(&expected) {
            assert_close(found, expected);
        }
    }
}

#[test]
fn masked_positions_may_hold_anything() {
    // Two of four keys are masked in the first element of the batch, the last in the second.
    let keep = [[true, true, false, false], [true, true, true, false]];
    let masked = move |batch: usize, time: usize| !keep[batch][time];
    let never = |_: usize, _: usize| false;
    let allowed: Vec<bool> = keep.concat();
    let bias: Vec<f32> = allowed
        .iter()
        .map(|&keep| if keep { 0.5 } else { f32::NEG_INFINITY })
        .collect();
    let dims = [2, 1, 1, 4];
    check(
        where_true,
        host(&allowed, &dims),
        [4, 4],
        [&never as &dyn Fn(usize, usize) -> bool, &masked],
    );
    check(
        added,
        host(&bias, &dims),
        [4, 4],
        [&never as &dyn Fn(usize, usize) -> bool, &masked],
    );
    // A mask of the same positions for both.
    let last = |_: usize, time: usize| time >= 2;
    let every = [true, true, false, false].repeat(4);
    check(
        where_true,
        host(&every, &[4, 4]),
        [4, 4],
        [&never as &dyn Fn(usize, usize) -> bool, &last],
    );
}

#[test]
fn idle_queries_may_hold_anything() {
    let idle = |_: usize, time: usize| time == 1;
    let never = |_: usize, _: usize| false;
    let allowed: Vec<bool> = (0..16).map(|index| index / 4 != 1).collect();
    check(
        where_true,
        host(&allowed, &[1, 1, 4, 4]),
        [4, 4],
        [&idle as &dyn Fn(usize, usize) -> bool, &never],
    );
    // The first of six queries come before all source positions.
    let early = |_: usize, time: usize| time < 2;
    let unused = host(&[0.0f32], &[1]);
    check(
        |_| Mask::Causal,
        unused,
        [6, 4],
        [&early as &dyn Fn(usize, usize) -> bool, &never],
    );
}
