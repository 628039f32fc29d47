//! Where samples of a batch meet.

use halite_core::{DType, TensorType};
use halite_ir::{
    BinaryOp, Call, CustomCall, DotAttributes, GatherAttributes, Graph, Op, Place, Reduction,
    Samples, ScatterAttributes, UnaryOp, Value, samples,
};

/// Samples of a batch.
const SAMPLES: usize = 4;

fn f32(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

fn place(dim: usize, outer: usize, inner: usize) -> Place {
    Place { dim, outer, inner }
}

fn push(graph: &mut Graph, op: Op, operands: &[Value]) -> Value {
    graph.push(op, operands, None).unwrap()[0]
}

/// What the result of a body has, of values along samples in their first dimension.
fn of<const N: usize>(
    dims: [&[usize]; N],
    body: impl FnOnce(&mut Graph, [Value; N]) -> Value,
) -> Samples {
    let mut graph = Graph::new();
    let inputs = dims.map(|dims| graph.input(f32(dims)));
    let output = body(&mut graph, inputs);
    graph.set_outputs(vec![output]);
    let given = vec![Samples::Along(place(0, 1, 1)); N];
    samples(&graph, given, SAMPLES, &known).remove(0)
}

fn known(call: &CustomCall) -> Option<Call> {
    match &*call.target {
        "gather" => Some(Call::Exchange),
        "rank" => Some(Call::Rank),
        "mark" => Some(Call::Marked),
        _ => None,
    }
}

fn call(target: &str, result: TensorType) -> Op {
    Op::CustomCall(CustomCall {
        target: target.into(),
        results: vec![result],
        ..CustomCall::default()
    })
}

fn reshape(dims: &[usize]) -> Op {
    Op::Reshape {
        dims: dims.to_vec(),
    }
}

fn reduce(kind: Reduction, dims: &[usize]) -> Op {
    Op::Reduce {
        kind,
        dims: dims.to_vec(),
    }
}

/// The operation at which samples meet.
fn met(samples: &Samples) -> &'static str {
    match samples {
        Samples::Met(meeting) => meeting.op,
        other => panic!("{other:?}"),
    }
}

#[test]
fn places_follow_reshapes_and_transposes() {
    let reshaped =
        |from: &[usize], to: &[usize]| of([from], |graph, [x]| push(graph, reshape(to), &[x]));
    assert_eq!(
        reshaped(&[4, 6, 5], &[24, 5]),
        Samples::Along(place(0, 1, 6))
    );
    assert_eq!(
        reshaped(&[4, 6], &[1, 4, 2, 3]),
        Samples::Along(place(1, 1, 1))
    );
    assert_eq!(met(&reshaped(&[4, 6], &[2, 2, 6])), "reshape");
    let heads_first = of([&[4, 3, 5]], |graph, [x]| {
        let permutation = vec![1, 0, 2];
        let x = push(graph, Op::Transpose { permutation }, &[x]);
        push(graph, reshape(&[12, 5]), &[x])
    });
    assert_eq!(heads_first, Samples::Along(place(0, 3, 1)));
}

#[test]
fn samples_side_by_side_are_parted_again() {
    let halves = |range: [usize; 2]| {
        of([&[4, 2], &[4, 2]], |graph, [x, y]| {
            let both = push(graph, Op::Concatenate { dim: 0 }, &[x, y]);
            let slice = Op::Slice {
                starts: vec![range[0], 0],
                limits: vec![range[1], 2],
                strides: vec![1, 1],
            };
            push(graph, slice, &[both])
        })
    };
    assert_eq!(halves([0, 8]), Samples::Along(place(0, 2, 1)));
    assert_eq!(halves([4, 8]), Samples::Along(place(0, 1, 1)));
    assert_eq!(met(&halves([2, 6])), "slice");
}

#[test]
fn samples_meet_inside_of_a_matrix() {
    let factor = |dims: &[usize]| {
        let cholesky = Op::Cholesky { lower: true };
        of([dims], |graph, [x]| push(graph, cholesky, &[x]))
    };
    assert_eq!(factor(&[4, 3, 3]), Samples::Along(place(0, 1, 1)));
    assert_eq!(met(&factor(&[4, 4])), "cholesky");
}

#[test]
fn products_meet_where_rows_are_multiplied_with_rows() {
    let dot = |batch: usize, left: usize, right: usize| {
        Op::Dot(
            DotAttributes {
                lhs_batching: (0..batch).collect(),
                rhs_batching: (0..batch).collect(),
                lhs_contracting: vec![left],
                rhs_contracting: vec![right],
                ..DotAttributes::default()
            },
            DType::F32,
        )
    };
    let product =
        |op: Op, dims: &[usize]| of([dims, dims], |graph, [x, y]| push(graph, op, &[x, y]));
    assert_eq!(
        product(dot(1, 2, 2), &[4, 3, 5]),
        Samples::Along(place(0, 1, 1))
    );
    assert_eq!(met(&product(dot(0, 1, 1), &[4, 3])), "dot");
    assert!(matches!(product(dot(0, 0, 0), &[4, 3]), Samples::Sum(_)));
    let gathered = of([&[4, 3]], |graph, [x]| {
        let all = push(graph, call("gather", f32(&[8, 3])), &[x]);
        push(graph, dot(0, 1, 1), &[all, x])
    });
    assert_eq!(gathered, Samples::Along(place(1, 1, 1)));
}

#[test]
fn sums_may_be_scaled_and_added() {
    let sum_then = |then: fn(&mut Graph, Value, Value) -> Value| {
        of([&[4], &[4]], |graph, [x, y]| {
            let [x, y] = [x, y].map(|x| push(graph, reduce(Reduction::Sum, &[0]), &[x]));
            then(graph, x, y)
        })
    };
    let is_sum = |samples: Samples| matches!(samples, Samples::Sum(_));
    let two = |graph: &mut Graph| {
        let two = halite_ir::Literal::splat(2.0f32, []);
        push(graph, Op::Constant(two), &[])
    };
    assert!(is_sum(sum_then(|graph, x, y| push(
        graph,
        Op::Binary(BinaryOp::Subtract),
        &[x, y]
    ))));
    assert!(is_sum(of([&[4]], |graph, [x]| {
        let x = push(graph, reduce(Reduction::Sum, &[0]), &[x]);
        let two = two(graph);
        push(graph, Op::Binary(BinaryOp::Divide), &[x, two])
    })));
    for op in [BinaryOp::Multiply, BinaryOp::Divide] {
        let ratio = of([&[4], &[4]], |graph, [x, y]| {
            let [x, y] = [x, y].map(|x| push(graph, reduce(Reduction::Sum, &[0]), &[x]));
            push(graph, Op::Binary(op), &[x, y])
        });
        assert_eq!(met(&ratio), op.name());
    }
    assert_eq!(
        met(&sum_then(|graph, x, _| push(
            graph,
            Op::Unary(UnaryOp::Sqrt),
            &[x]
        ))),
        "sqrt"
    );
}

#[test]
fn numbers_of_samples_count_within_one_process() {
    let numbered = |rank: bool, dim: usize| {
        of([&[4, 4]], |graph, [x]| {
            let ty = f32(&[4, 4]);
            let mut numbers = push(
                graph,
                Op::Iota {
                    ty: ty.clone(),
                    dim,
                },
                &[],
            );
            if rank {
                let rank = push(graph, call("rank", ty), &[]);
                numbers = push(graph, Op::Binary(BinaryOp::Add), &[numbers, rank]);
            }
            push(graph, Op::Binary(BinaryOp::Multiply), &[x, numbers])
        })
    };
    assert_eq!(met(&numbered(false, 0)), "multiply");
    assert_eq!(numbered(true, 0), Samples::Along(place(0, 1, 1)));
    assert_eq!(numbered(false, 1), Samples::Along(place(0, 1, 1)));
}

#[test]
fn marked_results_have_not_met() {
    let marked = of([&[4, 3]], |graph, [x]| {
        let most = push(graph, reduce(Reduction::Max, &[0]), &[x]);
        push(graph, call("mark", f32(&[3])), &[most])
    });
    assert_eq!(marked, Samples::SHARED);
    let other = of([&[4, 3]], |graph, [x]| {
        push(graph, call("other", f32(&[4, 3])), &[x])
    });
    assert_eq!(met(&other), "custom_call");
}

#[test]
fn lookups_are_of_tables_or_of_the_own_row() {
    let ids = TensorType::new(DType::S32, [4]);
    let lookup = |batched: bool| {
        let mut graph = Graph::new();
        let (x, ids) = (graph.input(f32(&[4, 6])), graph.input(ids.clone()));
        let gather = match batched {
            true => GatherAttributes {
                offset_dims: vec![],
                collapsed_slice_dims: vec![1],
                operand_batching_dims: vec![0],
                start_indices_batching_dims: vec![0],
                start_index_map: vec![1],
                index_vector_dim: 1,
                slice_sizes: vec![1, 1],
                indices_are_sorted: false,
            },
            false => GatherAttributes {
                offset_dims: vec![1],
                collapsed_slice_dims: vec![0],
                operand_batching_dims: vec![],
                start_indices_batching_dims: vec![],
                start_index_map: vec![0],
                index_vector_dim: 1,
                slice_sizes: vec![1, 6],
                indices_are_sorted: false,
            },
        };
        let y = push(&mut graph, Op::Gather(gather), &[x, ids]);
        graph.set_outputs(vec![y]);
        graph
    };
    let row = || Samples::Along(place(0, 1, 1));
    let own = samples(&lookup(true), vec![row(), row()], SAMPLES, &known);
    assert_eq!(own, [row()]);
    let table = samples(
        &lookup(false),
        vec![Samples::SHARED, row()],
        SAMPLES,
        &known,
    );
    assert_eq!(table, [row()]);
    let others = samples(&lookup(false), vec![row(), row()], SAMPLES, &known);
    assert_eq!(met(&others[0]), "gather");
}

#[test]
fn counts_by_class_are_sums() {
    let mut graph = Graph::new();
    let zeros = graph.input(f32(&[6]));
    let ids = graph.input(TensorType::new(DType::S32, [4]));
    let weights = graph.input(f32(&[4]));
    let scatter = ScatterAttributes {
        update_window_dims: vec![],
        inserted_window_dims: vec![0],
        input_batching_dims: vec![],
        scatter_indices_batching_dims: vec![],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        unique_indices: false,
        indices_are_sorted: false,
    };
    let counts = push(
        &mut graph,
        Op::Scatter(scatter, Some(Reduction::Sum)),
        &[zeros, ids, weights],
    );
    graph.set_outputs(vec![counts]);
    let row = || Samples::Along(place(0, 1, 1));
    let found = samples(&graph, vec![Samples::SHARED, row(), row()], SAMPLES, &known);
    assert!(matches!(found[0], Samples::Sum(_)), "{found:?}");
}

#[test]
fn carried_values_of_loops_keep_their_places() {
    let scanned = |over_samples: bool| {
        let dims: &[usize] = if over_samples { &[4, 3] } else { &[3, 4] };
        let mut body = Graph::new();
        let slice = f32(&dims[1..]);
        let carried = body.input(slice.clone());
        let one = body.input(slice.clone());
        let next = push(&mut body, Op::Binary(BinaryOp::Add), &[carried, one]);
        body.set_outputs(vec![next, next]);
        let mut graph = Graph::new();
        let (first, all) = (graph.input(slice), graph.input(f32(dims)));
        let scan = Op::Scan {
            carried: 1,
            scanned: 1,
            length: dims[0],
            reverse: false,
            residuals: 0,
            body: Box::new(body),
        };
        let results = graph.push(scan, &[first, all], None).unwrap().to_vec();
        graph.set_outputs(results);
        let along = Samples::Along(place(usize::from(!over_samples), 1, 1));
        samples(&graph, vec![Samples::SHARED, along], SAMPLES, &known)
    };
    let over_time = [
        Samples::Along(place(0, 1, 1)),
        Samples::Along(place(1, 1, 1)),
    ];
    assert_eq!(scanned(false), over_time);
    assert_eq!(met(&scanned(true)[0]), "scan");
}
