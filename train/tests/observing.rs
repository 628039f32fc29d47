//! Loggers, early stopping and measurements of a run.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use halite_backends::Accelerator;
use halite_core::{Client, DTypePolicy, Result};
use halite_data::{Labeled, records::Records};
use halite_nn::{
    Adam, Optimizer, Schedule, Sgd, Tensor,
    schedule::{Mode, Plateau},
};
use halite_telemetry::ClientMetrics;
use halite_train::{
    Callback, EarlyStopping, Fitted, LearningRateMonitor, LoggerName, Measure, ModelCheckpoint,
    ObservingOptions, ReduceLrOnPlateau, ThroughputMonitor, Trainer, TrainerBuilder,
    TrainerOptions, Weighted,
    callback::{MetricsWindow, Run},
    loggers::{CsvLog, Row, Split, SummaryWriter},
    signals::StopReason,
    task,
};
use serde_json::Value;

use crate::shared::plane::{Model, Plane, samples};

fn client() -> Client {
    Accelerator::cpu().open().unwrap()
}

/// A trainer of three steps an epoch.
fn on(client: &Client, out: &Path) -> TrainerBuilder {
    Trainer::builder(client)
        .batch_size(4)
        .quiet(true)
        .log_every(2)
        .out(out)
}

fn fit(trainer: TrainerBuilder) -> Result<Fitted<Plane>> {
    let trainer = trainer.build()?;
    trainer.fit(
        Plane,
        Model::new(),
        Adam::new(0.1),
        samples(12),
        samples(12),
    )
}

fn weights(fitted: &Fitted<Plane>) -> Vec<f32> {
    let weight = fitted.model.out.weight.read().unwrap();
    weight.as_slice::<f32>().unwrap().to_vec()
}

/// Improvements below 1000 do not count: the first value is the best.
fn stopping(monitor: &str) -> EarlyStopping {
    EarlyStopping::new(monitor).patience(3).min_delta(1000.0)
}

#[test]
fn resumed_run_stops_where_the_whole_one_does() {
    let (client, dir) = (client(), tempfile::tempdir().unwrap());
    for monitor in ["validation loss", "train loss"] {
        let out = dir.path().join(monitor);
        let run = |name: &str, epochs| {
            let trainer = on(&client, &out.join(name)).epochs(epochs).resume(true);
            fit(trainer.callback(stopping(monitor))).unwrap()
        };
        let whole = run("whole", 10);
        assert_eq!(
            (whole.report.steps, whole.stopped_by),
            (12, Some(StopReason::Callback))
        );
        let by = whole.report.stopped_by.as_deref().unwrap();
        assert!(
            by.starts_with(&format!("EarlyStopping: {monitor} did not improve on ")),
            "{by}"
        );

        assert_eq!(run("parts", 2).report.steps, 6);
        let parts = run("parts", 10);
        assert_eq!(parts.report.steps, 12);
        assert_eq!(weights(&parts), weights(&whole));
        assert_eq!(crate::shared::plane::saved(&out.join("parts"))[0], 12);
        // A run that was stopped stays so, with more patience it continues.
        let again = run("parts", 10).report;
        assert_eq!(again.steps, 12);
        // Its metrics are those of the validation, as before.
        assert_eq!(again.metrics, whole.report.metrics);
        assert_eq!(again.metrics_of_step, Some(12));
        assert_ne!(again.metrics, again.train_metrics);
        let patient = stopping(monitor).patience(5);
        let trainer = on(&client, &out.join("parts")).epochs(10).resume(true);
        assert_eq!(fit(trainer.callback(patient)).unwrap().report.steps, 18);
    }
}

#[test]
fn callback_of_another_run_counts_anew() {
    let (client, dir) = (client(), tempfile::tempdir().unwrap());
    let trainer = on(&client, dir.path())
        .epochs(10)
        .callback(stopping("loss"));
    for name in ["first", "second"] {
        let fitted = fit(trainer.clone().out(dir.path().join(name))).unwrap();
        assert_eq!(fitted.report.steps, 12);
    }
}

#[test]
fn report_of_a_stopped_run_names_the_step_of_its_validation() {
    let (client, dir) = (client(), tempfile::tempdir().unwrap());
    let run = on(&client, dir.path()).epochs(10);
    let fitted = fit(run.callback(StopAt(5))).unwrap();
    let report = fitted.report;
    // It stopped in the second epoch of three steps.
    assert_eq!((report.steps, report.metrics_of_step), (5, Some(3)));
    assert_eq!(report.train_metrics_of_steps, Some([4, 5]));
    assert!(report.to_string().contains("(step 3)"), "{report}");
}

/// Stops the run after this step.
struct StopAt(u64);

impl Callback for StopAt {
    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        if run.step() == self.0 {
            run.stop();
        }
        Ok(())
    }
}

/// Records the last steps of the windows of metrics.
struct Windows(Arc<Mutex<Vec<u64>>>);

impl Callback for Windows {
    fn on_train_metrics(&mut self, _: &mut Run, window: &MetricsWindow) -> Result<()> {
        self.0.lock().unwrap().push(window.row.step);
        Ok(())
    }
}

#[test]
fn printed_lines_have_metrics_of_their_own() {
    let (client, dir) = (client(), tempfile::tempdir().unwrap());
    let steps = Arc::<Mutex<Vec<u64>>>::default();
    let run = on(&client, dir.path()).epochs(3).quiet(false).log_every(5);
    fit(run.print_every(2).callback(Windows(steps.clone()))).unwrap();
    let steps = steps.lock().unwrap();
    for step in [2, 4, 5, 6, 8] {
        assert!(steps.contains(&step), "{steps:?}");
    }
}

#[test]
fn direction_that_no_name_tells_is_asked_for() {
    let (client, dir) = (client(), tempfile::tempdir().unwrap());
    let fit = |change: &dyn Fn(TrainerBuilder) -> TrainerBuilder| {
        let net = Model::new();
        let loss = task(
            &net,
            |cx, net: &Model<Tensor<'_>>, batch: &Labeled<Tensor<'_>>| {
                let error = (net.out.forward(batch.input) - batch.target).square();
                cx.metric("gain", batch.mean(1.0 / (error + 1.0)));
                batch.mean(error)
            },
        );
        let run = Trainer::builder(&client)
            .batch_size(4)
            .epochs(6)
            .quiet(true);
        let run = change(run.out(dir.path().join("run"))).build()?;
        run.fit(loss, net, Adam::new(0.1), samples(12), samples(12))
    };
    let watch: &dyn Fn(TrainerBuilder) -> TrainerBuilder =
        &|run| run.callback(EarlyStopping::new("gain"));
    let rank: &dyn Fn(TrainerBuilder) -> TrainerBuilder =
        &|run| run.checkpoint(ModelCheckpoint::new("gain"));
    let reduce: &dyn Fn(TrainerBuilder) -> TrainerBuilder =
        &|run| run.callback(ReduceLrOnPlateau::new(Plateau::new("gain")));
    for (change, option) in [
        (
            watch,
            "`EarlyStopping::mode` (--early-stopping-mode min or max)",
        ),
        (rank, "`ModelCheckpoint::mode` (--monitor-mode min or max)"),
        (reduce, "`Plateau::mode`"),
    ] {
        let error = fit(change).err().unwrap().to_string();
        assert!(
            error.contains("`gain` does not say its direction"),
            "{error}"
        );
        assert!(error.contains(option), "{error}");
    }
    let ranked = ModelCheckpoint::new("gain").mode(Mode::Max);
    let fitted = fit(&|run| run.checkpoint(ranked.clone())).unwrap();
    let rows = fitted.report;
    assert_eq!(rows.best_step, Some(18), "{rows}");
}

#[test]
fn unknown_monitor_is_refused_before_the_first_step() {
    let (client, dir) = (client().measured(), tempfile::tempdir().unwrap());
    let out = dir.path().join("run");
    let known = "the run has no metric `val_los`; it has `train loss`, `validation loss`; did you \
                 mean `validation loss`?";
    let refused = |change: &dyn Fn(TrainerBuilder) -> TrainerBuilder, expected: &str| {
        let error = fit(change(on(&client, &out))).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!out.exists(), "no file is opened: {error}");
    };
    refused(&|run| run.callback(EarlyStopping::new("val_los")), known);
    let plateau = || ReduceLrOnPlateau::new(Plateau::new("val_los"));
    refused(&|run| run.callback(plateau()), known);
    let best = || ModelCheckpoint::new("val_los");
    refused(&|run| run.checkpoint(best()), known);
    let named = || {
        ModelCheckpoint::default()
            .filename("{epoch}-{val_los}")
            .unwrap()
    };
    refused(&|run| run.checkpoint(named()), known);
    let impatient = || EarlyStopping::new("loss").patience(0);
    refused(
        &|run| run.callback(impatient()),
        "`patience` is 0; it must be at least 1",
    );
    let change = || EarlyStopping::new("loss").min_delta(-1.0);
    refused(
        &|run| run.callback(change()),
        "`min_delta` is -1; it must be 0 or more",
    );
    let monitor = || ThroughputMonitor::new().peak_flops(0.0);
    refused(
        &|run| run.callback(monitor()),
        "`peak_flops` is 0; it must be positive",
    );
    let compiled = client.metrics().activity().compiles.len();
    assert_eq!(compiled, 0, "nothing is compiled");
}

fn with_loggers(out: &Path, client: &Client) -> TrainerBuilder {
    let observing = ObservingOptions {
        logger: vec![
            LoggerName::Csv,
            LoggerName::JsonLines,
            LoggerName::TensorBoard,
            LoggerName::JsonLines,
        ],
        ..ObservingOptions::default()
    };
    let options = TrainerOptions {
        batch_size: 4,
        log_every_n_steps: 2,
        quiet: true,
        observing,
        ..TrainerOptions::default()
    };
    Trainer::builder(client).options(options).out(out)
}

/// The rows of `metrics.csv`, without the times.
fn csv_rows(out: &Path) -> Vec<Row> {
    let rows = CsvLog::resume(out.join("metrics.csv"), u64::MAX).unwrap();
    let rows = rows.rows().unwrap().into_iter();
    rows.map(|row| Row {
        seconds: 0.0,
        ..row
    })
    .collect()
}

/// The rows of `metrics.jsonl`, without the times.
fn json_rows(out: &Path) -> Vec<Row> {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let row = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let metrics = line["metrics"].as_object().unwrap().iter();
        Row {
            step: line["step"].as_u64().unwrap(),
            epoch: line["epoch"].as_u64().unwrap(),
            seconds: 0.0,
            split: line["split"].as_str().unwrap().parse::<Split>().unwrap(),
            metrics: metrics
                .map(|(name, value)| (name.clone(), value.as_f64().unwrap()))
                .collect(),
        }
    };
    text.lines().map(row).collect()
}

/// The payloads of all event files, oldest first, without their times.
fn events(dir: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.to_string_lossy().contains("tfevents"))
        .collect();
    files.sort();
    let records = |path| Records::new(fs::File::open(path).unwrap());
    let payloads = files.iter().flat_map(records).map(|payload| {
        let mut payload = payload.unwrap();
        assert_eq!(payload[0], 0x09, "an event begins with its time");
        payload[1..9].fill(0);
        payload
    });
    payloads.collect()
}

#[test]
fn all_loggers_have_the_rows_of_a_run_in_two_parts() {
    let (client, dir) = (client(), tempfile::tempdir().unwrap());
    let [whole, parts] = ["whole", "parts"].map(|name| dir.path().join(name));
    fit(with_loggers(&whole, &client).epochs(3)).unwrap();
    for epochs in [1, 3] {
        fit(with_loggers(&parts, &client).epochs(epochs).resume(true)).unwrap();
    }
    let rows = csv_rows(&whole);
    assert!(rows.len() >= 6, "{rows:?}");
    for out in [&whole, &parts] {
        assert_eq!(csv_rows(out), rows);
        assert_eq!(json_rows(out), rows);
    }
    // Version, start, hyperparameters, and the rows.
    assert_eq!(events(&whole).len(), 3 + rows.len());
    assert_eq!(events(&parts).len(), 2 * 3 + rows.len());
    let has = |payload: &[u8], tag: &str| {
        payload
            .windows(tag.len())
            .any(|part| part == tag.as_bytes())
    };
    for (event, row) in events(&whole)[3..].iter().zip(&rows) {
        assert!(has(event, &format!("loss/{}", row.split)), "{row:?}");
    }
}

#[test]
fn loggers_without_a_directory_are_refused() {
    let observing = ObservingOptions {
        logger: vec![LoggerName::TensorBoard],
        ..ObservingOptions::default()
    };
    let options = TrainerOptions {
        observing,
        ..TrainerOptions::default()
    };
    let error = Trainer::builder(&client())
        .options(options)
        .build()
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("`logger` needs `out`"),
        "{error}"
    );
}

#[test]
fn throughput_is_logged_with_the_metrics() {
    let (client, dir) = (client(), tempfile::tempdir().unwrap());
    let monitor = ThroughputMonitor::new()
        .tokens_per_sample(10)
        .peak_flops(1e9);
    fit(on(&client, dir.path()).epochs(3).callback(monitor)).unwrap();
    let rows = csv_rows(dir.path());
    let measured: Vec<&Row> = rows
        .iter()
        .filter(|row| row.get("samples_per_second").is_some())
        .collect();
    assert!(measured.len() >= 3, "{rows:?}");
    for row in measured {
        let of = |name: &str| row.get(name).unwrap();
        assert_eq!(row.split, Split::Train);
        assert!(of("samples_per_second") > 0.0);
        assert_eq!(of("tokens_per_second"), 10.0 * of("samples_per_second"));
        // Forward and the gradient of the weights: 16 operations each in a step of 4 samples.
        let flops = of("mfu") * 1e9 / of("samples_per_second");
        assert!((flops - 8.0).abs() < 1e-9, "{flops}");
    }
}

#[test]
fn utilization_refers_to_the_peak_of_the_devices() {
    for (devices, precision, peak) in [
        (1, DTypePolicy::F32, 1e9),
        (1, DTypePolicy::TF32, 4e9),
        (2, DTypePolicy::F32, 2e9),
    ] {
        let (client, dir) = (
            crate::shared::specified::client(devices),
            tempfile::tempdir().unwrap(),
        );
        let trainer = on(&client, dir.path()).epochs(3).precision(precision);
        let fitted = fit(trainer.callback(ThroughputMonitor::new())).unwrap();
        let flops = |mfu: f64, speed: f64| mfu * peak / speed;
        let rows = csv_rows(dir.path());
        let measured: Vec<&Row> = (rows.iter())
            .filter(|row| row.get("samples_per_second").is_some())
            .collect();
        assert!(measured.len() >= 3, "{rows:?}");
        for row in measured {
            let of = |name: &str| row.get(name).unwrap();
            let flops = flops(of("mfu"), of("samples_per_second"));
            assert!((flops - 8.0).abs() < 1e-9, "{flops}");
        }
        let report = fitted.report;
        let flops = flops(report.mfu.unwrap(), report.samples_per_second);
        assert!((flops - 8.0).abs() < 1e-9, "{flops}");
        assert_eq!(report.device.peak_flops, Some(peak / f64::from(devices)));
        assert_eq!(report.device.memory, Some(2 << 30));
        let text = report.to_string();
        let line = "Abacus 3, 2.15 GB of memory, 0.0 TFLOP/s in bf16 at most";
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn cpu_has_no_utilization() {
    let (client, dir) = (client(), tempfile::tempdir().unwrap());
    let fitted = fit(on(&client, dir.path()).callback(ThroughputMonitor::new())).unwrap();
    assert_eq!(
        (fitted.report.mfu, fitted.report.device.bf16_flops),
        (None, None)
    );
    let rows = csv_rows(dir.path());
    assert!(rows.iter().all(|row| row.get("mfu").is_none()), "{rows:?}");
}

#[test]
fn learning_rates_are_logged_with_the_metrics() {
    let (client, dir) = (client(), tempfile::tempdir().unwrap());
    let rate = Schedule::linear(0.9, 0.0, 9);
    let optimizer = Adam::new(rate)
        .group("**.bias", |adam| adam.learning_rate(0.5))
        .unwrap();
    let trainer = on(&client, dir.path())
        .epochs(3)
        .callback(LearningRateMonitor);
    let trainer = trainer.build().unwrap();
    trainer
        .fit(Plane, Model::new(), optimizer, samples(12), samples(12))
        .unwrap();
    for row in csv_rows(dir.path()) {
        let expected = (row.split == Split::Train).then(|| 0.1 * (10 - row.step) as f64);
        let rate = row.get("learning_rate");
        assert_eq!(rate.is_some(), expected.is_some(), "{row:?}");
        let difference = rate.unwrap_or(0.0) - expected.unwrap_or(0.0);
        assert!(difference.abs() < 1e-12, "{row:?}");
        assert_eq!(row.get("learning_rate of **.bias"), expected.map(|_| 0.5));
    }
}

#[test]
fn gradient_norm_is_that_of_the_update() {
    const RATE: f64 = 0.125;
    let (client, dir) = (client(), tempfile::tempdir().unwrap());
    let after = |epochs| {
        // One step an epoch.
        let trainer = on(&client, dir.path())
            .batch_size(12)
            .log_every(1)
            .resume(true);
        let trainer = trainer
            .epochs(epochs)
            .log([Measure::GradientNorm])
            .build()
            .unwrap();
        let (train, validation) = (samples(12), samples(12));
        let fitted = trainer
            .fit(Plane, Model::new(), Sgd::new(RATE), train, validation)
            .unwrap();
        let bias = fitted.model.out.bias.as_ref().unwrap().read().unwrap();
        [weights(&fitted), bias.as_slice::<f32>().unwrap().to_vec()].concat()
    };
    let (first, second) = (after(1), after(2));
    let moved = first
        .iter()
        .zip(&second)
        .map(|(a, b)| f64::from(b - a).powi(2));
    let norm = moved.sum::<f64>().sqrt() / RATE;
    let rows = csv_rows(dir.path());
    let row = rows
        .iter()
        .find(|row| row.step == 2 && row.split == Split::Train)
        .unwrap();
    let logged = row.get("gradient_norm").unwrap();
    assert!((logged - norm).abs() < 1e-5 * norm, "{logged} {norm}");
    assert!(
        rows.iter()
            .all(|row| (row.split == Split::Train) == row.get("gradient_norm").is_some())
    );
}

/// The file is checked by `tensorboard/check.py`.
#[test]
fn event_file_is_that_which_tensorboard_reads() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = SummaryWriter::starting_at(dir.path(), 3).unwrap();
    let scalars = [("loss/train", 0.5), ("loss/validation", 0.25)];
    let scalars = scalars.map(|(tag, value)| (tag.to_string(), value));
    writer.add_scalars(scalars, 3).unwrap();
    writer.add_scalar("not finite", f64::NAN, 4).unwrap();
    writer.add_text("sample", "**\u{e4}** | text", 5).unwrap();
    let pixels: Vec<u8> = (0..18).collect();
    writer.add_image("picture", &pixels, [2, 3, 3], 6).unwrap();
    writer
        .add_scalar("loss/train", -1.5, 300_000_000_000)
        .unwrap();

    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tensorboard/golden.tfevents");
    let written = events(dir.path());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let mut file = Vec::new();
        for payload in &written {
            halite_data::records::write_record(&mut file, payload).unwrap();
        }
        fs::write(&golden, file).unwrap();
    }
    let expected: Vec<Vec<u8>> = Records::new(&fs::read(golden).unwrap()[..])
        .collect::<Result<_>>()
        .unwrap();
    assert_eq!(written, expected);
}
