//! `halite train text`: what a run prints, writes and refuses.

use std::{fs, path::Path};

use crate::support::{arrays, fails, halite, report, succeeds};

/// A few thousand characters, of which there are 16 kinds.
fn text(dir: &Path) -> String {
    let path = dir.join("song.txt");
    fs::write(&path, "row, row, row your boat\r\ngently down\r\n".repeat(150)).unwrap();
    path.display().to_string()
}

const RUN: &str = "train text --config tiny --batch-size 8 --epochs 2 --steps 10 --quiet --prompt row --sample 20";

#[test]
fn a_run_leaves_what_its_tokens_mean_and_a_sample_and_resumes_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = text(dir.path());
    let out = |name: &str| dir.path().join(name);
    let ended = succeeds(halite(RUN).args(["--data", &data, "--out"]).arg(out("run")));
    let report = report(&out("run"));
    assert_eq!((report["steps"].as_u64(), report["blocking_reads"].as_u64()), (Some(20), Some(0)), "{report}");
    let loss = report["metrics"]["loss"].as_f64().unwrap();
    // Line ends are one character.
    assert!(loss < 16f64.ln(), "{report}");
    assert!(ended.stdout.contains(&format!("perplexity {:.2}, ", loss.exp())), "{ended:?}");
    let sample = fs::read_to_string(out("run").join("sample.txt")).unwrap();
    assert!(sample.starts_with("row") && sample.chars().count() == 23, "{sample}");
    assert!(ended.stdout.contains(&sample), "{ended:?}");
    let tokenizer = fs::read_to_string(out("run").join("tokenizer.json")).unwrap();
    assert!(tokenizer.contains("\"characters\": \"\\n ,"), "{tokenizer}");

    succeeds(halite(RUN).args(["--data", &data, "--checkpoint-every", "7", "--out"]).arg(out("parts")));
    fs::remove_dir_all(out("parts").join("checkpoints/step-00000020")).unwrap();
    succeeds(halite(RUN).args(["--data", &data, "--resume", "--out"]).arg(out("parts")));
    assert!(arrays(&out("parts")) == arrays(&out("run")));
    assert_eq!(fs::read_to_string(out("parts").join("sample.txt")).unwrap(), sample);
}

#[test]
fn what_cannot_work_is_told_before_anything_is_trained() {
    let dir = tempfile::tempdir().unwrap();
    let data = text(dir.path());
    for (arguments, part) in [
        ("--prompt Zebra", "'Z' is none of the 16 characters"),
        ("--context 9000 --prompt row", "tokens in windows in which 9000 are told"),
        ("--dropout 1 --prompt row", "dropout 1 is not in 0 to 1"),
        ("--validation 0 --prompt row", "a part of 0 for validation"),
        ("--batch-size 0 --prompt row", "`batch_size` is 0"),
    ] {
        let error =
            fails(halite("train text --config tiny").args(["--data", &data]).args(arguments.split(' ')).current_dir(dir.path()));
        assert!(error.contains(part), "{arguments}: {error}");
    }
}
