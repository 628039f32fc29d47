//! What a policy makes of a program: which operations become narrow, and that the result is a
//! program.

use expect_test::{Expect, expect};
use halite_core::{DType, DTypePolicy, Narrowing, TensorType};
use halite_ir::{
    Binary, Comparison, Dot, Extreme, Graph, Literal, Op, Reduction, Remat, Unary, Value, Window,
    optimize, verify, with_border, with_precision,
};
use proptest::prelude::*;

fn f32(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

fn push(graph: &mut Graph, op: Op, operands: &[Value]) -> Value {
    graph.push(op, operands, None).unwrap()[0]
}

fn binary(graph: &mut Graph, op: Binary, left: Value, right: Value) -> Value {
    push(graph, Op::Binary(op), &[left, right])
}

/// `[.., k]` by `[k, n]`.
fn dot(graph: &mut Graph, left: Value, right: Value) -> Value {
    let contract = vec![graph.ty(left).rank() - 1];
    let result = graph.ty(left).dtype();
    let dot = Dot {
        left_batch: vec![],
        right_batch: vec![],
        left_contract: contract,
        right_contract: vec![0],
        result,
    };
    push(graph, Op::Dot(dot), &[left, right])
}

/// Of one element in each row, over rows of `dims`.
fn rows(graph: &mut Graph, x: Value, dims: &[usize]) -> Value {
    push(
        graph,
        Op::Broadcast {
            dims: dims.to_vec(),
            mapping: vec![0],
        },
        &[x],
    )
}

fn bias(graph: &mut Graph, dims: &[usize]) -> Value {
    let bias = graph.input(f32(&dims[1..]));
    push(
        graph,
        Op::Broadcast {
            dims: dims.to_vec(),
            mapping: vec![1],
        },
        &[bias],
    )
}

fn reduce(graph: &mut Graph, kind: Reduction, x: Value, dims: &[usize]) -> Value {
    push(
        graph,
        Op::Reduce {
            kind,
            dims: dims.to_vec(),
        },
        &[x],
    )
}

/// The operations under a policy, with the element types of operands and results; broadcasts and
/// conversions left out.
fn check(policy: DTypePolicy, graph: &Graph, expected: Expect) {
    verify(graph).unwrap();
    let after = optimize(&with_precision(
        graph.clone(),
        &policy,
        &Narrowing::EVERYWHERE,
    ));
    verify(&after).unwrap();
    assert_eq!(
        (after.input_types(), after.output_types()),
        (graph.input_types(), graph.output_types())
    );
    let lines: Vec<String> = (after.nodes().iter())
        .filter(|node| {
            !matches!(
                node.op,
                Op::Broadcast { .. } | Op::Convert(_) | Op::Constant(_)
            )
        })
        .map(|node| {
            let types = |values: &[Value]| {
                let names: Vec<&str> = values
                    .iter()
                    .map(|&value| after.ty(value).dtype().name())
                    .collect();
                names.join(" ")
            };
            format!(
                "{} {} -> {}",
                node.op.name(),
                types(&node.operands),
                types(&node.results)
            )
        })
        .collect();
    expected.assert_eq(&lines.join("\n"));
}

/// Two dense layers with a ReLU between them, and the cross entropy's first part:
/// `log(sum(exp(logits)))` of each row, summed.
fn classifier() -> Graph {
    let mut graph = Graph::new();
    let x = graph.input(f32(&[8, 4]));
    let (w1, w2) = (graph.input(f32(&[4, 16])), graph.input(f32(&[16, 3])));
    let hidden = dot(&mut graph, x, w1);
    let b1 = bias(&mut graph, &[8, 16]);
    let hidden = binary(&mut graph, Binary::Add, hidden, b1);
    let zero = push(
        &mut graph,
        Op::Constant(Literal::splat(0.0f32, [8, 16])),
        &[],
    );
    let hidden = binary(&mut graph, Binary::Maximum, hidden, zero);
    let logits = dot(&mut graph, hidden, w2);
    let b2 = bias(&mut graph, &[8, 3]);
    let logits = binary(&mut graph, Binary::Add, logits, b2);
    let powers = push(&mut graph, Op::Unary(Unary::Exponential), &[logits]);
    let sums = reduce(&mut graph, Reduction::Sum, powers, &[1]);
    let losses = push(&mut graph, Op::Unary(Unary::Log), &[sums]);
    let loss = reduce(&mut graph, Reduction::Sum, losses, &[0]);
    graph.set_outputs(vec![loss]);
    graph
}

#[test]
fn what_is_between_products_is_narrow_and_a_softmax_is_not() {
    check(
        DTypePolicy::BF16_MIXED,
        &classifier(),
        expect![[r#"
            dot bf16 bf16 -> f32
            add bf16 bf16 -> bf16
            maximum bf16 bf16 -> bf16
            dot bf16 bf16 -> f32
            add f32 f32 -> f32
            exponential f32 -> f32
            reduce_sum f32 -> f32
            log f32 -> f32
            reduce_sum f32 -> f32"#]],
    );
}

#[test]
fn a_norm_between_products_is_wide_as_a_whole() {
    let mut graph = Graph::new();
    let (x, w1, w2) = (
        graph.input(f32(&[8, 4])),
        graph.input(f32(&[4, 4])),
        graph.input(f32(&[4, 4])),
    );
    let y = dot(&mut graph, x, w1);
    let sum = reduce(&mut graph, Reduction::Sum, y, &[1]);
    let mean = rows(&mut graph, sum, &[8, 4]);
    let centred = binary(&mut graph, Binary::Subtract, y, mean);
    let square = binary(&mut graph, Binary::Multiply, centred, centred);
    let variance = reduce(&mut graph, Reduction::Sum, square, &[1]);
    let root = push(&mut graph, Op::Unary(Unary::Rsqrt), &[variance]);
    let root = rows(&mut graph, root, &[8, 4]);
    let normed = binary(&mut graph, Binary::Multiply, centred, root);
    let out = dot(&mut graph, normed, w2);
    graph.set_outputs(vec![out]);
    check(
        DTypePolicy::BF16_MIXED,
        &graph,
        expect![[r#"
            dot bf16 bf16 -> f32
            reduce_sum f32 -> f32
            subtract f32 f32 -> f32
            multiply f32 f32 -> f32
            reduce_sum f32 -> f32
            rsqrt f32 -> f32
            multiply f32 f32 -> f32
            dot bf16 bf16 -> f32"#]],
    );
}

/// A weight's gradient goes to the update as the product summed it; the gradient of what is below
/// is narrow.
#[test]
fn gradients_of_weights_are_not_rounded_under_a_mixed_policy() {
    let mut graph = Graph::new();
    let (x, g, w) = (
        graph.input(f32(&[8, 4])),
        graph.input(f32(&[8, 3])),
        graph.input(f32(&[4, 3])),
    );
    let transposed = push(
        &mut graph,
        Op::Transpose {
            permutation: vec![1, 0],
        },
        &[x],
    );
    let gradient = dot(&mut graph, transposed, g);
    let after = graph
        .push(Op::OptimizationBarrier, &[w, gradient], None)
        .unwrap()
        .to_vec();
    let next = binary(&mut graph, Binary::Subtract, after[0], after[1]);
    let turned = push(
        &mut graph,
        Op::Transpose {
            permutation: vec![1, 0],
        },
        &[w],
    );
    let below = dot(&mut graph, g, turned);
    let below = push(&mut graph, Op::Unary(Unary::Negate), &[below]);
    let sum = reduce(&mut graph, Reduction::Sum, below, &[0]);
    graph.set_outputs(vec![next, sum]);
    let mixed = expect![[r#"
        transpose bf16 -> bf16
        dot bf16 bf16 -> f32
        optimization_barrier f32 f32 -> f32 f32
        subtract f32 f32 -> f32
        transpose bf16 -> bf16
        dot bf16 bf16 -> f32
        negate bf16 -> bf16
        reduce_sum f32 -> f32"#]];
    check(DTypePolicy::BF16_MIXED, &graph, mixed);
    // Under `bf16` it is rounded on the way: to bf16, and back for the update.
    let count = |policy| {
        let after = with_precision(graph.clone(), &policy, &Narrowing::EVERYWHERE);
        after
            .nodes()
            .iter()
            .filter(|node| matches!(node.op, Op::Convert(_)))
            .count()
    };
    assert_eq!(count(DTypePolicy::BF16), count(DTypePolicy::BF16_MIXED) + 2);
}

#[test]
fn a_squared_error_is_wide_and_so_is_what_it_is_of() {
    let mut graph = Graph::new();
    let (x, w, target) = (
        graph.input(f32(&[8, 4])),
        graph.input(f32(&[4, 2])),
        graph.input(f32(&[8, 2])),
    );
    let y = dot(&mut graph, x, w);
    let b = bias(&mut graph, &[8, 2]);
    let y = binary(&mut graph, Binary::Add, y, b);
    let error = binary(&mut graph, Binary::Subtract, y, target);
    let square = binary(&mut graph, Binary::Multiply, error, error);
    let each = reduce(&mut graph, Reduction::Sum, square, &[1]);
    let loss = reduce(&mut graph, Reduction::Sum, each, &[0]);
    graph.set_outputs(vec![loss]);
    check(
        DTypePolicy::BF16_MIXED,
        &graph,
        expect![[r#"
            dot bf16 bf16 -> f32
            add f32 f32 -> f32
            subtract f32 f32 -> f32
            multiply f32 f32 -> f32
            reduce_sum f32 -> f32
            reduce_sum f32 -> f32"#]],
    );
}

#[test]
fn f64_stays_or_becomes_what_the_policy_says() {
    let f64 = |dims: &[usize]| TensorType::new(DType::F64, dims);
    let mut graph = Graph::new();
    let (x, w) = (graph.input(f64(&[8, 4])), graph.input(f64(&[4, 2])));
    let y = dot(&mut graph, x, w);
    let sum = reduce(&mut graph, Reduction::Sum, y, &[0]);
    graph.set_outputs(vec![sum]);
    check(
        DTypePolicy::BF16,
        &graph,
        expect!["dot f64 f64 -> f64\nreduce_sum f64 -> f64"],
    );
    check(
        DTypePolicy::DOWNCAST_BF16,
        &graph,
        expect!["dot f32 f32 -> f32\nreduce_sum f32 -> f32"],
    );
    check(
        DTypePolicy::USE_BF16,
        &graph,
        expect!["dot bf16 bf16 -> f32\nreduce_sum f32 -> f32"],
    );
}

#[test]
fn small_products_stay_wide_where_narrow_ones_do_not_pay() {
    let graph = classifier();
    let narrowing = Narrowing {
        least_work: 8 * 4 * 16,
        ..Narrowing::EVERYWHERE
    };
    let after = with_precision(graph.clone(), &DTypePolicy::BF16_MIXED, &narrowing);
    let operands = after
        .nodes()
        .iter()
        .filter(|node| matches!(node.op, Op::Dot(_)));
    let types: Vec<DType> = operands
        .map(|node| after.ty(node.operands[0]).dtype())
        .collect();
    assert_eq!(
        types,
        [DType::Bf16, DType::F32],
        "of 512 and 384 multiplications"
    );
}

#[test]
fn constants_that_a_narrow_type_cannot_hold_keep_what_they_are_in_wide() {
    for (value, op) in [(1e-12f32, Binary::Add), (1e9, Binary::Multiply)] {
        let mut graph = Graph::new();
        let (x, w) = (graph.input(f32(&[2, 2])), graph.input(f32(&[2, 2])));
        let y = dot(&mut graph, x, w);
        let constant = push(&mut graph, Op::Constant(Literal::splat(value, [2, 2])), &[]);
        let y = binary(&mut graph, op, y, constant);
        let y = dot(&mut graph, y, w);
        graph.set_outputs(vec![y]);
        let type_of_op = |policy: DTypePolicy| {
            let after = with_precision(graph.clone(), &policy, &Narrowing::EVERYWHERE);
            let node = after
                .nodes()
                .iter()
                .find(|node| node.op == Op::Binary(op))
                .unwrap()
                .clone();
            after.ty(node.results[0]).dtype()
        };
        assert_eq!(
            type_of_op(DTypePolicy::BF16_MIXED),
            DType::Bf16,
            "{value} in bf16, which reaches as far as f32"
        );
        assert_eq!(
            type_of_op(DTypePolicy::F16_MIXED),
            DType::F32,
            "{value} in f16 would be 0 or infinite"
        );
    }
}

#[test]
fn a_loop_keeps_its_border_and_is_narrow_inside() {
    let state = [TensorType::scalar(DType::S32), f32(&[4, 4]), f32(&[4, 4])];
    let region = |body: &dyn Fn(&mut Graph, [Value; 3]) -> Vec<Value>| {
        let mut graph = Graph::new();
        let inputs = [0, 1, 2].map(|i| graph.input(state[i].clone()));
        let outputs = body(&mut graph, inputs);
        graph.set_outputs(outputs);
        Box::new(graph)
    };
    let condition = region(&|graph, [i, _, _]| {
        let end = push(graph, Op::Constant(Literal::splat(3i32, [])), &[]);
        vec![push(graph, Op::Compare(Comparison::Lt), &[i, end])]
    });
    let body = region(&|graph, [i, x, w]| {
        let one = push(graph, Op::Constant(Literal::splat(1i32, [])), &[]);
        let next = binary(graph, Binary::Add, i, one);
        vec![next, dot(graph, x, w)]
    });
    let mut graph = Graph::new();
    let inputs = state.clone().map(|ty| graph.input(ty));
    let results = graph
        .push(
            Op::While {
                carried: 2,
                condition,
                body,
            },
            &inputs,
            None,
        )
        .unwrap()
        .to_vec();
    graph.set_outputs(results);
    let after = with_precision(
        graph.clone(),
        &DTypePolicy::USE_BF16,
        &Narrowing::EVERYWHERE,
    );
    verify(&after).unwrap();
    let Op::While { body, .. } = &after.nodes()[0].op else {
        panic!("a loop")
    };
    let dot = body
        .nodes()
        .iter()
        .find(|node| matches!(node.op, Op::Dot(_)))
        .unwrap();
    assert_eq!(body.ty(dot.operands[0]).dtype(), DType::Bf16);
}

/// Two layers of the same form as a scan, the way back through them as another, and what is made of
/// what both give. The first stacks `tanh(x w)`, which the second takes besides the weights; it
/// gives the gradients of these.
fn layers(way_back: impl FnOnce(&mut Graph, [Value; 3]) -> Vec<Value>) -> (Graph, Vec<Value>) {
    let mut body = Graph::new();
    let (x, w) = (body.input(f32(&[8, 4])), body.input(f32(&[4, 4])));
    let hidden = dot(&mut body, x, w);
    let hidden = push(&mut body, Op::Unary(Unary::Tanh), &[hidden]);
    let next = binary(&mut body, Binary::Add, x, hidden);
    body.set_outputs(vec![next, hidden]);
    let mut graph = Graph::new();
    let (x, w) = (graph.input(f32(&[8, 4])), graph.input(f32(&[2, 4, 4])));
    let op = Op::Scan {
        carried: 1,
        scanned: 1,
        length: 2,
        reverse: false,
        body: Box::new(body),
    };
    let forward = graph.push(op, &[x, w], None).unwrap().to_vec();

    let mut body = Graph::new();
    let inputs = [f32(&[8, 4]), f32(&[8, 4]), f32(&[4, 4])].map(|ty| body.input(ty));
    let outputs = way_back(&mut body, inputs);
    body.set_outputs(outputs);
    let op = Op::Scan {
        carried: 1,
        scanned: 2,
        length: 2,
        reverse: true,
        body: Box::new(body),
    };
    let backward = graph
        .push(op, &[forward[0], forward[1], w], None)
        .unwrap()
        .to_vec();
    graph.set_outputs(vec![backward[1]]);
    (graph, forward)
}

fn slope(body: &mut Graph, [g, hidden, w]: [Value; 3]) -> Vec<Value> {
    let square = binary(body, Binary::Multiply, hidden, hidden);
    let below = dot(body, square, w);
    let next = binary(body, Binary::Add, g, below);
    let turned = push(
        body,
        Op::Transpose {
            permutation: vec![1, 0],
        },
        &[hidden],
    );
    vec![next, dot(body, turned, g)]
}

#[test]
fn what_is_kept_of_each_turn_is_stacked_in_the_type_it_was_made_in() {
    check(
        DTypePolicy::BF16_MIXED,
        &layers(slope).0,
        expect![[r#"
            scan f32 f32 -> f32 bf16
            scan f32 bf16 f32 -> f32 f32"#]],
    );
    let (graph, _) = layers(slope);
    let after = optimize(&with_precision(
        graph,
        &DTypePolicy::BF16_MIXED,
        &Narrowing::EVERYWHERE,
    ));
    let Op::Scan { body, .. } = &after.nodes()[1].op else {
        panic!("the way back")
    };
    // What was narrow there is narrow here.
    let square = body
        .nodes()
        .iter()
        .find(|node| node.op == Op::Binary(Binary::Multiply))
        .unwrap();
    assert_eq!(square.operands, [body.inputs()[1]; 2]);
    assert_eq!(body.ty(square.results[0]).dtype(), DType::Bf16);
    // Nothing was converted to be stacked, or to be unpacked.
    let converts = after
        .nodes()
        .iter()
        .filter(|node| matches!(node.op, Op::Convert(_)))
        .count();
    assert_eq!(converts, 0, "{after}");
}

#[test]
fn what_is_stacked_stays_wide_where_it_is_wanted_exactly() {
    // In the other scan, and outside.
    let exact_inside = |body: &mut Graph, [g, hidden, w]: [Value; 3]| {
        let power = push(body, Op::Unary(Unary::Exponential), &[hidden]);
        let [next, slope] = slope(body, [g, power, w])[..] else {
            panic!("two")
        };
        vec![next, slope]
    };
    check(
        DTypePolicy::BF16_MIXED,
        &layers(exact_inside).0,
        expect![[r#"
            scan f32 f32 -> f32 f32
            scan f32 f32 f32 -> f32 f32"#]],
    );
    let (mut graph, forward) = layers(slope);
    graph.set_outputs([graph.outputs(), &forward[1..]].concat());
    check(
        DTypePolicy::BF16_MIXED,
        &graph,
        expect![[r#"
            scan f32 f32 -> f32 f32
            scan f32 f32 f32 -> f32 f32"#]],
    );
}

/// A scan that stacks the state as each turn finds it, and another that takes it through `norm`.
fn with_state_kept(reverse: bool, norm: impl FnOnce(&mut Graph, Value) -> Value) -> Graph {
    let mut body = Graph::new();
    let (x, w) = (body.input(f32(&[8, 4])), body.input(f32(&[4, 4])));
    let hidden = dot(&mut body, x, w);
    let next = binary(&mut body, Binary::Add, x, hidden);
    body.set_outputs(vec![next, x]);
    let mut graph = Graph::new();
    let (x, w) = (graph.input(f32(&[8, 4])), graph.input(f32(&[2, 4, 4])));
    let op = Op::Scan {
        carried: 1,
        scanned: 1,
        length: 2,
        reverse: false,
        body: Box::new(body),
    };
    let forward = graph.push(op, &[x, w], None).unwrap().to_vec();

    let mut body = Graph::new();
    let inputs = [f32(&[8, 4]), f32(&[8, 4]), f32(&[4, 4])].map(|ty| body.input(ty));
    let [g, state, weight] = inputs;
    let normed = norm(&mut body, state);
    let below = dot(&mut body, g, weight);
    let below = binary(&mut body, Binary::Multiply, below, normed);
    let next = binary(&mut body, Binary::Add, g, below);
    body.set_outputs(vec![next]);
    let op = Op::Scan {
        carried: 1,
        scanned: 2,
        length: 2,
        reverse,
        body: Box::new(body),
    };
    let backward = graph
        .push(op, &[forward[0], forward[1], w], None)
        .unwrap()
        .to_vec();
    graph.set_outputs(backward);
    graph
}

/// `x` by the root of its mean square in each row.
fn norm(graph: &mut Graph, x: Value) -> Value {
    let square = binary(graph, Binary::Multiply, x, x);
    let sum = reduce(graph, Reduction::Sum, square, &[1]);
    let root = push(graph, Op::Unary(Unary::Rsqrt), &[sum]);
    let root = rows(graph, root, &[8, 4]);
    binary(graph, Binary::Multiply, x, root)
}

#[test]
fn the_state_that_gradients_keep_of_each_turn_is_rounded_and_what_is_carried_is_not() {
    check(
        DTypePolicy::BF16_MIXED,
        &with_state_kept(true, norm),
        expect![[r#"
            scan f32 f32 -> f32 bf16
            scan f32 bf16 f32 -> f32"#]],
    );
    let wide = || {
        expect![[r#"
            scan f32 f32 -> f32 f32
            scan f32 f32 f32 -> f32"#]]
    };
    // Another scan over states is no way back.
    check(
        DTypePolicy::BF16_MIXED,
        &with_state_kept(false, norm),
        wide(),
    );
    let power = |graph: &mut Graph, x: Value| push(graph, Op::Unary(Unary::Exponential), &[x]);
    check(
        DTypePolicy::BF16_MIXED,
        &with_state_kept(true, power),
        wide(),
    );
    // A state may be too large for `f16`.
    check(DTypePolicy::F16_MIXED, &with_state_kept(true, norm), wide());
    let (graph, operands) = (
        with_state_kept(true, norm),
        Narrowing {
            between: false,
            least_work: 0,
        },
    );
    let after = optimize(&with_precision(graph, &DTypePolicy::BF16_MIXED, &operands));
    assert_eq!(
        after.ty(after.nodes()[0].results[1]).dtype(),
        DType::F32,
        "where operands of products alone are narrow"
    );
}

/// Weights that devices hold narrow are sliced narrow, and their gradients are stacked as they are
/// rounded.
#[test]
fn what_is_narrow_at_the_border_goes_into_a_scan_narrow() {
    let (graph, _) = layers(slope);
    let stored = with_border(graph, &[DType::F32, DType::Bf16], &[DType::Bf16]);
    check(
        DTypePolicy::BF16,
        &stored,
        expect![[r#"
            scan f32 bf16 -> f32 bf16
            scan f32 bf16 bf16 -> f32 bf16"#]],
    );
}

#[test]
fn a_checkpoint_is_as_if_its_nodes_stood_there() {
    let mut body = Graph::new();
    let (x, w) = (body.input(f32(&[8, 4])), body.input(f32(&[4, 4])));
    let hidden = dot(&mut body, x, w);
    body.set_outputs(vec![hidden]);
    let mut graph = Graph::new();
    let (x, w) = (graph.input(f32(&[8, 4])), graph.input(f32(&[4, 4])));
    let op = Op::Checkpoint {
        body: Box::new(body),
        remat: Remat::Full,
    };
    let hidden = push(&mut graph, op, &[x, w]);
    let hidden = push(&mut graph, Op::Unary(Unary::Tanh), &[hidden]);
    let y = dot(&mut graph, hidden, w);
    graph.set_outputs(vec![y]);
    check(
        DTypePolicy::BF16_MIXED,
        &graph,
        expect![[r#"
            dot bf16 bf16 -> f32
            tanh bf16 -> bf16
            dot bf16 bf16 -> f32"#]],
    );
}

#[test]
fn the_border_can_be_of_other_types() {
    let graph = classifier();
    let inputs: Vec<DType> = graph
        .inputs()
        .iter()
        .enumerate()
        .map(|(i, _)| if i == 1 { DType::Bf16 } else { DType::F32 })
        .collect();
    let after = with_border(graph.clone(), &inputs, &[DType::F64]);
    verify(&after).unwrap();
    assert_eq!(after.input_types()[1].to_string(), "bf16[4, 16]");
    assert_eq!(after.output_types()[0].to_string(), "f64[]");
    // What was narrow at the border is not made wide and narrow again.
    let after = optimize(&with_precision(
        after,
        &DTypePolicy::BF16,
        &Narrowing::EVERYWHERE,
    ));
    verify(&after).unwrap();
    let dot = after
        .nodes()
        .iter()
        .find(|node| matches!(node.op, Op::Dot(_)))
        .unwrap();
    assert_eq!(dot.operands[1], after.inputs()[1]);
}

/// One of the many kinds of nodes, if it fits the operands: `a` and `b` choose them and `kind` what
/// is done.
fn grow(graph: &mut Graph, values: &mut Vec<Value>, (kind, a, b): (u8, u16, u16)) {
    let pick = |values: &[Value], at: u16| values[usize::from(at) % values.len()];
    let (x, y) = (pick(values, a), pick(values, b));
    let (rank, dims) = (graph.ty(x).rank(), graph.ty(x).dims().to_vec());
    let floats = [
        DType::F32,
        DType::F64,
        DType::Bf16,
        DType::F16,
        DType::S32,
        DType::Bool,
    ];
    let product = |result| Dot {
        left_batch: vec![],
        right_batch: vec![],
        left_contract: vec![rank.max(1) - 1],
        right_contract: vec![0],
        result,
    };
    let window = Window {
        sizes: vec![2; rank],
        strides: vec![1 + usize::from(b) % 2; rank],
        base_dilations: vec![1; rank],
        window_dilations: vec![1; rank],
        padding: vec![(0, 0); rank],
    };
    let branch = || {
        let mut branch = Graph::new();
        let inner = branch.input(graph.ty(x).clone());
        let out = branch.push(Op::Unary(Unary::Tanh), &[inner], None).ok()?[0];
        branch.set_outputs(vec![out]);
        Some(branch)
    };
    // A turn changes what is carried, and stacks a product of the slice and something plain.
    let scan = || {
        let (length, row) = dims.split_first()?;
        let mut body = Graph::new();
        let (carried, slice) = (
            body.input(graph.ty(y).clone()),
            body.input(graph.ty(x).with_dims(row)),
        );
        let first = if rank > 1 { row.len() - 1 } else { 0 };
        let contract = if rank > 1 { vec![first] } else { vec![] };
        let result = body.ty(slice).dtype();
        let (left_contract, right_contract) = (contract.clone(), contract);
        let product = Op::Dot(Dot {
            left_batch: vec![],
            right_batch: vec![],
            left_contract,
            right_contract,
            result,
        });
        let product = body.push(product, &[slice, slice], None).ok()?[0];
        let plain = body
            .push(Op::Binary(Binary::Maximum), &[product, product], None)
            .ok()?[0];
        let next = body
            .push(Op::Binary(Binary::Add), &[carried, carried], None)
            .ok()?[0];
        body.set_outputs(vec![next, plain, slice, carried]);
        Some(Op::Scan {
            carried: 1,
            scanned: 1,
            length: *length,
            reverse: b % 2 == 0,
            body: Box::new(body),
        })
    };
    let dim = usize::from(b) % rank.max(1);
    let (op, operands) = match kind % 26 {
        0 | 1 => (Op::Dot(product(graph.ty(x).dtype())), vec![x, y]),
        2 => (Op::Dot(product(DType::F32)), vec![x, y]),
        3 => (Op::Binary(Binary::Add), vec![x, y]),
        4 => (Op::Binary(Binary::Divide), vec![x, y]),
        5 => (Op::Binary(Binary::Power), vec![x, y]),
        6 => (Op::Unary(Unary::Tanh), vec![x]),
        7 => (Op::Unary(Unary::Exponential), vec![x]),
        8 => (Op::Unary(Unary::IsFinite), vec![x]),
        9 => (Op::Compare(Comparison::Lt), vec![x, y]),
        10 => (Op::Select, vec![pick(values, a.wrapping_mul(7)), x, y]),
        11 => (Op::Convert(floats[usize::from(b) % floats.len()]), vec![x]),
        12 => (
            Op::Broadcast {
                dims: [vec![2], dims].concat(),
                mapping: (1..=rank).collect(),
            },
            vec![x],
        ),
        13 => (
            Op::Transpose {
                permutation: (0..rank).rev().collect(),
            },
            vec![x],
        ),
        14 => (
            Op::Reduce {
                kind: Reduction::Sum,
                dims: vec![dim],
            },
            vec![x],
        ),
        15 => (
            Op::Reduce {
                kind: Reduction::Max,
                dims: vec![dim],
            },
            vec![x],
        ),
        16 => (
            Op::ArgReduce {
                kind: Extreme::Max,
                dim,
            },
            vec![x],
        ),
        17 => (
            Op::ReduceWindow {
                kind: Reduction::Max,
                window,
            },
            vec![x],
        ),
        18 => (
            Op::ReduceWindow {
                kind: Reduction::Sum,
                window,
            },
            vec![x],
        ),
        19 => (
            Op::Sort {
                dim,
                descending: false,
            },
            vec![x, y],
        ),
        20 => (Op::OptimizationBarrier, vec![x, y]),
        21 => (Op::Concatenate { dim }, vec![x, y]),
        22 => (
            Op::Case {
                branches: branch().into_iter().collect(),
            },
            vec![pick(values, a.wrapping_mul(3)), x],
        ),
        23 | 24 => match scan() {
            Some(scan) => (scan, vec![y, x]),
            None => return,
        },
        _ => (
            Op::Constant(Literal::splat(f32::from(a) / 7.0, &dims)),
            vec![],
        ),
    };
    // Ranks above 4 would only make the test slow.
    if rank > 4 {
        return;
    }
    if let Ok(results) = graph.push(op, &operands, None) {
        values.extend(results.to_vec());
    }
}

proptest! {
    #[test]
    fn any_program_stays_one_with_the_same_border(
        steps in prop::collection::vec(any::<(u8, u16, u16)>(), 1..60), outputs in prop::collection::vec(any::<u16>(), 1..5),
        between in any::<bool>(), least_work in prop_oneof![Just(0u64), Just(16)],
    ) {
        let mut graph = Graph::new();
        let inputs = [
            f32(&[2, 2]), f32(&[2, 2]), f32(&[2]), TensorType::new(DType::F64, [2, 2]), TensorType::new(DType::Bf16, [2, 2]),
            TensorType::new(DType::S32, []), TensorType::new(DType::Bool, [2, 2]),
        ];
        let mut values: Vec<Value> = inputs.into_iter().map(|ty| graph.input(ty)).collect();
        for step in steps {
            grow(&mut graph, &mut values, step);
        }
        graph.set_outputs(outputs.iter().map(|&at| values[usize::from(at) % values.len()]).collect());
        prop_assert!(verify(&graph).is_ok());
        for (name, policy) in DTypePolicy::NAMED {
            let after = with_precision(graph.clone(), &policy, &Narrowing { between, least_work });
            for after in [&after, &optimize(&after)] {
                prop_assert!(verify(after).is_ok(), "{}: {:?} of {:?}", name, verify(after), graph);
                prop_assert_eq!(after.input_types(), graph.input_types());
                prop_assert_eq!(after.output_types(), graph.output_types());
            }
            let narrow = after.nodes().iter().flat_map(|node| &node.results).filter(|&&value| after.ty(value).dtype() == DType::F16);
            prop_assert!(policy.compute == DType::F16 || narrow.count() <= graph.nodes().len(), "f16 comes from nowhere");
        }
    }
}
