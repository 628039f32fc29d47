//! Reports of runs on the real plugin: findings with the responsible line or input, dumped
//! programs, and traces.

use std::{collections::HashMap, fs, path::Path, time::Duration};

use halite::{
    backends::{ChromeTrace, OpenOptions},
    data::{Field, InMemory, Mnist, SampleMut},
    fetch::{Bar, Cache},
    models::{Classify, Cnn, ImageModel, Mlp},
    prelude::*,
    train::Fitted,
};
use halite_core::{CompileOptions, ErrorKind, Program, Reason, Sharding, Signature};
use halite_nn::Jit;
use halite_telemetry::{FindingKind, Metric, TelemetryOptions};
use tracing_subscriber::prelude::*;

fn client() -> Client {
    Accelerator::cpu()
        .open()
        .unwrap_or_else(|error| panic!("the tests need the CPU plugin: {error}"))
}

/// A client that writes every program to `dir`.
fn dumping(backend: impl halite_core::Backend, dir: &Path) -> Client {
    let options = TelemetryOptions {
        dump_dir: Some(dir.into()),
        ..TelemetryOptions::default()
    };
    options.attach(Client::new(backend))
}

#[derive(Tree, Clone, Debug)]
struct Batch<L> {
    x: L,
    y: L,
}

/// `rows` of `x: f32[rows, 4]` and `y: f32[rows]`.
fn batch(client: &Client, rows: usize) -> Batch<Array> {
    let device = Sharding::single(client.local_devices()[0]);
    let upload = |dims: &[usize]| {
        let host = HostArray::from_slice(&vec![1.0f32; dims.iter().product()], dims).unwrap();
        Array::upload(client, &host, &device).unwrap()
    };
    Batch {
        x: upload(&[rows, 4]),
        y: upload(&[rows]),
    }
}

fn loss(client: &Client) -> Jit<Empty<()>, Batch<()>, Leaf<()>> {
    Jit::<Empty<()>, Batch<()>, Leaf<()>>::function(client, |_, batch| {
        Leaf((batch.x.sum([1]) - batch.y).square().mean([0]))
    })
    .named("loss")
}

#[test]
fn varying_batch_is_found_with_input_types_line() {
    let client = client();
    let loss = loss(&client);
    let mut line = 0;
    for step in 0..11 {
        let batch = batch(&client, 32 - step);
        let result = loss.run(&batch).unwrap();
        line = line!() - 1;
        result.wait().unwrap();
    }
    let activity = client.metrics().activity();
    let findings = activity.findings();
    assert_eq!(
        findings
            .iter()
            .map(|finding| finding.kind)
            .collect::<Vec<_>>(),
        [FindingKind::CompilesTooFrequent]
    );
    let want = "CompileTime too frequent: `loss` was compiled 11 times in 11 calls: dimension 0 (batch) of `x` and `y` varies: f32[23] -> \
                f32[22]; use one size: pad (with weight 0) or bucket (";
    let message = findings[0].to_string();
    assert!(message.starts_with(want), "{message}");
    assert!(
        message.contains(&format!("reports.rs:{line}:")),
        "{message}"
    );

    let record = &activity.compiles[1];
    assert!(
        matches!(&record.reason, Reason::InputChanged(changes) if changes.len() == 2),
        "{:?}",
        record.reason
    );
    assert_eq!(
        record.reason.to_string(),
        "`x` was f32[32, 4], is f32[31, 4]; `y` was f32[32], is f32[31]"
    );
    assert_eq!((record.inputs, record.outputs), (2, 1));
    assert_eq!(record.memory.unwrap().arguments, 31 * 5 * 4);
    assert!(record.stages.trace > Duration::ZERO && record.stages.compile > Duration::ZERO);
}

#[test]
fn function_made_per_call_is_found_with_its_line() {
    let client = client();
    for _ in 0..10 {
        loss(&client).run(&batch(&client, 8)).unwrap();
    }
    let message = client.metrics().activity().findings()[0].to_string();
    let want = "CompileTime too frequent: `loss` was compiled 10 times in 10 calls: it is created for each call at ";
    assert!(
        message.starts_with(want) && message.contains("reports.rs:"),
        "{message}"
    );
}

#[test]
fn read_in_each_step_is_found_with_its_line() {
    let client = client();
    let (loss, batch) = (loss(&client), batch(&client, 8));
    let (mut line, mut sum) = (0, 0.0);
    for _ in 0..30 {
        let result = loss.run(&batch).unwrap();
        sum += result.read().unwrap().item::<f32>().unwrap();
        line = line!() - 1;
    }
    assert_eq!(sum, 30.0 * 9.0);
    let findings = client.metrics().activity().findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    let message = findings[0].to_string();
    assert!(
        message.starts_with("host read per step: 30 blocking reads in 30 steps at "),
        "{message}"
    );
    assert!(
        message.contains(&format!("reports.rs:{line}:")),
        "{message}"
    );
}

/// A dataset whose samples take a given time.
struct Slow(InMemory, Duration);

impl Dataset for Slow {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fields(&self) -> &[Field] {
        self.0.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        std::thread::sleep(self.1);
        self.0.read(index, into)
    }
}

/// The first `count` handwritten digits.
fn digits(count: usize) -> InMemory {
    let cache = Cache::open(None).unwrap();
    let all = Mnist::Digits
        .test(&cache, &mut Bar::default())
        .unwrap_or_else(|error| panic!("the tests need the digits: {error}"));
    let cut = |array: &HostArray| {
        let dims: Vec<usize> = std::iter::once(count)
            .chain(array.ty().dims()[1..].iter().copied())
            .collect();
        HostArray::from_bytes(
            &array.bytes()[..array.bytes().len() / all.len() * count],
            array.ty().with_dims(dims),
        )
        .unwrap()
    };
    InMemory::new([
        ("image", cut(&all.arrays()[0])),
        ("label", cut(&all.arrays()[1])),
    ])
    .unwrap()
    .named("mnist")
}

fn fit<M: ImageModel>(
    client: &Client,
    model: M::Of<Param>,
    train: impl Dataset + 'static,
) -> Fitted<Classify<M>> {
    let trainer = Trainer::builder(client)
        .epochs(2)
        .batch_size(64)
        .quiet(true)
        .build()
        .unwrap();
    trainer
        .fit(
            Classify::<M>::new(),
            model,
            Adam::new(1e-3),
            train,
            digits(500),
        )
        .unwrap()
}

#[test]
fn report_names_an_input_that_starves_the_device() {
    let model = || Mlp::new(&[784, 128, 10]);
    // A sample takes five times as long as the device does for it, however slow or busy this
    // machine is.
    let plain = fit::<Mlp<()>>(&client(), model(), digits(1000)).report;
    let sample = Duration::from_secs_f64(5.0 * plain.training_seconds / 2000.0)
        .max(Duration::from_micros(500));
    let report = fit::<Mlp<()>>(&client(), model(), Slow(digits(1000), sample)).report;
    let starves =
        |finding: &&String| finding.starts_with("input pipeline starves the device: waited ");
    let finding = report
        .findings
        .iter()
        .find(starves)
        .unwrap_or_else(|| panic!("{report}"));
    assert!(
        finding.contains("(loader, dataset Slow, workers 1); try 4 workers"),
        "{finding}"
    );
    let text = report.to_string();
    assert!(text.contains("\nnote  "), "{report}");
    // The finding has the share of the table.
    let waits = text.lines().find(|line| line.starts_with("input wait"));
    let share = &waits.unwrap()[waits.unwrap().find('(').unwrap()..];
    assert!(finding.contains(share), "{share} in {finding}");
    assert!(
        report.input_wait_seconds > 0.5 * report.training_seconds,
        "{report}"
    );
    assert!(
        report.device_busy_seconds.unwrap() < 0.5 * report.training_seconds,
        "{report}"
    );
}

#[test]
fn plain_run_has_no_findings() {
    let client = client();
    let report = fit::<Cnn<()>>(&client, Cnn::new(28, 10), digits(1500)).report;
    // On a slow or busy machine the run takes minutes, most of them for compiling, which is a
    // finding then.
    let mut findings = client.metrics().activity().findings();
    findings.retain(|finding| finding.kind != FindingKind::CompileShare);
    assert!(findings.is_empty(), "{findings:?}, {report}");
    assert!(report.findings.len() <= 1, "{report}");
    let busy = report.device_busy_seconds.unwrap() / report.training_seconds;
    assert!(busy > 0.0 && busy <= 1.0, "{report}");
    let activity = client.metrics().activity();
    assert_eq!(activity.steps, 2 * 23);
    for name in ["init", "train step", "evaluate"] {
        let record = activity
            .compiles
            .iter()
            .find(|record| *record.function == *name)
            .unwrap();
        assert!(
            record.origin.unwrap().file().ends_with("reports.rs"),
            "{record:?}"
        );
    }
    assert!(client.metrics().timer(Metric::Execute).timing().count > 0);
    assert_eq!(
        client.metrics().timer(Metric::InputWait).timing().count,
        2 * (23 + 8)
    );
}

#[test]
fn error_names_the_file_of_a_rejected_program() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = Accelerator::cpu()
        .open_with(&OpenOptions::default(), &mut Bar::default())
        .expect("the CPU plugin")
        .driver
        .plugin()
        .expect("a plugin");
    let client = dumping(plugin.client(vec![]).unwrap(), directory.path());
    let code = "module { what is this }";
    let program = Program {
        name: "odd one".into(),
        code: code.as_bytes().into(),
        signature: Signature::default(),
        partitions: 1,
        replicas: 1,
    };
    let error = client
        .compile(&program, &CompileOptions::default())
        .unwrap_err();
    let path = error
        .message()
        .split("the program is in ")
        .nth(1)
        .unwrap_or_else(|| panic!("{error}"));
    assert!(path.ends_with("-odd_one.mlir"), "{error}");
    assert_eq!(fs::read_to_string(path).unwrap(), code);
}

#[test]
fn out_of_memory_error_lists_the_largest_tensors() {
    let client = client();
    let huge = Jit::<Empty<()>, Leaf<()>, Leaf<()>>::function(&client, |_, Leaf(x)| {
        Leaf(x.broadcast_to([1 << 21, 1 << 21]).exp())
    })
    .named("huge");
    let x = Array::upload(
        &client,
        &HostArray::scalar(1.0f32),
        &Sharding::single(client.local_devices()[0]),
    )
    .unwrap();
    let error = huge.run(&Leaf(x)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    for part in [
        "launch on cpu: `huge`: ",
        "its largest tensors: broadcast f32[2097152, 2097152], 17.6 TB (",
        "; exponential f32[2097152, 2097152], 17.6 TB (",
        "reports.rs:",
        "what helps: a smaller batch, more devices",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert!(
        !error.to_string().contains("the input"),
        "four bytes are not the reason: {error}"
    );
}

#[test]
fn out_of_memory_error_of_a_result_lists_the_largest_tensors() {
    // The embedded executor allocates when the program runs, after the launch.
    let client = Accelerator::Embedded { devices: Some(1) }
        .open()
        .unwrap()
        .with_other_users(|| Some("4242 has the device open".into()));
    let huge = Jit::<Empty<()>, Leaf<()>, Leaf<()>>::function(&client, |_, Leaf(x)| {
        Leaf(x.broadcast_to([1 << 22, 1 << 22]).exp())
    })
    .named("huge");
    let x = Array::scalar(&client, 1.0f32).unwrap();
    let result = huge.run(&Leaf(x)).unwrap();
    let error = result.fetch().unwrap().wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    for part in [
        "`huge`'s largest tensors: ",
        "exponential f32[4194304, 4194304], 70.4 TB (",
        "reports.rs:",
        "4242 has the device open",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn dump_has_graph_program_optimized_program_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let opened = Accelerator::cpu()
        .open_with(&Default::default(), &mut Bar::default())
        .unwrap();
    let client = dumping(
        opened
            .driver
            .plugin()
            .expect("a plugin")
            .client(vec![("cpu_device_count".into(), 1i64.into())])
            .unwrap(),
        dir.path(),
    );
    loss(&client).run(&batch(&client, 8)).unwrap();
    let file = |end: &str| {
        let entries = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let found: Vec<_> = entries
            .filter(|path| path.to_str().unwrap().ends_with(end))
            .collect();
        assert_eq!(found.len(), 1, "{end}: {found:?}");
        assert!(
            found[0].to_str().unwrap().contains("-0000-")
                && found[0].to_str().unwrap().contains("-loss."),
            "{found:?}"
        );
        fs::read(&found[0]).unwrap()
    };
    let text = |end: &str| String::from_utf8(file(end)).unwrap();
    assert!(
        text(".graph.txt").contains("f32[8, 4]") && text(".graph.txt").contains("reports.rs:"),
        "{}",
        text(".graph.txt")
    );
    assert!(text(".stablehlo.mlir").contains("stablehlo.reduce"));
    assert!(file(".optimized.hlo.pb").len() > 100);
    let sizes: serde_json::Value = serde_json::from_slice(&file(".json")).unwrap();
    assert_eq!(
        (&sizes["function"], &sizes["reason"], &sizes["cached"]),
        (&"loss".into(), &"first call".into(), &false.into())
    );
    assert_eq!(sizes["bytes"]["input"], 8 * 5 * 4);
    assert!(
        sizes["origin"].as_str().unwrap().contains("reports.rs:"),
        "{sizes}"
    );
}

/// Records a training run of ten steps and a program of its own.
fn record_run(out: &Path, trace: &Path) {
    let trace = ChromeTrace::create(trace).unwrap();
    // For all threads, so that the loader, the uploads and the checkpoint writer are recorded.
    tracing_subscriber::registry().with(trace.layer()).init();
    let client = client();
    let trainer = Trainer::builder(&client)
        .batch_size(64)
        .quiet(true)
        .out(out)
        .build()
        .unwrap();
    let (task, optimizer) = (Classify::<Cnn<()>>::new(), Adam::new(1e-3));
    let (train, validation) = (digits(640), digits(100));
    trainer
        .fit(task, Cnn::new(28, 10), optimizer, train, validation)
        .unwrap();
    // The trace of this program is recorded even if other tests have compiled theirs before.
    let loss = loss(&client).run(&batch(&client, 3)).unwrap();
    loss.read().unwrap();
    trace.finish().unwrap();
}

#[test]
fn trace_has_a_track_for_each_thread_of_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    record_run(&dir.path().join("run"), &path);
    let trace = Recorded::read(&path);
    let current = std::thread::current();
    let here = current.name().unwrap();
    for (name, thread) in [
        ("trace", here),
        ("print", here),
        ("compile", here),
        ("step", here),
        ("launch", here),
        ("wait for data", here),
        ("validate", here),
        ("read", here),
        ("upload", "halite-upload"),
        ("checkpoint", "checkpoint writer"),
        ("execute", "device 0"),
        ("fetch", "device 0"),
    ] {
        let threads = trace.threads_of(name);
        assert!(threads.contains(&thread), "{name} is on {threads:?}");
    }
    let mut events = trace.0.iter();
    let step = events
        .find(|event| event["name"] == "launch" && event["args"]["program"] == "train step")
        .unwrap();
    assert!(
        step["dur"].as_f64().unwrap() > 0.0 && step["ts"].as_f64().unwrap() > 0.0,
        "{step}"
    );
    let is_last_step =
        |event: &serde_json::Value| event["name"] == "execute" && event["args"]["step"] == 10;
    assert!(trace.0.iter().any(is_last_step), "the run has 10 steps");
    assert!(ChromeTrace::create(dir.path().join("none/trace.json")).is_err());
}

/// Events of a trace.
struct Recorded(Vec<serde_json::Value>);

impl Recorded {
    fn read(path: &Path) -> Self {
        Recorded(serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
    }

    /// Names of the threads with an event of this name.
    fn threads_of(&self, name: &str) -> Vec<&str> {
        let id = |event: &serde_json::Value| ["pid", "tid"].map(|key| event[key].as_u64().unwrap());
        let threads: HashMap<[u64; 2], &str> = (self.0.iter())
            .filter(|event| event["name"] == "thread_name")
            .map(|event| (id(event), event["args"]["name"].as_str().unwrap()))
            .collect();
        let named = self.0.iter().filter(|event| {
            event["name"] == name && ["X", "b"].contains(&event["ph"].as_str().unwrap())
        });
        let mut found: Vec<&str> = named.map(|event| threads[&id(event)]).collect();
        found.dedup();
        found
    }
}
