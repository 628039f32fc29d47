//! Jobs of several processes by `halite launch`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use halite::train::checkpoint::Saved;
use halite_tests::runs::newest;
use safetensors::SafeTensors;

use crate::support::{
    Running, arrays, assert_contains, checkpoints, fails, halite, newest_step, report, run,
    succeeds,
};

/// Two processes of `halite train digits`.
fn launch(dir: &Path, options: &str, train: &str) -> Command {
    let logs = dir.join("logs");
    let mut command = halite(&format!("launch -n 2 {options} --log-dir"));
    command
        .arg(logs)
        .args(["--", "halite", "train", "digits", "--model", "mlp"]);
    command
        .args(train.split_whitespace())
        .arg("--out")
        .arg(dir.join("run"));
    command
}

#[test]
fn two_processes_train_as_well_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let ended = succeeds(&mut launch(dir.path(), "", "--epochs 8"));
    assert_contains(&ended.stdout, &["[0] accuracy"]);
    assert!(!ended.stdout.contains("[1] accuracy"), "{ended:?}");
    let accuracy = |out: &Path| report(out)["metrics"]["accuracy"].as_f64();
    let two = accuracy(&dir.path().join("run"));
    let alone = dir.path().join("alone");
    succeeds(halite("train digits --model mlp --epochs 8 --out").arg(&alone));
    let (two, one) = (two.expect("a metric"), accuracy(&alone).expect("a metric"));
    assert!(
        (two - one).abs() < 0.02,
        "{two} by two processes, {one} by one"
    );
    for rank in 0..2 {
        assert!(dir.path().join(format!("logs/rank-{rank}.log")).is_file());
    }
}

#[test]
fn terminated_launch_saves_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let train = "--epochs 100000 --checkpoint-every 5";
    let mut running = Running::start(&mut launch(dir.path(), "", train));
    running.until("a checkpoint", || newest_step(&out) > 0);
    running.signal("TERM");
    let ended = running.end();
    assert_eq!(ended.code(), Some(143), "{ended:?}");
    assert_contains(&ended.stderr, &["halite launch: stopped by SIGTERM"]);
    assert_eq!(report(&out)["steps"], newest_step(&out));
}

#[test]
fn early_stopping_is_a_success() {
    let dir = tempfile::tempdir().unwrap();
    let train = "--epochs 9 --early-stopping loss --patience 1 --min-delta 9";
    let ended = succeeds(&mut launch(dir.path(), "", train));
    assert!(!ended.stderr.contains("stopped by"), "{ended:?}");
    assert_eq!(report(&dir.path().join("run"))["interrupted"], true);
}

#[test]
fn failing_process_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let script = "echo hello; [ $PMI_RANK = 0 ] || exit 3; sleep 100";
    let mut command = halite("launch -n 2 --grace 0 --log-dir");
    command.arg(&logs).args(["--", "sh", "-c", script]);
    let error = fails(&mut command);
    assert_contains(&error, &["launch: process 1: exited with status 3"]);
    assert_eq!(
        fs::read_to_string(logs.join("rank-1.log")).unwrap(),
        "hello\n"
    );
}

/// A program without a job does all the work in each process.
#[test]
fn processes_that_join_no_job_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = halite("launch -n 2 --log-dir");
    command.arg(dir.path()).args(["--", "cat"]);
    let ended = succeeds(&mut command);
    assert_contains(&ended.stderr, &["note: no process joined the job"]);
}

#[test]
fn each_process_has_files_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = launch(dir.path(), "", "--max-steps 4");
    command.env("HALITE_PROFILE", dir.path().join("trace.json"));
    command.env("HALITE_METRICS_FILE", dir.path().join("metrics.jsonl"));
    succeeds(&mut command);
    for name in ["trace.0.json", "trace.1.json"] {
        let text = fs::read(dir.path().join(name)).unwrap();
        let events: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
        assert!(
            events.iter().any(|event| event["name"] == "upload"),
            "{name}"
        );
    }
    for name in ["metrics.0.jsonl", "metrics.1.jsonl"] {
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        let line = text.lines().next().expect("a line of metrics");
        assert!(
            serde_json::from_str::<serde_json::Value>(line).is_ok(),
            "{line}"
        );
    }
}

#[test]
fn restart_continues_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let train = "--epochs 4 --checkpoint-every 10";
    let mut running = Running::start(&mut launch(dir.path(), "--restarts 2", train));
    running.until("a checkpoint", || newest_step(&out) > 0);
    // Process 1 is killed as by a system without memory.
    let find = "kill -9 $(for p in /proc/[0-9]*; do \
                tr '\\0' '\\n' 2>/dev/null < $p/environ | grep -qx \"PMI_RANK=1\" && \
                tr '\\0' ' ' < $p/cmdline | grep -q \"^[^ ]*halite train .*$0\" && \
                basename $p; done)";
    let killed = Command::new("sh")
        .args(["-c", find])
        .arg(&out)
        .status()
        .unwrap();
    assert!(killed.success());
    let ended = running.end();
    assert!(ended.succeeded(), "{ended:?}");
    // MPI aborts process 0 if it is reading the memory of the killed one; either may end first.
    let causes = ["killed by SIGKILL", "ended by SIGABRT"];
    assert!(
        causes.iter().any(|cause| ended.stderr.contains(cause)),
        "{ended:?}"
    );
    assert_contains(&ended.stderr, &["starting again (1 of 2)"]);
    let whole = tempfile::tempdir().unwrap();
    succeeds(&mut launch(whole.path(), "", train));
    assert_eq!(arrays(&out), arrays(&whole.path().join("run")));
}

#[test]
fn restart_does_not_resume_another_run() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    succeeds(halite("train digits --model mlp --epochs 1 --out").arg(&out));
    let before = arrays(&out);
    let error = fails(&mut launch(dir.path(), "--restarts 1", "--epochs 1"));
    assert_contains(
        &error,
        &["starting again (1 of 1)", "already contains a run"],
    );
    assert_eq!(arrays(&out), before);
}

#[test]
fn job_shows_every_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = halite("launch -n 2 --log-dir");
    command
        .arg(dir.path())
        .args(["--", "halite", "job", "--accelerator", "embedded"]);
    let ended = succeeds(&mut command);
    let expected = [
        "recognized  MPI (PMI_RANK=0 PMI_SIZE=2)",
        "processes   2",
        "[0] 0 ",
        "[0] 1 ",
    ];
    assert_contains(&ended.stdout, &expected);
}

#[test]
fn contradicting_launchers_are_refused() {
    let mut command = halite("job");
    command
        .env("WORLD_SIZE", "4")
        .env("RANK", "1")
        .env("MASTER_ADDR", "localhost");
    command
        .env("SLURM_STEP_ID", "0")
        .env("SLURM_PROCID", "0")
        .env("SLURM_NTASKS", "3");
    let error = fails(&mut command);
    assert_contains(
        &error,
        &["process 0 of 3 by SLURM", "but process 1 of 4 by torchrun"],
    );
}

/// A run of two processes in `dir`, on the embedded executor.
fn trained(dir: &Path) {
    let train = "--accelerator embedded --batch-size 256 --epochs 2";
    succeeds(&mut launch(dir, "", train));
}

#[test]
fn checkpoint_of_a_job_is_consolidated() {
    let dir = tempfile::tempdir().unwrap();
    trained(dir.path());
    let checkpoint = |arguments: &str| {
        let mut command = halite(&format!("checkpoint {arguments}"));
        command.current_dir(dir.path());
        command
    };
    let listed = succeeds(&mut checkpoint("ls run")).stdout;
    assert_contains(&listed, &["step-", "2 epochs", "best: "]);
    let shown = succeeds(&mut checkpoint("show run")).stdout;
    let parts = [
        "process-00000-arrays.safetensors, ",
        "process-00001-arrays.safetensors, ",
    ];
    assert_contains(&shown, &parts);
    assert_contains(&shown, &["format 3"]);
    assert_contains(
        &succeeds(&mut checkpoint("verify run")).stdout,
        &["whole    run/", "4 files"],
    );

    succeeds(&mut checkpoint("consolidate run --out model.safetensors"));
    let file = fs::read(dir.path().join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let mut saved = Saved::of_run(dir.path().join("run")).unwrap();
    let wanted: Vec<_> = (saved.arrays())
        .filter(|(name, _)| name.starts_with("model."))
        .map(|(name, ty)| (name.to_string(), ty.clone()))
        .collect();
    assert_eq!(file.len(), wanted.len());
    for ((name, ty), array) in wanted.iter().zip(saved.take_some(&wanted).unwrap()) {
        let exported = file.tensor(&name["model.".len()..]).unwrap();
        assert_eq!(
            (exported.shape(), exported.data()),
            (ty.dims(), array.bytes()),
            "{name}"
        );
    }

    // A process alone continues the run.
    let train = "train digits --model mlp --accelerator embedded --batch-size 256 --resume";
    succeeds(
        halite(train)
            .args(["--epochs", "3", "--out"])
            .arg(dir.path().join("run")),
    );

    let (_, newest) = newest(&dir.path().join("run")).unwrap();
    assert!(newest.join("arrays.safetensors").is_file());
    let part = newest_of_job(&dir.path().join("run")).join("process-00001-arrays.safetensors");
    let mut bytes = fs::read(&part).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&part, bytes).unwrap();
    let ended = run(&mut checkpoint("verify run"));
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert_contains(
        &ended.stdout,
        &["process-00001-arrays.safetensors does not have the xxh3_128"],
    );
}

/// The newest checkpoint of several processes.
fn newest_of_job(out: &Path) -> PathBuf {
    let of_job = |path: &PathBuf| path.join("process-00001-arrays.safetensors").is_file();
    checkpoints(out).into_iter().rfind(of_job).unwrap()
}

/// The measurements of processes in the report of a run.
fn processes_of(out: &Path) -> Vec<serde_json::Value> {
    let processes = &report(out)["processes"];
    processes.as_array().expect("a list").clone()
}

#[test]
fn four_processes_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut command = halite("launch -n 4 --threads 1 --log-dir");
    command.arg(dir.path().join("logs")).args(["--", "halite"]);
    let train = "train digits --model mlp --accelerator embedded --epochs 8 --out";
    let ended = succeeds(command.args(train.split(' ')).arg(&out));
    let accuracy = report(&out)["metrics"]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.9, "{accuracy}");
    let processes = processes_of(&out);
    assert_eq!(processes.len(), 4, "{processes:?}");
    for (rank, process) in processes.iter().enumerate() {
        let number = |name: &str| process[name].as_f64().unwrap_or(-1.0);
        assert_eq!(process["process"], rank, "{process}");
        assert_eq!(process["steps"], report(&out)["steps"], "{process}");
        assert!(number("bytes_sent") > 0.0, "{process}");
        let exchanged = number("exchange_seconds");
        assert!(
            exchanged > 0.0 && exchanged < number("training_seconds"),
            "{process}"
        );
        assert_contains(&ended.stdout, &[&format!("[0] process {rank}  ")]);
    }
    let shown = succeeds(halite("runs").arg(&out));
    assert_contains(&shown.stdout, &["process 3  ", " ms a step, input wait "]);
}

#[test]
fn warning_of_all_processes_is_printed_once() {
    let script = "echo \" WARN both\" >&2; echo \" WARN of $PMI_RANK\" >&2; echo both";
    let dir = tempfile::tempdir().unwrap();
    let mut command = halite("launch -n 3 --log-dir");
    let ended = succeeds(command.arg(dir.path()).args(["--", "sh", "-c", script]));
    assert_eq!(ended.stderr.matches(" WARN both").count(), 1, "{ended:?}");
    assert_eq!(ended.stderr.matches(" WARN of ").count(), 3, "{ended:?}");
    assert_eq!(ended.stdout.matches("both").count(), 3, "{ended:?}");
    let log = fs::read_to_string(dir.path().join("rank-2.log")).unwrap();
    assert_contains(&log, &[" WARN both"]);
}
