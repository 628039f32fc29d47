//! `--resume` and plain starts in a run directory that was damaged or left unfinished.

use std::{fs, path::Path, process::Command};

use super::support::{
    arrays, assert_contains, checkpoints, fails, halite, name, report, succeeds, table,
};

/// 20 steps of an epoch.
const RUN: &str = "train mnist --model mlp --limit 640 --batch-size 32 --quiet";

fn train(out: &Path, more: &str) -> Command {
    let mut command = halite(&format!("{RUN} {more} --out"));
    command.arg(out);
    command
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| name(&entry.unwrap().path()))
        .collect();
    names.sort();
    names
}

#[test]
fn a_damaged_best_json_is_computed_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut train(out, "--epochs 2 --checkpoint-every 5"));
    let best = fs::read_to_string(out.join("checkpoints/best.json")).unwrap();
    fs::write(out.join("checkpoints/best.json"), "{").unwrap();
    let ended = succeeds(&mut train(out, "--epochs 2 --resume"));
    assert_eq!(ended.stderr.matches("WARN").count(), 1, "{ended:?}");
    assert_contains(&ended.stderr, &["best.json", "manifests"]);
    let pointer =
        |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["folder"].clone();
    let recovered = fs::read_to_string(out.join("checkpoints/best.json")).unwrap();
    assert_eq!(pointer(&recovered), pointer(&best));

    fs::write(out.join("checkpoints/best.json"), "{").unwrap();
    let ended = succeeds(&mut train(out, "--epochs 4 --checkpoint-every 5 --resume"));
    assert_eq!(ended.stderr.matches("best.json").count(), 1, "{ended:?}");
    assert!(
        checkpoints(out).len() <= 3,
        "two and the best: {:?}",
        checkpoints(out)
    );
    assert!(report(out)["best_checkpoint"].is_string());
}

#[test]
fn a_run_of_unusable_checkpoints_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut train(out, "--epochs 1"));
    let rows = table(out);
    fs::write(checkpoints(out)[0].join("manifest.json"), "{}").unwrap();
    let error = fails(&mut train(out, "--epochs 1"));
    assert_contains(
        &error,
        &[
            "step-00000020",
            "cannot be used",
            "COMMIT is not the marker",
            "--out",
            "--resume",
        ],
    );
    assert_eq!(table(out), rows);
    assert!(out.join("report.json").exists());
}

#[test]
fn resuming_a_finished_run_keeps_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut train(out, "--epochs 1"));
    let before = report(out);
    // As a kill between the last checkpoint and the report leaves it.
    fs::remove_file(out.join("report.json")).unwrap();
    for _ in 0..2 {
        succeeds(&mut train(out, "--epochs 1 --resume"));
        let after = report(out);
        for field in [
            "metrics",
            "train_metrics",
            "steps",
            "epochs",
            "samples_per_second",
            "training_seconds",
            "input_wait_seconds",
            "seconds_to_first_step",
            "best_checkpoint",
            "last_checkpoint",
        ] {
            assert_eq!(after[field], before[field], "{field}");
        }
        assert!(after["train_metrics"]["loss"].is_number(), "{after}");
        assert!(
            after["samples_per_second"].as_f64().unwrap() > 0.0,
            "{after}"
        );
    }
}

#[test]
fn a_checkpoint_of_a_newer_format_stops_the_resume() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut train(out, "--epochs 1 --checkpoint-every 10"));
    let newest = checkpoints(out).pop().unwrap();
    let manifest = fs::read_to_string(newest.join("manifest.json")).unwrap();
    let newer = manifest.replace("\"version\": 2", "\"version\": 99");
    assert_ne!(newer, manifest);
    fs::write(newest.join("manifest.json"), &newer).unwrap();
    let digest = Command::new("sha256sum")
        .arg(newest.join("manifest.json"))
        .output()
        .unwrap();
    let digest = String::from_utf8(digest.stdout).unwrap();
    let digest = digest.split_whitespace().next().unwrap();
    fs::write(
        newest.join("COMMIT"),
        format!("halite checkpoint 99\nmanifest.json sha256 {digest}\n"),
    )
    .unwrap();

    let error = fails(&mut train(out, "--epochs 1 --resume"));
    assert_contains(
        &error,
        &["step-00000020", "is of version 99", "--from step-00000010"],
    );
    let ended = succeeds(&mut train(out, "--epochs 1 --from step-00000010"));
    assert_eq!(ended.stderr, "", "nothing to warn of");
    assert_eq!(report(out)["resumed_from_step"], 10);
    assert_eq!(report(out)["steps"], 20);
    assert!(
        newest.join("manifest.json").exists(),
        "what could not be read is left alone"
    );
    // It stays the newest, whatever the other is called.
    let error = fails(&mut train(out, "--epochs 1 --resume"));
    assert_contains(&error, &["is of version 99", "--from step-00000020.2"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_checkpoint_that_cannot_be_read_stops_the_resume() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut train(out, "--epochs 1 --checkpoint-every 10"));
    let marker = checkpoints(out).pop().unwrap().join("COMMIT");
    let content = fs::read(&marker).unwrap();
    fs::remove_file(&marker).unwrap();
    // Reading it is an error of the device, EIO, for every account.
    std::os::unix::fs::symlink("/proc/self/mem", &marker).unwrap();
    let error = fails(&mut train(out, "--epochs 1 --resume"));
    assert_contains(
        &error,
        &[
            "step-00000020",
            "Input/output error",
            "--from step-00000010",
        ],
    );
    let error = fails(&mut train(out, "--epochs 1"));
    assert_contains(&error, &["already contains a run"]);
    fs::remove_file(&marker).unwrap();
    fs::write(&marker, content).unwrap();
    succeeds(&mut train(out, "--epochs 1 --resume"));
    assert_eq!(report(out)["resumed_from_step"], 20);
}

#[test]
fn from_names_the_checkpoints_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut train(out, "--epochs 1 --checkpoint-every 10"));
    for wrong in ["step-00000011", "11", "/somewhere/step-00000010", ".."] {
        let error = fails(train(out, "--epochs 1").args(["--from", wrong]));
        assert_contains(&error, &[wrong, "step-00000010", "step-00000020"]);
    }
    let expected = tempfile::tempdir().unwrap();
    succeeds(&mut train(expected.path(), "--epochs 1"));
    let full_path = out.join("checkpoints/step-00000010").display().to_string();
    for right in ["10", "step-00000010", &full_path] {
        let copy = tempfile::tempdir().unwrap();
        let out = copy.path().join("run");
        assert!(
            Command::new("cp")
                .arg("-r")
                .arg(dir.path())
                .arg(&out)
                .status()
                .unwrap()
                .success()
        );
        let right = right.replace(dir.path().to_str().unwrap(), out.to_str().unwrap());
        succeeds(train(&out, "--epochs 1").args(["--from", &right]));
        assert_eq!(report(&out)["resumed_from_step"], 10, "{right}");
        assert!(arrays(&out) == arrays(expected.path()));
        assert_eq!(table(&out), table(expected.path()));
    }
}

#[test]
fn a_plot_before_the_first_checkpoint_is_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut train(out, "--epochs 1"));
    // As a kill between the plot and the first checkpoint leaves it.
    fs::remove_file(out.join("report.json")).unwrap();
    for checkpoint in checkpoints(out) {
        fs::remove_dir_all(checkpoint).unwrap();
    }
    for resume in ["", "--resume"] {
        let ended = succeeds(&mut train(out, &format!("--epochs 1 {resume}")));
        assert!(!ended.stderr.contains("metrics.svg"), "{ended:?}");
        assert!(
            !names(out).iter().any(|name| name.contains("aside")),
            "{:?}",
            names(out)
        );
        fs::remove_file(out.join("report.json")).unwrap();
        for checkpoint in checkpoints(out) {
            fs::remove_dir_all(checkpoint).unwrap();
        }
    }
}

#[test]
fn a_report_without_checkpoints_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut train(out, "--epochs 1"));
    let old = ["metrics.csv", "metrics.svg", "report.json"]
        .map(|name| (name, fs::read(out.join(name)).unwrap()));
    for checkpoint in checkpoints(out) {
        fs::remove_dir_all(checkpoint).unwrap();
    }
    let ended = succeeds(&mut train(out, "--epochs 1 --seed 1"));
    for (name, content) in old {
        assert_eq!(
            fs::read(out.join(format!("{name}.aside"))).unwrap(),
            content,
            "{name}"
        );
        assert_contains(&ended.stderr, &[name]);
    }
}

#[test]
fn leftovers_of_kills_are_removed_at_resume() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut train(out, "--epochs 1 --checkpoint-every 5"));
    let store = out.join("checkpoints");
    let before = (names(out), names(&store));
    for left in [
        ".metrics.csv.tmp",
        ".metrics.svg.tmp",
        ".report.json.tmp",
        "checkpoints/.best.json.tmp",
    ] {
        fs::write(out.join(left), "half").unwrap();
    }
    fs::create_dir(store.join(".tmp-step-00000025")).unwrap();
    succeeds(&mut train(out, "--epochs 1 --resume"));
    assert_eq!((names(out), names(&store)), before);
}

#[test]
fn checkpoints_beyond_retention_are_removed_at_resume() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut train(out, "--epochs 1 --checkpoint-every 5"));
    // As kills between a save and its clean-up leave them.
    for extra in ["step-00000015.2", "step-00000015.3"] {
        let (from, to) = (
            out.join("checkpoints/step-00000015"),
            out.join("checkpoints").join(extra),
        );
        assert!(
            Command::new("cp")
                .arg("-r")
                .arg(from)
                .arg(to)
                .status()
                .unwrap()
                .success()
        );
    }
    // Nothing is left to do, so no save removes them.
    succeeds(&mut train(out, "--epochs 1 --resume"));
    let names: Vec<String> = checkpoints(out).iter().map(|path| name(path)).collect();
    assert_eq!(names, ["step-00000015.3", "step-00000020"]);
}

#[test]
fn a_removed_table_is_restored_at_resume() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut train(out, "--epochs 1"));
    let rows = table(out);
    fs::remove_file(out.join("metrics.csv")).unwrap();
    let ended = succeeds(&mut train(out, "--epochs 2 --resume"));
    assert_contains(
        &ended.stderr,
        &["WARN", "metrics.csv", "missing", "restored"],
    );
    assert_eq!(table(out)[..rows.len()], rows);
    assert!(table(out).len() > rows.len());
}

#[test]
fn a_swapped_table_is_set_aside_at_resume() {
    let dir = tempfile::tempdir().unwrap();
    let [out, other] = ["out", "other"].map(|name| dir.path().join(name));
    succeeds(&mut train(&out, "--epochs 1"));
    succeeds(&mut train(&other, "--epochs 1 --seed 1"));
    let rows = table(&out);
    let alien = fs::read(other.join("metrics.csv")).unwrap();
    fs::write(out.join("metrics.csv"), &alien).unwrap();
    let ended = succeeds(&mut train(&out, "--epochs 2 --resume"));
    assert_contains(&ended.stderr, &["WARN", "metrics.csv.aside", "restored"]);
    assert_eq!(fs::read(out.join("metrics.csv.aside")).unwrap(), alien);
    assert_eq!(table(&out)[..rows.len()], rows);

    // Rows cut off at the end are lost rows too.
    let text = fs::read_to_string(out.join("metrics.csv")).unwrap();
    let header = text.lines().next().unwrap();
    let rows = table(&out);
    fs::write(out.join("metrics.csv"), format!("{header}\n")).unwrap();
    let ended = succeeds(&mut train(&out, "--epochs 2 --resume"));
    assert_contains(&ended.stderr, &["metrics.csv.aside.2", "restored"]);
    assert_eq!(table(&out), rows);
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_directory_may_be_any_bytes() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join(OsStr::from_bytes(b"r\xffn"));
    succeeds(&mut train(&out, "--epochs 1"));
    succeeds(&mut train(&out, "--epochs 1 --resume"));
    let written = report(&out);
    assert_eq!(written["steps"], 20);
    let read = halite::train::Report::read(out.join("report.json")).unwrap();
    assert_eq!(
        read.last_checkpoint,
        Some(out.join("checkpoints/step-00000020"))
    );

    fs::write(
        dir.path().join("song.txt"),
        "row, row, row your boat\n".repeat(200),
    )
    .unwrap();
    let text = dir.path().join(OsStr::from_bytes(b"t\xfe"));
    let mut command =
        halite("train text --model tiny --batch-size 8 --steps 5 --quiet --sample 5 --prompt row");
    succeeds(
        command
            .arg("--data")
            .arg(dir.path().join("song.txt"))
            .arg("--out")
            .arg(&text),
    );
    for file in ["tokenizer.json", "sample.txt", "report.json"] {
        assert!(text.join(file).exists(), "{file}");
    }
}

#[cfg(unix)]
#[test]
fn a_lock_that_is_a_pipe_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    fs::create_dir(out.join("checkpoints")).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(out.join("checkpoints/.lock"))
            .status()
            .unwrap()
            .success()
    );
    let error = fails(&mut train(out, "--epochs 1"));
    assert_contains(&error, &[".lock", "not a plain file"]);
}
