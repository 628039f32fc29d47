//! Suites on the embedded executor, for which a test executable runs tests of its own a second time;
//! and the executor as a plugin.

use std::{env, path::PathBuf, process::Command, time::Duration};

use halite_core::{Client, Result};
use halite_pjrt::Plugin;

use crate::{eval::ACCELERATOR, process::Running};

/// Limit of one suite, for executors that hang.
const DEADLINE: Duration = Duration::from_secs(1200);

/// Runs the tests of this executable whose names contain a string of `suites` again in a child
/// process, with eight virtual devices of the embedded executor instead of XLA's CPU plugin. Tests
/// whose names contain a string of `skipped` are left out.
///
/// Does nothing if the variable that names the accelerator is set: in the child, or by the user.
///
/// # Panics
/// If a test fails, with the child's output.
#[track_caller]
pub fn rerun(suites: &[&str], skipped: &[&str]) {
    if env::var_os(ACCELERATOR).is_some() {
        return;
    }
    let mut command = Command::new(env::current_exe().expect("a test has a path"));
    command.env(ACCELERATOR, "embedded:8");
    command.args(suites);
    for name in skipped {
        command.args(["--skip", name]);
    }
    let child = Running::start(&mut command).expect("a test executable starts");
    let ended = child.end(DEADLINE);
    let (stdout, stderr) = (&ended.stdout, &ended.stderr);
    assert!(
        ended.succeeded(),
        "on the embedded executor: {}\n{stdout}\n{stderr}",
        ended.status
    );
    let result = stdout.lines().find(|line| line.starts_with("test result"));
    println!(
        "on the embedded executor: {}",
        result.unwrap_or("no result")
    );
}

/// Opens the executor through its C API, from the shared library that cargo builds beside the tests
/// of this package: with `devices` virtual devices, in the mode `oracle` or the fast one.
///
/// # Errors
/// If the plugin does not load.
pub fn open_plugin(devices: u32, oracle: bool) -> Result<Client> {
    let options = vec![
        ("devices".to_owned(), i64::from(devices).into()),
        ("oracle".to_owned(), oracle.into()),
    ];
    Ok(Client::new(Plugin::load(library())?.client(options)?))
}

/// The shared library of the executor as a plugin.
pub fn library() -> PathBuf {
    let test = env::current_exe().expect("a test has a path");
    let (prefix, suffix) = (env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    test.with_file_name(format!("{prefix}halite_embedded_plugin{suffix}"))
}
