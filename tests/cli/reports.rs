//! Logs, metrics, traces and dumps that variables of the environment and options turn on.

use std::{fs, path::Path, process::Command};

use crate::support::{assert_contains, fails, halite, halite_alone, run, succeeds};

/// A run of ten steps in `dir`.
fn short_run(dir: &Path) -> Command {
    let mut command =
        halite("train mnist --model mlp --limit 640 --batch-size 64 --epochs 1 --quiet --out");
    command.arg(dir.join("run"));
    command
}

#[test]
fn halite_debug_prints_compiles_launches_analysis() {
    let dir = tempfile::tempdir().unwrap();
    let ended = succeeds(short_run(dir.path()).env("HALITE_DEBUG", "2"));
    assert_contains(
        &ended.stderr,
        &[
            " of `init` (",
            "  reason  first call",
            "launch 10 of `train step` (",
            "queued in ",
            "ExecuteTime",
            "InputWait",
        ],
    );
    let mut lines = ended.stderr.lines();
    assert!(
        lines.all(|line| line.starts_with("halite: ")),
        "{}",
        ended.stderr
    );
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("halite: analysis: "), "{last}");
    assert_contains(&ended.stdout, &["input wait ", "device busy "]);
}

#[test]
fn metrics_file_counts_launches_with_transfers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("metrics.jsonl");
    succeeds(short_run(dir.path()).env("HALITE_METRICS_FILE", &file));
    let lines = fs::read_to_string(file).unwrap();
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    // The last launch predicts the samples of the report.
    assert_eq!(
        (&last["BlockingReads"], &last["Launches"]),
        (&0.into(), &(1 + 10 + 10 + 1).into()),
        "{last}"
    );
    assert!(
        last["TransferToDevice"]["count"].as_u64() == last["Uploads"].as_u64(),
        "{last}"
    );
}

#[test]
fn profile_of_a_run_has_launches() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json");
    succeeds(short_run(dir.path()).arg("--profile").arg(&file));
    let events: Vec<serde_json::Value> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    for name in ["launch", "execute"] {
        assert!(events.iter().any(|event| event["name"] == name), "{name}");
    }
}

#[test]
fn dump_directory_has_every_program() {
    let dir = tempfile::tempdir().unwrap();
    let dump = dir.path().join("dump");
    succeeds(short_run(dir.path()).env("HALITE_DUMP_DIR", &dump));
    let dumped: Vec<String> = fs::read_dir(dump)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for end in [
        "-train_step.graph.txt",
        "-train_step.stablehlo.mlir",
        "-train_step.json",
        "-evaluate.stablehlo.mlir",
    ] {
        assert!(
            dumped.iter().any(|name| name.ends_with(end)),
            "{end}: {dumped:?}"
        );
    }
}

#[test]
fn unwritable_trace_is_an_error_at_the_start() {
    let ended = run(halite("devices --profile /nonexistent/trace.json").env("HALITE_DEBUG", "1"));
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(
        ended
            .error()
            .starts_with("profile: cannot write /nonexistent/trace.json: "),
        "{ended:?}"
    );
    assert_eq!(ended.stdout, "");
}

#[test]
fn halite_log_filters_the_log() {
    for (filter, logs) in [
        (None, false),
        (Some("info"), true),
        (Some("halite_backends=info"), true),
        (Some("halite_train=info"), false),
        (Some("error"), false),
    ] {
        let mut command = halite("devices --accelerator cpu");
        command.envs(filter.map(|filter| ("HALITE_LOG", filter)));
        let stderr = succeeds(&mut command).stderr;
        assert_eq!(stderr.contains("INFO opened"), logs, "{filter:?}: {stderr}");
    }
}

#[test]
fn halite_profile_sets_the_file_of_the_trace() {
    let dir = tempfile::tempdir().unwrap();
    let [variable, option] = ["variable.json", "option.json"].map(|name| dir.path().join(name));
    let devices = || {
        let mut command = halite("devices --accelerator cpu");
        command.env("HALITE_PROFILE", &variable);
        command
    };
    succeeds(&mut devices());
    let text = fs::read(&variable).unwrap();
    let events: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
    assert!(
        events.iter().any(|event| event["name"] == "upload"),
        "{events:?}"
    );

    // The option is preferred.
    fs::remove_file(&variable).unwrap();
    succeeds(devices().arg("--profile").arg(&option));
    assert!(option.exists() && !variable.exists());
}

/// Nobody reads the pipe: opening it would wait.
#[cfg(unix)]
#[test]
fn halite_profile_is_not_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let error = fails(halite("devices --accelerator embedded").env("HALITE_PROFILE", &pipe));
    assert_contains(&error, &["cannot write", "it is a pipe, not a plain file"]);
}

#[test]
fn empty_halite_profile_writes_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = halite("devices --accelerator cpu");
    succeeds(command.env("HALITE_PROFILE", "").current_dir(dir.path()));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn report_of_a_fault_has_what_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("runs/mine");
    fs::create_dir_all(&run).unwrap();
    fs::write(run.join("report.json"), r#"{"steps": 7}"#).unwrap();
    let write = |accelerator: &str| {
        let command = format!("devices --report fault.json --accelerator {accelerator}");
        let ended = crate::support::run(
            halite_alone(&command)
                .current_dir(&dir)
                .env("HALITE_LOG", "warn")
                .env("HALITE_API_TOKEN", "s3cret"),
        );
        let text = fs::read_to_string(dir.path().join("fault.json")).unwrap();
        assert!(!text.contains("s3cret"), "{text}");
        (
            ended,
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
        )
    };
    let (ended, report) = write("embedded:2");
    assert!(ended.succeeded(), "{ended:?}");
    assert_eq!(report["halite"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["environment"]["HALITE_LOG"], "warn");
    assert_eq!(report["accelerator"]["devices"][1]["id"], 1);
    assert_eq!(report["last_run"]["report"]["steps"], 7);

    // It is written for an accelerator that does not open, too.
    let (ended, report) = write("plugin:/nowhere/plugin.so");
    assert!(!ended.succeeded(), "{ended:?}");
    let error = report["accelerator"]["error"].as_str().unwrap();
    assert_contains(error, &["/nowhere/plugin.so"]);
}
