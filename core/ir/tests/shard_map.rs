//! `shard_map`: types, text, passes and mistakes.

mod errors;
mod print;
mod random;
mod varying;

use halite_core::{DType, MeshShape, PartitionSpec, TensorType};
use halite_ir::{
    Axes, BinaryOp, Graph, Groups, Interface, Op, Port, Reduction, ShardMap, UnaryOp, Value, cost,
    optimize, verify,
};

fn f32(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

fn axes(axes: &[(&str, usize)]) -> Axes {
    axes.iter()
        .map(|&(name, size)| (name.into(), size))
        .collect()
}

fn spec(text: &str) -> PartitionSpec {
    text.parse().unwrap()
}

fn push(graph: &mut Graph, op: Op, operands: &[Value]) -> Value {
    graph.push(op, operands, None).unwrap()[0]
}

fn over_model() -> Groups {
    Groups::Axes(axes(&[("model", 4)]))
}

fn all_reduce(groups: Groups) -> Op {
    Op::AllReduce {
        kind: Reduction::Sum,
        groups,
    }
}

/// A `shard_map` over two by four devices, with a `body` of one `local` shard.
fn map(
    local: TensorType,
    taken: &str,
    given: &[&str],
    body: impl FnOnce(&mut Graph, Value) -> Vec<Value>,
) -> ShardMap {
    let mut graph = Graph::new();
    let x = graph.input(local);
    let outputs = body(&mut graph, x);
    graph.set_outputs(outputs);
    ShardMap {
        mesh: axes(&[("data", 2), ("model", 4)]),
        manual: vec!["data".into(), "model".into()],
        inputs: vec![spec(taken)],
        outputs: given.iter().map(|text| spec(text)).collect(),
        body: Box::new(graph),
    }
}

/// The graph of one shard_map of `x`.
fn around(map: ShardMap, x: TensorType) -> Graph {
    let mut graph = Graph::new();
    let x = graph.input(x);
    let outputs = graph.push(Op::ShardMap(map), &[x], None).unwrap().to_vec();
    graph.set_outputs(outputs);
    graph
}

fn interface(mesh: &[(&str, usize)], inputs: usize, outputs: usize) -> Interface {
    let port = || Port {
        name: None,
        spec: Some(PartitionSpec::replicated()),
    };
    Interface {
        mesh: Some(MeshShape::new(mesh.iter().copied()).unwrap()),
        inputs: (0..inputs).map(|_| port()).collect(),
        outputs: (0..outputs).map(|_| port()).collect(),
        locations: false,
        ..Interface::new("test")
    }
}

#[test]
fn passes_simplify_the_body() {
    let map = map(
        f32(&[4, 4]),
        "(data, model)",
        &["(data, model)"],
        |body, x| {
            let one = push(
                body,
                Op::Constant(halite_ir::Literal::splat(1.0f32, [4, 4])),
                &[],
            );
            let same = push(body, Op::Binary(BinaryOp::Multiply), &[x, one]);
            push(body, all_reduce(over_model()), &[x]); // not used
            let a = push(body, Op::Unary(UnaryOp::Tanh), &[same]);
            let b = push(body, Op::Unary(UnaryOp::Tanh), &[x]);
            vec![push(body, Op::Binary(BinaryOp::Add), &[a, b])]
        },
    );
    let graph = optimize(around(map, f32(&[8, 16])));
    verify(&graph).unwrap();
    let Op::ShardMap(map) = &graph.nodes()[0].op else {
        panic!("it is still there")
    };
    let ops: Vec<&str> = map.body.nodes().iter().map(|node| node.op.name()).collect();
    assert_eq!(ops, ["tanh", "add"]);
    // Each of eight devices does 16 additions.
    assert_eq!(cost(&graph).elementwise, 8.0 * 16.0);
}
