//! The embedded executor in place of a plugin that cannot be had.

use std::{path::Path, process::Command};

use crate::support::{assert_contains, fails, halite, halite_alone, report, run, succeeds};

const RUN: &str = "train digits --model mlp --epochs 2";

/// The command on a machine with an empty cache and no programs in `PATH`, so without pip.
fn without_plugins(dir: &Path, arguments: &str) -> Command {
    let mut command = halite_alone(arguments);
    command
        .env("HALITE_CACHE_DIR", dir.join("empty"))
        .env("PATH", dir);
    command
}

#[test]
fn auto_without_a_plugin_names_embedded() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut command = without_plugins(dir.path(), &format!("{RUN} --out"));
    let ended = succeeds(command.arg(&out));
    let parts = ["accelerator auto is `embedded`", "python3 was not found"];
    assert_contains(&ended.stderr, &parts);
    assert_contains(&ended.stdout, &["plugin                embedded "]);
    assert_eq!(report(&out)["plugin"], "embedded");
    // The warning is one line, and is not repeated.
    let lines = ended.stderr.lines();
    assert_eq!(lines.filter(|line| line.contains("python3")).count(), 1);

    let ended = succeeds(&mut without_plugins(dir.path(), "devices"));
    assert_contains(
        &ended.stdout,
        &["plugin      embedded", "unavailable cpu: "],
    );
}

#[test]
fn chosen_platform_is_not_replaced_by_embedded() {
    let dir = tempfile::tempdir().unwrap();
    let named = format!("{RUN} --accelerator cpu --out");
    let mut by_option = without_plugins(dir.path(), &named);
    let mut by_variable = without_plugins(dir.path(), &format!("{RUN} --out"));
    by_variable.env("PJRT_DEVICE", "CPU");
    let mut by_path = without_plugins(dir.path(), &format!("{RUN} --out"));
    by_path.env("HALITE_CPU_PLUGIN", dir.path().join("none.so"));
    for (command, reason) in [
        (&mut by_option, "python3 was not found"),
        (&mut by_variable, "python3 was not found"),
        (&mut by_path, "none.so: No such file"),
    ] {
        let out = dir.path().join("run");
        assert_contains(&fails(command.arg(&out)), &[reason]);
        assert!(!out.exists());
    }
}

#[test]
fn resume_on_another_platform_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    succeeds(halite(&format!("{RUN} --quiet --out")).arg(&out));
    let resume = "train digits --model mlp --epochs 3 --quiet --resume";
    let mut command = without_plugins(dir.path(), &format!("{resume} --out"));
    let error = fails(command.arg(&out));
    let parts = [
        "plugin (--accelerator): saved cpu ",
        ", given embedded ",
        "--allow-changes plugin",
    ];
    assert_contains(&error, &parts);
    let allowed = format!("{resume} --allow-changes plugin --out");
    let ended = run(without_plugins(dir.path(), &allowed).arg(&out));
    assert!(ended.succeeded(), "{ended:?}");
    assert_contains(&ended.stderr, &["as allowed: plugin (--accelerator)"]);
}
