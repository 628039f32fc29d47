//! Plots and tables that cannot be written.

use std::fs::{self, File};

use halite_backends::Accelerator;

use crate::never_lost::{SAMPLES, fit, on, out_in, rows, saved, watched};

#[test]
fn plot_failure_does_not_end_the_run() {
    let client = Accelerator::cpu().open().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    let plot = out.join("metrics.svg");
    let data = watched(move |reads| {
        if reads == 0 {
            fs::create_dir(&plot).unwrap();
        }
    });
    let fitted = fit(on(&client).epochs(3).out(&out), data).unwrap();
    assert_eq!(fitted.report.steps, 15);
    assert_eq!(saved(&out)[0], 15);
    assert!(out.join("metrics.svg").is_dir());
}

#[test]
fn plot_is_drawn_again_once_it_can_be() {
    let client = Accelerator::cpu().open().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    let plot = out.join("metrics.svg");
    let data = watched(move |reads| match reads {
        0 => fs::create_dir(&plot).unwrap(),
        // In the second epoch.
        reads if reads == SAMPLES + 1 => fs::remove_dir(&plot).unwrap(),
        _ => {}
    });
    fit(on(&client).epochs(2).out(&out).workers(0), data).unwrap();
    assert!(out.join("metrics.svg").is_file());
}

#[test]
fn table_over_two_gibibytes_does_not_end_the_run() {
    let client = Accelerator::cpu().open().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    let table = out.join("metrics.csv");
    let data = watched(move |reads| {
        if reads == 0 {
            // A hole takes no space on the disk.
            let file = File::options().write(true).open(&table).unwrap();
            file.set_len((2 << 30) + 1).unwrap();
        }
    });
    let fitted = fit(on(&client).epochs(2).out(&out), data).unwrap();
    assert_eq!(saved(&out)[0], 10);
    assert_eq!(fitted.report.steps, 10);
    // The same directory can be resumed, with a table of its own.
    let fitted = fit(
        on(&client).epochs(3).out(&out).resume(true),
        crate::never_lost::points(),
    )
    .unwrap();
    assert_eq!(fitted.report.steps, 15);
    let validation = (15, "validation".to_string());
    assert_eq!(rows(&out).last(), Some(&validation));
}

#[cfg(target_os = "linux")]
#[test]
fn table_is_on_the_disk_before_its_checkpoint_counts() {
    const INSIDE: &str = "HALITE_TEST_TRACED";
    if let Some(out) = std::env::var_os(INSIDE) {
        let client = Accelerator::cpu().open().unwrap();
        let out = std::path::PathBuf::from(out);
        fit(on(&client).out(out), crate::never_lost::points()).unwrap();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let calls = dir.path().join("calls");
    let mut strace = std::process::Command::new("strace");
    strace
        .args(["-f", "-y", "-e", "trace=openat,write,fdatasync,fsync", "-o"])
        .arg(&calls);
    strace.arg(std::env::current_exe().unwrap());
    let test = "never_lost::accessories::table_is_on_the_disk_before_its_checkpoint_counts";
    let output = strace
        .args(["--exact", test])
        .env(INSIDE, out_in(&dir))
        .output();
    let Ok(output) = output.inspect_err(|error| eprintln!("skipped: no strace: {error}")) else {
        return;
    };
    let calls = fs::read_to_string(&calls).unwrap_or_default();
    if calls.is_empty() {
        eprintln!("skipped: this account may not trace: {output:?}");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let lines: Vec<&str> = calls.lines().collect();
    let last = |found: &dyn Fn(&str) -> bool| lines.iter().rposition(|line| found(line)).unwrap();
    let of_table = |line: &str| line.contains("/run/metrics.csv>");
    let written = last(&|line| line.contains("write(") && of_table(line));
    let synced = last(&|line| line.contains("sync(") && of_table(line));
    let committed = last(&|line| line.contains("openat(") && line.contains("/COMMIT\""));
    assert!(
        written < synced && synced < committed,
        "{written} {synced} {committed} {calls}"
    );
}
