//! JAX and `pypjrt` on the plugins of this repository. The scripts are in `tests/jax`; results are
//! compared with those of JAX's own CPU backend.
#![cfg(target_os = "linux")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use halite_tests::{
    process::Running,
    python::{python, with_packages},
};

const EMBEDDED: &str = "halite_embedded_plugin";
const TEMPLATE: &str = "toy_plugin";

/// The library of a plugin, which cargo builds beside this test.
fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    test.with_file_name(format!("lib{name}.so"))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a command to its end, and returns what it printed.
#[track_caller]
fn run(command: &mut Command) -> String {
    let ended = Running::start(command)
        .unwrap()
        .end(Duration::from_secs(600));
    let text = format!("{}{}", ended.stdout, ended.stderr);
    assert!(ended.succeeded(), "{:?}: {text}", ended.status);
    println!("{}", ended.stdout);
    ended.stdout
}

/// Compares the cases of a script with JAX's CPU backend.
#[track_caller]
fn compare(script: &str, devices: u32) {
    let printed = run(python()
        .arg(repository().join("tests/jax/compare.py"))
        .arg(script)
        .arg(library(EMBEDDED))
        .args(["embedded", &devices.to_string()]));
    assert!(
        printed.contains(&format!("embedded: {devices} devices")),
        "{printed}"
    );
}

#[test]
fn functions_agree_with_the_cpu() {
    compare("functions", 1);
}

#[test]
fn eight_devices_agree_with_the_cpu() {
    compare("devices", 8);
}

#[test]
fn training_losses_agree_with_the_cpu() {
    compare("training", 1);
}

/// Runs the checks of `pypjrt`; returns how many pass.
#[track_caller]
fn conform(name: &str) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let mut command = python();
    command.args(["-m", "pypjrt.conform"]).arg(library(name));
    run(command.arg("--json").arg(&report));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let results = report["checks"].as_array().unwrap();
    let count = |result: &str| results.iter().filter(|it| it["result"] == result).count() as u64;
    assert_eq!(count("fail"), 0, "{report:#}");
    count("pass")
}

#[test]
fn embedded_plugin_passes_conform() {
    assert!(conform(EMBEDDED) > 40);
}

#[test]
fn template_passes_conform() {
    assert!(conform(TEMPLATE) > 40);
}

/// Runs the commands of the guide that use the plugin, beside its library.
#[test]
fn template_trains_an_mlp_as_the_guide_says() {
    let guide = fs::read_to_string(repository().join("docs/writing-a-plugin.md")).unwrap();
    let blocks = guide.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|block| Some(block.split_once("```")?.0));
    let blocks: Vec<&str> = blocks.filter(|block| block.contains("python3")).collect();
    assert_eq!(blocks.len(), 2, "{blocks:?}");
    let crate_of_guide = tempfile::tempdir().unwrap();
    let debug = crate_of_guide.path().join("target/debug");
    fs::create_dir_all(&debug).unwrap();
    symlink(library(TEMPLATE), debug.join("libtoy_plugin.so")).unwrap();
    let script = repository().join("plugins/template/mlp.py");
    fs::copy(script, crate_of_guide.path().join("mlp.py")).unwrap();
    let mut shell = with_packages("bash");
    let printed = run(shell
        .args(["-euc", &blocks.concat()])
        .current_dir(crate_of_guide.path()));
    assert!(printed.contains("toy:0"), "{printed}");
    let last = printed
        .lines()
        .last()
        .and_then(|line| line.rsplit(' ').next());
    let loss: f32 = last.and_then(|loss| loss.parse().ok()).unwrap();
    assert!(loss < 0.05, "{printed}");
}
