//! The trace that a profile writes, without a plugin.

use std::{collections::HashMap, fs, path::Path};

use halite_backends::ChromeTrace;
use halite_core::{
    Arg, Array, Client, CompileOptions, DType, HostArray, Mesh, Null, PartitionSpec, Program,
    Sharding, Signature, TensorType,
};
use halite_telemetry::ClientMetrics;
use serde_json::Value;
use tracing::Subscriber;
use tracing_subscriber::{prelude::*, registry::Registry};

/// Events of the trace that `work` writes.
fn profile(work: impl FnOnce()) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let trace = ChromeTrace::create(&path).unwrap();
    with_default(tracing_subscriber::registry().with(trace.layer()), work);
    trace.finish().unwrap();
    events(&path)
}

fn with_default(subscriber: impl Subscriber + Send + Sync, work: impl FnOnce()) {
    tracing::subscriber::with_default(subscriber, work);
}

fn events(path: &Path) -> Vec<Value> {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["name"] == name)
        .collect()
}

/// Names of tracks by process and thread id.
fn tracks(events: &[Value]) -> HashMap<(u64, u64), String> {
    let id = |event: &Value| {
        (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        )
    };
    let name = |event: &Value| event["args"]["name"].as_str().unwrap().to_owned();
    let described = named(events, "thread_name").into_iter();
    described.map(|event| (id(event), name(event))).collect()
}

/// Launches a program on two devices, in four steps.
fn launch_four_steps() {
    let client = Client::new(Null::new(2)).measured();
    let ty = TensorType::new(DType::F32, [2]);
    let program = Program {
        name: "double".into(),
        code: b"module {}".to_vec().into(),
        signature: Signature {
            inputs: vec![ty.clone()],
            outputs: vec![ty],
            donated: vec![],
        },
        partitions: 2,
        replicas: 1,
    };
    let options = CompileOptions {
        devices: client.local_devices(),
        ..CompileOptions::default()
    };
    let double = client.compile(&program, &options).unwrap();
    let mesh = Mesh::new([("data", 2)], client.local_devices()).unwrap();
    let split = Sharding::new(&mesh.into(), PartitionSpec::first("data")).unwrap();
    let host = HostArray::from_slice(&[1.0f32; 4], [4]).unwrap();
    let input = Array::upload(&client, &host, &split).unwrap();
    for step in 0..4u64 {
        let _span = tracing::info_span!("step", step).entered();
        double.launch(vec![Arg::Borrow(input.shards())]).unwrap();
    }
}

#[test]
fn spans_of_other_crates_are_recorded() {
    let events = profile(|| {
        let _span = tracing::info_span!(target: "my_program", "augment", images = 64).entered();
    });
    let spans = named(&events, "augment");
    assert_eq!(spans.len(), 1, "{events:?}");
    assert_eq!(spans[0]["args"]["images"], 64);
}

#[test]
fn log_messages_are_not_recorded() {
    let events = profile(|| tracing::error!(target: "halite::fit", "text"));
    assert!(named(&events, "text").is_empty(), "{events:?}");
}

#[test]
fn every_device_has_a_track() {
    let events = profile(launch_four_steps);
    let tracks = tracks(&events);
    for device in 0..2u64 {
        let runs = named(&events, "execute");
        let here = runs
            .iter()
            .filter(|event| event["args"]["device"] == device);
        let of = |event: &&&Value| tracks[&(2, event["tid"].as_u64().unwrap())].clone();
        let on: Vec<String> = here.map(|event| of(&event)).collect();
        // The first launch has no other before it, from whose end its time could be counted.
        assert_eq!(on, vec![format!("device {device}"); 3]);
    }
}

#[test]
fn launches_have_the_number_of_their_step() {
    let events = profile(launch_four_steps);
    let steps = |device: u64| -> Vec<u64> {
        let runs = named(&events, "execute").into_iter();
        let here = runs.filter(|event| event["args"]["device"] == device);
        here.map(|event| event["args"]["step"].as_u64().unwrap())
            .collect()
    };
    assert_eq!([steps(0), steps(1)], [[1, 2, 3], [1, 2, 3]]);
}

#[test]
fn two_traces_of_one_subscriber_have_the_same_spans() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| dir.path().join(name));
    let [one, two] = paths
        .each_ref()
        .map(|path| ChromeTrace::create(path).unwrap());
    let subscriber = Registry::default().with(one.layer()).with(two.layer());
    with_default(subscriber, || drop(tracing::info_span!("work").entered()));
    for (trace, path) in [one, two].into_iter().zip(paths) {
        trace.finish().unwrap();
        assert_eq!(named(&events(&path), "work").len(), 1);
    }
}
