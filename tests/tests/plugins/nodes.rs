//! A plugin whose clients have the devices of several processes: the embedded executor through the C
//! API, which exchanges its topology, and what its programs exchange, by the key-value callbacks.

use std::{sync::Arc, thread, time::Duration};

use halite::cluster::{Job, spawn};
use halite_backends::{Accelerator, OpenOptions, pjrt::Plugin};
use halite_conformance::Subject;
use halite_core::{
    Array, Client, DType, Error, ErrorKind, HostArray, Mesh, PartitionSpec, ReduceOp, Result,
    Sharding, TensorType,
};
use halite_fetch::Bar;
use halite_nn::ArrayCollectives;
use halite_tests::embedded::library;

const SOON: Duration = Duration::from_secs(60);

/// Opens the devices of this process, two, among those of all.
fn open(job: &Job, options: Vec<(String, i64)>) -> Result<Client> {
    let mut client = vec![("devices".to_owned(), 2i64.into())];
    client.extend(
        options
            .into_iter()
            .map(|(name, value)| (name, value.into())),
    );
    let options = OpenOptions {
        client,
        processes: Some(job.group()),
        ..OpenOptions::default()
    };
    let accelerator = Accelerator::Plugin(library());
    Ok(accelerator.open_with(&options, &mut Bar::default())?.client)
}

/// The sum over all devices of the number of each.
fn sum(client: &Client) -> Result<Vec<f32>> {
    let ids: Vec<_> = client.devices().iter().map(|device| device.id()).collect();
    let mesh = Arc::new(Mesh::new([("all", ids.len())], ids)?);
    let rows = Sharding::new(&mesh, PartitionSpec::first("all"))?;
    let ty = TensorType::new(DType::F32, [mesh.size()]);
    let mine = Array::from_parts(client, &ty, &rows, |ranges| {
        HostArray::from_slice(&[ranges[0].start as f32], [1])
    })?;
    let across = ArrayCollectives::new(client, &mesh);
    across.all_reduce(&mine, ReduceOp::Sum, "all")?.to_vec()
}

#[test]
fn four_processes_sum_over_their_devices() {
    spawn(4, |job| {
        let client = open(job, Vec::new())?;
        let processes: Vec<_> = client.devices().iter().map(|it| it.process()).collect();
        assert_eq!(processes, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(client.local_devices().len(), 2);
        assert_eq!(sum(&client)?, [28.0]);
        Ok(())
    })
    .unwrap();
}

#[test]
fn two_processes_conform() {
    spawn(2, |job| {
        let outcome = halite_conformance::run(&Subject::new(open(job, Vec::new())?), "");
        // See `conformance.rs`.
        let failed: Vec<_> = outcome.failed.iter().map(|(name, _)| *name).collect();
        let unreported = [
            "programs::invalid_serialized_executable_is_rejected",
            "errors::wrong_signature_is_rejected",
        ];
        assert_eq!(failed, unreported, "{outcome}");
        let spanning = "devices::program_runs_on_devices_of_all_processes";
        assert!(
            outcome.passed.iter().any(|(name, _)| *name == spanning),
            "{outcome}"
        );
        Ok(())
    })
    .unwrap();
}

#[test]
fn dead_process_ends_the_others_in_time() {
    let result = spawn(4, |job| {
        let client = open(job, vec![("collective_timeout".to_owned(), 20)])?;
        assert_eq!(sum(&client)?, [28.0]);
        job.group().barrier("all have summed", SOON)?;
        if job.rank() == 2 {
            thread::sleep(Duration::from_millis(500));
            std::process::exit(3);
        }
        // The error that process 2 has exited comes before the timeout of the launch.
        let error = sum(&client).unwrap_err();
        Err(error)
    });
    let text = result.unwrap_err().to_string();
    assert!(
        text.contains("process 2") && text.contains("exited with status 3"),
        "{text}"
    );
}

#[test]
fn process_that_does_not_open_is_named() {
    let result = spawn(2, |job| -> Result<()> {
        if job.rank() == 1 {
            _ = job.group().store("devices")?;
            return job.group().barrier("never", SOON);
        }
        let options = OpenOptions {
            processes: Some(job.group()),
            deadline: Duration::from_secs(12),
            ..OpenOptions::default()
        };
        let accelerator = Accelerator::Plugin(library());
        let opened = accelerator.open_with(&options, &mut Bar::default());
        let error: Error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        for part in [
            "key `local_topology/embedded/1` of store `devices`",
            "process 1 on ",
        ] {
            assert!(error.to_string().contains(part), "{error}");
        }
        Err(error)
    });
    let text = result.unwrap_err().to_string();
    assert!(text.contains("local_topology/embedded/1"), "{text}");
}

/// Callers leave the callbacks out, or uninitialized, where there is one process.
#[test]
fn several_processes_need_the_callbacks() {
    let options = vec![("num_nodes".to_owned(), 2i64.into())];
    let error = Plugin::load(library())
        .unwrap()
        .client(options)
        .unwrap_err();
    assert!(
        error.to_string().contains("needs the key-value callbacks"),
        "{error}"
    );
}
