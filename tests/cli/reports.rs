//! What a run says and writes when the environment or an option asks for it.

use std::fs;

use crate::support::{halite, run, succeeds};

#[test]
fn debug_variables_write_their_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut command =
        halite("train mnist --model mlp --limit 640 --batch-size 64 --epochs 1 --quiet");
    command
        .arg("--out")
        .arg(at("run"))
        .arg("--profile")
        .arg(at("trace.json"));
    command
        .env("HALITE_DEBUG", "2")
        .env("HALITE_METRICS_FILE", at("metrics.jsonl"))
        .env("HALITE_DUMP_DIR", at("dump"));
    let ended = succeeds(&mut command);

    for part in [
        " of `init` (",
        "  reason  first call",
        "launch 10 of `train step` (",
        "queued in ",
        "ExecuteTime",
        "InputWait",
    ] {
        assert!(
            ended.stderr.contains(part),
            "`{part}` is not in {}",
            ended.stderr
        );
    }
    assert!(
        ended
            .stderr
            .lines()
            .all(|line| line.starts_with("halite: ")),
        "{}",
        ended.stderr
    );
    assert!(
        ended
            .stderr
            .lines()
            .last()
            .unwrap()
            .starts_with("halite: analysis: "),
        "{}",
        ended.stderr
    );
    for part in ["input wait ", "device busy "] {
        assert!(
            ended.stdout.contains(part),
            "`{part}` is not in {}",
            ended.stdout
        );
    }
    let lines = fs::read_to_string(at("metrics.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["BlockingReads"], &last["Launches"]),
        (&0.into(), &(1 + 10 + 10).into()),
        "{last}"
    );
    assert!(
        last["TransferToDevice"]["count"].as_u64() == last["Uploads"].as_u64(),
        "{last}"
    );
    let events: Vec<serde_json::Value> =
        serde_json::from_slice(&fs::read(at("trace.json")).unwrap()).unwrap();
    assert!(
        events.iter().any(|event| event["name"] == "launch")
            && events.iter().any(|event| event["name"] == "execute")
    );
    let dumped: Vec<String> = fs::read_dir(at("dump"))
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
fn halite_log_sets_what_is_logged() {
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
fn halite_profile_names_the_file_of_a_trace() {
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

#[test]
fn empty_halite_profile_writes_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = halite("devices --accelerator cpu");
    succeeds(command.env("HALITE_PROFILE", "").current_dir(dir.path()));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
