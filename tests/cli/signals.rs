//! Signals that a run meets besides Ctrl-C: a terminal that is closed, signals that its parent
//! ignores, limits on files.

use std::{path::Path, process::Command};

use crate::support::{Running, checkpoints, halite, newest_step, report, run, wrapped};

const RUN: &str = "train mnist --model mlp --limit 1280 --batch-size 32";

/// The command under a shell that runs `before` first.
fn below_shell(before: &str, arguments: &str, out: &Path) -> Command {
    let script = format!("{before}; exec \"$@\"");
    let mut command = wrapped(&["sh", "-c", &script, "sh"], &halite(arguments));
    command.arg("--out").arg(out);
    command
}

#[test]
fn closed_terminal_saves_as_sigterm_does() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    // So many epochs that no signal comes too late.
    let mut command = halite(&format!("{RUN} --epochs 10000 --checkpoint-every 5 --out"));
    let mut running = Running::start(command.arg(&out));
    running.until("a checkpoint", || newest_step(&out) > 0);
    running.signal("HUP");
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(129), "{ended:?}");
    let report = report(&out);
    assert_eq!(
        (&report["interrupted"], &report["steps"]),
        (&true.into(), &newest_step(&out).into())
    );
}

#[test]
fn signals_ignored_at_start_stay_ignored() {
    for signal in ["INT", "HUP", "TERM"] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let arguments = format!("{RUN} --epochs 3 --checkpoint-every 5");
        let mut command = below_shell(&format!("trap '' {signal}"), &arguments, &out);
        let mut running = Running::start(&mut command);
        running.until("a checkpoint", || newest_step(&out) > 0);
        running.signal(signal);
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(0), "{signal}: {ended:?}");
        assert_eq!(
            (&report(&out)["interrupted"], newest_step(&out)),
            (&false.into(), 120)
        );
    }
}

#[test]
fn limit_on_file_sizes_is_an_error_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    // One or two megabytes, by the shell; a checkpoint has eight.
    let arguments = format!("{RUN} --epochs 1");
    let ended = run(&mut below_shell("ulimit -f 2048", &arguments, &out));
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let error = ended.error();
    assert!(
        error.contains("a limit on the size of files is set (`ulimit -f`)"),
        "{error}"
    );
    assert!(checkpoints(&out).is_empty());
}

#[test]
fn the_largest_number_of_epochs_trains() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = format!(
        "train mnist --model mlp --limit 64 --batch-size 32 --epochs {} --out",
        u64::MAX
    );
    let mut running = Running::start(halite(&arguments).arg(dir.path()));
    running.until("its first checkpoint", || newest_step(dir.path()) > 0);
    running.signal("TERM");
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(143), "{ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
}
