//! Programs on eight devices: partitioned over a mesh, and as replicas.

use std::sync::Arc;

use halite_core::{
    Arg, Array, CompileOptions, DType, HostArray, HostBytes, Mesh, PartitionSpec, Sharding,
    TensorType,
};
use halite_ir::{BinaryOp, DotAttributes, Graph, Groups, Interface, Op, Port, Reduction, UnaryOp};
use halite_tests::eval::program;

use crate::ir_ops::support::*;

fn mesh() -> Arc<Mesh> {
    Arc::new(Mesh::new([("data", 4), ("model", 2)], client().local_devices()).unwrap())
}

fn port(spec: &PartitionSpec) -> Port {
    Port {
        name: Some("blocks.0.\"weight\"".to_string()),
        spec: Some(spec.clone()),
    }
}

/// `x @ w` and `w - 1`: `x` by rows, `w` by columns and donated.
fn step() -> (Graph, Interface, [Arc<Sharding>; 2]) {
    let mesh = mesh();
    let by_rows = PartitionSpec::first("data");
    let by_columns = PartitionSpec::new([vec![], vec!["model", "data"]]);
    let graph = graph(
        [
            TensorType::new(DType::F32, [8, 16]),
            TensorType::new(DType::F32, [16, 24]),
        ],
        |graph, [x, w]| {
            let dot = DotAttributes {
                lhs_batching: vec![],
                rhs_batching: vec![],
                lhs_contracting: vec![1],
                rhs_contracting: vec![0],
                ..DotAttributes::default()
            };
            let y = push(graph, Op::Dot(dot, DType::F32), &[x, w]);
            let y = push(
                graph,
                Op::ShardingConstraint(PartitionSpec::new([vec!["data"], vec!["model"]])),
                &[y],
            );
            let one = push(
                graph,
                Op::Constant(halite_ir::Literal::splat(1.0f32, [16, 24])),
                &[],
            );
            vec![y, push(graph, Op::Binary(BinaryOp::Subtract), &[w, one])]
        },
    );
    let interface = Interface {
        mesh: Some(mesh.shape().clone()),
        inputs: vec![port(&by_rows), port(&by_columns)],
        outputs: vec![port(&PartitionSpec::replicated()), port(&by_columns)],
        aliases: vec![(1, 1)],
        ..Interface::new("two ways/parallel")
    };
    let shardings = [by_rows, by_columns].map(|spec| Sharding::new(&mesh, spec).unwrap());
    (graph, interface, shardings)
}

#[test]
fn mesh_program_reuses_donated_memory() {
    let (graph, interface, [rows, columns]) = step();
    let program = program(&graph, &interface).unwrap();
    assert_eq!((program.partitions, program.replicas), (8, 1));
    let texts = |types: &[TensorType]| types.iter().map(ToString::to_string).collect::<Vec<_>>();
    let shards = texts(&program.signature.inputs);
    assert_eq!(shards, ["f32[2, 16]", "f32[16, 3]"]);
    let shards = texts(&program.signature.outputs);
    assert_eq!(shards, ["f32[8, 24]", "f32[16, 3]"]);

    let loaded = client()
        .compile(&program, &CompileOptions::default())
        .unwrap();
    assert_eq!(
        loaded.memory().unwrap().aliased,
        16 * 3 * 4,
        "a device's part of `w` is reused"
    );
    let (x, w) = (noise(&[8, 16]), noise(&[16, 24]));
    let x_shards = Array::upload(client(), &x, &rows).unwrap();
    let w_shards = Array::upload(client(), &w, &columns).unwrap();
    let args = vec![
        Arg::Borrow(x_shards.shards()),
        Arg::Donate(w_shards.into_shards()),
    ];
    let mut outputs = loaded.launch(args).unwrap();
    let (next, products) = (outputs.remove(1), outputs.remove(0));
    let whole = Sharding::replicated(&mesh());
    let product = Array::from_shards(TensorType::new(DType::F32, [8, 24]), &whole, products)
        .unwrap()
        .read()
        .unwrap();
    let expected = by_index(&[8, 24], |index| {
        (0..16)
            .map(|k| at(&x, &[index[0], k]) * at(&w, &[k, index[1]]))
            .sum()
    });
    close(
        product.as_slice().unwrap(),
        expected.as_slice().unwrap(),
        1e-5,
        "x @ w",
    );
    let next = Array::from_shards(w.ty().clone(), &columns, next)
        .unwrap()
        .read()
        .unwrap();
    assert_eq!(next, by_index(&[16, 24], |index| at(&w, index) - 1.0));
}

#[test]
fn a_donated_input_of_one_device_is_reused() {
    let ty = TensorType::new(DType::F32, [1000]);
    let graph = graph([ty.clone(), ty], |graph, [x, y]| {
        vec![push(graph, Op::Binary(BinaryOp::Add), &[x, y]), y]
    });
    let interface = Interface {
        aliases: vec![(0, 0)],
        ..Interface::new("add")
    };
    let program = program(&graph, &interface).unwrap();
    assert_eq!(program.signature.donated, [0]);
    let loaded = client()
        .compile(&program, &CompileOptions::default())
        .unwrap();
    assert_eq!(loaded.memory().unwrap().aliased, 4000);
}

#[test]
fn input_that_is_an_output_can_be_donated() {
    let ty = TensorType::new(DType::F32, [3]);
    // The outputs are the inputs, exchanged: each output still may reuse the memory of the other.
    let graph = graph([ty.clone(), ty], |_, [x, y]| vec![y, x]);
    let interface = Interface {
        aliases: vec![(0, 0), (1, 1)],
        ..Interface::new("exchange")
    };
    let loaded = client()
        .compile(
            &program(&graph, &interface).unwrap(),
            &CompileOptions::default(),
        )
        .unwrap();
    let device = client().local_devices()[0];
    let upload = |host: &HostArray| {
        client()
            .upload(HostBytes::Borrowed(host.bytes()), host.ty(), device.into())
            .unwrap()
    };
    let (x, y) = (count(&[3]), noise(&[3]));
    let args = vec![Arg::Donate(upload(&x)), Arg::Donate(upload(&y))];
    let outputs = loaded.launch(args).unwrap();
    for (output, expected) in outputs.iter().zip([y, x]) {
        let mut host = HostArray::zeros(expected.ty().clone());
        output.first().read(host.bytes_mut()).unwrap();
        assert_eq!(host, expected);
    }
}

/// The result of `op` on each of four replicas, whose operands are given.
fn replicas(op: Op, inputs: &[HostArray; 4]) -> Vec<HostArray> {
    let operands = usize::from(!matches!(op, Op::ReplicaId | Op::PartitionId));
    let mut graph = Graph::new();
    let x = graph.input(inputs[0].ty().clone());
    let outputs = graph.push(op, &[x][..operands], None).unwrap().to_vec();
    graph.set_outputs(outputs);
    let program = program(
        &graph,
        &Interface {
            replicas: 4,
            ..Interface::new("replicas")
        },
    )
    .unwrap();
    let text = String::from_utf8(program.code.bytes().to_vec()).unwrap();
    let loaded = client()
        .compile(&program, &CompileOptions::default())
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let devices = loaded.devices().to_vec();
    assert_eq!(devices.len(), 4);
    let upload = |(host, &device): (&HostArray, &halite_core::DeviceId)| {
        client()
            .upload(HostBytes::Borrowed(host.bytes()), host.ty(), device.into())
            .unwrap()
    };
    let buffers: Vec<_> = inputs.iter().zip(&devices).map(upload).collect();
    let args = buffers.iter().map(Arg::Borrow).collect();
    let outputs = loaded.launch(args).unwrap();
    let read = |output: halite_core::DeviceBuffer<'_>| {
        let mut host = HostArray::zeros(output.tensor_type().clone());
        output.read(host.bytes_mut()).unwrap();
        host
    };
    outputs[0].iter().map(read).collect()
}

fn each(value: impl Fn(usize) -> Vec<f32>) -> [HostArray; 4] {
    std::array::from_fn(|replica| host(&value(replica), &[value(replica).len()]))
}

/// Checks the results of `op` where replica r has 10 r, 10 r + 1, 10 r + 2, 10 r + 3.
#[track_caller]
fn exchanges(op: Op, expected: impl Fn(usize) -> Vec<f32>) {
    let x = each(|replica| (0..4).map(|i| number(replica, i)).collect());
    assert_eq!(replicas(op.clone(), &x), each(expected), "{op:?}");
}

/// Element `i` of replica `replica`.
fn number(replica: usize, i: usize) -> f32 {
    (10 * replica + i) as f32
}

/// Two groups of replicas. Members are in the order of the group: 3 comes before 1.
fn pairs() -> Groups {
    vec![vec![0, 2], vec![3, 1]].into()
}

/// The group of each replica.
const GROUP: [[usize; 2]; 4] = [[0, 2], [3, 1], [0, 2], [3, 1]];
/// The other member of the group of each replica.
const OTHER: [usize; 4] = [2, 3, 0, 1];

/// The place of a replica in its group.
fn member(replica: usize) -> usize {
    usize::from(GROUP[replica][1] == replica)
}

#[test]
fn reductions_combine_replicas() {
    let sum = Op::AllReduce {
        kind: Reduction::Sum,
        groups: Groups::All,
    };
    exchanges(sum, |_| (0..4).map(|i| 60.0 + 4.0 * i as f32).collect());
    let max = Op::AllReduce {
        kind: Reduction::Max,
        groups: pairs(),
    };
    exchanges(max, |r| {
        (0..4).map(|i| number(r.max(OTHER[r]), i)).collect()
    });
    let scattered = Op::ReduceScatter {
        kind: Reduction::Sum,
        dim: 0,
        groups: pairs(),
    };
    exchanges(scattered, |r| {
        let sum = |i| number(r, i) + number(OTHER[r], i);
        (0..2).map(|i| sum(2 * member(r) + i)).collect()
    });
}

#[test]
fn replicas_exchange_elements() {
    let gathered = Op::AllGather {
        dim: 0,
        groups: pairs(),
    };
    exchanges(gathered, |r| {
        let all = |member| (0..4).map(move |i| number(member, i));
        GROUP[r].into_iter().flat_map(all).collect()
    });
    let exchanged = Op::AllToAll {
        split: 0,
        concat: 0,
        groups: pairs(),
    };
    exchanges(exchanged, |r| {
        let part = |from| (0..2).map(move |i| number(from, 2 * member(r) + i));
        GROUP[r].into_iter().flat_map(part).collect()
    });
    let moved = Op::CollectivePermute {
        pairs: vec![(3, 0), (0, 1), (1, 2)],
        groups: Groups::All,
    };
    exchanges(moved, |r| match r {
        3 => vec![0.0; 4],
        _ => (0..4).map(|i| number((r + 3) % 4, i)).collect(),
    });
}

#[test]
fn replicas_know_their_ids() {
    let x = each(|_| vec![0.0]);
    let ids: Vec<HostArray> = (0..4u32).map(HostArray::scalar).collect();
    assert_eq!(replicas(Op::ReplicaId, &x), ids);
    let zeros = vec![HostArray::scalar(0u32); 4];
    assert_eq!(replicas(Op::PartitionId, &x), zeros);
}

#[test]
fn device_mismatch_is_rejected_before_compiling() {
    let (graph, interface, _) = step();
    let refused = |interface: &Interface| program(&graph, interface).unwrap_err().to_string();
    let unspecified = Interface {
        outputs: vec![Port::default(), interface.outputs[1].clone()],
        ..interface.clone()
    };
    assert_eq!(
        refused(&unspecified),
        "lower: program `two ways/parallel`: output 0: f32[8, 24] on mesh(data=4, model=2) has no spec; set one, such as \
         PartitionSpec::replicated()"
    );
    let elsewhere = Interface {
        outputs: vec![interface.outputs[0].clone(), Port::default()],
        ..interface.clone()
    };
    assert_eq!(
        refused(&elsewhere),
        "lower: program `two ways/parallel`: input 1 is sharded as (None, (model, data)) and output 1 as unspecified; aliases must be sharded alike"
    );
    let reduced =
        crate::ir_ops::support::graph([TensorType::new(DType::F32, [4])], |graph, [x]| {
            vec![
                graph
                    .push(
                        Op::AllReduce {
                            kind: Reduction::Sum,
                            groups: vec![vec![0, 4]].into(),
                        },
                        &[x],
                        None,
                    )
                    .unwrap()[0],
            ]
        });
    let error = program(
        &reduced,
        &Interface {
            replicas: 4,
            ..Interface::new("reduce")
        },
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "all_reduce: device 4 takes part, there are 4, from 0"
    );
}

#[test]
fn locations_reach_the_compiler() {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new(DType::F32, [2]));
    let here = std::panic::Location::caller();
    let y = graph
        .push(Op::Unary(UnaryOp::Tanh), &[x], Some(here))
        .unwrap()[0];
    graph.set_outputs(vec![y]);
    let text = halite_ir::legalize(&graph, &Interface::new("here"))
        .unwrap()
        .to_text();
    assert!(
        text.contains(&format!(
            "loc(\"{}\":{}:{})",
            here.file(),
            here.line(),
            here.column()
        )),
        "{text}"
    );
    client()
        .compile(
            &program(&graph, &Interface::new("here")).unwrap(),
            &CompileOptions::default(),
        )
        .unwrap();
}
