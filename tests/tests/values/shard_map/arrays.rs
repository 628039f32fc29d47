//! Arrays on meshes: upload, read, resharding and collectives between devices.

use std::{
    fmt::Debug,
    sync::Arc,
    time::{Duration, Instant},
};

use halite_core::{
    Array, CompileOptions, DType, Element, ErrorKind, HostArray, PartitionSpec, ReduceOp, Sharding,
    TensorType, tree::Leaf,
};
use halite_ir::{Graph, Interface, Port};
use halite_nn::{ArrayCollectives, Jit};
use halite_telemetry::ClientMetrics;
use halite_tests::eval::{client, host, program};

use crate::shard_map::support::*;

/// Specs of two dimensions over the mesh of two by four.
const SPECS: &[&str] = &[
    "()",
    "(data)",
    "(None, model)",
    "(data, model)",
    "(model, data)",
    "((data, model))",
    "((model, data))",
    "(None, (data, model))",
    "(None, (model, data))",
];

fn sharding(spec: &str) -> Arc<Sharding> {
    Sharding::new(&mesh(), spec.parse().unwrap()).unwrap()
}

fn counted(dims: &[usize]) -> HostArray {
    let count = dims.iter().product::<usize>() as i32;
    host(&(0..count).collect::<Vec<_>>(), dims)
}

fn upload(host: &HostArray, spec: &str) -> Array {
    Array::upload(client(), host, &sharding(spec)).unwrap()
}

#[test]
fn upload_read_round_trip_preserves_bits() {
    let whole = counted(&[8, 16]);
    for spec in SPECS {
        let array = upload(&whole, spec);
        assert_eq!(array.read().unwrap(), whole, "{spec}");
        assert_eq!(array.fetch().unwrap().wait().unwrap(), whole, "{spec}");
        for (index, shard) in array.shards().iter().enumerate() {
            let mut part = HostArray::zeros(shard.tensor_type().clone());
            shard.read(part.bytes_mut()).unwrap();
            let ranges = array.sharding().shard_ranges(whole.ty(), index).unwrap();
            assert_eq!(
                part.as_slice::<i32>().unwrap()[0] as usize,
                ranges[0].start * 16 + ranges[1].start,
                "{spec}"
            );
        }
    }
}

#[test]
fn upload_sends_each_device_only_its_shard() {
    // A client of its own, whose counters no other test moves.
    let client = halite_core::Client::new(halite_core::Null::new(8)).measured();
    let mesh = Arc::new(
        halite_core::Mesh::new([("data", 2), ("model", 4)], client.local_devices()).unwrap(),
    );
    let whole = counted(&[8, 16]);
    for (spec, copies) in [
        ("()", 8),
        ("(data)", 4),
        ("(None, model)", 2),
        ("(model, data)", 1),
        ("((model, data))", 1),
    ] {
        let sharding = Sharding::new(&mesh, spec.parse().unwrap()).unwrap();
        let before = client.counters().snapshot();
        Array::upload(&client, &whole, &sharding).unwrap();
        let after = client.counters().snapshot();
        assert_eq!(after.uploads - before.uploads, 8);
        assert_eq!(
            (after.uploaded_bytes - before.uploaded_bytes) as usize,
            copies * whole.bytes().len(),
            "{spec}"
        );

        // Built part by part: each distinct part is made once.
        let mut made = 0;
        let built = Array::from_parts(&client, whole.ty(), &sharding, |ranges| {
            made += 1;
            Ok(HostArray::zeros(TensorType::new(
                DType::S32,
                [ranges[0].len(), ranges[1].len()],
            )))
        });
        assert_eq!(built.unwrap().shards().len(), 8);
        assert_eq!(made, 8 / copies, "{spec}");
    }
    let wrong = Array::from_parts(
        &client,
        whole.ty(),
        &Sharding::new(&mesh, "(data)".parse().unwrap()).unwrap(),
        |_| Ok(HostArray::scalar(1i32)),
    );
    let error = wrong.unwrap_err().to_string();
    assert!(
        error.contains("the part [0..4, 0..16] of s32[8, 16]")
            && error.contains("is s32[], expected s32[4, 16]"),
        "{error}"
    );
}

#[test]
fn array_is_built_from_parts() {
    let built = Array::from_parts(
        client(),
        &TensorType::new(DType::S32, [8, 16]),
        &sharding("(model, data)"),
        |ranges| {
            let values = ranges[0].clone().flat_map(|row| {
                ranges[1]
                    .clone()
                    .map(move |column| (row * 16 + column) as i32)
            });
            HostArray::from_slice(
                &values.collect::<Vec<_>>(),
                [ranges[0].len(), ranges[1].len()],
            )
        },
    );
    assert_eq!(built.unwrap().read().unwrap(), counted(&[8, 16]));
}

#[test]
fn reshard_moves_to_other_devices_too() {
    let whole = counted(&[8, 16]);
    let reversed = {
        let devices = client().local_devices().into_iter().rev();
        Arc::new(halite_core::Mesh::new([("rows", 8)], devices).unwrap())
    };
    for from in SPECS {
        let array = upload(&whole, from);
        for to in SPECS {
            let resharded = array.reshard(client(), &sharding(to)).unwrap();
            assert_eq!(resharded.read().unwrap(), whole, "{from} to {to}");
            assert_eq!(resharded.sharding().spec().to_string(), *to);
        }
        let elsewhere = array
            .reshard(
                client(),
                &Sharding::new(&reversed, PartitionSpec::first("rows")).unwrap(),
            )
            .unwrap();
        assert_eq!(elsewhere.read().unwrap(), whole);
        assert_eq!(
            elsewhere.shards().first().placement().device,
            reversed.devices()[0]
        );
        assert_eq!(array.read().unwrap(), whole, "the original is unchanged");
    }
    let error = upload(&whole, "()")
        .reshard(client(), &sharding("(None, None, data)"))
        .unwrap_err();
    assert!(error.to_string().contains("3 dimensions"), "{error}");
}

#[test]
fn existing_shards_are_copied_between_devices() {
    let client = halite_core::Client::new(halite_core::Null::new(8)).measured();
    let mesh = |order: [u32; 8]| {
        Arc::new(
            halite_core::Mesh::new(
                [("data", 2), ("model", 4)],
                order.map(halite_core::DeviceId),
            )
            .unwrap(),
        )
    };
    let sharding = |order, spec: &str| Sharding::new(&mesh(order), spec.parse().unwrap()).unwrap();
    let (straight, reversed) = ([0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0]);
    let array = Array::upload(
        &client,
        &counted(&[8, 16]),
        &sharding(straight, "(data, model)"),
    )
    .unwrap();
    let before = client.counters().snapshot();
    array
        .reshard(&client, &sharding(reversed, "(data, model)"))
        .unwrap();
    let after = client.counters().snapshot();
    assert_eq!(
        (after.blocking_reads, after.uploads),
        (before.blocking_reads, before.uploads)
    );
    array.reshard(&client, &sharding(straight, "()")).unwrap();
    assert!(
        client.counters().snapshot().blocking_reads > before.blocking_reads,
        "parts of other sizes go through the host"
    );
}

#[test]
fn plugin_reports_requested_output_shardings() {
    let whole = counted(&[8, 16]);
    for spec in SPECS {
        let requested: PartitionSpec = spec.parse().unwrap();
        let jit = Jit::<_, Leaf<()>, Leaf<()>>::function(client(), |_, Leaf(x)| Leaf(x + 1))
            .output_specs(move |_, _| requested.clone());
        let output = jit.run(&upload(&whole, "(data)")).unwrap();
        assert_eq!(
            output.read().unwrap().as_slice::<i32>().unwrap()[127],
            128,
            "{spec}"
        );
        let reported = jit
            .with_loaded(|loaded| loaded.output_shardings().unwrap())
            .unwrap();
        assert_eq!(reported, [Some(sharding(spec).hlo_sharding(2))], "{spec}");
    }
}

#[test]
fn unexpected_output_sharding_is_named() {
    // Parts of one size over either axis: types alone do not tell.
    let mesh = mesh_of(&[("data", 2), ("model", 2)]);
    let (ty, spec) = (TensorType::new(DType::F32, [4]), |axis: &str| {
        Some(PartitionSpec::first(axis))
    });
    let mut graph = Graph::new();
    let x = graph.input(ty.clone());
    graph.set_outputs(vec![x]);
    let interface = Interface {
        mesh: Some(mesh.shape().clone()),
        inputs: vec![Port {
            name: None,
            spec: spec("data"),
        }],
        outputs: vec![Port {
            name: None,
            spec: spec("data"),
        }],
        ..Interface::new("over data")
    };
    let options = CompileOptions {
        devices: mesh.devices().to_vec(),
        ..CompileOptions::default()
    };
    let loaded = client()
        .compile(&program(&graph, &interface).unwrap(), &options)
        .unwrap();
    let requested = |axis: &str| {
        let sharding = Sharding::new(&mesh, PartitionSpec::first(axis)).unwrap();
        loaded.check_outputs([("loss", &ty, &sharding)])
    };
    requested("data").unwrap();
    let error = requested("model").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert_eq!(
        error.to_string(),
        "check outputs: output 0 (`loss`), f32[4]: requested (model) on mesh(data=2, model=2), which is in [2] parts, by device \
         [0, 1, 0, 1]; the compiler chose in [2] parts, by device [0, 0, 1, 1]. Please report it"
    );
}

fn values<T: Element>(array: &Array) -> Vec<T> {
    array.read().unwrap().as_slice::<T>().unwrap().to_vec()
}

/// Checks the sharding and the values of a result.
#[track_caller]
fn gives<T: Element + PartialEq + Debug>(
    result: halite_core::Result<Array>,
    spec: &str,
    expected: impl IntoIterator<Item = T>,
) {
    let result = result.unwrap();
    assert_eq!(result.sharding().spec().to_string(), spec);
    let expected: Vec<T> = expected.into_iter().collect();
    assert_eq!(values::<T>(&result), expected);
}

#[test]
fn array_collectives_match_host() {
    let across = ArrayCollectives::new(client(), &mesh());
    // Device (d, m) holds [[16 d + m, 16 d + m + 4, ..]].
    let x = upload(&counted(&[2, 16]), "(data, model)");
    let sums = || (0..16).map(|i| 16 + 2 * i);
    let sum = across.all_reduce(&x, ReduceOp::Sum, "data");
    gives(sum, "(None, model)", sums());
    let both = across.all_reduce(&x, ReduceOp::Max, ["data", "model"]);
    assert_eq!(both.as_ref().unwrap().ty().dims(), [1, 4]);
    gives(both, "(None, None)", 28..32);
    let bits = across.all_reduce(&x, ReduceOp::Or, "data");
    gives(bits, "(None, model)", (0..16).map(|i| i | (16 + i)));

    gives(across.all_gather(&x, 1, "model"), "(data, None)", 0..32);
    let scattered = across.reduce_scatter(&x, ReduceOp::Sum, 1, "data");
    gives(scattered, "(None, (model, data))", sums());
    let y = upload(&counted(&[8, 16]), "(None, model)");
    let exchanged = across.all_to_all(&y, 0, 1, "model");
    gives(exchanged, "(model, None)", 0..128);
    let moved = across.collective_permute(&x, &[(0, 1)], "data");
    gives(moved, "(data, model)", [0; 16].into_iter().chain(0..16));

    let compiled = across.compiles();
    across.all_reduce(&x, ReduceOp::Sum, "data").unwrap();
    assert_eq!(across.compiles(), compiled, "compiled once");
}

#[test]
fn means_over_devices_match_host() {
    let across = ArrayCollectives::new(client(), &mesh());
    let x = upload(&host(&[1.0f32, 4.0], &[2]), "(data)");
    let mean = across.all_reduce(&x, ReduceOp::Mean, "data").unwrap();
    assert_eq!(values::<f32>(&mean), [2.5]);
    let x = upload(&host(&[1.0f32, 2.0, 3.0, 6.0], &[4]), "(data)");
    let mean = across.reduce_scatter(&x, ReduceOp::Mean, 0, "data");
    assert_eq!(values::<f32>(&mean.unwrap()), [2.0, 4.0]);
}

#[test]
fn broadcast_preserves_every_bit() {
    let across = ArrayCollectives::new(client(), &mesh());
    let odd = [
        f32::from_bits(0x7fc0_1234),
        -0.0,
        f32::MIN_POSITIVE / 4.0,
        f32::NEG_INFINITY,
    ];
    let x = upload(
        &host(
            &[1.0, 2.0, 3.0, 4.0, odd[0], odd[1], odd[2], odd[3]],
            &[2, 4],
        ),
        "(data)",
    );
    let given = across.broadcast(&x, 1, "data").unwrap();
    assert_eq!(given.ty().dims(), [1, 4]);
    assert_eq!(
        values::<f32>(&given)
            .iter()
            .map(|x| x.to_bits())
            .collect::<Vec<_>>(),
        odd.map(f32::to_bits)
    );
    let flags = upload(&host(&[true, false, false, true], &[4]), "(model)");
    assert_eq!(
        values::<bool>(&across.broadcast(&flags, 3, "model").unwrap()),
        [true]
    );
    let halves = upload(
        &host(
            &[half::bf16::from_f32(-0.0), half::bf16::from_f32(3.0)],
            &[2],
        ),
        "(data)",
    );
    assert_eq!(
        values::<half::bf16>(&across.broadcast(&halves, 0, "data").unwrap())[0].to_bits(),
        0x8000
    );
}

#[test]
fn reshard_by_program_avoids_the_host() {
    let across = ArrayCollectives::new(client(), &mesh());
    let whole = counted(&[8, 16]);
    for (from, to) in [
        ("(data)", "(None, model)"),
        ("()", "((model, data))"),
        ("(model, data)", "()"),
    ] {
        let given = across
            .reshard(&upload(&whole, from), &to.parse().unwrap())
            .unwrap();
        assert_eq!(
            (
                given.sharding().spec().to_string().as_str(),
                given.read().unwrap()
            ),
            (to, whole.clone())
        );
    }
}

#[track_caller]
fn refused(result: halite_core::Result<Array>, parts: &[&str]) {
    let error = result.unwrap_err().to_string();
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn collectives_reject_unfit_arguments() {
    let across = ArrayCollectives::new(client(), &mesh());
    let x = upload(&counted(&[2, 16]), "(data, model)");
    refused(
        across.all_reduce(&x, ReduceOp::Sum, "rows"),
        &["all_reduce: unknown axis `rows`", "mesh(data=2, model=4)"],
    );
    refused(
        across.all_reduce(&x, ReduceOp::Sum, ["data", "data"]),
        &["arrays.rs", "axis `data` appears twice"],
    );
    refused(
        across.all_reduce(&x, ReduceOp::Mean, "data"),
        &["arrays.rs", "s32", "takes floats"],
    );
    refused(
        across.all_gather(&x, 2, "data"),
        &["arrays.rs", "dimension 2 of s32[1, 4]"],
    );
    refused(
        across.reduce_scatter(&x, ReduceOp::Sum, 0, "model"),
        &[
            "arrays.rs",
            "dimension 0 of s32[1, 4] is 1, not a multiple of the 4",
        ],
    );
    refused(
        across.all_to_all(&x, 9, 0, "model"),
        &["arrays.rs", "all_to_all: dimension 9 of s32[1, 4]"],
    );
    refused(
        across.collective_permute(&x, &[(0, 2)], "data"),
        &["arrays.rs", "member 2", "group of 2"],
    );
    refused(
        across.broadcast(&x, 4, "model"),
        &["root 4 is out of range", "have 4 devices"],
    );
}

#[test]
fn collectives_reject_unfit_shardings() {
    let across = ArrayCollectives::new(client(), &mesh());
    let x = upload(&counted(&[2, 16]), "(data, model)");
    refused(
        across.reshard(&x, &"(model)".parse().unwrap()),
        &["dimension 0 of s32[2, 16] is split 4 ways"],
    );
    let replicated = upload(&counted(&[4]), "()");
    refused(
        across.collective_permute(&replicated, &[(0, 1)], "data"),
        &["arrays.rs", "the same along `data`"],
    );
    let other = mesh_of(&[("data", 2)]);
    let sharding = Sharding::new(&other, PartitionSpec::first("data")).unwrap();
    let elsewhere = Array::upload(client(), &counted(&[2]), &sharding).unwrap();
    refused(
        across.all_reduce(&elsewhere, ReduceOp::Sum, "data"),
        &["is on mesh(data=2)", "mesh(data=2, model=4)"],
    );
}

#[test]
fn barrier_names_late_devices() {
    let mesh = mesh();
    let across = ArrayCollectives::new(client(), &mesh);
    across.barrier("warm up", Duration::from_secs(60)).unwrap();
    let started = Instant::now();
    across.barrier("warm", Duration::from_secs(60)).unwrap();
    // Long for those who have nothing else to do, also on a busy machine.
    let patience = (20 * started.elapsed()).as_millis().max(300) as u64;
    // Only device 5 has much to do, for ten times as long; the others do not wait for it.
    let late = mesh.devices()[5];
    let busy =
        Jit::<_, [Leaf<()>; 2], Leaf<()>>::function(client(), |cx, [Leaf(x), Leaf(iterations)]| {
            let first = [Leaf(x), Leaf(iterations)];
            cx.while_loop(
                first,
                |[_, Leaf(left)]| left.gt(0),
                |[Leaf(x), Leaf(left)]| [Leaf(x.matmul(x).tanh()), Leaf(left - 1)],
            )[0]
        });
    let queue = |iterations: i32| {
        let upload = |host: &HostArray| {
            Array::upload(client(), host, &Sharding::single(late))
                .map(Leaf)
                .unwrap()
        };
        busy.run(&[
            upload(&HostArray::zeros(TensorType::new(DType::F32, [128, 128]))),
            upload(&HostArray::scalar(iterations)),
        ])
        .unwrap()
    };
    queue(1).wait().unwrap();
    let started = Instant::now();
    queue(200).wait().unwrap();
    let iteration = started.elapsed() / 200;
    let result = queue(
        (Duration::from_millis(10 * patience).as_nanos() / iteration.as_nanos().max(1)) as i32,
    );
    let patience = Duration::from_millis(patience);
    let error = across.barrier("epoch 3", patience).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(
        error.message(),
        format!("waited {patience:?} for devices [{}] of 8", late.0)
    );
    assert_eq!(error.op(), "barrier `epoch 3`");
    result.wait().unwrap();
    across.barrier("epoch 3", Duration::from_secs(60)).unwrap();
}
