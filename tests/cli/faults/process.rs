//! Faulty plugins in this process, beside one that works.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use halite::{
    Array, Client, ErrorKind, HostArray, Result, Sharding,
    backends::{Accelerator, OpenOptions, pjrt::Plugin},
    fetch::Quiet,
};
use halite_tests::hanging::in_time;

use crate::faults::library::faulty;

const SHORT: Duration = Duration::from_millis(500);
/// A limit that nothing reaches unless it hangs.
const LONG: Duration = Duration::from_secs(120);

fn open(plugin: &Path, deadline: Duration) -> Result<Client> {
    let options = OpenOptions {
        deadline,
        ..OpenOptions::default()
    };
    Ok(Accelerator::Plugin(plugin.into())
        .open_with(&options, &mut Quiet)?
        .client)
}

fn cpu() -> Client {
    open(&crate::faults::library::real(), LONG).unwrap()
}

fn assert_works(client: &Client) {
    let host = HostArray::from_slice(&[1.0f32, 2.0], [2]).unwrap();
    let device = Sharding::single(client.local_devices()[0]);
    assert_eq!(
        Array::upload(client, &host, &device)
            .unwrap()
            .read()
            .unwrap(),
        host
    );
}

#[test]
fn client_that_is_never_made_blocks_no_other_plugin() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let hangs = faulty(directory.path(), "create:sleep");
    in_time(move || {
        let first = cpu();
        let error = open(&hangs, SHORT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
        assert!(
            error
                .to_string()
                .contains("create-sleep.so has been looking for its devices"),
            "{error}"
        );
        // It is known to be stuck, so the second error comes at once.
        let begun = Instant::now();
        let error = open(&hangs, LONG).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("has been making a client for more than"),
            "{error}"
        );
        assert!(begun.elapsed() < LONG, "it was waited for again");
        assert_works(&cpu());
        assert_works(&first);
        drop(first);
    });
}

#[test]
fn client_that_is_never_destroyed_blocks_no_other_plugin() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let hangs = faulty(directory.path(), "destroy:sleep");
    in_time(move || {
        let first = cpu();
        // Enough to open; the same limit holds for destroying.
        let client = open(&hangs, Duration::from_secs(8)).unwrap();
        assert_works(&client);
        let destroyed = thread::spawn(move || drop(client));
        assert_works(&cpu());
        drop(first);
        destroyed.join().unwrap();
        let error = open(&hangs, LONG).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("has been destroying a client for more than"),
            "{error}"
        );
    });
}

#[test]
fn constructor_that_hangs_blocks_no_other_plugin() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let hangs = faulty(directory.path(), "constructor:sleep");
    in_time(move || {
        for _ in 0..2 {
            let error = open(&hangs, SHORT).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
            assert!(
                error
                    .to_string()
                    .contains("constructor-sleep.so has not started"),
                "{error}"
            );
        }
        assert_eq!(Plugin::stuck_in_loader(), None);
        assert_works(&cpu());
    });
}

#[test]
fn exceptions_while_compiling_leave_the_client_usable() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let throws = faulty(directory.path(), "compile:throw");
    in_time(move || {
        let client = open(&throws, LONG).unwrap();
        let code = "func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }";
        let ty = halite_core::TensorType::new(halite_core::DType::F32, [2]);
        let program = halite_core::Program {
            name: "identity".into(),
            code: code.as_bytes().into(),
            signature: halite_core::Signature {
                inputs: vec![ty.clone()],
                outputs: vec![ty],
                donated: vec![],
            },
            partitions: 1,
            replicas: 1,
        };
        for _ in 0..2 {
            let error = client
                .compile(&program, &halite_core::CompileOptions::default())
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("compile-throw.so: PJRT_Client_Compile threw a C++ exception"),
                "{error}"
            );
        }
        assert_works(&client);
    });
}
