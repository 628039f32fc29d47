//! Verification and passes.

use expect_test::{Expect, expect};
use halite_core::{DType, TensorType};
use halite_ir::{
    Binary, Comparison, CustomCall, Graph, Interface, Literal, Op, Remat, Unary, Value,
    common_subexpressions, dead_code, identities, optimize, text, verify,
};

fn f32(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

fn push(graph: &mut Graph, op: Op, operands: &[Value]) -> Value {
    graph.push(op, operands, None).unwrap()[0]
}

/// A graph of one `f32[2, 3]`, made by `body`.
fn graph(body: impl FnOnce(&mut Graph, Value) -> Vec<Value>) -> Graph {
    let mut graph = Graph::new();
    let x = graph.input(f32(&[2, 3]));
    let outputs = body(&mut graph, x);
    graph.set_outputs(outputs);
    graph
}

fn splat(graph: &mut Graph, value: f32) -> Value {
    push(graph, Op::Constant(Literal::splat(value, [2, 3])), &[])
}

/// The operations of `pass(graph)`, in order.
fn check(pass: fn(&Graph) -> Graph, graph: Graph, expected: Expect) {
    verify(&graph).unwrap();
    let after = pass(&graph);
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
    assert_eq!(pass(&after), after, "a second time changes nothing");
}

fn call(side_effect: bool) -> Op {
    Op::CustomCall(CustomCall {
        target: "log".into(),
        attributes: vec![],
        results: vec![],
        side_effect,
    })
}

#[test]
fn dead_code_keeps_side_effects() {
    let dead = graph(|graph, x| {
        let unused = push(graph, Op::Unary(Unary::Tanh), &[x]);
        push(graph, Op::Unary(Unary::Sine), &[unused]);
        let logged = push(graph, Op::Unary(Unary::Cosine), &[x]);
        graph.push(call(true), &[logged], None).unwrap();
        graph.push(call(false), &[x], None).unwrap();
        let y = push(graph, Op::Unary(Unary::Exponential), &[x]);
        let inner = self::graph(|graph, x| {
            push(graph, Op::Unary(Unary::Sqrt), &[x]);
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
    let after = dead_code(&dead);
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

#[test]
fn merging_skips_barriers() {
    let twice = graph(|graph, x| {
        let (a, b) = (splat(graph, 0.5), splat(graph, 0.5));
        let other = splat(graph, -0.0);
        let zero = splat(graph, 0.0);
        let (y, z) = (
            push(graph, Op::Binary(Binary::Multiply), &[x, a]),
            push(graph, Op::Binary(Binary::Multiply), &[x, b]),
        );
        let turned = push(graph, Op::Binary(Binary::Multiply), &[a, x]);
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
        optimization_barrier [4]
        optimization_barrier [4]
        outputs [4, 4, 5, 6, 7, 2, 3]"#]],
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
        let a = push(graph, Op::Binary(Binary::Multiply), &[x, one]);
        let a = push(graph, Op::Binary(Binary::Multiply), &[one, a]);
        let a = push(graph, Op::Binary(Binary::Divide), &[a, one]);
        let a = push(graph, Op::Binary(Binary::Subtract), &[a, zero]);
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
        let kept = push(graph, Op::Binary(Binary::Add), &[a, zero]);
        let also = push(graph, Op::Binary(Binary::Subtract), &[a, minus_zero]);
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
    let moves = graph(|graph, x| {
        let a = push(graph, Op::Reshape { dims: vec![6] }, &[x]);
        let a = push(graph, Op::Reshape { dims: vec![3, 2] }, &[a]);
        let back = push(graph, Op::Reshape { dims: vec![2, 3] }, &[a]);
        let t = push(
            graph,
            Op::Transpose {
                permutation: vec![1, 0],
            },
            &[x],
        );
        let tt = push(
            graph,
            Op::Transpose {
                permutation: vec![1, 0],
            },
            &[t],
        );
        let wide = push(
            graph,
            Op::Broadcast {
                dims: vec![3, 2, 4],
                mapping: vec![1, 0],
            },
            &[x],
        );
        let wider = push(
            graph,
            Op::Broadcast {
                dims: vec![4, 5, 3, 2],
                mapping: vec![2, 3, 0],
            },
            &[wide],
        );
        vec![a, back, tt, wider]
    });
    let after = optimize(&moves);
    let broadcast = after
        .nodes()
        .iter()
        .find(|node| node.op.name() == "broadcast")
        .unwrap();
    assert_eq!(
        broadcast.op,
        Op::Broadcast {
            dims: vec![4, 5, 3, 2],
            mapping: vec![3, 2]
        }
    );
    check(
        optimize,
        moves,
        expect![[r#"
        reshape [0]
        broadcast [0]
        outputs [1, 0, 0, 2]"#]],
    );
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

#[test]
fn verify_rejects_values_of_another_graph() {
    let large = graph(|graph, x| {
        let y = push(graph, Op::Unary(Unary::Tanh), &[x]);
        vec![push(graph, Op::Unary(Unary::Tanh), &[y])]
    });
    let foreign = large.outputs()[0];
    let mut small = graph(|_, x| vec![x]);
    verify(&small).unwrap();
    small.set_outputs(vec![foreign]);
    assert_eq!(
        verify(&small).unwrap_err().to_string(),
        "verify: output 0 is value 2, which no node computes"
    );

    let mut body = graph(|graph, x| vec![push(graph, Op::Binary(Binary::Add), &[x, x])]);
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
        .push(Op::Compare(Comparison::Lt), &[first, first], None)
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
    verify(&optimize(&whole)).unwrap();
    text(&whole, &Interface::default()).unwrap();
}

/// A scan of three carried values, two invariant ones, two scanned and two stacked: the first
/// carried value needs the second, the third only itself.
fn scan() -> Graph {
    let x = f32(&[3]);
    let mut body = Graph::new();
    let inputs = [0; 7].map(|_| body.input(x.clone()));
    let [first, second, third, invariant, unused, slice, other] = inputs;
    let mut add = |a, b| push(&mut body, Op::Binary(Binary::Add), &[a, b]);
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
        let after = optimize(&graph);
        verify(&after).unwrap();
        assert_eq!(
            (after.input_types(), after.output_types()),
            (graph.input_types(), graph.output_types())
        );
        assert_eq!(dead_code(&after), after, "all at once");
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
    let call = CustomCall {
        target: "log".into(),
        attributes: vec![],
        results: vec![],
        side_effect: true,
    };
    let mut body = Graph::new();
    let (x, slice) = (body.input(f32(&[])), body.input(f32(&[])));
    let next = push(&mut body, Op::Binary(Binary::Add), &[x, slice]);
    body.push(Op::CustomCall(call), &[x], None).unwrap();
    body.set_outputs(vec![next, next]);
    let mut graph = Graph::new();
    let (x, xs) = (graph.input(f32(&[])), graph.input(f32(&[4])));
    let op = Op::Scan {
        carried: 1,
        scanned: 1,
        length: 4,
        reverse: false,
        body: Box::new(body),
    };
    let results = graph.push(op, &[x, xs], None).unwrap().to_vec();
    let sizes = |graph: &Graph| {
        let after = dead_code(graph);
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
        push(&mut body, Op::Unary(Unary::Tanh), &[x]),
        push(&mut body, Op::Unary(Unary::Exponential), &[y]),
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
    let after = optimize(&graph);
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

#[test]
fn stop_gradient_is_not_in_the_text() {
    let with = |op: Option<Op>| {
        graph(|graph, x| {
            let x = op.map_or(x, |op| push(graph, op, &[x]));
            vec![push(graph, Op::Unary(Unary::Tanh), &[x])]
        })
    };
    let (stopped, plain) = (with(Some(Op::StopGradient)), with(None));
    verify(&stopped).unwrap();
    let interface = Interface::new("main");
    let printed = |graph: &Graph| text(graph, &interface).unwrap();
    assert_eq!(printed(&stopped), printed(&plain));
    assert_eq!(optimize(&stopped), optimize(&plain));
}
