//! Device variance of results.

use halite_ir::{Graph, Groups, Op, Value, varying};

use crate::shard_map::{all_reduce, axes, f32, map, over_model, push};

/// The axes along which the result of a body varies, whose operand varies along `model`.
fn varies(body: impl FnOnce(&mut Graph, Value) -> Value) -> Vec<String> {
    let map = map(f32(&[4]), "(model)", &["(data, model)"], |graph, x| {
        vec![body(graph, x)]
    });
    let axes = &varying(&map).outputs[0];
    axes.iter().map(|axis| axis.to_string()).collect()
}

#[test]
fn variance_follows_the_axes_of_inputs() {
    assert_eq!(varies(|_, x| x), ["model"]);
    let all: Groups = vec![(0..8).collect::<Vec<_>>()].into();
    let halves: Groups = vec![vec![0, 4, 2, 6], vec![1, 5, 3, 7]].into();
    let cases: [(Op, &[&str]); 5] = [
        (all_reduce(over_model()), &[]),
        (all_reduce(all), &[]),
        (all_reduce(halves), &["data", "model"]),
        (Op::PartitionId, &["data", "model"]),
        (Op::AxisIndex(axes(&[("data", 2)])), &["data"]),
    ];
    for (op, expected) in cases {
        let name = op.name();
        let found = varies(|body, x| match op {
            Op::AllReduce { .. } => push(body, op, &[x]),
            _ => push(body, op, &[]),
        });
        assert_eq!(found, expected, "{name}");
    }
}
