//! Warnings of a program without a `tracing` subscriber, observed from outside its process.

use std::{
    env,
    fs::File,
    process::{Command, ExitStatus, Stdio},
};

use halite_core::{
    Array, Client, DType, HostArray, Null, Sharding, TensorType, WarningFilter, set_warning_filter,
    tree::{Empty, Leaf},
};
use halite_nn::Jit;

const CHILD: &str = "HALITE_TEST_IS_CHILD";
const FILTER: &str = "HALITE_TEST_FILTER";

/// The program: a function that is called with two shapes.
#[test]
fn child_compiles_twice() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    if let Ok(filter) = env::var(FILTER) {
        set_warning_filter(WarningFilter::parse(&filter));
    }
    let client = Client::new(Null::new(1));
    let device = Sharding::single(client.local_devices()[0]);
    let double =
        Jit::<Empty<()>, Leaf<()>, Leaf<()>>::function(&client, |_, Leaf(x)| Leaf(x * 2.0))
            .named("double");
    for elements in [3, 4] {
        let host = HostArray::zeros(TensorType::new(DType::F32, [elements]));
        double
            .run(&Leaf(Array::upload(&client, &host, &device).unwrap()))
            .unwrap();
    }
}

/// Runs [`child_compiles_twice`] in a separate process.
fn run(filter: Option<&str>, stderr: Stdio) -> (ExitStatus, String) {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "stderr::child_compiles_twice"])
        .env(CHILD, "1");
    if let Some(filter) = filter {
        command.env(FILTER, filter);
    }
    let output = command
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{output:?}"
    );
    (
        output.status,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn recompile_warns_without_a_subscriber() {
    let (status, stderr) = run(None, Stdio::piped());
    assert!(status.success());
    let line = stderr
        .lines()
        .find(|line| line.contains("is compiled again"))
        .unwrap_or_else(|| panic!("not in: {stderr}"));
    assert!(
        line.contains("`double`") && line.contains("nn/tests/stderr.rs:"),
        "{line}"
    );
    assert!(line.contains("f32[3]") && line.contains("f32[4]"), "{line}");
}

#[test]
fn log_filter_applies_without_a_subscriber() {
    for (filter, warns) in [
        ("off", false),
        ("error", false),
        ("halite_nn=off", false),
        ("info", true),
    ] {
        let (_, stderr) = run(Some(filter), Stdio::piped());
        assert_eq!(
            stderr.contains("is compiled again"),
            warns,
            "{filter}: {stderr}"
        );
    }
}

#[test]
fn closed_stderr_is_not_an_error() {
    // Opened for reading only: every write fails.
    let read_only = File::open(env::current_exe().unwrap()).unwrap();
    let (status, _) = run(None, Stdio::from(read_only));
    assert!(status.success());
}
