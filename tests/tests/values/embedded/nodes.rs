//! Clients of several processes, as threads with a key-value store in common.

use std::{sync::Arc, thread, time::Duration};

use halite_conformance::{Subject, cases};
use halite_core::{
    Array, Client, DType, ErrorKind, HostArray, KeyValueStore, LocalStore, Mesh, PartitionSpec,
    ReduceOp, Result, Sharding, TensorType,
};
use halite_embedded::{Embedded, Node, Options};
use halite_nn::ArrayCollectives;

/// Runs `body` in as many threads as processes, each of which has a client with `devices` of its own.
fn on_nodes(count: u32, devices: u32, body: impl Fn(u32, Client) + Sync) {
    let store: Arc<dyn KeyValueStore> = Arc::new(LocalStore::default());
    thread::scope(|scope| {
        for index in 0..count {
            let (store, body) = (store.clone(), &body);
            scope.spawn(move || {
                let node = Node {
                    index,
                    count,
                    store,
                    patience: Duration::from_secs(20),
                };
                body(index, open(devices, node).unwrap());
            });
        }
    });
}

fn open(devices: u32, node: Node) -> Result<Client> {
    let options = Options {
        devices,
        threads: 1,
        node: Some(node),
        ..Options::default()
    };
    Ok(Client::new(Embedded::new(&options)?))
}

/// The mesh of all devices.
fn mesh(client: &Client) -> Arc<Mesh> {
    let ids: Vec<_> = client.devices().iter().map(|device| device.id()).collect();
    Arc::new(Mesh::new([("all", ids.len())], ids).unwrap())
}

/// `f32[devices, 2]`, in which each row has the number of its device.
fn rows(client: &Client) -> Array {
    let mesh = mesh(client);
    let ty = TensorType::new(DType::F32, [mesh.size(), 2]);
    let by_rows = Sharding::new(&mesh, PartitionSpec::first("all")).unwrap();
    Array::from_parts(client, &ty, &by_rows, |ranges| {
        HostArray::from_slice(&[ranges[0].start as f32; 2], [1, 2])
    })
    .unwrap()
}

#[test]
fn every_process_lists_all_devices() {
    on_nodes(4, 2, |index, client| {
        let all = client.devices();
        let processes: Vec<_> = all.iter().map(|device| device.process()).collect();
        assert_eq!(processes, [0, 0, 1, 1, 2, 2, 3, 3]);
        let local: Vec<_> = client.local_devices().iter().map(|id| id.0).collect();
        assert_eq!(local, [2 * index, 2 * index + 1]);
    });
}

#[test]
fn collectives_are_over_all_processes() {
    on_nodes(4, 2, |_, client| {
        let array = rows(&client);
        let across = ArrayCollectives::new(&client, array.sharding().mesh());
        let sum = across.all_reduce(&array, ReduceOp::Sum, "all").unwrap();
        assert_eq!(sum.to_vec::<f32>().unwrap(), [28.0; 2]);
        let all = across
            .reshard(&array, &PartitionSpec::replicated())
            .unwrap();
        let expected: Vec<f32> = (0..16).map(|index| (index / 2) as f32).collect();
        assert_eq!(all.to_vec::<f32>().unwrap(), expected);
    });
}

#[test]
fn value_of_other_processes_is_an_error() {
    on_nodes(2, 2, |index, client| {
        let array = rows(&client);
        assert!(!array.is_fully_addressable());
        let shards = array.addressable_shards().unwrap();
        let starts: Vec<_> = shards.iter().map(|(ranges, _)| ranges[0].start).collect();
        assert_eq!(starts, [2 * index as usize, 2 * index as usize + 1]);
        let error = array.read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let start = "read: this process has 2 of the 4 shards of f32[4, 2] by ";
        assert!(error.to_string().starts_with(start), "{error}");
        assert!(array.fetch().is_err());
    });
}

#[test]
fn local_part_makes_a_global_array() {
    on_nodes(2, 2, |index, client| {
        let by_rows = Sharding::new(&mesh(&client), PartitionSpec::first("all")).unwrap();
        let ty = TensorType::new(DType::S32, [8, 3]);
        let first = 12 * index as i32;
        let values: Vec<i32> = (first..first + 12).collect();
        let local = Arc::new(HostArray::from_slice(&values, [4, 3]).unwrap());
        let array = Array::from_process_local(&client, &local, &ty, &by_rows).unwrap();
        let across = ArrayCollectives::new(&client, array.sharding().mesh());
        let all = across
            .reshard(&array, &PartitionSpec::replicated())
            .unwrap();
        let expected: Vec<i32> = (0..24).collect();
        assert_eq!(all.to_vec::<i32>().unwrap(), expected);
        // The whole, of which each process uploads its part.
        let whole = Arc::new(HostArray::from_slice(&expected, [8, 3]).unwrap());
        Array::from_process_local(&client, &whole, &ty, &by_rows).unwrap();
        let three = Arc::new(HostArray::from_slice(&values[..9], [3, 3]).unwrap());
        let error = Array::from_process_local(&client, &three, &ty, &by_rows).unwrap_err();
        assert!(error.to_string().contains("s32[3, 3] given"), "{error}");
    });
}

#[test]
fn another_order_of_programs_is_an_error() {
    on_nodes(2, 1, |index, client| {
        let array = rows(&client);
        let across = ArrayCollectives::new(&client, array.sharding().mesh());
        let result = match index {
            0 => across.all_reduce(&array, ReduceOp::Sum, "all").unwrap(),
            _ => across.all_gather(&array, 0, "all").unwrap(),
        };
        let error = result.read().unwrap_err().to_string();
        assert!(
            error.contains("all processes must launch the same programs"),
            "{error}"
        );
    });
}

#[test]
fn dead_process_is_an_error_in_time() {
    on_nodes(4, 1, |index, client| {
        let array = rows(&client);
        let across = ArrayCollectives::new(&client, array.sharding().mesh());
        let sum = across.all_reduce(&array, ReduceOp::Sum, "all").unwrap();
        sum.read().unwrap();
        if index == 2 {
            return;
        }
        let again = across.all_reduce(&array, ReduceOp::Sum, "all").unwrap();
        let error = again.read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
        assert!(error.to_string().contains("/2/2`"), "{error}");
    });
}

#[test]
fn suite_passes_in_each_process() {
    on_nodes(2, 2, |_, client| {
        let outcome = halite_conformance::run(&Subject::new(client), "");
        assert!(outcome.failed.is_empty(), "{outcome}");
        assert!(
            outcome
                .passed
                .iter()
                .any(|(name, _)| name.contains("of_all_processes"))
        );
        assert_eq!(cases().len(), outcome.passed.len() + outcome.skipped.len());
    });
}
