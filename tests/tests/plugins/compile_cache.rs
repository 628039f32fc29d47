//! The compile cache on the real plugin: which programs have the same key, and the behaviour of
//! loaded programs.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use halite::{
    backends::{Accelerator, CompileCacheOptions, OpenOptions},
    fetch::Bar,
};
use halite_core::{
    Arg, Array, CachedProgram, Client, CompileOptions, Compiled, DType, DeviceId, Error, FlagValue,
    HostArray, Loaded, Mesh, PartitionSpec, Program, ProgramCache, ProgramKey, Result, Sharding,
    TensorType,
};
use halite_ir::{BinaryOp, DotAttributes, Graph, Interface, Op, Port, UnaryOp, program};
use halite_telemetry::ClientMetrics;

/// A client of eight devices with a compile cache in `directory`.
fn client(directory: &Path) -> Client {
    let cache = CompileCacheOptions {
        directory: Some(directory.into()),
        ..CompileCacheOptions::default()
    };
    let options = OpenOptions {
        compile_cache: Some(cache),
        ..OpenOptions::default()
    };
    Accelerator::Cpu { devices: Some(8) }
        .open_with(&options, &mut Bar::default())
        .expect("the CPU plugin")
        .client
}

/// `w - x.T @ tanh(x @ w)`, with `w` donated, over `mesh`: `x` by rows.
fn step(mesh: &Arc<Mesh>) -> (Program, Arc<Sharding>, Arc<Sharding>) {
    let (x_ty, w_ty) = (
        TensorType::new(DType::F32, [16, 8]),
        TensorType::new(DType::F32, [8, 8]),
    );
    let mut graph = Graph::new();
    let (w, x) = (graph.input(w_ty), graph.input(x_ty));
    let mut push = |op: Op, inputs: &[_]| {
        graph
            .push(op, inputs, Some(std::panic::Location::caller()))
            .unwrap()[0]
    };
    let dot = |left: usize| {
        let (lhs_contracting, rhs_contracting) = (vec![left], vec![0]);
        Op::Dot(
            DotAttributes {
                lhs_batching: vec![],
                rhs_batching: vec![],
                lhs_contracting,
                rhs_contracting,
                ..DotAttributes::default()
            },
            DType::F32,
        )
    };
    let y = push(dot(1), &[x, w]);
    let y = push(Op::Unary(UnaryOp::Tanh), &[y]);
    let update = push(dot(0), &[x, y]);
    let next = push(Op::Binary(BinaryOp::Subtract), &[w, update]);
    graph.set_outputs(vec![next]);
    let rows = if mesh.size() > 1 {
        PartitionSpec::first("data")
    } else {
        PartitionSpec::replicated()
    };
    let port = |spec: &PartitionSpec| Port {
        name: Some("w".into()),
        spec: Some(spec.clone()),
    };
    let whole = PartitionSpec::replicated();
    let interface = Interface {
        mesh: Some(mesh.shape().clone()),
        inputs: vec![port(&whole), port(&rows)],
        outputs: vec![port(&whole)],
        aliases: vec![(0, 0)],
        ..Interface::new("a step")
    };
    let sharding = |spec| Sharding::new(mesh, spec).unwrap();
    (
        program(&graph, &interface).unwrap(),
        sharding(whole),
        sharding(rows),
    )
}

fn noise(dims: [usize; 2]) -> HostArray {
    let values: Vec<f32> = (0..dims[0] * dims[1])
        .map(|i| ((i * 37 % 101) as f32 - 50.0) / 60.0)
        .collect();
    HostArray::from_slice(&values, dims).unwrap()
}

/// The weights after some steps, each of which reuses the memory of the one before.
fn train(
    client: &Client,
    loaded: &Loaded,
    whole: &Arc<Sharding>,
    rows: &Arc<Sharding>,
) -> HostArray {
    let x = Array::upload(client, &noise([16, 8]), rows).unwrap();
    let mut w = Array::upload(client, &noise([8, 8]), whole).unwrap();
    for _ in 0..20 {
        let args = vec![Arg::Donate(w.into_shards()), Arg::Borrow(x.shards())];
        let shards = loaded.launch(args).unwrap().remove(0);
        w = Array::from_shards(TensorType::new(DType::F32, [8, 8]), whole, shards).unwrap();
    }
    w.read().unwrap()
}

#[test]
fn loaded_program_behaves_as_the_compiled_one() {
    for devices in [1, 8] {
        let directory = tempfile::tempdir().unwrap();
        let run = |client: &Client| {
            let local = client.local_devices();
            let mesh = match devices {
                1 => Mesh::single(local[3]),
                // In reverse order.
                count => Mesh::new([("data", count)], local.into_iter().rev()).unwrap(),
            };
            let (program, whole, rows) = step(&Arc::new(mesh));
            let options = CompileOptions {
                devices: whole.mesh().devices().to_vec(),
                ..Default::default()
            };
            let loaded = client.compile(&program, &options).unwrap();
            let weights = train(client, &loaded, &whole, &rows);
            let used = loaded.memory().unwrap();
            (
                weights,
                loaded.devices().to_vec(),
                loaded.signature().clone(),
                (used.arguments, used.outputs, used.aliased, used.temporary),
            )
        };
        let (first, second) = (client(directory.path()), client(directory.path()));
        let compiled = run(&first);
        let loaded = run(&second);
        assert_eq!(compiled, loaded, "{devices} devices");
        assert_eq!(compiled.3.2, 8 * 8 * 4, "the weights are updated in place");
        let (first, second) = (first.counters().snapshot(), second.counters().snapshot());
        assert_eq!(
            (first.compiles, first.cache_hits, first.cache_misses),
            (1, 0, 1)
        );
        assert_eq!(
            (second.compiles, second.cache_hits, second.cache_misses),
            (0, 1, 0)
        );
        assert!(
            second.cached_bytes > 1000 && second.compile_time_saved > Duration::ZERO,
            "{second:?}"
        );
    }
}

/// `maximum(x, x + x)` as handwritten text, of which every word can be replaced.
fn text(code: &str) -> Program {
    let ty = TensorType::new(DType::F32, [4]);
    let signature = halite_core::Signature {
        inputs: vec![ty.clone()],
        outputs: vec![ty],
        donated: vec![],
    };
    Program {
        name: "handwritten".into(),
        code: code.as_bytes().into(),
        signature,
        partitions: 1,
        replicas: 1,
    }
}

const CODE: &str = "module @hand {
  func.func public @main(%x: tensor<4xf32> loc(\"weights\")) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %x : tensor<4xf32> loc(#loc1)
    %1 = stablehlo.maximum %x, %0 : tensor<4xf32> loc(#loc2)
    return %1 : tensor<4xf32>
  }
}
#loc1 = loc(\"model.rs\":10:5)
#loc2 = loc(\"model.rs\":11:5)
";

#[test]
fn key_depends_on_everything_but_locations() {
    let directory = tempfile::tempdir().unwrap();
    let client = client(directory.path());
    let hits = |program: &Program, options: &CompileOptions| {
        let before = client.counters().snapshot();
        client.compile(program, options).unwrap();
        client.counters().snapshot().cache_hits - before.cache_hits == 1
    };
    let plain = CompileOptions::default();
    let flag = |value| CompileOptions {
        flags: vec![("xla_cpu_enable_fast_min_max".into(), FlagValue::Bool(value))],
        ..plain.clone()
    };
    assert!(!hits(&text(CODE), &plain));
    assert!(hits(&text(CODE), &plain));
    let moved = CODE.replace(":10:", ":99:").replace("model.rs", "other.rs");
    assert!(hits(&text(&moved), &plain), "a line was added");
    // Two operations with the same location.
    let joined = CODE
        .replace("#loc2)", "#loc1)")
        .replace("#loc2 = loc(\"model.rs\":11:5)\n", "");
    assert!(hits(&text(&joined), &plain));
    assert!(hits(&text(CODE), &flag(false)), "the default of halite");

    let multiplied = CODE.replace("stablehlo.add", "stablehlo.multiply");
    assert!(!hits(&text(&multiplied), &plain));
    assert!(!hits(&text(CODE), &flag(true)));
    let elsewhere = CompileOptions {
        devices: vec![DeviceId(5)],
        ..plain.clone()
    };
    assert!(!hits(&text(CODE), &elsewhere));
    let mut donated = text(&CODE.replace(
        "tensor<4xf32> loc(\"weights\")",
        "tensor<4xf32> {tf.aliasing_output = 0 : i32}",
    ));
    donated.signature.donated = vec![0];
    assert!(!hits(&donated, &plain));
}

#[test]
fn program_with_a_dump_flag_is_not_cached() {
    let directory = tempfile::tempdir().unwrap();
    let client = client(directory.path());
    client
        .compile(&text(CODE), &CompileOptions::default())
        .unwrap();
    let dumps = tempfile::tempdir().unwrap();
    let flag = (
        "xla_dump_to".to_owned(),
        FlagValue::Str(dumps.path().to_str().unwrap().to_owned()),
    );
    let dumping = CompileOptions {
        flags: vec![flag],
        ..CompileOptions::default()
    };
    let before = client.counters().snapshot();
    client.compile(&text(CODE), &dumping).unwrap();
    let after = client.counters().snapshot();
    assert_eq!(
        (after.cache_hits, after.cache_misses),
        (before.cache_hits, before.cache_misses),
        "the cache is not searched"
    );
    assert!(dumps.path().read_dir().unwrap().next().is_some());
}

#[test]
fn program_is_found_while_a_client_is_created() {
    let directory = tempfile::tempdir().unwrap();
    let (client, plain) = (self::client(directory.path()), CompileOptions::default());
    client.compile(&text(CODE), &plain).unwrap();
    let creating = AtomicBool::new(true);
    let loads = std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..10).for_each(|_| drop(self::client(directory.path())));
            creating.store(false, Relaxed);
        });
        let more = || {
            creating
                .load(Relaxed)
                .then(|| client.compile(&text(CODE), &plain).unwrap())
        };
        std::iter::from_fn(more).count() as u64
    });
    let counters = client.counters().snapshot();
    assert_eq!((counters.cache_hits, counters.cache_misses), (loads, 1));
}

/// A cache in memory, whose entries a test can replace.
#[derive(Debug, Default)]
struct InMemory {
    programs: Mutex<HashMap<ProgramKey, CachedProgram>>,
    refused: Mutex<Vec<String>>,
}

impl ProgramCache for InMemory {
    fn find(&self, key: &ProgramKey) -> Option<CachedProgram> {
        self.programs.lock().unwrap().get(key).cloned()
    }
    fn insert(
        &self,
        key: &ProgramKey,
        compiled: &Compiled<'_>,
        serialize: &dyn Fn() -> Result<Vec<u8>>,
    ) {
        assert_eq!((compiled.name, compiled.platform), ("handwritten", "cpu"));
        let program = CachedProgram {
            serialized: serialize().unwrap(),
            compile_time: compiled.compile_time,
        };
        self.programs.lock().unwrap().insert(*key, program);
    }
    fn rejected(&self, key: &ProgramKey, reason: &Error) {
        self.programs.lock().unwrap().remove(key);
        self.refused.lock().unwrap().push(reason.to_string());
    }
}

#[test]
fn rejected_entry_is_compiled_again() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Arc::new(InMemory::default());
    let client = client(directory.path()).with_program_cache(cache.clone());
    client
        .compile(&text(CODE), &CompileOptions::default())
        .unwrap();
    let damages: [fn(&mut Vec<u8>); 3] = [
        |bytes| bytes.truncate(100),
        |bytes| bytes[200] ^= 1,
        |bytes| *bytes = b"foreign".to_vec(),
    ];
    for damage in damages {
        cache
            .programs
            .lock()
            .unwrap()
            .values_mut()
            .for_each(|kept| damage(&mut kept.serialized));
        let loaded = client
            .compile(&text(CODE), &CompileOptions::default())
            .unwrap();
        let x = Array::upload(
            &client,
            &HostArray::from_slice(&[1f32, -2., 0., 4.], [4]).unwrap(),
            &Sharding::single(DeviceId(0)),
        );
        let outputs = loaded
            .launch(vec![Arg::Borrow(x.unwrap().shards())])
            .unwrap();
        let mut bytes = [0; 16];
        outputs[0].first().read(&mut bytes).unwrap();
        assert_eq!(
            bytes,
            HostArray::from_slice(&[2f32, -2., 0., 8.], [4])
                .unwrap()
                .bytes()
        );
    }
    assert_eq!(cache.refused.lock().unwrap().len(), 3);
    let counted = client.counters().snapshot();
    assert_eq!(
        (counted.compiles, counted.cache_hits, counted.cache_misses),
        (4, 0, 4)
    );
    client
        .compile(&text(CODE), &CompileOptions::default())
        .unwrap();
    assert_eq!(client.counters().snapshot().cache_hits, 1);
    assert!(
        directory.path().read_dir().unwrap().next().is_none(),
        "a client has one cache"
    );
}
