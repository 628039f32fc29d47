//! The compile cache across processes: a cached program finds the function by its target's name.

use std::{env, path::Path, process::Command, time::Duration};

use halite::{
    backends::{Accelerator, CompileCacheOptions, OpenOptions},
    fetch::Bar,
};
use halite_core::{Array, custom_call};
use halite_nn::{CustomOp, jit};
use halite_telemetry::ClientMetrics;
use halite_tests::process::{Ended, Running};

/// The cache directory, in a child process.
const DIRECTORY: &str = "HALITE_TEST_CUSTOM_CACHE";
/// The targets that a child registers, in order.
const TARGETS: &str = "HALITE_TEST_CUSTOM_TARGETS";

/// What a child process does: runs a program that calls `test.cached`, and prints the result and
/// whether the program came from the cache.
#[test]
fn child_runs_a_cached_program() {
    let Some(directory) = env::var_os(DIRECTORY) else {
        return;
    };
    for target in env::var(TARGETS).unwrap().split_terminator(',') {
        custom_call::register(target, |call| {
            let ([x], [y]) = call.buffers()?;
            y.as_mut_slice::<f32>()?[0] = 2.0 * x.as_slice::<f32>()?[0];
            Ok(())
        })
        .unwrap();
    }
    let cache = CompileCacheOptions {
        directory: Some(directory.into()),
        ..CompileCacheOptions::default()
    };
    let options = OpenOptions {
        compile_cache: Some(cache),
        ..OpenOptions::default()
    };
    let client = Accelerator::cpu()
        .open_with(&options, &mut Bar::default())
        .unwrap()
        .client;
    let op = CustomOp::new("test.cached", |x| Ok(vec![x[0].clone()]));
    let double = jit(&client, move |cx, [x]| op.call::<1>(cx, &[x]));
    let x = Array::from_slice(&client, &[21.0f32], [1]).unwrap();
    match double.run([&x]).and_then(|[y]| y.read()) {
        Ok(y) => println!("RESULT {:?}", y.as_slice::<f32>().unwrap()),
        Err(error) => println!("ERROR {error}"),
    }
    println!("HITS {}", client.counters().snapshot().cache_hits);
}

fn child(directory: &Path, targets: &str) -> Ended {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "custom_ops::cache::child_runs_a_cached_program",
            "--nocapture",
        ])
        .env(DIRECTORY, directory)
        .env(TARGETS, targets);
    let ended = Running::start(&mut command)
        .unwrap()
        .end(Duration::from_secs(120));
    assert!(ended.succeeded(), "{ended:?}");
    ended
}

#[test]
fn cached_program_finds_its_function_by_name() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let first = child(directory.path(), "test.cached").stdout;
    assert!(
        first.contains("RESULT [42.0]") && first.contains("HITS 0"),
        "{first}"
    );
    // Registered at another position, which is another handler.
    let second = child(directory.path(), "test.other,test.cached").stdout;
    assert!(
        second.contains("RESULT [42.0]") && second.contains("HITS 1"),
        "{second}"
    );
    // Not registered: an error that names it.
    let third = child(directory.path(), "").stdout;
    assert!(
        third.contains("ERROR") && third.contains("test.cached"),
        "{third}"
    );
}
