//! Tests of the precision pass: the dtype of each operation under a policy, and the validity of the
//! result.

mod random;
mod scans;
mod support;

use expect_test::expect;
use halite_core::{DType, DTypePolicy, Narrowing, TensorType};
use halite_ir::{
    BinaryOp, ComparisonDirection, Graph, Literal, Node, Op, Reduction, Remat, UnaryOp, Value,
    optimize, verify, with_precision, with_signature,
};
use support::*;

/// Two dense layers with a ReLU between them and the first part of cross entropy: the sum over rows
/// of `log(sum(exp(logits)))`.
fn classifier() -> Graph {
    let mut graph = Graph::new();
    let x = graph.input(f32(&[8, 4]));
    let (w1, w2) = (graph.input(f32(&[4, 16])), graph.input(f32(&[16, 3])));
    let hidden = dot(&mut graph, x, w1);
    let b1 = bias(&mut graph, &[8, 16]);
    let hidden = binary(&mut graph, BinaryOp::Add, hidden, b1);
    let zero = push(
        &mut graph,
        Op::Constant(Literal::splat(0.0f32, [8, 16])),
        &[],
    );
    let hidden = binary(&mut graph, BinaryOp::Maximum, hidden, zero);
    let logits = dot(&mut graph, hidden, w2);
    let b2 = bias(&mut graph, &[8, 3]);
    let logits = binary(&mut graph, BinaryOp::Add, logits, b2);
    let powers = push(&mut graph, Op::Unary(UnaryOp::Exponential), &[logits]);
    let sums = reduce(&mut graph, Reduction::Sum, powers, &[1]);
    let losses = push(&mut graph, Op::Unary(UnaryOp::Log), &[sums]);
    let loss = reduce(&mut graph, Reduction::Sum, losses, &[0]);
    graph.set_outputs(vec![loss]);
    graph
}

#[test]
fn softmax_between_contractions_stays_f32() {
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
fn constants_are_rounded_to_nearest_even() {
    let mut graph = Graph::new();
    let (x, w1) = (graph.input(f32(&[1, 4])), graph.input(f32(&[4, 4])));
    let w2 = graph.input(f32(&[4, 4]));
    // The second and third are halfway between two numbers of bf16.
    let factors = [0.1f32, 1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, -0.7];
    let factors = Op::Constant(Literal::new(&factors, [1, 4]).unwrap());
    let factors = push(&mut graph, factors, &[]);
    let y = dot(&mut graph, x, w1);
    let y = binary(&mut graph, BinaryOp::Multiply, y, factors);
    let y = dot(&mut graph, y, w2);
    graph.set_outputs(vec![y]);
    let policy = DTypePolicy::BF16_MIXED;
    let after = optimize(with_precision(graph, &policy, &Narrowing::Everywhere));
    let constants = after.nodes().iter().filter_map(|node| match &node.op {
        Op::Constant(literal) => Some(literal.to_host()),
        _ => None,
    });
    let constants: Vec<_> = constants.collect();
    let [constant] = &*constants else {
        panic!("{after}");
    };
    assert_eq!(constant.ty().dtype(), DType::Bf16, "{after}");
    assert_eq!(
        constant
            .to_float(DType::F32)
            .unwrap()
            .as_slice::<f32>()
            .unwrap(),
        [0.100_097_656, 1.0, 1.015_625, -0.699_218_75]
    );
}

#[test]
fn norm_between_contractions_stays_f32() {
    let mut graph = Graph::new();
    let (x, w1, w2) = (
        graph.input(f32(&[8, 4])),
        graph.input(f32(&[4, 4])),
        graph.input(f32(&[4, 4])),
    );
    let y = dot(&mut graph, x, w1);
    let sum = reduce(&mut graph, Reduction::Sum, y, &[1]);
    let mean = rows(&mut graph, sum, &[8, 4]);
    let centred = binary(&mut graph, BinaryOp::Subtract, y, mean);
    let square = binary(&mut graph, BinaryOp::Multiply, centred, centred);
    let variance = reduce(&mut graph, Reduction::Sum, square, &[1]);
    let root = push(&mut graph, Op::Unary(UnaryOp::Rsqrt), &[variance]);
    let root = rows(&mut graph, root, &[8, 4]);
    let normed = binary(&mut graph, BinaryOp::Multiply, centred, root);
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

/// The gradient of a weight reaches the update unrounded; the gradient of the layer's input is
/// rounded.
#[test]
fn mixed_policy_keeps_weight_gradients_in_f32() {
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
    let next = binary(&mut graph, BinaryOp::Subtract, after[0], after[1]);
    let transposed = push(
        &mut graph,
        Op::Transpose {
            permutation: vec![1, 0],
        },
        &[w],
    );
    let below = dot(&mut graph, g, transposed);
    let below = push(&mut graph, Op::Unary(UnaryOp::Negate), &[below]);
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
    // Under `bf16` it is converted to bf16, and back for the update.
    let count = |policy| {
        let after = with_precision(graph.clone(), &policy, &Narrowing::Everywhere);
        after
            .nodes()
            .iter()
            .filter(|node| matches!(node.op, Op::Convert(_)))
            .count()
    };
    assert_eq!(count(DTypePolicy::BF16), count(DTypePolicy::BF16_MIXED) + 2);
}

#[test]
fn squared_error_keeps_predictions_in_f32() {
    let mut graph = Graph::new();
    let (x, w, target) = (
        graph.input(f32(&[8, 4])),
        graph.input(f32(&[4, 2])),
        graph.input(f32(&[8, 2])),
    );
    let y = dot(&mut graph, x, w);
    let b = bias(&mut graph, &[8, 2]);
    let y = binary(&mut graph, BinaryOp::Add, y, b);
    let error = binary(&mut graph, BinaryOp::Subtract, y, target);
    let square = binary(&mut graph, BinaryOp::Multiply, error, error);
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
fn f64_follows_the_policy() {
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
fn constants_outside_of_f16_range_stay_f32() {
    for (value, op) in [(1e-12f32, BinaryOp::Add), (1e9, BinaryOp::Multiply)] {
        let mut graph = Graph::new();
        let (x, w) = (graph.input(f32(&[2, 2])), graph.input(f32(&[2, 2])));
        let y = dot(&mut graph, x, w);
        let constant = push(&mut graph, Op::Constant(Literal::splat(value, [2, 2])), &[]);
        let y = binary(&mut graph, op, y, constant);
        let y = dot(&mut graph, y, w);
        graph.set_outputs(vec![y]);
        let type_of_op = |policy: DTypePolicy| {
            let after = with_precision(graph.clone(), &policy, &Narrowing::Everywhere);
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
            "{value} in bf16, which has the range of f32"
        );
        assert_eq!(
            type_of_op(DTypePolicy::F16_MIXED),
            DType::F32,
            "{value} in f16 would be 0 or infinite"
        );
    }
}

/// The mean square of activations, as in RMS norm: in `f16` it would be infinite beyond 256.
#[test]
fn squares_have_the_range_of_f32() {
    let mut graph = Graph::new();
    let (x, w) = (graph.input(f32(&[8, 4])), graph.input(f32(&[4, 4])));
    let y = dot(&mut graph, x, w);
    let square = binary(&mut graph, BinaryOp::Multiply, y, y);
    let sum = reduce(&mut graph, Reduction::Sum, square, &[1]);
    let root = push(&mut graph, Op::Unary(UnaryOp::Rsqrt), &[sum]);
    let root = rows(&mut graph, root, &[8, 4]);
    let normed = binary(&mut graph, BinaryOp::Multiply, y, root);
    let out = dot(&mut graph, normed, w);
    graph.set_outputs(vec![out]);
    let square_in = |policy: DTypePolicy| {
        let after = with_precision(graph.clone(), &policy, &Narrowing::Everywhere);
        let is_square = |node: &&Node| {
            node.op == Op::Binary(BinaryOp::Multiply) && node.operands[0] == node.operands[1]
        };
        let node = after.nodes().iter().find(is_square).unwrap();
        after.ty(node.results[0]).dtype()
    };
    assert_eq!(square_in(DTypePolicy::F16_MIXED), DType::F32);
    assert_eq!(square_in(DTypePolicy::BF16_MIXED), DType::Bf16);
}

#[test]
fn while_casts_inside_its_body_only() {
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
        vec![push(graph, Op::Compare(ComparisonDirection::Lt), &[i, end])]
    });
    let body = region(&|graph, [i, x, w]| {
        let one = push(graph, Op::Constant(Literal::splat(1i32, [])), &[]);
        let next = binary(graph, BinaryOp::Add, i, one);
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
        &Narrowing::Everywhere,
    );
    verify(&after).unwrap();
    let Op::While { body, .. } = &after.nodes()[0].op else {
        panic!("expected a while loop")
    };
    let dot = body
        .nodes()
        .iter()
        .find(|node| matches!(node.op, Op::Dot(..)))
        .unwrap();
    assert_eq!(body.ty(dot.operands[0]).dtype(), DType::Bf16);
}

/// The gradient of a bias is a sum of many terms, which may be rounded, wherever the batch dimension
/// is.
#[test]
fn bias_gradients_do_not_demand_their_terms() {
    for batch in [0, 1] {
        let mut graph = Graph::new();
        let (g, w) = (graph.input(f32(&[8, 8])), graph.input(f32(&[8, 8])));
        let below = dot(&mut graph, g, w);
        let below = push(&mut graph, Op::Unary(UnaryOp::Negate), &[below]);
        let bias_gradient = reduce(&mut graph, Reduction::Sum, below, &[batch]);
        graph.set_outputs(vec![bias_gradient]);
        let expected = expect![[r#"
            dot bf16 bf16 -> f32
            negate bf16 -> bf16
            reduce_sum f32 -> f32"#]];
        check(DTypePolicy::BF16_MIXED, &graph, expected);
    }
}

/// Dividing gradients by their global norm makes the norm's terms no more precise.
#[test]
fn gradient_clipping_leaves_activation_gradients_rounded() {
    let mut graph = Graph::new();
    let (g, w) = (graph.input(f32(&[8, 4])), graph.input(f32(&[4, 3])));
    let below = dot(&mut graph, g, w);
    let below = push(&mut graph, Op::Unary(UnaryOp::Negate), &[below]);
    let bias_gradient = reduce(&mut graph, Reduction::Sum, below, &[0]);
    let square = binary(&mut graph, BinaryOp::Multiply, bias_gradient, bias_gradient);
    let sum = reduce(&mut graph, Reduction::Sum, square, &[0]);
    let norm = push(&mut graph, Op::Unary(UnaryOp::Sqrt), &[sum]);
    let dims = vec![3];
    let norm = push(
        &mut graph,
        Op::Broadcast {
            dims,
            mapping: vec![],
        },
        &[norm],
    );
    let clipped = binary(&mut graph, BinaryOp::Divide, bias_gradient, norm);
    graph.set_outputs(vec![clipped]);
    check(
        DTypePolicy::BF16_MIXED,
        &graph,
        expect![[r#"
            dot bf16 bf16 -> f32
            negate bf16 -> bf16
            reduce_sum f32 -> f32
            multiply f32 f32 -> f32
            reduce_sum f32 -> f32
            sqrt f32 -> f32
            divide f32 f32 -> f32"#]],
    );
}

#[test]
fn checkpoints_are_transparent() {
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
    let hidden = push(&mut graph, Op::Unary(UnaryOp::Tanh), &[hidden]);
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
fn signature_dtypes_can_be_replaced() {
    let graph = classifier();
    let inputs: Vec<DType> = graph
        .inputs()
        .iter()
        .enumerate()
        .map(|(i, _)| if i == 1 { DType::Bf16 } else { DType::F32 })
        .collect();
    let after = with_signature(graph.clone(), &inputs, &[DType::F64]);
    verify(&after).unwrap();
    assert_eq!(after.input_types()[1].to_string(), "bf16[4, 16]");
    assert_eq!(after.output_types()[0].to_string(), "f64[]");
    // The bf16 input is used without a round trip through f32.
    let after = optimize(with_precision(
        after,
        &DTypePolicy::BF16,
        &Narrowing::Everywhere,
    ));
    verify(&after).unwrap();
    let dot = after
        .nodes()
        .iter()
        .find(|node| matches!(node.op, Op::Dot(..)))
        .unwrap();
    assert_eq!(dot.operands[1], after.inputs()[1]);
}
