use proptest::prelude::*;

use super::{Attention, AttentionBackward, AttentionGeometry};
use crate::Threads;

/// Operands of both passes, and the gradient of the result.
#[derive(Clone, Debug)]
struct Operands {
    geometry: AttentionGeometry,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    g: Vec<f32>,
}

impl Operands {
    fn new(geometry: AttentionGeometry, seed: usize) -> Self {
        let values = |seed: usize, count: usize| {
            let value = |at: usize| ((at * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0;
            (0..count).map(value).collect()
        };
        Operands {
            q: values(seed, geometry.q_len()),
            k: values(seed + 1, geometry.k_len()),
            v: values(seed + 2, geometry.v_len()),
            g: values(seed + 3, geometry.out_len()),
            geometry,
        }
    }
}

/// Results and gradients.
#[derive(Clone, Debug, PartialEq)]
struct Results<T> {
    out: Vec<T>,
    log_sums: Vec<T>,
    dq: Vec<T>,
    dk: Vec<T>,
    dv: Vec<T>,
}

impl<T: Copy + Into<f64>> Results<T> {
    fn all(&self) -> [(&'static str, Vec<f64>); 5] {
        let wide = |x: &[T]| x.iter().map(|&x| x.into()).collect();
        [
            ("result", wide(&self.out)),
            ("logarithms", wide(&self.log_sums)),
            ("queries", wide(&self.dq)),
            ("keys", wide(&self.dk)),
            ("values", wide(&self.dv)),
        ]
    }
}

/// The formulas, one score at a time, in `f64`.
fn expected(of: &Operands) -> Results<f64> {
    let geometry = &of.geometry;
    let &AttentionGeometry {
        batch,
        time,
        source,
        heads,
        kv_heads,
        width,
        value_width,
        causal,
    } = geometry;
    let mut results = Results {
        out: vec![0.0; geometry.out_len()],
        log_sums: vec![0.0; geometry.log_sums_len()],
        dq: vec![0.0; geometry.q_len()],
        dk: vec![0.0; geometry.k_len()],
        dv: vec![0.0; geometry.v_len()],
    };
    for (b, h, i) in
        (0..batch * heads * time).map(|at| (at / heads / time, at / time % heads, at % time))
    {
        let kv = h / (heads / kv_heads);
        let q_at = ((b * time + i) * heads + h) * width;
        let out_at = ((b * time + i) * heads + h) * value_width;
        let k_at = |j: usize| ((b * source + j) * kv_heads + kv) * width;
        let v_at = |j: usize| ((b * source + j) * kv_heads + kv) * value_width;
        let is_allowed = |&j: &usize| !causal || j + time <= i + source;
        let allowed: Vec<usize> = (0..source).filter(is_allowed).collect();
        let dot = |a: &[f32], a_at: usize, b: &[f32], b_at: usize, count: usize| -> f64 {
            let pairs = a[a_at..][..count].iter().zip(&b[b_at..][..count]);
            pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        };
        let scores: Vec<f64> = (allowed.iter())
            .map(|&j| dot(&of.q, q_at, &of.k, k_at(j), width))
            .collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shift = if max.is_finite() { max } else { 0.0 };
        let sum: f64 = scores.iter().map(|score| (score - shift).exp()).sum();
        results.log_sums[(b * heads + h) * time + i] = shift + sum.ln();
        let weights: Vec<f64> = scores
            .iter()
            .map(|score| (score - shift).exp() / sum)
            .collect();
        for (&j, weight) in allowed.iter().zip(&weights) {
            for f in 0..value_width {
                results.out[out_at + f] += weight * f64::from(of.v[v_at(j) + f]);
                results.dv[v_at(j) + f] += weight * f64::from(of.g[out_at + f]);
            }
        }
        let slopes: Vec<f64> = (allowed.iter())
            .map(|&j| dot(&of.g, out_at, &of.v, v_at(j), value_width))
            .collect();
        let mean: f64 = slopes
            .iter()
            .zip(&weights)
            .map(|(slope, weight)| slope * weight)
            .sum();
        for ((&j, weight), slope) in allowed.iter().zip(&weights).zip(&slopes) {
            let slope = weight * (slope - mean);
            for f in 0..width {
                results.dq[q_at + f] += slope * f64::from(of.k[k_at(j) + f]);
                results.dk[k_at(j) + f] += slope * f64::from(of.q[q_at + f]);
            }
        }
    }
    results
}

/// What the kernels compute in blocks of at most these queries and positions.
fn computed(of: &Operands, block: [usize; 2], threads: usize) -> Results<f32> {
    let geometry = &of.geometry;
    let attention = Attention::with_blocks(geometry.clone(), block).expect("the sizes are valid");
    let threads = Threads::new(threads).expect("threads start");
    // Results are written, not added to.
    let results = |count: usize| vec![f32::NAN; count];
    let (mut out, mut log_sums) = (
        results(geometry.out_len()),
        results(geometry.log_sums_len()),
    );
    let Operands { q, k, v, g, .. } = of;
    attention.forward(&threads, q, k, v, &mut out, &mut log_sums);
    let &AttentionGeometry {
        time,
        heads,
        value_width,
        ..
    } = geometry;
    let row_sum = |at: usize| {
        let (b, h, i) = (at / heads / time, at / time % heads, at % time);
        let row = ((b * time + i) * heads + h) * value_width;
        let pairs = g[row..][..value_width].iter().zip(&out[row..]);
        pairs.map(|(g, out)| g * out).sum()
    };
    let row_sums: Vec<f32> = (0..log_sums.len()).map(row_sum).collect();
    let mut gradients = [&of.q, &of.k, &of.v].map(|x| results(x.len()));
    let [dq, dk, dv] = &mut gradients;
    let operands = AttentionBackward {
        q,
        k,
        v,
        log_sums: &log_sums,
        g,
        row_sums: &row_sums,
    };
    attention.backward(&threads, operands, dq, dk, dv);
    let [dq, dk, dv] = gradients;
    Results {
        out,
        log_sums,
        dq,
        dk,
        dv,
    }
}

/// Compares results: each with the largest of its tensor, and NaN with NaN.
fn check(of: &Operands, block: [usize; 2], tolerance: f64) {
    let found = computed(of, block, 2);
    for ((name, found), (_, expected)) in found.all().into_iter().zip(expected(of).all()) {
        let finite = expected.iter().filter(|x| x.is_finite());
        let largest = finite.fold(1.0, |most: f64, x| most.max(x.abs()));
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let agree = (found - expected).abs() <= tolerance * largest
                || found == expected
                || found.is_nan() && expected.is_nan();
            assert!(
                agree,
                "{name} {at}: {found}, expected {expected}; blocks of {block:?}, {:?}",
                of.geometry
            );
        }
    }
}

fn geometries() -> impl Strategy<Value = AttentionGeometry> {
    let sizes = (0..3usize, 0..20usize, 0..20usize, 1..4usize);
    let features = (0..3usize, 0..20usize, 0..20usize, any::<bool>());
    (sizes, features).prop_map(
        |((batch, time, source, kv_heads), (groups, width, value_width, causal))| {
            AttentionGeometry {
                batch,
                time,
                source,
                heads: groups * kv_heads,
                kv_heads,
                width,
                value_width,
                causal,
            }
        },
    )
}

proptest! {
    #[test]
    fn equals_the_formulas(
        geometry in geometries(),
        seed in 0..1000usize,
        queries in 1..8usize,
        positions in 1..12usize,
    ) {
        let operands = Operands::new(geometry, seed);
        // A gradient of a key or value is a sum over all queries and heads of its group, and its terms
        // may cancel: 3.4e-6 was seen.
        check(&operands, [queries, positions], 1e-5);
        check(&operands, [super::QUERIES, super::POSITIONS], 1e-5);
    }

    #[test]
    fn bits_do_not_depend_on_threads(geometry in geometries(), seed in 0..1000usize) {
        let operands = Operands::new(geometry, seed);
        let serial = computed(&operands, [5, 7], 1);
        prop_assert_eq!(&serial, &computed(&operands, [5, 7], 2));
        prop_assert_eq!(&serial, &computed(&operands, [5, 7], 3));
    }
}

fn sized(time: usize, source: usize, causal: bool) -> AttentionGeometry {
    AttentionGeometry {
        batch: 2,
        time,
        source,
        heads: 4,
        kv_heads: 2,
        width: 24,
        value_width: 16,
        causal,
    }
}

/// Sizes at which work is shared between threads, with several blocks of both kinds.
#[test]
fn large_attention_equals_the_formulas() {
    for (time, source, causal) in [(300, 520, true), (300, 200, true), (97, 257, false)] {
        let operands = Operands::new(sized(time, source, causal), 5);
        for queries in [super::QUERIES, super::QUERIES / 2] {
            let block = [queries, super::POSITIONS];
            check(&operands, block, 1e-5);
            assert_eq!(computed(&operands, block, 1), computed(&operands, block, 3));
        }
    }
}

#[test]
fn large_and_denormal_scores_are_exact() {
    for (scale, tolerance) in [(30.0, 1e-3), (1e-39, 1e-6)] {
        let mut operands = Operands::new(sized(13, 13, true), 3);
        operands.q.iter_mut().for_each(|x| *x *= scale);
        check(&operands, [6, 5], tolerance);
    }
}

/// A score that is not a number is one for its query alone, and for no query that must not see it.
#[test]
fn nan_reaches_what_depends_on_it() {
    let geometry = sized(9, 9, true);
    let mut operands = Operands::new(geometry.clone(), 3);
    let row = geometry.kv_heads * geometry.width;
    // The fifth key of the first head.
    operands.k[4 * row] = f32::NAN;
    let results = computed(&operands, [3, 2], 1);
    let head = geometry.value_width;
    for (at, out) in results.out.chunks(head).enumerate() {
        let (query, head) = (at / geometry.heads % geometry.time, at % geometry.heads);
        let sees = at / geometry.heads < geometry.time && head < 2 && query >= 4;
        assert!(
            out.iter().all(|x| x.is_nan() == sees),
            "query {query}, head {head}: {out:?}"
        );
    }
    operands.k[4 * row] = f32::NEG_INFINITY;
    operands.q.iter_mut().for_each(|x| *x = x.abs() + 0.1);
    let results = computed(&operands, [3, 2], 1);
    assert!(results.out.iter().all(|x| x.is_finite()));
}

/// The gradients of queries and keys are those that differences of the result give.
#[test]
fn gradients_are_slopes_of_the_result() {
    const STEP: f64 = 1e-2;
    let operands = Operands::new(sized(5, 7, true), 11);
    let gradients = computed(&operands, [3, 2], 1);
    let loss = |of: &Operands| -> f64 {
        let pairs = expected(of).out.into_iter().zip(&of.g);
        pairs.map(|(out, &g)| out * f64::from(g)).sum()
    };
    let slope = |moved: &dyn Fn(&mut Operands, f32)| {
        let [up, down] = [STEP, -STEP].map(|step| {
            let mut operands = operands.clone();
            moved(&mut operands, step as f32);
            loss(&operands)
        });
        (up - down) / (2.0 * STEP)
    };
    let check = |name: &str, at: usize, found: f32, expected: f64| {
        let difference = (f64::from(found) - expected).abs();
        assert!(
            difference < 1e-3,
            "{name} {at}: {found}, expected {expected}"
        );
    };
    for at in (0..operands.q.len()).step_by(37) {
        check(
            "query",
            at,
            gradients.dq[at],
            slope(&|of, step| of.q[at] += step),
        );
    }
    for at in (0..operands.k.len()).step_by(37) {
        check(
            "key",
            at,
            gradients.dk[at],
            slope(&|of, step| of.k[at] += step),
        );
    }
}

#[test]
fn invalid_sizes_are_errors() {
    let valid = sized(3, 3, false);
    for (geometry, expected) in [
        (
            AttentionGeometry {
                kv_heads: 3,
                ..valid.clone()
            },
            "attention: 3 key heads do not divide 4 heads",
        ),
        (
            AttentionGeometry {
                kv_heads: 0,
                ..valid.clone()
            },
            "attention: 0 key heads do not divide 4 heads",
        ),
        (
            AttentionGeometry {
                width: 1 << 30,
                ..valid.clone()
            },
            "is too large",
        ),
        (
            AttentionGeometry {
                batch: 0,
                heads: 0,
                width: usize::MAX,
                ..valid.clone()
            },
            "is too large",
        ),
        (
            AttentionGeometry {
                batch: 0,
                heads: 0,
                kv_heads: 1 << 40,
                ..valid
            },
            "is too large",
        ),
    ] {
        let error = Attention::new(geometry).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
