use super::*;

fn report() -> Report {
    Report {
        metrics: [
            ("accuracy".to_string(), 0.9893),
            ("loss".to_string(), 0.0312),
        ]
        .into(),
        train_metrics: [("loss".to_string(), f64::NAN)].into(),
        steps: 1876,
        epochs: 2,
        seconds: 184.7,
        samples_per_second: 702.4,
        training_seconds: 200.0,
        input_wait_seconds: 1.4,
        device_busy_seconds: Some(190.1),
        compiles: 2,
        uploads: 3800,
        devices: 1,
        precision: "f32".into(),
        plugin: "cpu".into(),
        plugin_version: "0.115".into(),
        halite_version: "0.1.0".into(),
        seed: 7,
        best_checkpoint: Some("runs/mnist/checkpoints/step-00001876".into()),
        ..Report::default()
    }
}

#[test]
fn report_round_trips_numbers_that_are_not_finite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    report().write(&path).unwrap();
    let back = Report::read(&path).unwrap();
    assert!(back.train_metrics["loss"].is_nan());
    assert_eq!(
        Report {
            train_metrics: BTreeMap::new(),
            ..back
        },
        Report {
            train_metrics: BTreeMap::new(),
            ..report()
        }
    );
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(value["metrics"]["accuracy"], 0.9893);
    assert_eq!(value["train_metrics"]["loss"], "NaN");
    std::fs::write(&path, r#"{"metrics":{"loss":"many"}}"#).unwrap();
    assert!(
        Report::read(&path)
            .unwrap_err()
            .to_string()
            .contains("`many` is not a value of `loss`")
    );
}

#[cfg(unix)]
#[test]
fn paths_of_any_bytes_come_back() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    for checkpoint in [
        None,
        Some(PathBuf::from("runs/\u{e4}")),
        Some(PathBuf::from(OsStr::from_bytes(b"r\xffn/1"))),
    ] {
        let report = Report {
            best_checkpoint: checkpoint.clone(),
            last_checkpoint: checkpoint,
            ..Report::default()
        };
        report.write(&path).unwrap();
        assert_eq!(Report::read(&path).unwrap(), report);
    }
}

#[test]
fn report_names_the_device_with_its_peak() {
    let report = Report {
        device: DeviceReport {
            kind: "NVIDIA H200".into(),
            memory: Some(112_600_000_000),
            bf16_flops: Some(989.5e12),
            peak_flops: Some(67e12),
        },
        mfu: Some(0.4137),
        loss_scale: Some(65_536.0),
        ..report()
    };
    let text = report.to_string();
    for line in [
        "MFU               41.4 % of 67.0 TFLOP/s\n",
        "loss scale        65,536\n",
        "device            NVIDIA H200, 113 GB of memory, 989.5 TFLOP/s in bf16 at most\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn report_prints_as_a_table() {
    let want = "\
accuracy          98.93 %
loss              0.03120
loss in training  NaN
steps             1,876 in 2 epochs
time              3 min 05 s
speed             702 samples/s
input wait        1.4 s (1 %)
device busy       95 %
precision         f32
plugin            cpu 0.115, devices: 1
compiles          2
blocking reads    0
uploads           3,800
seed              7
best checkpoint   runs/mnist/checkpoints/step-00001876";
    assert_eq!(report().to_string(), want);
    let better = Report {
        best_step: Some(938),
        best_metrics: [
            ("accuracy".to_string(), 0.9912),
            ("loss".to_string(), 0.0287),
            ("roc_auc/cat".to_string(), 0.5),
        ]
        .into(),
        ..report()
    };
    let end = "\nbest metrics      accuracy 99.12 %, loss 0.02870 (step 938)";
    assert!(better.to_string().ends_with(end), "{better}");
    let stopped = Report {
        interrupted: true,
        stopped_by: Some("EarlyStopping".into()),
        resumed_from_step: Some(938),
        metrics_of_step: Some(938),
        train_metrics: [("loss".to_string(), 0.5)].into(),
        train_metrics_of_steps: Some([1868, 1876]),
        ..report()
    };
    let start = "\
accuracy          98.93 % (step 938)
loss              0.03120 (step 938)
loss in training  0.5000 (steps 1,868 to 1,876)
steps             1,876 in 2 epochs, resumed from 938, stopped by EarlyStopping
";
    assert!(stopped.to_string().starts_with(start), "{stopped}");
    let warm = Report {
        process_seconds_to_first_step: Some(0.412),
        ..report()
    };
    assert!(
        warm.to_string()
            .contains("first step        0.41 s after the start of the process\n"),
        "{warm}"
    );
    let warm = Report {
        compiles: 0,
        cache_hits: 3,
        compile_seconds_saved: 1.25,
        ..report()
    };
    assert!(
        warm.to_string()
            .contains("compiles          0, cache hits 3, which saved 1.2 s\n"),
        "{warm}"
    );
}
