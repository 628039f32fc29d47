//! Metrics and findings of clients on the null backend.

use std::{sync::Arc, time::Duration};

use halite_core::{
    Arg, Array, Client, CompileOptions, HostArray, Null, Program, Sharding, Signature, TensorType,
};
use halite_telemetry::{
    Activity, ClientMetrics, FindingKind, InputActivity, InputSource, Metric, Metrics,
    TelemetryOptions,
};

fn program(name: &str) -> Program {
    let ty = TensorType::new(halite_core::DType::F32, [2]);
    let signature = Signature {
        inputs: vec![ty.clone()],
        outputs: vec![ty],
        donated: vec![],
    };
    Program {
        name: name.into(),
        code: b"module {}".to_vec().into(),
        signature,
        partitions: 1,
        replicas: 1,
    }
}

fn upload(client: &Client) -> Array {
    let device = Sharding::single(client.local_devices()[0]);
    Array::upload(
        client,
        &HostArray::from_slice(&[1.0f32, 2.0], [2]).unwrap(),
        &device,
    )
    .unwrap()
}

fn kinds(activity: &Activity) -> Vec<FindingKind> {
    activity
        .findings()
        .into_iter()
        .map(|finding| finding.kind)
        .collect()
}

#[test]
fn read_in_every_step_is_found_with_its_line() {
    let client = Client::new(Null::new(1)).measured();
    let step = client
        .compile(&program("step"), &CompileOptions::default())
        .unwrap();
    let input = upload(&client);
    let mut line = 0;
    for _ in 0..20 {
        let launched = step.launch(vec![Arg::Borrow(input.shards())]).unwrap();
        launched[0].first().read(&mut [0; 8]).unwrap();
        line = line!() - 1;
    }
    let findings = client.metrics().activity().findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    let message = findings[0].to_string();
    assert!(
        message.starts_with("host read per step: 20 blocking reads in 20 steps at "),
        "{message}"
    );
    assert!(
        message.contains(&format!("metrics.rs:{line}:")),
        "{message}"
    );
}

#[test]
fn read_every_tenth_step_is_not_reported() {
    let client = Client::new(Null::new(1)).measured();
    let step = client
        .compile(&program("step"), &CompileOptions::default())
        .unwrap();
    let input = upload(&client);
    for index in 0..100 {
        let launched = step.launch(vec![Arg::Borrow(input.shards())]).unwrap();
        if index % 10 == 0 {
            launched[0].first().read(&mut [0; 8]).unwrap();
        }
    }
    assert_eq!(kinds(&client.metrics().activity()), []);
}

#[test]
fn compilation_for_every_launch_is_found() {
    let client = Client::new(Null::new(1)).measured();
    let input = upload(&client);
    for _ in 0..11 {
        let step = client
            .compile(&program("step"), &CompileOptions::default())
            .unwrap();
        step.launch(vec![Arg::Borrow(input.shards())]).unwrap();
    }
    let message = client.metrics().activity().findings()[0].to_string();
    assert!(
        message.starts_with("CompileTime too frequent: `step` was compiled 11 times in 11 calls: "),
        "{message}"
    );
    assert!(
        message.contains("reuse what it returns") && message.contains("metrics.rs:"),
        "{message}"
    );
}

#[test]
fn many_uploads_per_step_are_found_with_their_line() {
    let client = Client::new(Null::new(1)).measured();
    let step = client
        .compile(&program("step"), &CompileOptions::default())
        .unwrap();
    for _ in 0..10 {
        let many: Vec<Array> = (0..40).map(|_| upload(&client)).collect();
        step.launch(vec![Arg::Borrow(many[0].shards())]).unwrap();
    }
    let message = client.metrics().activity().findings()[0].to_string();
    assert!(
        message.starts_with("TransferToDevice too frequent: 40 uploads per step"),
        "{message}"
    );
    assert!(
        message.contains("100 % of them at ") && message.contains("metrics.rs:"),
        "{message}"
    );
}

/// Activity that waited `waited` of ten seconds for 100 batches.
fn fed(waited: Duration, workers: usize) -> Activity {
    let input = InputActivity {
        dataset: "crops".into(),
        workers,
        batches: 100,
        waited,
        waited_first: Duration::ZERO,
        of: Duration::from_secs(10),
    };
    Activity {
        time: Duration::from_secs(10),
        inputs: vec![input],
        ..Activity::default()
    }
}

#[test]
fn slow_input_is_reported_with_its_workers() {
    let message = fed(Duration::from_millis(4300), 1).findings()[0].to_string();
    let want = "input pipeline starves the device: waited 4.30 s of 10.0 s (43 %) for the \
                next of 100 batches (loader, dataset crops, workers 1); try 4 workers";
    assert_eq!(message, want);
    assert_eq!(kinds(&fed(Duration::from_millis(1500), 1)), []);
    let many = fed(Duration::from_secs(9), 4096).findings()[0].to_string();
    assert!(
        many.ends_with(
            "more workers would not help; do less work in `Dataset::read`, or use a faster disk"
        ),
        "{many}"
    );
}

#[test]
fn wait_for_the_first_batch_is_not_reported() {
    let client = Client::new(Null::new(1)).measured();
    let input: Arc<InputSource> = client.metrics().input("crops", 1);
    client
        .metrics()
        .input_waited(&input, Duration::from_secs(100), None);
    for _ in 0..20 {
        client.metrics().input_waited(
            &input,
            Duration::from_nanos(10),
            Some(Duration::from_secs(1)),
        );
    }
    assert_eq!(kinds(&client.metrics().activity()), []);
    assert_eq!(client.metrics().timer(Metric::InputWait).timing().count, 21);
    client.metrics().input_waited(
        &input,
        Duration::from_secs(90),
        Some(Duration::from_secs(100)),
    );
    // The client itself is milliseconds old: its age is not what the wait is a share of.
    let findings = client.metrics().activity().findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    let waited = "waited 90.0 s of 120 s (75 %)";
    assert!(findings[0].message.contains(waited), "{}", findings[0]);
}

/// A measured client that launched a program this many times.
fn launched(count: usize) -> Client {
    let client = Client::new(Null::new(1)).measured();
    let step = client
        .compile(&program("step"), &CompileOptions::default())
        .unwrap();
    let input = upload(&client);
    for _ in 0..count {
        step.launch(vec![Arg::Borrow(input.shards())]).unwrap();
    }
    client
}

#[test]
fn report_lists_timers_with_counters() {
    let client = launched(1234);
    let metrics = client.metrics();
    metrics.named_timer("Augment").add(Duration::from_millis(3));
    metrics
        .counter("Crops")
        .fetch_add(7, std::sync::atomic::Ordering::Relaxed);
    let report = metrics.report();
    let line = |name: &str| {
        report
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name))
            .unwrap_or_default()
    };
    assert!(line("metric").contains("99 %"), "{report}");
    assert_eq!(line("Launches").split_whitespace().nth(1), Some("1,234"));
    assert_eq!(line("LaunchTime").split_whitespace().nth(1), Some("1,234"));
    assert_eq!(
        line("Augment").split_whitespace().collect::<Vec<_>>()[1..5],
        ["1", "3.00", "ms", "3.00"]
    );
    assert_eq!(line("Crops").split_whitespace().nth(1), Some("7"));
    assert_eq!(line("TransferFromDevice"), "", "nothing was read");
    assert_eq!(
        metrics.short_report(&["Crops"]),
        "counter  value\nCrops        7\n"
    );
    assert_eq!(metrics.count("Uploads"), Some(1));
    assert_eq!(metrics.timing("CompileTime").unwrap().count, 1);
    assert!(
        metrics.timer_names().contains(&"Augment".to_string())
            && metrics.counter_names().contains(&"Compiles".to_string())
    );
}

#[test]
fn clear_resets_metrics_but_not_client_counters() {
    let client = launched(3);
    let metrics = client.metrics();
    metrics.clear();
    assert_eq!(metrics.count("Launches"), Some(0));
    assert_eq!(metrics.timing("LaunchTime").unwrap().count, 0);
    assert!(metrics.activity().functions.is_empty() && metrics.activity().compiles.is_empty());
    assert_eq!(client.counters().snapshot().launches, 3);
    let step = client
        .compile(&program("step"), &CompileOptions::default())
        .unwrap();
    let input = upload(&client);
    step.launch(vec![Arg::Borrow(input.shards())]).unwrap();
    assert_eq!(metrics.count("Launches"), Some(1));
}

#[test]
fn some_of_successive_launches_are_timed() {
    let client = Client::new(Null::new(1)).measured();
    let step = client
        .compile(&program("step"), &CompileOptions::default())
        .unwrap();
    let input = upload(&client);
    for _ in 0..10 {
        step.launch(vec![Arg::Borrow(input.shards())]).unwrap();
    }
    let activity = client.metrics().activity();
    let function = &activity.functions[0];
    assert_eq!((function.launches, function.compiles), (10, 1));
    // A slow machine may take more than the 10 ms between two that are timed.
    assert!((1..10).contains(&function.timed), "{function:?}");
    assert!(activity.device_busy().is_some());
}

#[test]
fn dump_has_the_program_with_its_sizes() {
    let dir = std::env::temp_dir().join(format!("halite-dump-test-{}", std::process::id()));
    let options = TelemetryOptions {
        dump_dir: Some(dir.clone()),
        ..TelemetryOptions::default()
    };
    let client = options.attach(Client::new(Null::new(1)));
    assert!(client.wants_graph());
    client
        .compile(&program("train step"), &CompileOptions::default())
        .unwrap();
    let mut names: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    // The digest is that of `printf 'module {}' | sha256sum`.
    let stem = format!("{}-0000-fd224b3138074712-train_step", std::process::id());
    assert_eq!(
        names,
        [format!("{stem}.json"), format!("{stem}.stablehlo.mlir")]
    );
    assert_eq!(std::fs::read(dir.join(&names[1])).unwrap(), b"module {}");
    let sizes = std::fs::read_to_string(dir.join(&names[0])).unwrap();
    assert!(
        sizes.contains("\"function\": \"train step\"") && sizes.contains("metrics.rs:"),
        "{sizes}"
    );
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn client_without_observers_is_not_measured() {
    let client = Client::new(Null::new(1));
    assert!(Metrics::of(&client).is_none());
    assert!(!client.wants_graph());
    let (id, client) = (client.id(), client.measured());
    assert_eq!(client.id(), id);
    assert!(Metrics::of(&client).is_some());
}

#[test]
fn buffers_of_the_unmeasured_client_stay_usable() {
    let plain = Client::new(Null::new(1));
    let input = upload(&plain);
    let client = plain.measured();
    let step = client
        .compile(&program("step"), &CompileOptions::default())
        .unwrap();
    step.launch(vec![Arg::Borrow(input.shards())]).unwrap();
    assert_eq!(client.counters().snapshot().launches, 1);
}

#[test]
fn rejected_program_is_written_only_on_request() {
    let mut rejected = program("odd one");
    rejected.partitions = 2; // more than the client has devices
    let compile = |options: TelemetryOptions| {
        let client = options.attach(Client::new(Null::new(1)));
        let error = client.compile(&rejected, &CompileOptions::default());
        error.unwrap_err().to_string()
    };
    let error = compile(TelemetryOptions::default());
    assert!(
        error.contains("set HALITE_DUMP_DIR=DIR to write the program") && !error.contains(".mlir"),
        "{error}"
    );
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let error = compile(TelemetryOptions {
            dump_dir: Some(directory.path().into()),
            ..TelemetryOptions::default()
        });
        let path = error.split("the program is in ").nth(1);
        let path = path.unwrap_or_else(|| panic!("{error}"));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "module {}");
    }
}
