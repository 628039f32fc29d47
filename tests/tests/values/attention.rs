//! Attention in blocks of the source, beside attention over all of it at once, and attention as one
//! operation beside operations with gradients of their own.

use halite_core::{DType, HostArray, TensorType};
use halite_ir::Graph;
use halite_nn::{Dropout, Mask, Tensor, Trace, attention_in_blocks, rng, vjp};
use halite_tests::{
    eval::{eval, host},
    long::part,
};

const BATCH: usize = 2;
const TIME: usize = 7;
const SOURCE: usize = 11;
const HEADS: usize = 4;
const WIDTH: usize = 6;

#[derive(Clone, Copy, Debug)]
enum Masking {
    None,
    Causal,
    /// For each head; one position attends to nothing.
    Where,
    /// Broadcast over the source.
    WherePerQuery,
    /// Broadcast over batch and heads, with a gradient.
    Add,
}

fn numbers(seed: u64, dims: &[usize]) -> HostArray {
    let count: usize = dims.iter().product();
    let values: Vec<f32> = (0..count as u64)
        .map(|at| ((at * 7919 + seed * 104_729) % 1009) as f32 / 252.0 - 2.0)
        .collect();
    host(&values, dims)
}

/// Queries, keys, values and a bias.
fn inputs(kv_heads: usize) -> [HostArray; 4] {
    [
        numbers(1, &[BATCH, TIME, HEADS, WIDTH]),
        numbers(2, &[BATCH, SOURCE, kv_heads, WIDTH]),
        numbers(3, &[BATCH, SOURCE, kv_heads, 5]),
        numbers(4, &[TIME, SOURCE]),
    ]
}

/// Attention and the gradients by the inputs of a sum with different weights.
fn outputs<'t>(given: &[Tensor<'t>], masking: Masking, block: usize) -> Vec<Tensor<'t>> {
    let [q, k, v, bias] = given[..] else {
        panic!("four inputs");
    };
    let cx = q.trace();
    let index = |dims: &[usize], dim| cx.iota(&TensorType::new(DType::S32, dims), dim);
    let mask = match masking {
        Masking::None => Mask::None,
        Masking::Causal => Mask::Causal,
        Masking::Where => {
            let dims = [HEADS, TIME, SOURCE];
            let sum = index(&dims, 0) + index(&dims, 1) * 3 + index(&dims, 2);
            Mask::Where((sum % 4).ne(0).and(index(&dims, 1).ne(2)))
        }
        Masking::WherePerQuery => Mask::Where(index(&[TIME, 1], 0).ne(3)),
        Masking::Add => Mask::Add(bias),
    };
    let y = attention_in_blocks(q, k, v, mask, Dropout::new(0.0), block);
    let weights = (cx.iota(&y.ty(), 1) + cx.iota(&y.ty(), 3) * 0.5).sin();
    let back = vjp(&[y], &[weights], &given.to_vec());
    [vec![y], back].concat()
}

fn largest_difference(ours: &HostArray, theirs: &HostArray) -> f32 {
    let (ours, theirs): (&[f32], &[f32]) = (ours.as_slice().unwrap(), theirs.as_slice().unwrap());
    let largest = theirs.iter().fold(1.0f32, |most, x| most.max(x.abs()));
    let differences = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs());
    assert!(ours.iter().chain(theirs).all(|x| x.is_finite()));
    differences.fold(0.0, f32::max) / largest
}

/// Compares blocks of these sizes, some with a smaller last one, with the whole source.
fn check(masking: Masking, kv_heads: usize) {
    const BLOCKS: [usize; 3] = [1, 4, 10];
    let results = eval(
        move |_, given| {
            let blocks = [&[usize::MAX], &BLOCKS[..]].concat().into_iter();
            blocks
                .flat_map(|block| outputs(given, masking, block))
                .collect()
        },
        &inputs(kv_heads),
    );
    let (whole, blocks) = results.split_at(results.len() / (1 + BLOCKS.len()));
    for (block, ours) in BLOCKS.iter().zip(blocks.chunks(whole.len())) {
        for (at, (ours, theirs)) in ours.iter().zip(whole).enumerate() {
            let difference = largest_difference(ours, theirs);
            assert!(
                difference < 2e-6,
                "{masking:?}, {kv_heads} kv heads, blocks of {block}, output {at}: {difference}"
            );
        }
    }
}

#[test]
fn blocks_equal_whole_attention() {
    for masking in [
        Masking::None,
        Masking::Causal,
        Masking::Where,
        Masking::WherePerQuery,
        Masking::Add,
    ] {
        for &kv_heads in part(&[HEADS, 2], &[1]) {
            check(masking, kv_heads);
        }
    }
}

/// Attention, its gradients and those of their squares, by queries, keys and values.
fn derivatives<'t>(
    given: &[Tensor<'t>],
    is_one: bool,
    is_causal: bool,
    block: usize,
) -> Vec<Tensor<'t>> {
    let [q, k, v] = [given[0], given[1], given[2]];
    let index = |dim| (q.trace()).iota(&TensorType::new(DType::S32, [TIME, SOURCE]), dim);
    let offset = if is_causal {
        (SOURCE - TIME) as f64
    } else {
        SOURCE as f64
    };
    let mask = match (is_one, is_causal) {
        (true, true) => Mask::Causal,
        (true, false) => Mask::None,
        (false, _) => Mask::Where(index(1).le(index(0) + offset)),
    };
    let y = attention_in_blocks(q, k, v, mask, Dropout::new(0.0), block);
    let first = vjp(&[y], &[y.sin()], &vec![q, k, v]);
    let sum = first.iter().map(|slope| slope.square().sum_all());
    let sum = sum.reduce(|a, b| a + b).expect("three gradients");
    let second = vjp(&[sum], &[sum.ones_like()], &vec![q, k, v]);
    [vec![y], first, second].concat()
}

/// Attention as one operation, with the gradient of its own, beside the same positions as a tensor
/// of a mask, whose gradient is that of each operation. Both in first and second derivatives.
#[test]
fn gradients_equal_those_of_single_operations() {
    for (is_causal, kv_heads, block) in [
        (true, HEADS, usize::MAX),
        (false, 2, usize::MAX),
        (true, 2, 4),
        (false, HEADS, 4),
    ] {
        let results = eval(
            move |_, given| {
                let both = [true, false].into_iter();
                both.flat_map(|is_one| derivatives(given, is_one, is_causal, block))
                    .collect()
            },
            &inputs(kv_heads),
        );
        let (ours, theirs) = results.split_at(results.len() / 2);
        for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            let difference = largest_difference(ours, theirs);
            assert!(
                difference < 1e-5,
                "causal: {is_causal}, {kv_heads} kv heads, blocks of {block}, output {at}: \
                 {difference}"
            );
        }
    }
}

#[test]
fn dropout_in_blocks_keeps_the_mean() {
    let mean = |rate: f64| {
        let results = eval(
            move |cx, given| {
                cx.set_mode(true, Some(rng::constant_key(cx, rng::key(3))));
                let v = given[2].ones_like();
                let dims = [64, SOURCE, HEADS, 5];
                let v = v.slice_dim(0, ..1).broadcast_to(dims);
                let [q, k] = [0, 1].map(|at| {
                    let x = given[at].slice_dim(0, ..1);
                    let mut dims = x.dims();
                    dims[0] = 64;
                    x.broadcast_to(dims)
                });
                let y = attention_in_blocks(q, k, v, Mask::None, Dropout::new(rate), 4);
                vec![y.mean_all(), y.max([0, 1, 2, 3])]
            },
            &inputs(HEADS),
        );
        [0, 1].map(|at: usize| results[at].as_slice::<f32>().unwrap()[0])
    };
    assert_eq!(mean(0.0).map(|x| (x * 1e5).round() / 1e5), [1.0, 1.0]);
    let [mean, largest] = mean(0.3);
    assert!(
        (mean - 1.0).abs() < 0.02 && largest > 1.2,
        "{mean}, {largest}"
    );
}

/// The largest value of the graph and of the bodies in it, in elements.
fn largest_value(graph: &Graph) -> usize {
    let nodes = graph.nodes().iter();
    let own = nodes.clone().flat_map(|node| &node.results);
    let own = own.map(|&result| graph.ty(result).dims().iter().product());
    let inner = nodes.flat_map(|node| node.op.regions()).map(largest_value);
    own.chain(inner).max().unwrap_or(0)
}

#[test]
fn no_value_has_the_size_of_all_scores() {
    let (length, block) = (1024, 64);
    let cx = &Trace::new();
    let x = |name| cx.input(TensorType::new(DType::F32, [1, length, 2, 4]), name);
    let given = [x("q"), x("k"), x("v")];
    let y = attention_in_blocks(
        given[0],
        given[1],
        given[2],
        Mask::Causal,
        Dropout::new(0.0),
        block,
    );
    let back = vjp(&[y], &[y.ones_like()], &given.to_vec());
    let graph = halite_ir::optimize(cx.graph(&given, &[vec![y], back].concat()).unwrap());
    assert_eq!(largest_value(&graph), 2 * length * block);
}

#[test]
fn empty_block_is_a_mistake() {
    let cx = &Trace::new();
    let x = cx.input(TensorType::new(DType::F32, [1, 8, 2, 4]), "x");
    let _ = attention_in_blocks(x, x, x, Mask::None, Dropout::new(0.0), 0);
    assert_eq!(
        cx.mistakes()[0].message,
        "blocks of 0 source positions; expected at least 1"
    );
}
