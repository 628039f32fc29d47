//! Loggers, early stopping and the table of runs on the command line.

use std::fs;

use super::support::{assert_contains, fails, halite, run, succeeds};

#[test]
fn run_is_logged_stopped_early_then_listed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("first");
    let mut command = halite(
        "train digits --model mlp --epochs 9 --patience 1 --min-delta 100 \
         --logger jsonl,tensorboard --log learning-rate,gradient-norm,throughput --quiet",
    );
    command
        .args(["--early-stopping", "validation loss", "--out"])
        .arg(&out);
    let ended = succeeds(&mut command);
    let stopped = "in 2 epochs, stopped by EarlyStopping: validation loss did not improve on ";
    assert_contains(&ended.stdout, &[stopped, "in 1 validation"]);
    assert!(!ended.stderr.contains("--resume"), "{}", ended.stderr);

    let table = fs::read_to_string(out.join("metrics.csv")).unwrap();
    assert_contains(
        table.lines().next().unwrap(),
        &["learning_rate", "gradient_norm", "samples_per_second"],
    );
    assert!(out.join("metrics.jsonl").is_file());
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert_contains(
        &page,
        &["<svg", "learning_rate", "stopped by EarlyStopping"],
    );

    let plot = dir.path().join("all.svg");
    let mut runs = halite("runs");
    runs.arg(dir.path()).arg("--plot").arg(&plot);
    let listed = succeeds(&mut runs).stdout;
    assert_contains(
        &listed,
        &["best validation loss", "stopped by EarlyStopping", "first"],
    );
    assert_contains(
        &fs::read_to_string(plot).unwrap(),
        &["validation loss", "first"],
    );
}

#[test]
fn unknown_logger_or_monitor_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let refused = run(&mut halite("train digits --logger wandb"));
    assert_contains(
        &refused.stderr,
        &["unknown logger `wandb`; expected csv, jsonl, tensorboard"],
    );
    let mut command = halite("train digits --model mlp --quiet --early-stopping val_los --out");
    let error = fails(command.arg(dir.path()));
    let metrics = "it has `train loss`, `train accuracy`, `validation loss`, `validation accuracy`";
    assert_contains(&error, &["no metric `val_los`", metrics]);
    // Before anything is downloaded.
    let cache = tempfile::tempdir().unwrap();
    let mut command = halite("train mnist --monitor acc --quiet --cache-dir");
    command.arg(cache.path());
    assert_contains(&fails(&mut command), &["no metric `acc`", metrics]);
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
}

#[test]
fn best_checkpoints_are_listed_with_their_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = halite(
        "train digits --model mlp --epochs 3 --save-top-k all --keep-last 1 --quiet \
         --monitor val_accuracy --filename {epoch}-{val_accuracy:.3} --out",
    );
    succeeds(command.arg(dir.path()));
    let listed = succeeds(halite("checkpoint ls").arg(dir.path())).stdout;
    let named = |epoch: usize| format!("-epoch={epoch}-val_accuracy=0.");
    assert_contains(
        &listed,
        &[&named(1), &named(2), &named(3), "best: accuracy "],
    );

    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert_contains(
        &page,
        &["<h2>Predictions</h2>", "src=\"data:image/png;base64,"],
    );
}

#[test]
fn range_test_suggests_a_rate() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = halite("train digits --model mlp --range-test --quiet --out");
    let found = succeeds(command.arg(dir.path())).stdout;
    let parts = [
        "steps with learning rates from 1.00e-8 to ",
        " half of the descent is done",
        "train with --learning-rate ",
        "range-test.svg",
    ];
    assert_contains(&found, &parts);
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}
