//! `halite train mnist` and `train digits`: output, files and report of a run.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use halite_tests::long::part;

use crate::support::{
    Ended, arrays, assert_contains, checkpoints, halite, name, newest_step, report, run, succeeds,
    table, wrapped,
};

/// 20 steps per epoch, and 20 batches of validation data.
const RUN: &str = "train mnist --model mlp --limit 1280 --batch-size 64";

fn train(out: &Path, more: &str) -> Ended {
    succeeds(halite(&format!("{RUN} {more}")).arg("--out").arg(out))
}

fn number(out: &Path, name: &str) -> f64 {
    let report = report(out);
    let value = report
        .get(name)
        .or_else(|| report["metrics"].get(name))
        .and_then(|value| value.as_f64());
    value.unwrap_or_else(|| panic!("no number `{name}` in {report}"))
}

#[test]
fn run_never_blocks_on_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let ended = train(&out, "--epochs 2");
    assert_report_of_two_epochs(&out);
    assert_files_of_two_epochs(&out);
    assert_output_of_two_epochs(&ended);
}

fn assert_report_of_two_epochs(out: &Path) {
    assert_eq!(number(out, "steps"), 40.0);
    assert_eq!(number(out, "blocking_reads"), 0.0);
    assert_eq!(number(out, "step_compiles"), 1.0);
    // Each is compiled, or loaded from the cache if an earlier test compiled it.
    assert_eq!(
        number(out, "compiles") + number(out, "cache_hits"),
        3.0,
        "init, step, evaluate"
    );
    // Images, labels and weights of every batch of both kinds; the key; an empty window of metrics
    // at the start, two at the end of each epoch, and one for each validation; hyperparameters.
    assert_eq!(
        number(out, "uploads"),
        f64::from(2 * (20 + 20) * 3 + 1 + 1 + 2 * 2 + 2 + 1)
    );
    assert!(number(out, "accuracy") > 0.7);
    assert!(number(out, "input_wait_seconds") < number(out, "seconds"));
}

fn assert_files_of_two_epochs(out: &Path) {
    let rows = table(out);
    assert_eq!(rows[0], ["step", "epoch", "split", "loss", "accuracy"]);
    let heads: Vec<String> = rows[1..].iter().map(|row| row[..3].join(" ")).collect();
    assert_eq!(
        heads,
        [
            "20 0 train",
            "20 0 validation",
            "40 1 train",
            "40 1 validation"
        ]
    );
    let first_validation: f64 = rows[2][3].parse().unwrap();
    assert!(number(out, "loss") < first_validation, "it learns");
    assert_eq!(rows[4][3], number(out, "loss").to_string());

    let plot = fs::read_to_string(out.join("metrics.svg")).unwrap();
    assert!(plot.starts_with("<svg"));
    let names: Vec<String> = checkpoints(out).iter().map(|path| name(path)).collect();
    assert_eq!(names, ["step-00000020", "step-00000040"]);
}

fn assert_output_of_two_epochs(ended: &Ended) {
    assert_contains(
        &ended.stdout,
        &[
            "accuracy",
            "40 in 2 epochs",
            "blocking reads",
            "plot, table and report: ",
        ],
    );
    assert_contains(
        &ended.stderr,
        &[
            "epoch 1/2  20 steps  loss ",
            "epoch 2/2  20 steps  loss ",
            "validation accuracy ",
        ],
    );
    assert!(
        !ended.stderr.contains('\x1b'),
        "colors without a terminal: {}",
        ended.stderr
    );
}

#[test]
fn quiet_prints_only_the_result() {
    let dir = tempfile::tempdir().unwrap();
    let ended = train(dir.path(), "--epochs 1 --quiet");
    assert_eq!(ended.stderr, "");
    assert!(ended.stdout.starts_with("accuracy "), "{}", ended.stdout);
}

#[test]
fn eight_devices_have_the_losses_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let [one, eight, resumed, grid] =
        ["one", "eight", "resumed", "grid"].map(|name| dir.path().join(name));
    train(&one, "--epochs 2");
    train(&eight, "--epochs 2 --accelerator cpu:8");
    train(
        &grid,
        "--epochs 2 --accelerator cpu:8 --mesh data=2,model=4 --strategy fsdp+tp",
    );
    let expected = losses(&one);
    assert_eq!(expected.len(), 4);
    for run in [&eight, &grid] {
        assert_eq!(number(run, "devices"), 8.0);
        assert_eq!(
            (number(run, "step_compiles"), number(run, "blocking_reads")),
            (1.0, 0.0)
        );
        for (loss, expected) in losses(run).iter().zip(&expected) {
            assert!(
                (loss - expected).abs() < 1e-4,
                "{:?} on eight devices, {expected:?} on one",
                losses(run)
            );
        }
    }

    let ended = interrupted_then_resumed(
        &resumed,
        "--epochs 2 --accelerator cpu:8 --checkpoint-every 3",
    );
    assert!(ended.stderr.contains("resumed at step "), "{ended:?}");
    assert_eq!(
        (
            number(&resumed, "step_compiles"),
            number(&resumed, "blocking_reads")
        ),
        (1.0, 0.0)
    );
    assert!(arrays(&resumed) == arrays(&eight));
    assert_eq!(table(&resumed), table(&eight));

    // A run resumes on another number of devices.
    let report = report(&one);
    let changed = succeeds(
        halite(&format!(
            "{RUN} --epochs 3 --accelerator cpu --devices 4 --resume --out"
        ))
        .arg(&one),
    );
    assert!(changed.stderr.contains("resumed at step 40"), "{changed:?}");
    assert_eq!(number(&one, "steps"), 60.0);
    assert!(number(&one, "loss") < report["metrics"]["loss"].as_f64().unwrap());
}

fn interrupted_then_resumed(out: &Path, more: &str) -> Ended {
    let command = || {
        let mut command = halite(&format!("{RUN} {more}"));
        command.arg("--out").arg(out);
        command
    };
    let mut running = crate::support::Running::start(&mut command());
    running.until("its first checkpoint", || newest_step(out) > 0);
    running.kill();
    run(command().arg("--resume"))
}

fn losses(out: &Path) -> Vec<f64> {
    table(out)[1..]
        .iter()
        .map(|row| row[3].parse().unwrap())
        .collect()
}

/// `cargo run` builds the program in the process that then executes it.
#[cfg(target_os = "linux")]
#[test]
fn first_step_counts_from_the_start_of_the_program() {
    const BUILD: Duration = Duration::from_secs(5);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let script = format!("sleep {}; exec \"$0\" \"$@\"", BUILD.as_secs());
    let mut run =
        halite("train digits --model mlp --epochs 1 --quiet --accelerator embedded --out");
    run.arg(&out).env("CARGO", "/usr/bin/cargo");
    let started = Instant::now();
    succeeds(&mut wrapped(&["sh", "-c", &script], &run));
    let took = (started.elapsed() - BUILD).as_secs_f64();
    let first = report(&out)["process_seconds_to_first_step"]
        .as_f64()
        .unwrap();
    assert!(first > 0.0 && first < took, "{first} s of {took} s");
}

/// A run of two epochs with random transforms, on 20 images of five studies.
const CT: &str = "train ct --data ct --model resnet18 --max-epochs 2 --print-every 1 --log-every 1 \
                  --transforms 32,random-resized-crop=0.6..1,rotate=10,brightness=0.2";

#[test]
fn ct_resumes_in_mid_epoch_to_the_bit() {
    // 16 images of training: eight steps an epoch, and two.
    for &(accelerator, batch, stop) in part(&[("embedded:1", 2, 11), ("cpu:8", 1, 3)], &[0]) {
        let dir = tempfile::tempdir().unwrap();
        let fake = "data fake ct --out ct --studies 5 --slices 4 --side 40";
        succeeds(halite(fake).current_dir(dir.path()));
        let command = |rest: &str| {
            let flags = format!("{CT} --accelerator {accelerator} --batch-size {batch} {rest}");
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
