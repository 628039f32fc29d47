//! Random programs stay valid under every policy.

use halite_core::{DType, DTypePolicy, Narrowing, TensorType};
use halite_ir::{
    Binary, Comparison, Dot, Extreme, Graph, Literal, Op, Reduction, Unary, Value, Window,
    optimize, verify, with_precision,
};
use proptest::prelude::*;

use super::support::*;

/// Appends a node to the graph if its operands fit: `kind` chooses the operation, `a` and `b` the
/// operands.
fn grow(graph: &mut Graph, values: &mut Vec<Value>, (kind, a, b): (u8, u16, u16)) {
    let pick = |values: &[Value], at: u16| values[usize::from(at) % values.len()];
    let (x, y) = (pick(values, a), pick(values, b));
    let (rank, dims) = (graph.ty(x).rank(), graph.ty(x).dims().to_vec());
    let floats = [
        DType::F32,
        DType::F64,
        DType::Bf16,
        DType::F16,
        DType::S32,
        DType::Bool,
    ];
    let product = |result| Dot {
        left_batch: vec![],
        right_batch: vec![],
        left_contract: vec![rank.max(1) - 1],
        right_contract: vec![0],
        result,
    };
    let window = Window {
        sizes: vec![2; rank],
        strides: vec![1 + usize::from(b) % 2; rank],
        base_dilations: vec![1; rank],
        window_dilations: vec![1; rank],
        padding: vec![(0, 0); rank],
    };
    let branch = || {
        let mut branch = Graph::new();
        let inner = branch.input(graph.ty(x).clone());
        let out = branch.push(Op::Unary(Unary::Tanh), &[inner], None).ok()?[0];
        branch.set_outputs(vec![out]);
        Some(branch)
    };
    // The body changes the carried value and stacks a product of the slice, among others.
    let scan = || {
        let (length, row) = dims.split_first()?;
        let mut body = Graph::new();
        let (carried, slice) = (
            body.input(graph.ty(y).clone()),
            body.input(graph.ty(x).with_dims(row)),
        );
        let first = if rank > 1 { row.len() - 1 } else { 0 };
        let contract = if rank > 1 { vec![first] } else { vec![] };
        let result = body.ty(slice).dtype();
        let (left_contract, right_contract) = (contract.clone(), contract);
        let product = Op::Dot(Dot {
            left_batch: vec![],
            right_batch: vec![],
            left_contract,
            right_contract,
            result,
        });
        let product = body.push(product, &[slice, slice], None).ok()?[0];
        let plain = body
            .push(Op::Binary(Binary::Maximum), &[product, product], None)
            .ok()?[0];
        let next = body
            .push(Op::Binary(Binary::Add), &[carried, carried], None)
            .ok()?[0];
        body.set_outputs(vec![next, plain, slice, carried]);
        Some(Op::Scan {
            carried: 1,
            scanned: 1,
            length: *length,
            reverse: b % 2 == 0,
            body: Box::new(body),
        })
    };
    let dim = usize::from(b) % rank.max(1);
    let (op, operands) = match kind % 26 {
        0 | 1 => (Op::Dot(product(graph.ty(x).dtype())), vec![x, y]),
        2 => (Op::Dot(product(DType::F32)), vec![x, y]),
        3 => (Op::Binary(Binary::Add), vec![x, y]),
        4 => (Op::Binary(Binary::Divide), vec![x, y]),
        5 => (Op::Binary(Binary::Power), vec![x, y]),
        6 => (Op::Unary(Unary::Tanh), vec![x]),
        7 => (Op::Unary(Unary::Exponential), vec![x]),
        8 => (Op::Unary(Unary::IsFinite), vec![x]),
        9 => (Op::Compare(Comparison::Lt), vec![x, y]),
        10 => (Op::Select, vec![pick(values, a.wrapping_mul(7)), x, y]),
        11 => (Op::Convert(floats[usize::from(b) % floats.len()]), vec![x]),
        12 => (
            Op::Broadcast {
                dims: [vec![2], dims].concat(),
                mapping: (1..=rank).collect(),
            },
            vec![x],
        ),
        13 => (
            Op::Transpose {
                permutation: (0..rank).rev().collect(),
            },
            vec![x],
        ),
        14 => (
            Op::Reduce {
                kind: Reduction::Sum,
                dims: vec![dim],
            },
            vec![x],
        ),
        15 => (
            Op::Reduce {
                kind: Reduction::Max,
                dims: vec![dim],
            },
            vec![x],
        ),
        16 => (
            Op::ArgReduce {
                kind: Extreme::Max,
                dim,
            },
            vec![x],
        ),
        17 => (
            Op::ReduceWindow {
                kind: Reduction::Max,
                window,
            },
            vec![x],
        ),
        18 => (
            Op::ReduceWindow {
                kind: Reduction::Sum,
                window,
            },
            vec![x],
        ),
        19 => (
            Op::Sort {
                dim,
                descending: false,
            },
            vec![x, y],
        ),
        20 => (Op::OptimizationBarrier, vec![x, y]),
        21 => (Op::Concatenate { dim }, vec![x, y]),
        22 => (
            Op::Case {
                branches: branch().into_iter().collect(),
            },
            vec![pick(values, a.wrapping_mul(3)), x],
        ),
        23 | 24 => match scan() {
            Some(scan) => (scan, vec![y, x]),
            None => return,
        },
        _ => (
            Op::Constant(Literal::splat(f32::from(a) / 7.0, &dims)),
            vec![],
        ),
    };
    // Ranks above 4 would only make the test slow.
    if rank > 4 {
        return;
    }
    if let Ok(results) = graph.push(op, &operands, None) {
        values.extend(results.to_vec());
    }
}

proptest! {
    #[test]
    fn any_program_stays_valid_with_the_same_signature(
        steps in prop::collection::vec(any::<(u8, u16, u16)>(), 1..60), outputs in prop::collection::vec(any::<u16>(), 1..5),
        between in any::<bool>(), least_work in prop_oneof![Just(0u64), Just(16)],
    ) {
        let mut graph = Graph::new();
        let inputs = [
            f32(&[2, 2]), f32(&[2, 2]), f32(&[2]), TensorType::new(DType::F64, [2, 2]), TensorType::new(DType::Bf16, [2, 2]),
            TensorType::new(DType::S32, []), TensorType::new(DType::Bool, [2, 2]),
        ];
        let mut values: Vec<Value> = inputs.into_iter().map(|ty| graph.input(ty)).collect();
        for step in steps {
            grow(&mut graph, &mut values, step);
        }
        graph.set_outputs(outputs.iter().map(|&at| values[usize::from(at) % values.len()]).collect());
        prop_assert!(verify(&graph).is_ok());
        for (name, policy) in DTypePolicy::NAMED {
            let after = with_precision(graph.clone(), &policy, &Narrowing { between, least_work });
            for after in [&after, &optimize(&after)] {
                prop_assert!(verify(after).is_ok(), "{}: {:?} of {:?}", name, verify(after), graph);
                prop_assert_eq!(after.input_types(), graph.input_types());
                prop_assert_eq!(after.output_types(), graph.output_types());
            }
            let halves = after.nodes().iter().flat_map(|node| &node.results).filter(|&&value| after.ty(value).dtype() == DType::F16);
            prop_assert!(policy.compute == DType::F16 || halves.count() <= graph.nodes().len(), "unexpected f16");
        }
    }
}
