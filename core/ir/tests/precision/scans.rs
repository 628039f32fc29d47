//! Residuals, saved states and weights of scans.

use expect_test::expect;
use halite_core::{DType, DTypePolicy, Narrowing};
use halite_ir::{
    BinaryOp, Graph, Op, Reduction, UnaryOp, Value, optimize, with_precision, with_signature,
};

use super::support::*;

/// A scan over two layers with `forward` as its body, of `[x, w]`, and a second one in the other
/// direction with `backward`, which also reads what the first stacks: `[g, stacked, w]`. Returns the
/// graph and the results of both.
fn scans(
    residuals: usize,
    forward: impl FnOnce(&mut Graph, [Value; 2]) -> Vec<Value>,
    backward: impl FnOnce(&mut Graph, [Value; 3]) -> Vec<Value>,
) -> (Graph, [Vec<Value>; 2]) {
    let scan = |scanned, residuals, body| Op::Scan {
        carried: 1,
        scanned,
        length: 2,
        reverse: scanned == 2,
        residuals,
        body: Box::new(body),
    };
    let mut body = Graph::new();
    let inputs = [f32(&[8, 4]), f32(&[4, 4])].map(|ty| body.input(ty));
    let outputs = forward(&mut body, inputs);
    body.set_outputs(outputs);
    let mut graph = Graph::new();
    let (x, w) = (graph.input(f32(&[8, 4])), graph.input(f32(&[2, 4, 4])));
    let forward = graph.push(scan(1, residuals, body), &[x, w], None);
    let forward = forward.unwrap().to_vec();

    let mut body = Graph::new();
    let inputs = [f32(&[8, 4]), f32(&[8, 4]), f32(&[4, 4])].map(|ty| body.input(ty));
    let outputs = backward(&mut body, inputs);
    body.set_outputs(outputs);
    let backward = graph.push(scan(2, 0, body), &[forward[0], forward[1], w], None);
    let backward = backward.unwrap().to_vec();
    (graph, [forward, backward])
}

/// [`scans`] over two equal layers, of which the first stacks `tanh(x w)` and the second returns the
/// gradients of the weights. Returns the graph and the results of the first scan.
fn layers(backward: impl FnOnce(&mut Graph, [Value; 3]) -> Vec<Value>) -> (Graph, Vec<Value>) {
    let layer = |body: &mut Graph, [x, w]: [Value; 2]| {
        let hidden = dot(body, x, w);
        let hidden = push(body, Op::Unary(UnaryOp::Tanh), &[hidden]);
        vec![binary(body, BinaryOp::Add, x, hidden), hidden]
    };
    let (mut graph, [forward, backward]) = scans(0, layer, backward);
    graph.set_outputs(vec![backward[1]]);
    (graph, forward)
}

fn slope(body: &mut Graph, [g, hidden, w]: [Value; 3]) -> Vec<Value> {
    let square = binary(body, BinaryOp::Multiply, hidden, hidden);
    let below = dot(body, square, w);
    let next = binary(body, BinaryOp::Add, g, below);
    let transposed = push(
        body,
        Op::Transpose {
            permutation: vec![1, 0],
        },
        &[hidden],
    );
    vec![next, dot(body, transposed, g)]
}

#[test]
fn scan_stacks_residuals_in_their_dtype() {
    check(
        DTypePolicy::BF16_MIXED,
        &layers(slope).0,
        expect![[r#"
            scan f32 f32 -> f32 bf16
            scan f32 bf16 f32 -> f32 f32"#]],
    );
    let (graph, _) = layers(slope);
    let after = optimize(with_precision(
        graph,
        &DTypePolicy::BF16_MIXED,
        &Narrowing::Everywhere,
    ));
    let Op::Scan { body, .. } = &after.nodes()[1].op else {
        panic!("the backward pass")
    };
    // The residual is still bf16 in the backward pass.
    let square = body
        .nodes()
        .iter()
        .find(|node| node.op == Op::Binary(BinaryOp::Multiply))
        .unwrap();
    assert_eq!(square.operands, [body.inputs()[1]; 2]);
    assert_eq!(body.ty(square.results[0]).dtype(), DType::Bf16);
    // Stacking and unstacking need no converts.
    let converts = after
        .nodes()
        .iter()
        .filter(|node| matches!(node.op, Op::Convert(_)))
        .count();
    assert_eq!(converts, 0, "{after}");
}

#[test]
fn demanded_residuals_of_a_scan_stay_f32() {
    // Demanded in the other scan, then outside.
    let exact_inside = |body: &mut Graph, [g, hidden, w]: [Value; 3]| {
        let power = push(body, Op::Unary(UnaryOp::Exponential), &[hidden]);
        let [next, slope] = slope(body, [g, power, w])[..] else {
            panic!("expected two results")
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

/// [`scans`], of which the first stacks its carried state as each iteration finds it, as a residual
/// or as a result, and the second reads it through `norm`.
fn with_saved_state(is_residual: bool, norm: impl FnOnce(&mut Graph, Value) -> Value) -> Graph {
    let forward = |body: &mut Graph, [x, w]: [Value; 2]| {
        let hidden = dot(body, x, w);
        vec![binary(body, BinaryOp::Add, x, hidden), x]
    };
    let backward = |body: &mut Graph, [g, state, weight]: [Value; 3]| {
        let normed = norm(body, state);
        let below = dot(body, g, weight);
        let below = binary(body, BinaryOp::Multiply, below, normed);
        vec![binary(body, BinaryOp::Add, g, below)]
    };
    let (mut graph, [_, backward]) = scans(usize::from(is_residual), forward, backward);
    graph.set_outputs(backward);
    graph
}

/// `x` divided by the root mean square of its rows.
fn norm(graph: &mut Graph, x: Value) -> Value {
    let square = binary(graph, BinaryOp::Multiply, x, x);
    let sum = reduce(graph, Reduction::Sum, square, &[1]);
    let root = push(graph, Op::Unary(UnaryOp::Rsqrt), &[sum]);
    let root = rows(graph, root, &[8, 4]);
    binary(graph, BinaryOp::Multiply, x, root)
}

#[test]
fn saved_state_is_rounded_while_the_carried_one_is_not() {
    check(
        DTypePolicy::BF16_MIXED,
        &with_saved_state(true, norm),
        expect![[r#"
            scan f32 f32 -> f32 bf16
            scan f32 bf16 f32 -> f32"#]],
    );
    let full = || {
        expect![[r#"
            scan f32 f32 -> f32 f32
            scan f32 f32 f32 -> f32"#]]
    };
    // A state that the model itself returns, such as a smoother's, is as precise as declared.
    check(
        DTypePolicy::BF16_MIXED,
        &with_saved_state(false, norm),
        full(),
    );
    let power = |graph: &mut Graph, x: Value| push(graph, Op::Unary(UnaryOp::Exponential), &[x]);
    check(
        DTypePolicy::BF16_MIXED,
        &with_saved_state(true, power),
        full(),
    );
    // A state may exceed the range of `f16`.
    check(
        DTypePolicy::F16_MIXED,
        &with_saved_state(true, norm),
        full(),
    );
    let (graph, operands) = (with_saved_state(true, norm), Narrowing::Contractions);
    let after = optimize(with_precision(graph, &DTypePolicy::BF16_MIXED, &operands));
    assert_eq!(
        after.ty(after.nodes()[0].results[1]).dtype(),
        DType::F32,
        "only operands of contractions are cast"
    );
}

/// Weights stored in bf16 are sliced in bf16, and their gradients are rounded before they are
/// stacked.
#[test]
fn bf16_inputs_enter_a_scan_as_bf16() {
    let (graph, _) = layers(slope);
    let stored = with_signature(graph, &[DType::F32, DType::Bf16], &[DType::Bf16]);
    check(
        DTypePolicy::BF16,
        &stored,
        expect![[r#"
            scan f32 bf16 -> f32 bf16
            scan f32 bf16 bf16 -> f32 bf16"#]],
    );
}
