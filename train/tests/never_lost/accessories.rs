//! Plots and tables that cannot be written.

use std::fs::{self, File};

use halite_backends::Accelerator;

use crate::{SAMPLES, fit, on, out_in, rows, saved, watched};

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
    let fitted = fit(on(&client).epochs(3).out(&out).resume(true), crate::points()).unwrap();
    assert_eq!(fitted.report.steps, 15);
    let validation = (15, "validation".to_string());
    assert_eq!(rows(&out).last(), Some(&validation));
}
