//! A run that was stopped, anywhere and in any way, and resumed comes to the same bits as one that
//! was not.
#![cfg(unix)]

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::BuildHasher,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    Running, arrays, assert_contains, checkpoints, fails, halite, name, newest_step, report, run,
    succeeds, table,
};

/// 80 steps in 2 epochs.
const RUN: &str = "train mnist --model mlp --limit 1280 --batch-size 32 --epochs 2";

/// What the run comes to when nothing happens to it.
struct Expected {
    out: PathBuf,
    _dir: tempfile::TempDir,
}

fn expected() -> &'static Expected {
    static EXPECTED: OnceLock<Expected> = OnceLock::new();
    EXPECTED.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        succeeds(halite(&format!("{RUN} --out")).arg(&out));
        Expected { out, _dir: dir }
    })
}

/// The same run, with checkpoints to continue from.
fn command(out: &Path) -> Command {
    let mut command = halite(&format!("{RUN} --checkpoint-every 5 --out"));
    command.arg(out);
    command
}

#[track_caller]
fn assert_is_as_expected(out: &Path) {
    let Expected { out: expected, .. } = expected();
    assert_eq!(newest_step(out), 80);
    assert!(arrays(out) == arrays(expected), "the arrays differ");
    assert_eq!(table(out), table(expected));
    let (report, expected) = (report(out), report(expected));
    for name in ["metrics", "steps", "epochs", "seed", "interrupted"] {
        assert_eq!(report[name], expected[name], "{name}");
    }
    assert_eq!(
        (
            report["step_compiles"].as_u64(),
            report["blocking_reads"].as_u64()
        ),
        (Some(1), Some(0))
    );
}

#[test]
fn ctrl_c_saves_the_run() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let dir = tempfile::tempdir().unwrap();
        let [endless, short] = ["endless", "short"].map(|name| dir.path().join(name));
        let mut stopped = 0;
        // So many epochs that no signal comes too late, however busy the machine is.
        for resume in [None, Some("--resume")] {
            let mut command =
                halite("train mnist --model mlp --limit 1280 --batch-size 32 --epochs 10000 --out");
            let mut running = Running::start(
                command
                    .arg(&endless)
                    .args(["--checkpoint-every", "5"])
                    .args(resume),
            );
            running.until("a new checkpoint", || newest_step(&endless) > stopped);
            running.signal(signal);
            let ended = running.end();
            assert_eq!(ended.status.code(), Some(code), "{signal}: {ended:?}");
            assert!(
                ended
                    .stderr
                    .contains("the same command with --resume continues the run"),
                "{ended:?}"
            );
            let report = report(&endless);
            assert_eq!(report["interrupted"], true);
            if resume.is_some() {
                assert!(
                    ended
                        .stderr
                        .contains(&format!("resumed at step {stopped}, epoch ")),
                    "{ended:?}"
                );
                assert_eq!(report["resumed_from_step"], stopped);
            }
            stopped = newest_step(&endless);
            assert_eq!(report["steps"], stopped, "the step it stopped at is saved");
        }

        // And one that comes to its end, in which a signal that is late has nothing to stop.
        let mut running = Running::start(&mut command(&short));
        running.until("its first checkpoint", || newest_step(&short) > 0);
        running.signal(signal);
        let ended = running.end();
        assert!(
            [Some(code), Some(0)].contains(&ended.status.code()),
            "{signal}: {ended:?}"
        );
        succeeds(command(&short).arg("--resume"));
        assert_is_as_expected(&short);
    }
}

#[test]
fn repeated_ctrl_c_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    let mut stops = 0;
    loop {
        let resumes = out.join("metrics.csv").exists();
        // Out of the cache it would take no time.
        let mut command = command(out);
        command
            .env("HALITE_COMPILE_CACHE", "off")
            .args(resumes.then_some("--resume"));
        let mut running = Running::start(&mut command);
        let written = || {
            fs::metadata(out.join("metrics.csv"))
                .and_then(|file| file.modified())
                .ok()
        };
        let before = written();
        running.until("the table was begun", || written() != before);
        // From here on signals are handled; the programs are not compiled yet.
        thread::sleep(Duration::from_millis(200));
        running.signal("INT");
        let ended = running.end();
        if ended.status.success() {
            // On a busy machine, the signal came when all was done.
            break;
        }
        assert_eq!(ended.status.code(), Some(130), "{ended:?}");
        stops += 1;
        assert!(newest_step(out) <= 80);
        if stops == 3 {
            break;
        }
    }
    succeeds(command(out).arg("--resume"));
    assert_is_as_expected(out);
}

#[test]
fn a_second_ctrl_c_ends_it_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    // Steps take seconds: after one signal the run ends when the queued steps are done.
    let mut command =
        halite("train mnist --model cnn --batch-size 4000 --checkpoint-every 1 --quiet --out");
    let mut running = Running::start(command.arg(out));
    running.until("its first checkpoint", || newest_step(out) > 0);
    running.signal("INT");
    thread::sleep(Duration::from_millis(300));
    let asked_again = Instant::now();
    running.signal("INT");
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    // A run that ends its queued steps would save a checkpoint and a report.
    assert!(
        !out.join("report.json").exists(),
        "the first Ctrl-C ended it: {ended:?}"
    );
    assert!(
        asked_again.elapsed() < Duration::from_secs(30),
        "it took {:?}, on a machine that may be busy",
        asked_again.elapsed()
    );
}

#[test]
fn sigkill_at_any_moment_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    let store = out.join("checkpoints");
    let is_writing = || {
        let names = fs::read_dir(&store)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| name(&entry.path()));
        names.into_iter().any(|name| name.starts_with(".tmp-"))
    };
    let mut delays = Vec::new();
    for moment in ["writing", "any", "writing", "any"] {
        let before = newest_step(out);
        let resume = (before > 0).then_some("--resume");
        let mut running = Running::start(command(out).args(resume));
        // Something new first, so that the runs together come to an end.
        running.until("a new checkpoint", || newest_step(out) > before);
        if moment == "writing" {
            running.until("a checkpoint is being written", || {
                is_writing() || newest_step(out) == 80
            });
        } else {
            let random = RandomState::new().hash_one(before) % 60;
            delays.push(random);
            thread::sleep(Duration::from_millis(random));
        }
        running.kill();
        eprintln!(
            "killed ({moment}) with the checkpoint of step {}",
            newest_step(out)
        );
        if newest_step(out) >= 60 {
            break;
        }
    }
    let ended = succeeds(command(out).arg("--resume"));
    assert!(
        !ended.stderr.contains("WARN"),
        "a kill damages nothing: {ended:?}"
    );
    let left: Vec<String> = fs::read_dir(&store)
        .unwrap()
        .map(|entry| name(&entry.unwrap().path()))
        .collect();
    assert!(
        left.iter()
            .all(|name| !name.starts_with(".tmp-") && !name.starts_with(".trash-")),
        "{left:?}"
    );
    eprintln!("delays of {delays:?} ms");
    assert_is_as_expected(out);
}

#[test]
fn resuming_a_finished_run_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    succeeds(&mut command(out));
    let before: Vec<PathBuf> = checkpoints(out);
    let ended = succeeds(command(out).arg("--resume"));
    assert!(ended.stdout.starts_with("accuracy "), "{ended:?}");
    assert_eq!(checkpoints(out), before);
    assert_eq!(
        (report(out)["metrics"].clone(), report(out)["steps"].clone()),
        (report(&expected().out)["metrics"].clone(), 80.into())
    );
    assert_eq!(table(out), table(&expected().out));
}

#[test]
fn damaged_checkpoints_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    let mut running = Running::start(&mut command(out));
    running.until("its third checkpoint", || newest_step(out) >= 15);
    running.signal("TERM");
    running.end();
    let [.., before, newest] = &checkpoints(out)[..] else {
        panic!("expected two checkpoints")
    };

    // One bit of one array.
    let path = newest.join("arrays.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let ended = succeeds(command(out).arg("--resume"));
    let step = name(before)
        .trim_start_matches("step-")
        .parse::<u64>()
        .unwrap();
    for part in [
        &format!("{} cannot be used", newest.display()),
        "xxh3_128",
        &format!("resumed at step {step},"),
    ] {
        assert!(
            ended.stderr.contains(part),
            "`{part}` is not in {}",
            ended.stderr
        );
    }
    assert_is_as_expected(out);

    for checkpoint in checkpoints(out) {
        fs::write(checkpoint.join("manifest.json"), "{}").unwrap();
    }
    let error = fails(command(out).arg("--resume"));
    for part in [
        "no checkpoint in ",
        " is valid",
        "step-00000080",
        "Move them away to start again",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[test]
fn resume_without_checkpoints_starts_a_new_run() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new");
    let ended = succeeds(
        halite("train mnist --model mlp --limit 64 --batch-size 32 --epochs 1 --resume --out")
            .arg(&out),
    );
    assert!(
        ended.stderr.contains(&format!(
            "nothing to resume in {}: starting a new run",
            out.display()
        )),
        "{ended:?}"
    );
    assert_eq!(newest_step(&out), 2);
}

#[test]
fn two_runs_do_not_write_into_one_directory() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    let mut first = Running::start(&mut command(out));
    first.until("its first checkpoint", || newest_step(out) > 0);
    let second = run(command(out).arg("--resume"));
    // If the first is done by now, the second finds a run that is.
    if second.status.success() {
        assert_eq!(report(out)["resumed_from_step"], 80, "{second:?}");
    } else {
        assert!(
            second.error().contains("is in use by another run"),
            "{second:?}"
        );
    }
    assert!(first.end().status.success());
    assert_is_as_expected(out);
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_in_use_names_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    let endless = |more: &[&str]| {
        let mut command = halite(
            "train mnist --model mlp --limit 640 --batch-size 32 --quiet --epochs 10000 --out",
        );
        command.arg(out).args(more);
        command
    };
    let mut running = Running::start(&mut endless(&["--checkpoint-every", "5"]));
    running.until("its first checkpoint", || newest_step(out) > 0);
    let error = fails(&mut endless(&["--resume"]));
    running.signal("TERM");
    running.end();
    assert_contains(
        &error,
        &["is in use by another run", "process ", " on ", "since "],
    );
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_contains(&error, &[host.trim()]);
}
