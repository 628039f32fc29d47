//! Meshes, strategies and batch sizes that the command chooses.

use std::fs;

use super::support::{assert_contains, fails, halite, halite_alone, report, run, succeeds};

#[test]
fn mesh_auto_trains_on_the_fastest() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let options = "train digits --model mlp --accelerator cpu:2 --mesh auto --max-steps 2 --quiet";
    let ended = succeeds(halite(options).arg("--out").arg(&out));
    assert_contains(
        &ended.stderr,
        &[
            "--mesh auto: ",
            "first of 2 by bytes that each device sends in a step",
            "; then ",
        ],
    );
    let chosen = ended.stderr.split("--mesh auto: ").nth(1).unwrap();
    let [strategy, mesh] = ["data=2", "fsdp=2"]
        .into_iter()
        .find(|mesh| chosen.split(" with ").next().unwrap().ends_with(mesh))
        .map(|mesh| [if mesh == "data=2" { "dp" } else { "fsdp" }, mesh])
        .unwrap_or_else(|| panic!("no mesh in {chosen}"));
    assert!(
        chosen.starts_with(&format!("{strategy} on {mesh}")),
        "{chosen}"
    );
    let text = fs::read_to_string(out.join("config.toml")).unwrap();
    assert_contains(&text, &["mesh = \"auto\""]);
    assert_eq!(report(&out)["devices"], 2, "{}", report(&out));
}

#[test]
fn mesh_auto_of_one_device_compiles_nothing() {
    let ended = succeeds(&mut halite_alone(
        "train digits --model mlp --accelerator embedded --mesh auto --fast-dev-run --quiet",
    ));
    assert!(!ended.stderr.contains("--mesh auto: "), "{}", ended.stderr);
}

#[test]
fn parameters_are_split_by_rule() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let train = "train digits --model mlp --accelerator embedded:2 --max-steps 2 --quiet";
    let rules = "--strategy fsdp --min-elements 8 --not-split **.bias,out.weight";
    let mut command = halite_alone(&format!("{train} {rules}"));
    succeeds(command.arg("--out").arg(&out));
    let text = fs::read_to_string(out.join("config.toml")).unwrap();
    assert_contains(
        &text,
        &[
            "min-elements = 8",
            "not-split = \"**.bias,out.weight\"",
            "strategy = \"fsdp\"",
        ],
    );
    let again = dir.path().join("again");
    let config = out.join("config.toml");
    let mut command = halite_alone("train --config");
    succeeds(command.arg(config).arg("--out").arg(&again));

    for (rules, expected) in [
        (
            "--strategy fsdp --not-split **.bais",
            "`**.bais` matches no parameter; did you mean `hidden.0.bias`?",
        ),
        (
            "--mesh auto --not-split **.bais",
            "`**.bais` matches no parameter; did you mean `hidden.0.bias`?",
        ),
        (
            "--min-elements 8",
            "--min-elements is of `fsdp`, and the strategy is `dp`",
        ),
        (
            "--not-split **.bias",
            "--not-split is of `fsdp`, and the strategy is `dp`",
        ),
        (
            "--mesh auto --strategy dp+tp",
            "`dp+tp` has no mesh of 2 devices to try",
        ),
    ] {
        let error = fails(&mut halite_alone(&format!("{train} {rules}")));
        assert_contains(&error, &[expected]);
    }
}

#[test]
fn refused_choices_have_reasons() {
    for (command, expected) in [
        (
            "train digits --model mlp --accelerator embedded:4 --mesh auto --batch-size 33",
            "trainer: `batch_size` 33 is not divisible by 4 devices; 32 and 36 would be",
        ),
        (
            "plan mnist-mlp --target cpu:4 --mesh auto --largest-batch",
            "plan: --largest-batch is of one mesh; give its axes in place of --mesh auto",
        ),
    ] {
        assert_eq!(fails(&mut halite_alone(command)), expected);
    }
}

#[test]
fn strategy_of_a_cluster_trains_on_one_device() {
    let train = "train digits --model mlp --accelerator embedded --max-steps 2 --quiet";
    let dir = tempfile::tempdir().unwrap();
    let mut command = halite_alone(&format!("{train} --mesh auto --strategy fsdp --out ./run"));
    succeeds(command.current_dir(&dir));
}

#[test]
fn device_traces_need_a_profiler() {
    let dir = tempfile::tempdir().unwrap();
    let train = "train digits --model mlp --accelerator embedded --max-steps 4 --quiet";
    let mut command = halite_alone(&format!("{train} --profile-steps 2..4"));
    let ended = succeeds(command.arg("--out").arg(dir.path().join("run")));
    let sentence = "no device trace of the steps: the devices' plugin has no profiler";
    assert_contains(&ended.stderr, &[sentence]);
    let ended = run(&mut halite_alone(&format!("{train} --profile-steps 4..4")));
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert_contains(&ended.stderr, &["`4..4`; expected the first step, from 1"]);
}

#[test]
fn all_devices_are_the_default() {
    let dir = tempfile::tempdir().unwrap();
    for devices in ["", "--devices all", "--devices 2"] {
        let out = dir.path().join(devices.replace(' ', ""));
        let command = format!(
            "train mnist --model mlp --limit 64 --epochs 1 --quiet --accelerator cpu:4 {devices}"
        );
        succeeds(halite(&command).arg("--out").arg(&out));
        let count = if devices == "--devices 2" { 2 } else { 4 };
        assert_eq!(report(&out)["devices"], count, "{devices}");
    }
}
