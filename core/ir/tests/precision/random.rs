//! Random programs stay valid under every policy.

use halite_core::{DType, DTypePolicy, Narrowing, TensorType};
use halite_ir::{
    BinaryOp, ComparisonDirection, DotAttributes, Extreme, Graph, Literal, Op, Reduction, UnaryOp,
    Value, WindowAttributes, optimize, verify, with_precision,
};
use proptest::prelude::*;

use super::support::*;

/// One step of building a graph: `kind` chooses the operation, `a` and `b` the operands.
#[derive(Clone, Copy)]
struct Step {
    kind: u8,
    a: u16,
    b: u16,
}

/// Appends a node to the graph if its operands fit.
fn grow(graph: &mut Graph, values: &mut Vec<Value>, step: Step) {
    let Some((op, operands)) = step.op(graph, values) else {
        return;
    };
    if let Ok(results) = graph.push(op, &operands, None) {
        values.extend(results.to_vec());
    }
}

impl Step {
    /// The operation with its operands. `None` if there is none for the chosen values.
    fn op(self, graph: &Graph, values: &[Value]) -> Option<(Op, Vec<Value>)> {
        let Step { kind, a, b } = self;
        let pick = |at: u16| values[usize::from(at) % values.len()];
        let (x, y) = (pick(a), pick(b));
        let (rank, dims) = (graph.ty(x).rank(), graph.ty(x).dims().to_vec());
        // Ranks above 4 would only make the test slow.
        if rank > 4 {
            return None;
        }
        let dim = usize::from(b) % rank.max(1);
        let reduce = |kind, dim| Op::Reduce {
            kind,
            dims: vec![dim],
        };
        Some(match kind % 26 {
            0 | 1 => (product(rank, graph.ty(x).dtype()), vec![x, y]),
            2 => (product(rank, DType::F32), vec![x, y]),
            3 => (Op::Binary(BinaryOp::Add), vec![x, y]),
            4 => (Op::Binary(BinaryOp::Divide), vec![x, y]),
            5 => (Op::Binary(BinaryOp::Power), vec![x, y]),
            6 => (Op::Unary(UnaryOp::Tanh), vec![x]),
            7 => (Op::Unary(UnaryOp::Exponential), vec![x]),
            8 => (Op::Unary(UnaryOp::IsFinite), vec![x]),
            9 => (Op::Compare(ComparisonDirection::Lt), vec![x, y]),
            10 => (Op::Select, vec![pick(a.wrapping_mul(7)), x, y]),
            11 => (Op::Convert(DTYPES[usize::from(b) % DTYPES.len()]), vec![x]),
            12 => (broadcast(dims), vec![x]),
            13 => (transpose(rank), vec![x]),
            14 => (reduce(Reduction::Sum, dim), vec![x]),
            15 => (reduce(Reduction::Max, dim), vec![x]),
            16 => (argmax(dim), vec![x]),
            17 => (reduce_window(Reduction::Max, rank, b), vec![x]),
            18 => (reduce_window(Reduction::Sum, rank, b), vec![x]),
            19 => (sort(dim), vec![x, y]),
            20 => (Op::OptimizationBarrier, vec![x, y]),
            21 => (Op::Concatenate { dim }, vec![x, y]),
            22 => (case(graph.ty(x)), vec![pick(a.wrapping_mul(3)), x]),
            23 | 24 => (scan(graph.ty(y), graph.ty(x), b % 2 == 0)?, vec![y, x]),
            _ => {
                let literal = Literal::splat(f32::from(a) / 7.0, &dims);
                (Op::Constant(literal), vec![])
            }
        })
    }
}

/// Element types to convert to.
const DTYPES: [DType; 6] = [
    DType::F32,
    DType::F64,
    DType::Bf16,
    DType::F16,
    DType::S32,
    DType::Bool,
];

fn product(rank: usize, result: DType) -> Op {
    Op::Dot(
        DotAttributes {
            lhs_batching: vec![],
            rhs_batching: vec![],
            lhs_contracting: vec![rank.max(1) - 1],
            rhs_contracting: vec![0],
            ..DotAttributes::default()
        },
        result,
    )
}

fn broadcast(dims: Vec<usize>) -> Op {
    Op::Broadcast {
        mapping: (1..=dims.len()).collect(),
        dims: [vec![2], dims].concat(),
    }
}

fn transpose(rank: usize) -> Op {
    Op::Transpose {
        permutation: (0..rank).rev().collect(),
    }
}

fn argmax(dim: usize) -> Op {
    Op::ArgReduce {
        kind: Extreme::Max,
        dim,
    }
}

fn sort(dim: usize) -> Op {
    Op::Sort {
        dim,
        descending: false,
        by_bits: false,
    }
}

fn reduce_window(kind: Reduction, rank: usize, b: u16) -> Op {
    let window = WindowAttributes {
        sizes: vec![2; rank],
        strides: vec![1 + usize::from(b) % 2; rank],
        base_dilations: vec![1; rank],
        window_dilations: vec![1; rank],
        padding: vec![(0, 0); rank],
    };
    Op::ReduceWindow { kind, window }
}

/// A case of one branch, or of none if `ty` has no hyperbolic tangent.
fn case(ty: &TensorType) -> Op {
    let mut branch = Graph::new();
    let x = branch.input(ty.clone());
    let branches = match branch.push(Op::Unary(UnaryOp::Tanh), &[x], None) {
        Ok(results) => {
            let outputs = results.to_vec();
            branch.set_outputs(outputs);
            vec![branch]
        }
        Err(_) => vec![],
    };
    Op::Case { branches }
}

/// A scan whose body changes the carried value and stacks a product of the slice, among others.
fn scan(carried: &TensorType, scanned: &TensorType, reverse: bool) -> Option<Op> {
    let (&length, row) = scanned.dims().split_first()?;
    let mut body = Graph::new();
    let (carried, slice) = (
        body.input(carried.clone()),
        body.input(scanned.with_dims(row)),
    );
    let contract: Vec<usize> = row.len().checked_sub(1).into_iter().collect();
    let product = Op::Dot(
        DotAttributes {
            lhs_batching: vec![],
            rhs_batching: vec![],
            lhs_contracting: contract.clone(),
            rhs_contracting: contract,
            ..DotAttributes::default()
        },
        scanned.dtype(),
    );
    let mut push = |op, operands: [Value; 2]| Some(body.push(op, &operands, None).ok()?[0]);
    let product = push(product, [slice, slice])?;
    let plain = push(Op::Binary(BinaryOp::Maximum), [product, product])?;
    let next = push(Op::Binary(BinaryOp::Add), [carried, carried])?;
    body.set_outputs(vec![next, plain, slice, carried]);
    Some(Op::Scan {
        carried: 1,
        scanned: 1,
        length,
        reverse,
        residuals: 0,
        body: Box::new(body),
    })
}

fn has_f16(graph: &Graph) -> bool {
    let mut results = graph.nodes().iter().flat_map(|node| &node.results);
    results.any(|&value| graph.ty(value).dtype() == DType::F16)
}

proptest! {
    #[test]
    fn any_program_stays_valid_with_the_same_signature(
        steps in prop::collection::vec(any::<(u8, u16, u16)>(), 1..60), outputs in prop::collection::vec(any::<u16>(), 1..5),
        narrowing in prop_oneof![Just(Narrowing::Everywhere), Just(Narrowing::Contractions)],
    ) {
        let mut graph = Graph::new();
        let inputs = [
            f32(&[2, 2]), f32(&[2, 2]), f32(&[2]), TensorType::new(DType::F64, [2, 2]), TensorType::new(DType::Bf16, [2, 2]),
            TensorType::new(DType::S32, []), TensorType::new(DType::Bool, [2, 2]),
        ];
        let mut values: Vec<Value> = inputs.into_iter().map(|ty| graph.input(ty)).collect();
        for (kind, a, b) in steps {
            grow(&mut graph, &mut values, Step { kind, a, b });
        }
        graph.set_outputs(outputs.iter().map(|&at| values[usize::from(at) % values.len()]).collect());
        prop_assert!(verify(&graph).is_ok());
        for (name, policy) in DTypePolicy::NAMED {
            let after = with_precision(graph.clone(), &policy, &narrowing);
            for after in [&after, &optimize(after.clone())] {
                prop_assert!(verify(after).is_ok(), "{}: {:?} of {:?}", name, verify(after), graph);
                prop_assert_eq!(after.input_types(), graph.input_types());
                prop_assert_eq!(after.output_types(), graph.output_types());
            }
            prop_assert!(policy.compute == DType::F16 || has_f16(&graph) || !has_f16(&after), "unexpected f16");
        }
    }
}
