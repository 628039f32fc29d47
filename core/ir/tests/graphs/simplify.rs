//! Merging of equal operations, and algebraic identities.

use expect_test::expect;
use halite_core::DType;
use halite_ir::{BinaryOp, Graph, Literal, Op, Value, common_subexpressions, identities, optimize};

use crate::graphs::{call, check, graph, push};

fn splat(graph: &mut Graph, value: f32) -> Value {
    push(graph, Op::Constant(Literal::splat(value, [2, 3])), &[])
}

#[test]
fn merging_skips_barriers() {
    let twice = graph(|graph, x| {
        let (a, b) = (splat(graph, 0.5), splat(graph, 0.5));
        let other = splat(graph, -0.0);
        let zero = splat(graph, 0.0);
        let (y, z) = (
            push(graph, Op::Binary(BinaryOp::Multiply), &[x, a]),
            push(graph, Op::Binary(BinaryOp::Multiply), &[x, b]),
        );
        let turned = push(graph, Op::Binary(BinaryOp::Multiply), &[a, x]);
        let barriers = [y, z].map(|value| push(graph, Op::OptimizationBarrier, &[value]));
        let numbers = [other, zero];
        [y, z, turned]
            .into_iter()
            .chain(barriers)
            .chain(numbers)
            .collect()
    });
    check(
        common_subexpressions,
        twice,
        expect![[r#"
            constant []
            constant []
            constant []
            multiply [0, 1]
            multiply [1, 0]
            optimization_barrier [5]
            optimization_barrier [5]
            outputs [5, 5, 7, 8, 9, 3, 4]"#]],
    );
    let logged = graph(|graph, x| {
        graph.push(call(true), &[x], None).unwrap();
        graph.push(call(true), &[x], None).unwrap();
        graph.push(call(false), &[x], None).unwrap();
        graph.push(call(false), &[x], None).unwrap();
        vec![]
    });
    check(
        common_subexpressions,
        logged,
        expect![[r#"
        custom_call [0]
        custom_call [0]
        custom_call [0]
        outputs []"#]],
    );
}

#[test]
fn identities_are_exact_in_every_bit() {
    let same = graph(|graph, x| {
        let (one, zero, minus_zero) = (splat(graph, 1.0), splat(graph, 0.0), splat(graph, -0.0));
        let a = push(graph, Op::Binary(BinaryOp::Multiply), &[x, one]);
        let a = push(graph, Op::Binary(BinaryOp::Multiply), &[one, a]);
        let a = push(graph, Op::Binary(BinaryOp::Divide), &[a, one]);
        let a = push(graph, Op::Binary(BinaryOp::Subtract), &[a, zero]);
        let a = push(graph, Op::Convert(DType::F32), &[a]);
        let a = push(
            graph,
            Op::Slice {
                starts: vec![0, 0],
                limits: vec![2, 3],
                strides: vec![1, 1],
            },
            &[a],
        );
        let kept = push(graph, Op::Binary(BinaryOp::Add), &[a, zero]);
        let also = push(graph, Op::Binary(BinaryOp::Subtract), &[a, minus_zero]);
        vec![a, kept, also]
    });
    check(
        optimize,
        same,
        expect![[r#"
        constant []
        constant []
        add [0, 1]
        subtract [0, 2]
        outputs [0, 3, 4]"#]],
    );
}

#[test]
fn moves_merge_into_one() {
    let broadcast = |dims: &[usize], mapping: &[usize]| Op::Broadcast {
        dims: dims.to_vec(),
        mapping: mapping.to_vec(),
    };
    let moves = graph(|graph, x| {
        let a = push(graph, Op::Reshape { dims: vec![6] }, &[x]);
        let a = push(graph, Op::Reshape { dims: vec![3, 2] }, &[a]);
        let back = push(graph, Op::Reshape { dims: vec![2, 3] }, &[a]);
        let transpose = Op::Transpose {
            permutation: vec![1, 0],
        };
        let t = push(graph, transpose.clone(), &[x]);
        let tt = push(graph, transpose, &[t]);
        let wide = push(graph, broadcast(&[3, 2, 4], &[1, 0]), &[x]);
        let wider = push(graph, broadcast(&[4, 5, 3, 2], &[2, 3, 0]), &[wide]);
        vec![a, back, tt, wider]
    });
    let after = optimize(moves.clone());
    let mut ops = after.nodes().iter().map(|node| &node.op);
    let merged = ops.find(|op| op.name() == "broadcast").unwrap();
    assert_eq!(*merged, broadcast(&[4, 5, 3, 2], &[3, 2]));
    check(
        optimize,
        moves,
        expect![[r#"
        reshape [0]
        broadcast [0]
        outputs [1, 0, 0, 2]"#]],
    );
}

#[test]
fn trivial_graphs_stay_as_they_are() {
    check(identities, Graph::new(), expect!["outputs []"]);
    let constant = {
        let mut graph = Graph::new();
        let one = push(&mut graph, Op::Constant(Literal::splat(1.0f32, [])), &[]);
        graph.set_outputs(vec![one]);
        graph
    };
    check(
        optimize,
        constant,
        expect![[r#"
        constant []
        outputs [0]"#]],
    );
}
