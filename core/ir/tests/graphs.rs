//! Verification and passes.

mod dead_code;
mod faults;
mod matrix_products;
mod nested_slices;
mod one_function;
mod simplify;

use expect_test::Expect;
use halite_core::{DType, TensorType};
use halite_ir::{
    BinaryOp, ComparisonDirection, CustomCall, Graph, Interface, Op, UnaryOp, Value, optimize,
    verify,
};

use crate::legalize::read_back;

fn f32(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

fn push(graph: &mut Graph, op: Op, operands: &[Value]) -> Value {
    graph.push(op, operands, None).unwrap()[0]
}

/// A graph with one input `f32[2, 3]`, which `body` builds.
fn graph(body: impl FnOnce(&mut Graph, Value) -> Vec<Value>) -> Graph {
    let mut graph = Graph::new();
    let x = graph.input(f32(&[2, 3]));
    let outputs = body(&mut graph, x);
    graph.set_outputs(outputs);
    graph
}

/// Checks the operations of `pass(graph)`, in order.
fn check(pass: fn(Graph) -> Graph, graph: Graph, expected: Expect) {
    verify(&graph).unwrap();
    let after = pass(graph.clone());
    verify(&after).unwrap();
    assert_eq!(after.input_types(), graph.input_types());
    assert_eq!(after.output_types(), graph.output_types());
    let outputs: Vec<usize> = after
        .outputs()
        .iter()
        .map(|output| output.index())
        .collect();
    let mut lines: Vec<String> = (after.nodes().iter())
        .map(|node| {
            let operands: Vec<usize> = node
                .operands
                .iter()
                .map(|operand| operand.index())
                .collect();
            format!("{} {operands:?}", node.op.name())
        })
        .collect();
    lines.push(format!("outputs {outputs:?}"));
    expected.assert_eq(&lines.join("\n"));
    assert_eq!(pass(after.clone()), after, "a second time changes nothing");
}

fn call(side_effect: bool) -> Op {
    Op::CustomCall(CustomCall {
        target: "log".into(),
        attributes: vec![],
        results: vec![],
        side_effect,
        ..CustomCall::default()
    })
}

#[test]
fn verify_rejects_values_of_another_graph() {
    let large = graph(|graph, x| {
        let y = push(graph, Op::Unary(UnaryOp::Tanh), &[x]);
        vec![push(graph, Op::Unary(UnaryOp::Tanh), &[y])]
    });
    let foreign = large.outputs()[0];
    let mut small = graph(|_, x| vec![x]);
    verify(&small).unwrap();
    small.set_outputs(vec![foreign]);
    assert_eq!(
        verify(&small).unwrap_err().to_string(),
        "verify: output 0 is value 2, which no node computes"
    );

    let mut body = graph(|graph, x| vec![push(graph, Op::Binary(BinaryOp::Add), &[x, x])]);
    body.set_outputs(vec![large.nodes()[0].results[0]]);
    verify(&body).unwrap();
    let mut condition = Graph::new();
    let x = condition.input(f32(&[2, 3]));
    let pick = condition
        .push(
            Op::Slice {
                starts: vec![0, 0],
                limits: vec![1, 1],
                strides: vec![1, 1],
            },
            &[x],
            None,
        )
        .unwrap()[0];
    let first = condition
        .push(Op::Reshape { dims: vec![] }, &[pick], None)
        .unwrap()[0];
    let go = condition
        .push(Op::Compare(ComparisonDirection::Lt), &[first, first], None)
        .unwrap()[0];
    condition.set_outputs(vec![go]);
    let mut whole = Graph::new();
    let x = whole.input(f32(&[2, 3]));
    let op = Op::While {
        carried: 1,
        condition: Box::new(condition),
        body: Box::new(body),
    };
    let looped = whole
        .push(op, &[x], Some(std::panic::Location::caller()))
        .unwrap()[0];
    whole.set_outputs(vec![looped]);
    verify(&whole).unwrap();
    verify(&optimize(whole.clone())).unwrap();
    read_back(&whole, &Interface::default());
}

#[test]
fn stop_gradient_is_not_in_the_text() {
    let with = |op: Option<Op>| {
        graph(|graph, x| {
            let x = op.map_or(x, |op| push(graph, op, &[x]));
            vec![push(graph, Op::Unary(UnaryOp::Tanh), &[x])]
        })
    };
    let (stopped, plain) = (with(Some(Op::StopGradient)), with(None));
    verify(&stopped).unwrap();
    let interface = Interface::new("main");
    let printed = |graph: &Graph| read_back(graph, &interface);
    assert_eq!(printed(&stopped), printed(&plain));
    assert_eq!(optimize(stopped.clone()), optimize(plain.clone()));
}
