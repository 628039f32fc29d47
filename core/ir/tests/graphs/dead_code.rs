//! Dead-code elimination.

use expect_test::expect;
use halite_ir::{BinaryOp, Graph, Literal, Op, Remat, UnaryOp, Value, dead_code, optimize, verify};

use crate::graphs::{call, check, f32, graph, push};

#[test]
fn dead_code_keeps_side_effects() {
    let dead = graph(|graph, x| {
        let unused = push(graph, Op::Unary(UnaryOp::Tanh), &[x]);
        push(graph, Op::Unary(UnaryOp::Sine), &[unused]);
        let logged = push(graph, Op::Unary(UnaryOp::Cosine), &[x]);
        graph.push(call(true), &[logged], None).unwrap();
        graph.push(call(false), &[x], None).unwrap();
        let y = push(graph, Op::Unary(UnaryOp::Exponential), &[x]);
        let inner = crate::graphs::graph(|graph, x| {
            push(graph, Op::Unary(UnaryOp::Sqrt), &[x]);
            graph.push(call(true), &[x], None).unwrap();
            vec![x]
        });
        // Its result is not used, but what it logs is.
        let zero = push(graph, Op::Constant(Literal::splat(0i32, [])), &[]);
        graph
            .push(
                Op::Case {
                    branches: vec![inner],
                },
                &[zero, x],
                None,
            )
            .unwrap();
        vec![y, x]
    });
    let after = dead_code(dead.clone());
    assert_eq!(
        after.nodes().last().unwrap().op.regions()[0].nodes().len(),
        1,
        "the square root inside is gone"
    );
    check(
        dead_code,
        dead,
        expect![[r#"
        cosine [0]
        custom_call [1]
        exponential [0]
        constant []
        case [3, 0]
        outputs [2, 0]"#]],
    );
}

/// A scan of three carried values, two invariant ones, two scanned and two stacked: the first
/// carried value needs the second, the third only itself.
fn scan() -> Graph {
    let x = f32(&[3]);
    let mut body = Graph::new();
    let inputs = [0; 7].map(|_| body.input(x.clone()));
    let [first, second, third, invariant, unused, slice, other] = inputs;
    let mut add = |a, b| push(&mut body, Op::Binary(BinaryOp::Add), &[a, b]);
    let next = [
        add(first, second),
        add(second, invariant),
        add(third, unused),
    ];
    let stacked = [add(first, slice), add(third, other)];
    body.set_outputs([&next[..], &stacked].concat());
    let mut graph = Graph::new();
    let whole: Vec<Value> = (0..7)
        .map(|at| graph.input(if at < 5 { x.clone() } else { f32(&[4, 3]) }))
        .collect();
    let op = Op::Scan {
        carried: 3,
        scanned: 2,
        length: 4,
        reverse: false,
        residuals: 0,
        body: Box::new(body),
    };
    let results = graph.push(op, &whole, None).unwrap().to_vec();
    graph.set_outputs(results);
    graph
}

#[test]
fn a_scan_keeps_what_its_needed_results_need() {
    let of = |outputs: &[usize]| {
        let mut graph = scan();
        graph.set_outputs(
            outputs
                .iter()
                .map(|&at| graph.nodes()[0].results[at])
                .collect(),
        );
        let after = optimize(graph.clone());
        verify(&after).unwrap();
        assert_eq!(
            (after.input_types(), after.output_types()),
            (graph.input_types(), graph.output_types())
        );
        assert_eq!(dead_code(after.clone()), after, "all at once");
        let Some(Op::Scan {
            carried,
            scanned,
            body,
            ..
        }) = after.nodes().first().map(|node| &node.op)
        else {
            return "none".to_string();
        };
        let operands: Vec<usize> = after.nodes()[0]
            .operands
            .iter()
            .map(|operand| operand.index())
            .collect();
        format!(
            "{carried} carried, {scanned} scanned of {operands:?}, {} nodes",
            body.nodes().len()
        )
    };
    assert_eq!(
        of(&[0, 1, 2, 3, 4]),
        "3 carried, 2 scanned of [0, 1, 2, 3, 4, 5, 6], 5 nodes"
    );
    // The first needs the second, and this the invariant.
    assert_eq!(of(&[0]), "2 carried, 0 scanned of [0, 1, 3], 2 nodes");
    assert_eq!(of(&[1]), "1 carried, 0 scanned of [1, 3], 1 nodes");
    assert_eq!(of(&[2]), "1 carried, 0 scanned of [2, 4], 1 nodes");
    assert_eq!(of(&[3]), "2 carried, 1 scanned of [0, 1, 3, 5], 3 nodes");
    assert_eq!(
        of(&[1, 4]),
        "2 carried, 1 scanned of [1, 2, 3, 4, 6], 3 nodes"
    );
    assert_eq!(of(&[]), "none");
}

#[test]
fn scan_with_side_effect_keeps_its_results() {
    let mut body = Graph::new();
    let (x, slice) = (body.input(f32(&[])), body.input(f32(&[])));
    let next = push(&mut body, Op::Binary(BinaryOp::Add), &[x, slice]);
    body.push(call(true), &[x], None).unwrap();
    body.set_outputs(vec![next, next]);
    let mut graph = Graph::new();
    let (x, xs) = (graph.input(f32(&[])), graph.input(f32(&[4])));
    let op = Op::Scan {
        carried: 1,
        scanned: 1,
        length: 4,
        reverse: false,
        residuals: 0,
        body: Box::new(body),
    };
    let results = graph.push(op, &[x, xs], None).unwrap().to_vec();
    let sizes = |graph: &Graph| {
        let after = dead_code(graph.clone());
        verify(&after).unwrap();
        let Op::Scan { body, .. } = &after.nodes()[0].op else {
            panic!("a scan")
        };
        (after.nodes()[0].results.len(), body.nodes().len())
    };
    graph.set_outputs(vec![]);
    assert_eq!(sizes(&graph), (2, 2), "as it is");
    graph.set_outputs(vec![results[1]]);
    assert_eq!(sizes(&graph), (2, 2), "the call is of what is carried");
    graph.set_outputs(vec![results[0]]);
    assert_eq!(sizes(&graph), (1, 2));
}

#[test]
fn a_checkpoint_keeps_what_its_needed_results_need() {
    let mut body = Graph::new();
    let (x, y) = (body.input(f32(&[2, 3])), body.input(f32(&[2, 3])));
    let outputs = vec![
        push(&mut body, Op::Unary(UnaryOp::Tanh), &[x]),
        push(&mut body, Op::Unary(UnaryOp::Exponential), &[y]),
    ];
    body.set_outputs(outputs);
    let mut graph = Graph::new();
    let (x, y) = (graph.input(f32(&[2, 3])), graph.input(f32(&[2, 3])));
    let op = Op::Checkpoint {
        body: Box::new(body),
        remat: Remat::Full,
    };
    let results = graph.push(op, &[x, y], None).unwrap().to_vec();
    graph.set_outputs(vec![results[1]]);
    let after = optimize(graph.clone());
    verify(&after).unwrap();
    let Op::Checkpoint { body, .. } = &after.nodes()[0].op else {
        panic!("a checkpoint")
    };
    assert_eq!(after.nodes()[0].operands, [y]);
    assert_eq!(
        body.nodes()
            .iter()
            .map(|node| node.op.name())
            .collect::<Vec<_>>(),
        ["exponential"]
    );
}
