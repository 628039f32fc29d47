//! Collectives of a `shard_map` in the vendors' compiled programs: kind, count, group size and bytes.

use std::collections::BTreeMap;

use halite_backends::OpenTarget;
use halite_core::{
    CompileOptions, DType, MeshShape, PartitionSpec, Program, TensorType, tree::Leaf,
};
use halite_ir::{Interface, Port, Reduction, program};
use halite_nn::{Tensor, Trace, grad};
use halite_pjrt::CollectiveKind::{self, *};

use halite_tests::targets::target;

/// One for TPUs and one for GPUs, each of eight devices.
const TARGETS: [&str; 2] = ["tpu:v5e:2x4", "cuda:h100:1x8"];

/// Dimensions of the shard of each of `data=2, model=4` devices: `f32[64, 128]`, 32 KiB.
const PART: [usize; 2] = [64, 128];
const KIB: u64 = 1 << 10;

fn spec(text: &str) -> PartitionSpec {
    text.parse().unwrap()
}

/// A program with `body` on the shard of `x` of each device; its results are shards of outputs.
fn mapped(
    mesh: &MeshShape,
    body: impl for<'t> Fn(&'t Trace, Tensor<'t>) -> Vec<Tensor<'t>>,
    outputs: usize,
) -> Program {
    let cx = &Trace::new();
    let split = spec("((data, model))");
    let x = cx.input(
        TensorType::new(DType::F32, [PART[0] * mesh.size(), PART[1]]),
        "x",
    );
    let results = cx.shard_map(
        mesh,
        &[x],
        std::slice::from_ref(&split),
        &vec![split.clone(); outputs],
        |parts| body(cx, parts[0]),
    );
    let graph = cx.graph(&[x], &results).unwrap();
    let port = || Port {
        name: None,
        spec: Some(split.clone()),
    };
    let interface = Interface {
        mesh: Some(mesh.clone()),
        inputs: vec![port()],
        outputs: (0..outputs).map(|_| port()).collect(),
        ..Interface::new("collectives")
    };
    program(&graph, &interface).unwrap()
}

/// Count and bytes of collectives, by kind and group size.
type Found = BTreeMap<(CollectiveKind, usize), (u64, u64)>;

/// The collectives of the compiled program.
fn found(target: &OpenTarget, program: &Program) -> Found {
    let compiled = target
        .compile(program, &CompileOptions::default())
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        compiled
            .output_types()
            .unwrap()
            .into_iter()
            .flatten()
            .collect::<Vec<_>>(),
        program.signature.outputs
    );
    let collectives = compiled.collectives().unwrap();
    assert_eq!(collectives.loops_counted_once, 0);
    collectives
        .uses
        .iter()
        .map(|one| ((one.kind, one.group), (one.count, one.bytes)))
        .collect()
}

type Body = for<'t> fn(&'t Trace, Tensor<'t>) -> Tensor<'t>;

/// Each collective and reduction: the compiled kind, group size and KiB.
const EACH: &[(&str, Body, CollectiveKind, usize, u64)] = &[
    (
        "sum",
        |_, x| x.all_reduce(Reduction::Sum, "data"),
        AllReduce,
        2,
        32,
    ),
    (
        "sum of all",
        |_, x| x.all_reduce(Reduction::Sum, ["data", "model"]),
        AllReduce,
        8,
        32,
    ),
    (
        "product",
        |_, x| x.all_reduce(Reduction::Product, "model"),
        AllReduce,
        4,
        32,
    ),
    (
        "least",
        |_, x| x.all_reduce(Reduction::Min, "model"),
        AllReduce,
        4,
        32,
    ),
    (
        "most",
        |_, x| x.all_reduce(Reduction::Max, "model"),
        AllReduce,
        4,
        32,
    ),
    ("mean", |_, x| x.all_reduce_mean("model"), AllReduce, 4, 32),
    ("gather", |_, x| x.all_gather(0, "model"), AllGather, 4, 128),
    (
        "gather columns",
        |_, x| x.all_gather(1, "data"),
        AllGather,
        2,
        64,
    ),
    (
        "scatter",
        |_, x| x.reduce_scatter(Reduction::Sum, 0, "model"),
        ReduceScatter,
        4,
        32,
    ),
    (
        "scatter of most",
        |_, x| x.reduce_scatter(Reduction::Max, 0, "model"),
        ReduceScatter,
        4,
        32,
    ),
    (
        "all to all",
        |_, x| x.all_to_all(0, 1, "model"),
        AllToAll,
        4,
        32,
    ),
    // Devices reduce bits, but not on the way between them.
    (
        "bits",
        |_, x| x.convert(DType::S32).all_reduce(Reduction::Or, "model"),
        AllGather,
        4,
        128,
    ),
    (
        "permute",
        |_, x| x.collective_permute([(0, 1), (1, 2), (2, 3), (3, 0)], "model"),
        CollectivePermute,
        8,
        32,
    ),
];

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn compiled_program_has_each_shard_map_collective() {
    for name in TARGETS {
        let target = target(name).unwrap();
        let mesh = target.mesh([("data", 2), ("model", 4)]).unwrap();
        for &(what, body, kind, group, kib) in EACH {
            let program = mapped(&mesh, |cx, x| vec![body(cx, x)], 1);
            assert_eq!(
                found(&target, &program),
                [((kind, group), (1, kib * KIB))].into(),
                "{name}: {what}"
            );
        }
    }
}

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn program_of_all_collectives_keeps_all() {
    let mut expected = Found::new();
    for &(_, _, kind, group, kib) in EACH {
        let (count, bytes) = expected.entry((kind, group)).or_default();
        *count += 1;
        *bytes += kib * KIB;
    }
    for name in TARGETS {
        let target = target(name).unwrap();
        let mesh = target.mesh([("data", 2), ("model", 4)]).unwrap();
        let program = mapped(
            &mesh,
            |cx, x| EACH.iter().map(|(_, body, ..)| body(cx, x)).collect(),
            EACH.len(),
        );
        let found = found(&target, &program);
        // XLA combines collectives of one kind over the same devices, for instance gathers for
        // GPUs; the bytes stay the same.
        assert!(found.keys().eq(expected.keys()), "{name}: {found:?}");
        for (what, (count, bytes)) in found {
            let (most, expected) = expected[&what];
            assert!(
                (1..=most).contains(&count) && bytes == expected,
                "{name}: {what:?}: {count} x, {bytes} bytes, not {most} x, {expected}"
            );
        }
    }
}

#[test]
fn shard_map_gradient_transposes_collectives() {
    for name in TARGETS {
        let target = target(name).unwrap();
        let mesh = target.mesh([("data", 2), ("model", 4)]).unwrap();
        // Each device multiplies its columns of `x` with its rows of `w`: the sum goes over
        // `model`, and so does what comes back of it. `w` is the same over `data`, so its gradient
        // is summed over that.
        let cx = &Trace::new();
        let float = |dims: [usize; 2]| TensorType::new(DType::F32, dims);
        let (x, w) = (
            cx.input(float([256, 512]), "x"),
            cx.input(float([512, 128]), "w"),
        );
        let specs = [spec("(data, model)"), spec("(model)")];
        let y = cx.shard_map(&mesh, &[x, w], &specs, &[spec("(data)")], |parts| {
            vec![
                parts[0]
                    .matmul(parts[1])
                    .all_reduce(Reduction::Sum, "model"),
            ]
        });
        let gradient = grad(y[0].square().sum([0, 1]), &Leaf(w)).0;
        let graph = cx.graph(&[x, w], &[gradient]).unwrap();
        let port = |spec: &PartitionSpec| Port {
            name: None,
            spec: Some(spec.clone()),
        };
        let interface = Interface {
            mesh: Some(mesh.clone()),
            inputs: specs.iter().map(port).collect(),
            outputs: vec![port(&specs[1])],
            ..Interface::new("gradient")
        };
        let found = found(&target, &program(&graph, &interface).unwrap());
        assert!(
            found.keys().eq(&[(AllReduce, 2), (AllReduce, 4)]),
            "{name}: {found:?}"
        );
        assert_eq!(
            found[&(AllReduce, 2)],
            (1, 64 * KIB),
            "{name}: the gradient of `w`"
        );
        // A TPU sends as bf16 what it multiplies as bf16 next.
        let (count, bytes) = found[&(AllReduce, 4)];
        assert!(
            count == 2 && [96 * KIB, 128 * KIB].contains(&bytes),
            "{name}: `y` and what comes back of it: {found:?}"
        );
    }
}
