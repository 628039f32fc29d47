//! Graph builders and the check that the tests share.

use expect_test::Expect;
use halite_core::{DType, DTypePolicy, Narrowing, TensorType};
use halite_ir::{
    BinaryOp, DotAttributes, Graph, Op, Reduction, Value, optimize, verify, with_precision,
};

pub(super) fn f32(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

pub(super) fn push(graph: &mut Graph, op: Op, operands: &[Value]) -> Value {
    graph.push(op, operands, None).unwrap()[0]
}

pub(super) fn binary(graph: &mut Graph, op: BinaryOp, left: Value, right: Value) -> Value {
    push(graph, Op::Binary(op), &[left, right])
}

/// The product of `[.., k]` and `[k, n]`.
pub(super) fn dot(graph: &mut Graph, left: Value, right: Value) -> Value {
    let contract = vec![graph.ty(left).rank() - 1];
    let result = graph.ty(left).dtype();
    let dot = DotAttributes {
        lhs_batching: vec![],
        rhs_batching: vec![],
        lhs_contracting: contract,
        rhs_contracting: vec![0],
        ..DotAttributes::default()
    };
    push(graph, Op::Dot(dot, result), &[left, right])
}

/// Broadcasts one element per row over rows of shape `dims`.
pub(super) fn rows(graph: &mut Graph, x: Value, dims: &[usize]) -> Value {
    push(
        graph,
        Op::Broadcast {
            dims: dims.to_vec(),
            mapping: vec![0],
        },
        &[x],
    )
}

pub(super) fn bias(graph: &mut Graph, dims: &[usize]) -> Value {
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

pub(super) fn reduce(graph: &mut Graph, kind: Reduction, x: Value, dims: &[usize]) -> Value {
    push(
        graph,
        Op::Reduce {
            kind,
            dims: dims.to_vec(),
        },
        &[x],
    )
}

/// Compares the operations under a policy, with the dtypes of operands and results, to `expected`.
/// Broadcasts, constants and converts are left out.
pub(super) fn check(policy: DTypePolicy, graph: &Graph, expected: Expect) {
    verify(graph).unwrap();
    let after = optimize(with_precision(
        graph.clone(),
        &policy,
        &Narrowing::Everywhere,
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
