//! `halite train mnist` and `train digits`: the metrics and the bits that runs come to.

use std::path::Path;

use super::support::{
    arrays, assert_contains, checkpoints, fails, halite, newest_step, report, succeeds, table,
};

/// 20 steps of an epoch.
fn train(out: &Path, more: &str) {
    let run = "train mnist --model mlp --limit 1280 --batch-size 64 --quiet";
    succeeds(halite(&format!("{run} {more}")).arg("--out").arg(out));
}

#[test]
fn digits_reach_97_percent_without_a_download() {
    let dir = tempfile::tempdir().unwrap();
    succeeds(halite("train digits --quiet --out").arg(dir.path()));
    let accuracy = &report(dir.path())["metrics"]["accuracy"];
    assert!(accuracy.as_f64().unwrap() >= 0.97, "{accuracy}");
}

#[test]
fn metrics_rows_come_every_fifty_steps() {
    let dir = tempfile::tempdir().unwrap();
    succeeds(
        halite("train mnist --model mlp --limit 1600 --batch-size 16 --epochs 1 --quiet --out")
            .arg(dir.path()),
    );
    let rows = table(dir.path());
    let heads: Vec<String> = rows[1..].iter().map(|row| row[..3].join(" ")).collect();
    assert_eq!(heads, ["50 0 train", "100 0 train", "100 0 validation"]);
    assert!(
        rows[1..]
            .iter()
            .all(|row| row[3].parse::<f64>().unwrap() > 0.0),
        "{rows:?}"
    );
}

#[test]
fn number_of_workers_does_not_change_bits() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name);
    for workers in ["0", "1", "3"] {
        train(&out(workers), &format!("--epochs 1 --workers {workers}"));
        assert!(
            arrays(&out(workers)) == arrays(&out("0")),
            "{workers} workers"
        );
        assert_eq!(table(&out(workers)), table(&out("0")));
    }
    train(&out("other"), "--epochs 1 --seed 1");
    assert!(arrays(&out("other")) != arrays(&out("0")));
}

#[test]
fn divergence_names_the_step() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    let run = "train mnist --model mlp --limit 640 --batch-size 64 --epochs 1 --quiet --learning-rate 1e30";
    let error = fails(halite(&format!("{run} --checkpoint-every 1 --out")).arg(out));
    // The weights after the first step are still finite; their loss is not.
    assert_contains(
        &error,
        &[
            "fit: `loss` is not finite at step 2; ",
            "the checkpoints are from before",
            "A smaller learning rate",
        ],
    );
    assert_eq!((checkpoints(out).len(), newest_step(out)), (1, 1));
    assert!(!out.join("report.json").exists());
}
