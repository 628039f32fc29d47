//! Closed output streams do not end a run, and cause no panic.

use std::{fs, io, path::Path, process::Command};

use crate::support::{Ended, cache, fails, halite, newest_step, run};

const RUN: &str = "train mnist --model mlp --limit 640 --batch-size 64 --epochs 1 --out";

/// A pipe whose reader is gone.
fn closed() -> io::PipeWriter {
    io::pipe().unwrap().1
}

/// Runs it with a closed pipe for stdout and gives its exit code and stderr.
fn without_reader(command: &mut Command) -> (Option<i32>, String) {
    let output = command.stdout(closed()).output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// Asserts that stderr has no message of a panic.
#[track_caller]
fn assert_no_panic(ended: &Ended) {
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
}

#[test]
fn training_continues_without_stderr() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    // The log has a line for every step.
    let mut command = halite(RUN);
    command
        .arg(&out)
        .env("HALITE_LOG", "debug")
        .stderr(closed());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(newest_step(&out), 10);
}

#[test]
fn training_continues_without_stdout() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let (code, stderr) = without_reader(halite(RUN).arg(&out));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(out.join("report.json").exists());
}

#[test]
fn training_on_text_continues_without_stderr() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    fs::write(&text, "A short text, again and again. ".repeat(200)).unwrap();
    let mut command =
        halite("train text --model tiny --context 16 --steps 3 --batch-size 4 --sample 0");
    command
        .arg("--data")
        .arg(&text)
        .arg("--out")
        .arg(dir.path().join("run"));
    let output = command.stderr(closed()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn installation_continues_without_stderr() {
    // The installation prints its first line, and fails without pip.
    let dir = tempfile::tempdir().unwrap();
    let mut command = halite("plugins install cpu");
    command
        .env("HALITE_CACHE_DIR", dir.path())
        .env("PATH", dir.path());
    let output = command.stderr(closed()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn commands_succeed_with_closed_stdout() {
    cache();
    for arguments in [
        "",
        "--help",
        "devices",
        "plugins list",
        "plugins check cpu --only buffer",
    ] {
        let (code, stderr) = without_reader(&mut halite(arguments));
        assert_eq!(code, Some(0), "`{arguments}`: {stderr}");
        assert!(
            !stderr.contains("error") && !stderr.contains("panicked"),
            "`{arguments}`: {stderr}"
        );
    }
}

#[test]
fn failure_to_start_threads_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    fs::write(&text, "A short text. ".repeat(200)).unwrap();
    let data = format!(
        "train text --model tiny --context 16 --steps 3 --data {}",
        text.display()
    );
    let train = format!("{RUN} {}", dir.path().join("run").display());
    for arguments in [
        &*train,
        &data,
        "plan tiny --target cpu:1",
        "plugins check cpu",
    ] {
        // A stack of this size exceeds the memory of any system.
        let ended = run(halite(arguments).env("RUST_MIN_STACK", (1u64 << 47).to_string()));
        assert_eq!(ended.status.code(), Some(1), "`{arguments}`: {ended:?}");
        assert!(ended.error().contains("thread"), "`{arguments}`: {ended:?}");
        assert_no_panic(&ended);
    }
}

#[test]
fn million_of_threads_is_refused() {
    let error = fails(halite("devices --accelerator cpu:2").env("NPROC", "1000000"));
    assert!(
        error.contains("NPROC=1000000 sets the number of XLA's threads; expected at most 4096"),
        "{error}"
    );
}

#[test]
fn unwritable_output_is_an_error_at_the_end() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let ended = halite("cache list").stdout(full).output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let error = String::from_utf8(ended.stderr).unwrap();
    assert!(
        error.contains("print: the output is incomplete: No space left on device"),
        "{error}"
    );
}
