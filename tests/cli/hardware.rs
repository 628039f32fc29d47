//! The report of `benches/hardware`, in a short form on the CPU.

use std::{fs, process::Command};

use serde_json::Value;

use crate::support::{cache, succeeds};

#[test]
fn hardware_report_has_devices_and_a_resumed_run() {
    let dir = tempfile::tempdir().unwrap();
    let programs = dir.path().join("release");
    fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_halite"), programs.join("halite")).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/hardware/measure.py");
    let report = dir.path().join("report");
    succeeds(
        Command::new("python3")
            .env("HALITE_CACHE_DIR", cache().root())
            .arg(script)
            .args("--accelerator embedded --quick --only devices,resume --binaries".split(' '))
            .arg(dir.path())
            .arg("--out")
            .arg(&report),
    );
    let text = fs::read_to_string(report.join("report.json")).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let steps = value["steps"].as_array().unwrap();
    let names: Vec<_> = steps
        .iter()
        .map(|step| step["name"].as_str().unwrap())
        .collect();
    let expected = [
        "halite devices",
        "auto",
        "digits, 3 epochs",
        "digits, on to 6",
    ];
    assert_eq!(names, expected);
    assert!(steps.iter().all(|step| step["state"] == "ok"), "{text}");
    assert_eq!(steps[0]["devices"][0]["kind"], "embedded", "{text}");
    let accuracy = steps[3]["run"]["metrics"]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.9, "{text}");
    let page = fs::read_to_string(report.join("report.md")).unwrap();
    assert!(page.contains("- **digits, on to 6**: ok; "), "{page}");
}
