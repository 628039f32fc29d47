//! Observers: what they see of a client, and what they do not change.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use halite_core::{
    Arg, Array, Client, Code, Compilation, CompileOptions, DType, Error, ExecutableSource,
    HostArray, LaunchObserver, Loaded, Null, Observer, Program, QueuedLaunch, Result, Sharding,
    Signature, TensorType, Transfer,
};

/// Records the name of every call, with the line of the caller where there is one.
#[derive(Clone, Debug, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn add(&self, call: impl Into<String>) {
        self.0.lock().unwrap().push(call.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Recorder {
    fn compiled(&self, compilation: &Compilation<'_>) -> Option<Box<dyn LaunchObserver>> {
        assert_eq!(compilation.source, ExecutableSource::Compiler);
        self.add(format!("compiled {}", compilation.loaded.name()));
        Some(Box::new(self.clone()))
    }

    fn compile_failed(&self, _: &Program, _: &Error) -> Option<String> {
        Some("seen by an observer".into())
    }

    fn uploaded(&self, transfer: &Transfer) {
        self.add(format!(
            "uploaded {} at {}",
            transfer.bytes,
            transfer.caller.unwrap().line()
        ));
    }

    fn read(&self, transfer: &Transfer) {
        self.add(format!(
            "read {} at {}",
            transfer.bytes,
            transfer.caller.unwrap().line()
        ));
    }

    fn fetch_queued(&self) {
        self.add("fetch queued");
    }

    fn fetched(&self, transfer: &Transfer) {
        self.add(format!("fetched {}", transfer.bytes));
    }
}

impl LaunchObserver for Recorder {
    fn launched(&self, launch: &QueuedLaunch<'_>) {
        assert!(launch.queued >= launch.started && launch.outputs.len() == 1);
        self.add(format!("launched at {}", launch.caller.line()));
    }
}

fn identity(client: &Client, partitions: usize) -> Result<Loaded> {
    let ty = TensorType::new(DType::F32, [2]);
    let program = Program {
        name: "identity".into(),
        code: Code::from(""),
        signature: Signature {
            inputs: vec![ty.clone()],
            outputs: vec![ty],
            donated: vec![],
        },
        partitions,
        replicas: 1,
    };
    client.compile(&program, &CompileOptions::default())
}

fn host() -> HostArray {
    HostArray::from_slice(&[1.0f32, 2.0], [2]).unwrap()
}

#[test]
fn observer_sees_all_work_with_the_callers_lines() {
    let recorder = Recorder::default();
    let client = Client::new(Null::new(1)).with_observer(recorder.clone());
    let device = Sharding::single(client.local_devices()[0]);
    let array = Array::upload(&client, &host(), &device).unwrap();
    let uploaded = format!("uploaded 8 at {}", line!() - 1);
    let loaded = identity(&client, 1).unwrap();
    loaded.launch(vec![Arg::Borrow(array.shards())]).unwrap();
    let launched = format!("launched at {}", line!() - 1);
    array.read().unwrap();
    let read = format!("read 8 at {}", line!() - 1);
    array.fetch().unwrap().wait().unwrap();
    let expected = [
        uploaded.as_str(),
        "compiled identity",
        &launched,
        &read,
        "fetch queued",
        "fetched 8",
    ];
    assert_eq!(recorder.take(), expected);
}

#[test]
fn every_observer_is_called() {
    let recorders = [Recorder::default(), Recorder::default()];
    let client = Client::new(Null::new(1));
    let client = recorders.iter().fold(client, |client, recorder| {
        client.with_observer(recorder.clone())
    });
    identity(&client, 1).unwrap();
    assert!(client.observer::<Recorder>().is_some());
    for recorder in recorders {
        assert_eq!(recorder.take(), ["compiled identity"]);
    }
}

#[test]
fn note_of_an_observer_is_part_of_the_error() {
    let client = Client::new(Null::new(1)).with_observer(Recorder::default());
    let error = identity(&client, 2).unwrap_err().to_string();
    assert!(error.ends_with("; seen by an observer"), "{error}");
}

/// Counts the uploads of a client.
#[derive(Clone, Debug, Default)]
struct Uploads(Arc<AtomicU64>);

impl Observer for Uploads {
    fn uploaded(&self, _: &Transfer) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn reshard_keeps_client() {
    let [here, there] =
        [(); 2].map(|()| Client::new(Null::new(2)).with_observer(Uploads::default()));
    let [first, second] = [0, 1].map(|place| Sharding::single(here.local_devices()[place]));
    let array = Array::upload(&here, &host(), &first).unwrap();
    let uploads = |client: &Client| client.observer::<Uploads>().unwrap().0.load(Relaxed);
    let before = uploads(&here);
    let copied = array.reshard(&here, &second).unwrap();
    assert_eq!(copied.shards().client_id(), here.id());
    assert_eq!(
        (uploads(&here) - before, uploads(&there)),
        (0, 0),
        "from device to device"
    );
    let moved = array.reshard(&there, &second).unwrap();
    assert_eq!(moved.shards().client_id(), there.id());
    assert_eq!(
        (uploads(&here) - before, uploads(&there)),
        (0, 1),
        "through the host"
    );
}
