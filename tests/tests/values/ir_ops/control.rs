use halite_core::{CompileOptions, DType, ErrorKind, HostArray, TensorType};
use halite_ir::{
    Attribute, BinaryOp, ComparisonDirection, CustomCall, Graph, Interface, Literal, Op, Remat,
    UnaryOp, program,
};

use crate::ir_ops::support::*;

fn s32() -> TensorType {
    TensorType::scalar(DType::S32)
}

/// While `i < n`: `i += 1`, `x = f(x)`; `n` does not change.
fn repeat(
    x: &TensorType,
    body: impl FnOnce(&mut Graph, halite_ir::Value, halite_ir::Value) -> halite_ir::Value,
) -> Op {
    let types = || [s32(), x.clone(), s32()];
    let condition = graph(types(), |graph, [i, _, n]| {
        vec![push(graph, Op::Compare(ComparisonDirection::Lt), &[i, n])]
    });
    let body = graph(types(), |graph, [i, x, n]| {
        let one = push(graph, Op::Constant(Literal::splat(1i32, [])), &[]);
        let next = push(graph, Op::Binary(BinaryOp::Add), &[i, one]);
        let x = body(graph, x, n);
        vec![next, x]
    });
    Op::While {
        carried: 2,
        condition: Box::new(condition),
        body: Box::new(body),
    }
}

#[test]
fn loop_body_uses_carried_values_besides_invariant_ones() {
    let x = TensorType::new(DType::F32, [2]);
    let op = repeat(&x, |graph, x, _| {
        push(graph, Op::Binary(BinaryOp::Add), &[x, x])
    });
    let (start, times, value) = (
        HostArray::scalar(0i32),
        HostArray::scalar(5i32),
        host(&[1.0f32, 3.0], &[2]),
    );
    gives(
        op,
        &[&start, &value, &times],
        &[times.clone(), host(&[32.0f32, 96.0], &[2])],
    );
}

#[test]
fn nested_regions_see_outer_values() {
    // In each iteration of the outer loop, the inner one adds n to x, n times.
    let x = s32();
    let inner = repeat(&x, |graph, x, n| {
        push(graph, Op::Binary(BinaryOp::Add), &[x, n])
    });
    let outer = repeat(&x, |graph, x, n| {
        let zero = push(graph, Op::Constant(Literal::splat(0i32, [])), &[]);
        let x = graph.push(inner, &[zero, x, n], None).unwrap()[1];
        // Odd x are doubled.
        let two = push(graph, Op::Constant(Literal::splat(2i32, [])), &[]);
        let odd = push(graph, Op::Binary(BinaryOp::Remainder), &[x, two]);
        let same = crate::ir_ops::support::graph([s32(), s32()], |_, [x, _]| vec![x]);
        let doubled = crate::ir_ops::support::graph([s32(), s32()], |graph, [x, two]| {
            vec![push(graph, Op::Binary(BinaryOp::Multiply), &[x, two])]
        });
        push(
            graph,
            Op::Case {
                branches: vec![same, doubled],
            },
            &[odd, x, two],
        )
    });
    let mut expected = 1;
    for _ in 0..3 {
        expected += 9;
        expected *= if expected % 2 == 1 { 2 } else { 1 };
    }
    let (start, times) = (HostArray::scalar(0i32), HostArray::scalar(3i32));
    gives(
        outer,
        &[&start, &HostArray::scalar(1i32), &times],
        &[times.clone(), HostArray::scalar(expected)],
    );
}

#[test]
fn scan_stacks_results_in_both_directions() {
    // sum += n * x; y = (sum before, x is negative)
    let body = graph([s32(), s32(), s32()], |graph, [sum, n, x]| {
        let product = push(graph, Op::Binary(BinaryOp::Multiply), &[n, x]);
        let next = push(graph, Op::Binary(BinaryOp::Add), &[sum, product]);
        let zero = push(graph, Op::Constant(Literal::splat(0i32, [])), &[]);
        let negative = push(graph, Op::Compare(ComparisonDirection::Lt), &[x, zero]);
        vec![next, sum, negative]
    });
    let scan = |reverse| Op::Scan {
        carried: 1,
        scanned: 1,
        length: 3,
        reverse,
        residuals: 0,
        body: Box::new(body.clone()),
    };
    let (start, n, xs) = (
        HostArray::scalar(1i32),
        HostArray::scalar(10i32),
        host(&[1i32, -2, 3], &[3]),
    );
    let negative = host(&[false, true, false], &[3]);
    let inputs = [&start, &n, &xs];
    gives(
        scan(false),
        &inputs,
        &[
            HostArray::scalar(21i32),
            host(&[1i32, 11, -9], &[3]),
            negative.clone(),
        ],
    );
    gives(
        scan(true),
        &inputs,
        &[
            HostArray::scalar(21i32),
            host(&[11i32, 31, 1], &[3]),
            negative,
        ],
    );
}

#[test]
fn scan_without_carry_slices_or_iterations() {
    let matrix = TensorType::new(DType::F32, [2, 1]);
    let twice = graph([matrix.clone()], |graph, [x]| {
        vec![push(graph, Op::Binary(BinaryOp::Add), &[x, x])]
    });
    let scan = |carried, scanned, length| Op::Scan {
        carried,
        scanned,
        length,
        reverse: false,
        residuals: 0,
        body: Box::new(twice.clone()),
    };
    let (x, xs) = (
        host(&[1.0f32, 3.0], &[2, 1]),
        host(&[1.0f32, 3.0, 5.0, 7.0], &[2, 2, 1]),
    );
    gives(
        scan(0, 1, 2),
        &[&xs],
        &[host(&[2.0f32, 6.0, 10.0, 14.0], &[2, 2, 1])],
    );
    gives(scan(1, 0, 5), &[&x], &[host(&[32.0f32, 96.0], &[2, 1])]);
    gives(
        scan(0, 0, 2),
        &[&x],
        &[host(&[2.0f32, 6.0, 2.0, 6.0], &[2, 2, 1])],
    );
    gives(scan(1, 0, 0), &[&x], std::slice::from_ref(&x));
    gives(scan(0, 0, 0), &[&x], &[host::<f32>(&[], &[0, 2, 1])]);
    gives(
        Op::Checkpoint {
            body: Box::new(twice.clone()),
            remat: Remat::Full,
        },
        &[&x],
        &[host(&[2.0f32, 6.0], &[2, 1])],
    );
}

#[test]
fn a_case_out_of_range_takes_the_last_branch() {
    let branch = |number: i32| {
        graph([], |graph, []| {
            vec![push(graph, Op::Constant(Literal::splat(number, [])), &[])]
        })
    };
    let op = || Op::Case {
        branches: (10..13).map(branch).collect(),
    };
    for (index, expected) in [(0, 10), (1, 11), (2, 12), (3, 12), (-1, 12)] {
        gives(
            op(),
            &[&HostArray::scalar(index)],
            &[HostArray::scalar(expected)],
        );
    }
}

#[test]
fn a_barrier_gives_its_operands_back() {
    let (x, y) = (count(&[3]), HostArray::scalar(true));
    gives(Op::OptimizationBarrier, &[&x, &y], &[x.clone(), y.clone()]);
}

#[test]
fn unregistered_custom_call_is_an_error() {
    let call = CustomCall {
        target: "nobody.registered \"this\"".to_string(),
        attributes: vec![
            ("alpha".to_string(), Attribute::Float(0.1)),
            ("bits".to_string(), Attribute::Float(f64::NEG_INFINITY)),
            ("n".to_string(), Attribute::Int(-3)),
            ("on".to_string(), Attribute::Bool(true)),
            (
                "two words".to_string(),
                Attribute::Str("a \"quoted\"\nline, and ä".to_string()),
            ),
        ],
        results: vec![TensorType::new(DType::F32, [2])],
        side_effect: true,
        ..CustomCall::default()
    };
    let graph = graph([TensorType::new(DType::F32, [3])], |graph, [x]| {
        vec![push(graph, Op::CustomCall(call), &[x])]
    });
    let program = program(&graph, &Interface::new("custom")).unwrap();
    let error = client()
        .compile(&program, &CompileOptions::default())
        .unwrap_err();
    assert!(error.to_string().contains("nobody.registered"), "{error}");
    assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
}

#[test]
fn outputs_may_be_inputs_or_there_twice_or_not_at_all() {
    let x = TensorType::new(DType::F32, [2]);
    let graph = graph([x.clone(), x], |graph, [x, y]| {
        let z = push(graph, Op::Unary(UnaryOp::Negate), &[y]);
        vec![x, z, z]
    });
    let (a, b) = (host(&[1.0f32, 2.0], &[2]), host(&[3.0f32, 4.0], &[2]));
    let z = host(&[-3.0f32, -4.0], &[2]);
    assert_eq!(run_graph(&graph, &[&a, &b]), [a.clone(), z.clone(), z]);
    let nothing = crate::ir_ops::support::graph([], |_, []| vec![]);
    assert_eq!(run_graph(&nothing, &[]), []);
}
