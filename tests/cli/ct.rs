//! `halite train ct`: from JPEG files and a table to ROC-AUC.

use std::{fs, path::Path};

use crate::support::{arrays, assert_contains, fails, halite, report, succeeds, table};

/// 20 images of five studies.
fn generated(dir: &Path) {
    let fake = "data fake ct --out ct --studies 5 --slices 4 --side 40";
    succeeds(halite(fake).current_dir(dir));
}

/// A run of two epochs with random transforms.
const RUN: &str = "train ct --data ct --model resnet18 --max-epochs 2 --print-every 1 --log-every 1 \
                   --transforms 32,random-resized-crop=0.6..1,rotate=10,brightness=0.2";

#[test]
fn ct_resumes_in_mid_epoch_to_the_bit() {
    // 16 images of training: eight steps an epoch, and two.
    for (accelerator, batch, stop) in [("embedded:1", 2, 11), ("cpu:8", 1, 3)] {
        let dir = tempfile::tempdir().unwrap();
        generated(dir.path());
        let command = |rest: &str| {
            let flags = format!("{RUN} --accelerator {accelerator} --batch-size {batch} {rest}");
            let mut command = halite(&flags);
            command.current_dir(dir.path());
            command
        };
        let whole = succeeds(&mut command("--out whole"));
        succeeds(&mut command(&format!("--out parts --max-steps {stop}")));
        succeeds(&mut command("--out parts --resume"));
        let [whole_run, parts] = ["whole", "parts"].map(|out| dir.path().join(out));
        assert!(arrays(&whole_run) == arrays(&parts), "the arrays differ");
        assert_eq!(table(&whole_run).last(), table(&parts).last());
        let devices = if accelerator == "cpu:8" { 8 } else { 1 };
        assert_contains(
            &whole.stderr,
            &[
                "16 images of training, 4 of validation",
                &format!("batches of {}, learning rate", devices * batch),
                &format!("(1e-4 times {devices})"),
                "steps  loss ",
                "of validation)",
            ],
        );
        let metrics = &report(&whole_run)["metrics"];
        assert!(
            metrics.to_string().contains("roc_auc/pe_present_on_image"),
            "{metrics}"
        );
    }
}

#[test]
fn unusable_tables_of_ct_are_named() {
    let dir = tempfile::tempdir().unwrap();
    generated(dir.path());
    let error = |rest: &str| fails(halite(&format!("{RUN} {rest}")).current_dir(dir.path()));
    assert_contains(&error("--fold 5"), &["--fold 5 of --folds 5"]);
    assert_contains(&error("--labels absent"), &["no column `absent`"]);
    assert_contains(&error("--folds 6"), &["5", "6"]);
    let path = dir.path().join("ct/train.csv");
    let text = fs::read_to_string(&path).unwrap();
    let first = text.lines().nth(1).unwrap();
    let (ids, _) = first.rsplit_once(',').unwrap();
    fs::write(&path, format!("{text}{ids},2\n")).unwrap();
    assert_contains(&error(""), &["line 22", "2 is out of range"]);
    fs::write(&path, format!("{text}{}\n", first.replacen(',', "x,", 1))).unwrap();
    assert_contains(&error(""), &["line 22"]);
}
