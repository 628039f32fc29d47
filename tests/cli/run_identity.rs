//! `--resume` with other data or options than the saved run: refused, accepted, or warned about.

use std::{fs, path::Path, process::Command};

use super::support::{
    Ended, arrays, assert_contains, checkpoints, fails, halite, report, run, succeeds,
};

const SONG: &str = "row, row, row your boat\ngently down\n";

const TEXT: &str =
    "train text --model tiny --batch-size 8 --steps 10 --quiet --prompt row --sample 5";

/// 20 steps of an epoch.
const MNIST: &str = "train mnist --model mlp --limit 640 --batch-size 32 --quiet";

fn text(dir: &Path, more: &str) -> Command {
    let mut command = halite(&format!("{TEXT} {more}"));
    command
        .arg("--data")
        .arg(dir.join("song.txt"))
        .arg("--out")
        .arg(dir.join("run"));
    command
}

fn mnist(out: &Path, more: &str) -> Command {
    let mut command = halite(&format!("{MNIST} {more} --out"));
    command.arg(out);
    command
}

/// A finished run of one epoch on [`SONG`], and its tokenizer.
fn finished_text() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("song.txt"), SONG.repeat(150)).unwrap();
    succeeds(&mut text(dir.path(), "--epochs 1"));
    let tokenizer = fs::read_to_string(dir.path().join("run/tokenizer.json")).unwrap();
    (dir, tokenizer)
}

#[test]
fn resume_refuses_a_text_of_other_letters() {
    let (dir, tokenizer) = finished_text();
    let rotate = |letter: char| match letter {
        'a'..='y' => char::from_u32(letter as u32 + 1).unwrap(),
        other => other,
    };
    let rotated: String = SONG.repeat(150).chars().map(rotate).collect();
    fs::write(dir.path().join("song.txt"), rotated).unwrap();
    let run =
        "train text --model tiny --batch-size 8 --steps 10 --quiet --epochs 2 --resume --data";
    let mut command = halite(run);
    let error = fails(
        command
            .arg(dir.path().join("song.txt"))
            .arg("--out")
            .arg(dir.path().join("run")),
    );
    // Numbered by their order, the letters of this text are the same tokens.
    assert_contains(
        &error,
        &[
            "tokenizer: saved chars ",
            "given chars ",
            "--allow-changes tokenizer",
        ],
    );
    let after = fs::read_to_string(dir.path().join("run/tokenizer.json")).unwrap();
    assert_eq!(
        after, tokenizer,
        "a refused resume leaves the run as it was"
    );
}

#[test]
fn resume_refuses_a_reversed_text() {
    let (dir, tokenizer) = finished_text();
    let reversed: String = SONG.repeat(150).chars().rev().collect();
    fs::write(dir.path().join("song.txt"), reversed).unwrap();
    let error = fails(&mut text(dir.path(), "--epochs 2 --resume"));
    assert_contains(
        &error,
        &[
            "training data (--data): saved sha256 ",
            "validation data (--data): saved sha256 ",
        ],
    );
    // The letters are the same.
    assert!(!error.contains("tokenizer: saved"), "{error}");
    assert_eq!(
        fs::read_to_string(dir.path().join("run/tokenizer.json")).unwrap(),
        tokenizer
    );
}

#[test]
fn a_refused_resume_names_every_difference() {
    let (dir, _) = finished_text();
    let more = "--epochs 2 --resume --dropout 0.25 --validation 0.5 --learning-rate 0.01 --seed 3";
    let error = fails(&mut text(dir.path(), more));
    assert_contains(
        &error,
        &[
            "step-00000010 belongs to another run",
            "\n  --dropout: saved 0, given 0.25",
            "\n  --validation: saved 0.05, given 0.5",
            "\n  optimizer (--learning-rate): saved ",
            "learning_rate: warmup(0.002, ",
            "learning_rate: warmup(0.01, ",
            "\n  seed (--seed): saved 0, given 3",
            "--allow-changes ",
            "another directory (`out`, --out)",
        ],
    );
    assert!(
        !error.contains("batch_size") && !error.contains("epochs:"),
        "what is the same is left out: {error}"
    );
}

#[test]
fn mnist_names_changed_data_sizes() {
    let dir = tempfile::tempdir().unwrap();
    succeeds(&mut mnist(dir.path(), "--epochs 1"));
    let saved = arrays(dir.path());
    let mut changed = halite(
        "train mnist --model cnn --limit 320 --batch-size 64 --epochs 2 --quiet --resume --out",
    );
    let error = fails(
        changed
            .args([dir.path()])
            .args(["--precision", "bf16-mixed"]),
    );
    assert_contains(
        &error,
        &[
            "--model: saved mlp, given cnn",
            "batch_size (--batch-size): saved 32, given 64",
            "samples (--limit, --steps): saved 640, given 320",
            "training data (--data): saved sha256 ",
            "precision (--precision): saved f32, given bf16-mixed",
            "`model.hidden.1.weight` is f32[512, 512] in the checkpoint",
        ],
    );
    assert!(arrays(dir.path()) == saved && checkpoints(dir.path()).len() == 1);
}

#[test]
fn named_changes_are_accepted_with_a_warning() {
    let (dir, _) = finished_text();
    let changes = "--epochs 2 --resume --dropout 0.25 --learning-rate 0.01";
    // One of two.
    let error = fails(text(dir.path(), changes).args(["--allow-changes", "dropout"]));
    assert_contains(&error, &["1 difference", "optimizer (--learning-rate)"]);
    assert!(!error.contains("--dropout:"), "{error}");

    let ended =
        succeeds(text(dir.path(), changes).args(["--allow-changes", "dropout,learning-rate"]));
    assert_contains(
        &ended.stderr,
        &[
            "WARN",
            "--dropout: saved 0, given 0.25",
            "optimizer (--learning-rate): saved ",
        ],
    );
    assert_eq!(report(&dir.path().join("run"))["steps"], 20);

    // The run is now one with these options.
    let ended = succeeds(&mut text(dir.path(), changes));
    assert!(!ended.stderr.contains("--dropout"), "{ended:?}");
    let error = fails(&mut text(dir.path(), "--epochs 2 --resume"));
    assert_contains(&error, &["--dropout: saved 0.25, given 0"]);
}

#[test]
fn an_unknown_change_is_refused_with_the_known_ones() {
    let (dir, _) = finished_text();
    let error = fails(text(dir.path(), "--epochs 2 --resume").args(["--allow-changes", "dropuot"]));
    assert_contains(&error, &["`dropuot`", "dropout", "batch-size", "all"]);
}

#[test]
fn accepted_batch_size_continues_at_the_same_sample() {
    let dir = tempfile::tempdir().unwrap();
    let stopped = succeeds(&mut mnist(dir.path(), "--epochs 2 --checkpoint-every 10"));
    assert!(stopped.status.success());
    // Only the checkpoint in the middle of the second epoch is left: 10 of its batches of 32 are
    // done.
    for checkpoint in checkpoints(dir.path()) {
        if !checkpoint.ends_with("step-00000030") {
            fs::remove_dir_all(checkpoint).unwrap();
        }
    }
    let mut command =
        halite("train mnist --model mlp --limit 640 --batch-size 64 --epochs 2 --quiet --resume");
    let ended = succeeds(
        command
            .args(["--allow-changes", "all", "--out"])
            .arg(dir.path()),
    );
    assert!(
        ended
            .stderr
            .contains("batch_size (--batch-size): saved 32, given 64"),
        "{ended:?}"
    );
    // Ten batches of 32 are five of 64; five more end the epoch.
    assert_eq!(report(dir.path())["steps"], 35);
}

#[test]
fn more_epochs_warn_of_the_changed_schedule() {
    let dir = tempfile::tempdir().unwrap();
    succeeds(&mut mnist(dir.path(), "--epochs 1"));
    let ended = succeeds(&mut mnist(dir.path(), "--epochs 2 --resume"));
    assert_contains(
        &ended.stderr,
        &[
            "WARN",
            "epochs (--max-epochs, --max-steps): saved 1, given 2",
            "learning-rate schedule",
            "cosine(0.002, 18)",
            "cosine(0.002, 36)",
        ],
    );
    assert_eq!(report(dir.path())["steps"], 40);
}

#[test]
fn other_devices_warn_that_bits_differ() {
    let dir = tempfile::tempdir().unwrap();
    succeeds(&mut mnist(dir.path(), "--epochs 1 --checkpoint-every 10"));
    fs::remove_dir_all(checkpoints(dir.path()).pop().unwrap()).unwrap();
    let ended = succeeds(&mut mnist(
        dir.path(),
        "--epochs 1 --accelerator cpu:2 --resume",
    ));
    let warned = |ended: &Ended| {
        ended
            .stderr
            .contains("mesh (--devices, --mesh): saved 1 device, given mesh(data=2)")
    };
    assert!(
        warned(&ended) && ended.stderr.contains("rounding"),
        "{ended:?}"
    );
    let again = run(&mut mnist(
        dir.path(),
        "--epochs 1 --accelerator cpu:2 --resume",
    ));
    assert!(again.status.success() && !warned(&again), "{again:?}");
}

#[test]
fn resume_of_another_run_lists_every_difference() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    let begin = "train mnist --model mlp --limit 640 --batch-size 32 --epochs 1 --quiet";
    succeeds(halite(&format!("{begin} --out")).arg(out));
    let saved = arrays(out);
    let refused = |arguments: &str| fails(halite(&format!("{arguments} --resume --out")).arg(out));

    let error = refused("train mnist --model mlp --limit 320 --batch-size 64 --epochs 2 --seed 9");
    for part in [
        "resume: ",
        "belongs to another run, ",
        "seed (--seed): saved 0, given 9",
        "batch_size (--batch-size): saved 32, given 64",
        "samples (--limit, --steps): saved 640, given 320",
        "another directory (`out`, --out)",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
    let error = refused("train mnist --model cnn --limit 640 --batch-size 32 --epochs 2");
    for part in [
        "--model: saved mlp, given cnn",
        "`model.conv1.weight` is not in the checkpoint",
        "another directory",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }

    // Without --resume, nothing is overwritten.
    let error = fails(halite(&format!("{begin} --out")).arg(out));
    for part in ["already contains a run, at step 20", "--resume", "--out"] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
    assert!(arrays(out) == saved && checkpoints(out).len() == 1);
}
