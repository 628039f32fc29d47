//! `halite train text`: what a run prints, writes and refuses.

use std::{fs, path::Path, process::Command};

use super::support::{arrays, fails, halite, report, run, succeeds};

/// A few thousand characters, of which there are 16 kinds.
fn text(dir: &Path) -> String {
    let path = dir.join("song.txt");
    fs::write(
        &path,
        "row, row, row your boat\r\ngently down\r\n".repeat(150),
    )
    .unwrap();
    path.display().to_string()
}

const RUN: &str =
    "train text --model tiny --batch-size 8 --epochs 2 --steps 10 --quiet --prompt row --sample 20";

#[test]
fn text_run_resumes_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = text(dir.path());
    let out = |name: &str| dir.path().join(name);
    let ended = succeeds(halite(RUN).args(["--data", &data, "--out"]).arg(out("run")));
    let report = report(&out("run"));
    assert_eq!(
        (report["steps"].as_u64(), report["blocking_reads"].as_u64()),
        (Some(20), Some(0)),
        "{report}"
    );
    let loss = report["metrics"]["loss"].as_f64().unwrap();
    // Line ends are one character.
    assert!(loss < 16f64.ln(), "{report}");
    assert!(
        ended
            .stdout
            .contains(&format!("perplexity {:.2}, ", loss.exp())),
        "{ended:?}"
    );
    let sample = fs::read_to_string(out("run").join("sample.txt")).unwrap();
    assert!(
        sample.starts_with("row") && sample.chars().count() == 23,
        "{sample}"
    );
    assert!(ended.stdout.contains(&sample), "{ended:?}");
    let tokenizer = fs::read_to_string(out("run").join("tokenizer.json")).unwrap();
    assert!(tokenizer.contains("\"characters\": \"\\n ,"), "{tokenizer}");

    succeeds(
        halite(RUN)
            .args(["--data", &data, "--checkpoint-every", "7", "--out"])
            .arg(out("parts")),
    );
    fs::remove_dir_all(out("parts").join("checkpoints/step-00000020")).unwrap();
    succeeds(
        halite(RUN)
            .args(["--data", &data, "--resume", "--out"])
            .arg(out("parts")),
    );
    assert!(arrays(&out("parts")) == arrays(&out("run")));
    assert_eq!(
        fs::read_to_string(out("parts").join("sample.txt")).unwrap(),
        sample
    );
}

#[test]
fn invalid_text_options_fail_before_training() {
    let dir = tempfile::tempdir().unwrap();
    let data = text(dir.path());
    for (arguments, part) in [
        (
            "--prompt Zebra",
            "--prompt \"Zebra\": 'Z' is not among the 16 characters",
        ),
        (
            "--context 9000",
            "to train on: 5130 tokens do not fill a window of 9000 + 1; use a context of at most 5129",
        ),
        ("--dropout 1 --prompt row", "`dropout` 1 is not in [0, 1)"),
        ("--validation 0 --prompt row", "a validation share of 0"),
    ] {
        let error = fails(
            halite("train text --model tiny")
                .args(["--data", &data])
                .args(arguments.split(' '))
                .current_dir(dir.path()),
        );
        assert!(error.contains(part), "{arguments}: {error}");
    }
    fs::write(dir.path().join("empty.txt"), "").unwrap();
    let made = Command::new("mkfifo").arg(dir.path().join("pipe")).status();
    assert!(made.unwrap().success());
    for (arguments, code, part) in [
        ("--data ./empty.txt", 1, "empty.txt is empty; expected text"),
        (
            "--data .",
            2,
            "it is a directory, not a plain file; expected `books` or a text file",
        ),
        (
            "--data /dev/zero",
            2,
            "it is a device, not a plain file; expected `books` or a text file",
        ),
        ("--data ./pipe", 2, "it is a pipe, not a plain file"),
        (
            "--data ./song.txt --batch-size 0",
            2,
            "'--batch-size <N>': expected a whole number of at least 1",
        ),
        (
            "--data ./song.txt --steps 0",
            2,
            "'--steps <N>': expected a whole number of at least 1",
        ),
        (
            "--data ./song.txt --temperature -1",
            2,
            "'--temperature <T>': expected 0 or a positive number",
        ),
        ("--data ./song.txt --prompt=", 2, "'--prompt <TEXT>'"),
    ] {
        let ended = run(halite("train text --model tiny")
            .args(arguments.split(' '))
            .current_dir(dir.path()));
        assert_eq!(ended.status.code(), Some(code), "{arguments}: {ended:?}");
        assert!(ended.stderr.contains(part), "{arguments}: {ended:?}");
    }
}

#[test]
fn default_prompt_is_the_beginning_of_the_text() {
    let dir = tempfile::tempdir().unwrap();
    let song = "Брка, брка\n".repeat(60);
    fs::write(dir.path().join("song.txt"), &song).unwrap();
    let run = "train text --model tiny --batch-size 8 --steps 2 --quiet --sample 5 --data ./song.txt --out ./run";
    succeeds(halite(run).current_dir(dir.path()));
    let sample = fs::read_to_string(dir.path().join("run/sample.txt")).unwrap();
    assert!(
        sample.starts_with("Брка") && sample.chars().count() == 9,
        "{sample}"
    );

    // Read as Latin-1 it is another text, which is reported.
    fs::write(
        dir.path().join("latin.txt"),
        [&b"r\xf6w, "[..]; 90].concat(),
    )
    .unwrap();
    let run = "train text --model tiny --batch-size 8 --steps 2 --quiet --sample 5 --data ./latin.txt --out ./latin";
    let ended = succeeds(halite(run).current_dir(dir.path()));
    assert!(
        ended
            .stderr
            .contains("latin.txt is not UTF-8 at byte 1; it is read as Latin-1"),
        "{ended:?}"
    );
}
