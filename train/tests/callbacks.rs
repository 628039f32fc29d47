//! Callbacks and loggers of the user: their calls, and the effect of their errors.

use std::{
    collections::HashSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use expect_test::expect;
use halite_backends::Accelerator;
use halite_core::{Client, Error, ErrorKind, Result, custom_call};
use halite_data::Labeled;
use halite_nn::{Adam, CustomOp, Mean, Tensor, Trace};
use halite_train::{
    Callback, Fitted, Logger, Report, Task, Trainer, TrainerBuilder,
    callback::{MetricsWindow, PendingCheckpoint, Run},
    loggers::Row,
    signals::StopReason,
};

use crate::shared::plane::{Model, Plane, samples};

fn client() -> Client {
    Accelerator::cpu().open().unwrap()
}

fn on(client: &Client, out: &Path) -> TrainerBuilder {
    Trainer::builder(client)
        .batch_size(4)
        .quiet(true)
        .log_every(2)
        .out(out.join("run"))
}

fn fit(trainer: TrainerBuilder) -> Result<Fitted<Plane>> {
    // Three steps per epoch.
    let (train, validation) = (samples(12), samples(12));
    let trainer = trainer.build()?;
    trainer.fit(Plane, Model::new(), Adam::new(0.1), train, validation)
}

/// Steps of the checkpoints, newest first.
fn saved(out: &Path) -> Vec<u64> {
    crate::shared::plane::saved(&out.join("run"))
}

fn failure() -> Error {
    Error::new(ErrorKind::Io, "custom", "it failed")
}

/// Records every call.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn add(&self, event: &str, run: &Run) -> Result<()> {
        let (step, epoch, batch) = (run.step(), run.epoch(), run.batch());
        let line = format!("{event}: step {step}, epoch {epoch}, batch {batch}");
        self.0.lock().unwrap().push(line);
        Ok(())
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

impl Callback for Recorder {
    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        self.add("fit start", run)
    }

    fn on_epoch_start(&mut self, run: &mut Run) -> Result<()> {
        self.add("epoch start", run)
    }

    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        self.add("step end", run)
    }

    fn on_train_metrics(&mut self, run: &mut Run, window: &MetricsWindow) -> Result<()> {
        assert!(window.not_finite.is_none() && window.row.get("loss").is_some());
        assert!(window.row.step <= run.step());
        Ok(())
    }

    fn on_validation_start(&mut self, run: &mut Run) -> Result<()> {
        assert_eq!(&*run.train_metrics()[0].0, "loss");
        self.add("validation start", run)
    }

    fn on_validation_end(&mut self, run: &mut Run, validation: &Row) -> Result<()> {
        assert!(validation.get("loss").is_some_and(f64::is_finite));
        self.add("validation end", run)
    }

    fn on_checkpoint(&mut self, run: &mut Run, _: &mut PendingCheckpoint) -> Result<()> {
        self.add("checkpoint", run)
    }

    fn on_epoch_end(&mut self, run: &mut Run) -> Result<()> {
        self.add("epoch end", run)
    }

    fn on_fit_end(&mut self, run: &mut Run, report: &mut Report) -> Result<()> {
        assert!(report.last_checkpoint.is_some());
        self.add("fit end", run)
    }

    fn on_error(&mut self, run: &Run, error: &Error) {
        let _ = self.add(&format!("error ({error})"), run);
    }
}

#[test]
fn callback_sees_every_event_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::default();
    let trainer = on(&client(), dir.path()).checkpoint_every(2);
    fit(trainer.callback(recorder.clone())).unwrap();
    let expected = expect![[r#"
        fit start: step 0, epoch 0, batch 0
        epoch start: step 0, epoch 0, batch 0
        step end: step 1, epoch 0, batch 1
        step end: step 2, epoch 0, batch 2
        checkpoint: step 2, epoch 0, batch 2
        step end: step 3, epoch 0, batch 3
        validation start: step 3, epoch 0, batch 3
        validation end: step 3, epoch 0, batch 3
        checkpoint: step 3, epoch 1, batch 0
        epoch end: step 3, epoch 1, batch 0
        fit end: step 3, epoch 1, batch 0"#]];
    expected.assert_eq(&recorder.text());
}

/// Fails in one event.
struct Failing(&'static str);

impl Failing {
    fn at(&self, event: &str) -> Result<()> {
        if event == self.0 {
            Err(failure())
        } else {
            Ok(())
        }
    }
}

impl Callback for Failing {
    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        if run.step() == 2 {
            self.at("step")
        } else {
            Ok(())
        }
    }

    fn on_train_metrics(&mut self, _: &mut Run, _: &MetricsWindow) -> Result<()> {
        self.at("metrics")
    }

    fn on_validation_end(&mut self, _: &mut Run, _: &Row) -> Result<()> {
        self.at("validation")
    }

    fn on_epoch_end(&mut self, _: &mut Run) -> Result<()> {
        self.at("epoch")
    }
}

#[test]
fn run_is_saved_before_the_error_of_a_callback() {
    let client = client();
    for (event, steps) in [("step", 2), ("metrics", 3), ("validation", 3), ("epoch", 3)] {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::default();
        let trainer = on(&client, dir.path()).callback(Failing(event));
        let error = fit(trainer.callback(recorder.clone())).unwrap_err();
        assert!(
            error.to_string().starts_with("custom: it failed"),
            "{error}"
        );
        let saved = saved(dir.path());
        // Metrics of step 2 may arrive after step 3 was queued.
        assert!(
            saved[0] == steps || event == "metrics",
            "{event}: {saved:?}"
        );
        let text = recorder.text();
        assert!(text.contains("error (custom: it failed"), "{event}: {text}");
        assert!(!text.contains("fit end"), "{event}: {text}");
    }
}

/// Remembers the highest step it has seen, in the checkpoints.
struct Counting(Arc<Mutex<u64>>);

impl Callback for Counting {
    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        *self.0.lock().unwrap() += 1;
        if run.step() == 4 {
            run.stop();
        }
        Ok(())
    }

    fn state(&self) -> Option<serde_json::Value> {
        Some((*self.0.lock().unwrap()).into())
    }

    fn load_state(&mut self, state: serde_json::Value) -> Result<()> {
        *self.0.lock().unwrap() = state.as_u64().ok_or_else(failure)?;
        Ok(())
    }
}

#[test]
fn callback_stops_the_run_after_a_step() {
    let dir = tempfile::tempdir().unwrap();
    let client = client();
    let run = || {
        let count = Arc::new(Mutex::new(0));
        let trainer = on(&client, dir.path()).epochs(3).resume(true);
        let fitted = fit(trainer.callback(Counting(count.clone()))).unwrap();
        let count = *count.lock().unwrap();
        let by = fitted.report.stopped_by;
        (fitted.report.steps, fitted.stopped_by, by, count)
    };
    let by = Some("Counting".to_string());
    assert_eq!(run(), (4, Some(StopReason::Callback), by, 4));
    assert_eq!(saved(dir.path())[0], 4);
    // The count is of both processes: its state was in the checkpoint.
    assert_eq!(run(), (9, None, None, 9));
}

/// Takes the loss of each window, and stops after a step.
#[derive(Clone)]
struct Losses {
    losses: Arc<Mutex<Vec<f64>>>,
    stop_at: u64,
}

impl Losses {
    fn until(stop_at: u64) -> Self {
        Losses {
            losses: Arc::default(),
            stop_at,
        }
    }
}

impl Callback for Losses {
    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        if run.step() == self.stop_at {
            run.stop();
        }
        Ok(())
    }

    fn on_train_metrics(&mut self, _: &mut Run, window: &MetricsWindow) -> Result<()> {
        let loss = window.row.get("loss").ok_or_else(failure)?;
        self.losses.lock().unwrap().push(loss);
        Ok(())
    }
}

/// The windows of two steps end within the epochs of three, and the validation of the first epoch
/// is of step 3.
#[test]
fn stopped_run_reports_its_steps_of_the_epoch() {
    let client = client();
    let dir = tempfile::tempdir().unwrap();
    let each = Losses::until(u64::MAX);
    let trainer = on(&client, dir.path()).epochs(2).log_every(1);
    fit(trainer.callback(each.clone())).unwrap();
    let losses = each.losses.lock().unwrap().clone();
    assert_eq!(losses.len(), 6);
    for (log_every, first, last) in [(2, 1, 1), (2, 1, 2), (100, 1, 3), (2, 4, 5), (100, 4, 4)] {
        let dir = tempfile::tempdir().unwrap();
        let trainer = on(&client, dir.path()).epochs(2).log_every(log_every);
        let report = fit(trainer.callback(Losses::until(last as u64)))
            .unwrap()
            .report;
        let steps = &losses[first - 1..last];
        let mean = steps.iter().sum::<f64>() / steps.len() as f64;
        let is_mean = |loss: f64| (loss - mean).abs() < 1e-6 * mean;
        assert!(is_mean(report.train_metrics["loss"]), "{mean}: {report}");
        // Without a validation so far, these are the metrics of the run.
        let validated = (first > 1).then_some(3);
        assert_eq!(report.metrics_of_step, validated);
        assert_eq!(
            is_mean(report.metrics["loss"]),
            validated.is_none(),
            "{report}"
        );
        let of = Some([first as u64, last as u64]);
        assert_eq!(report.train_metrics_of_steps, of);
        let text = report.to_string();
        assert!(
            text.contains(&format!("(steps {first} to {last})")),
            "{text}"
        );
        assert!(text.contains(", stopped by Losses\n"), "{text}");
    }
}

#[test]
fn stop_after_an_epoch_reports_its_validation() {
    struct StopAtEnd;

    impl Callback for StopAtEnd {
        fn on_validation_end(&mut self, run: &mut Run, _: &Row) -> Result<()> {
            run.stop();
            Ok(())
        }
    }

    let dir = tempfile::tempdir().unwrap();
    let trainer = on(&client(), dir.path()).epochs(2).callback(StopAtEnd);
    let report = fit(trainer).unwrap().report;
    assert_eq!((report.steps, report.train_metrics_of_steps), (3, None));
    assert_ne!(report.metrics, report.train_metrics);
    assert_eq!(report.stopped_by.as_deref(), Some("StopAtEnd"));
}

#[test]
fn resume_with_fewer_epochs_is_an_error() {
    let client = client();
    let dir = tempfile::tempdir().unwrap();
    let run = |epochs| fit(on(&client, dir.path()).epochs(epochs).resume(true));
    run(3).unwrap();
    let error = run(2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for part in [
        "has 3 epochs of training, and `max_epochs` is 2: nothing would be trained",
        "Give more than 3 to continue, or 3 to validate it again (`max_epochs`, --max-epochs)",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(run(3).unwrap().report.steps, 9);
    let stopped = on(&client, dir.path()).epochs(5).resume(true);
    fit(stopped.callback(Losses::until(10))).unwrap();
    let error = run(3).unwrap_err().to_string();
    assert!(
        error.contains("has 3 epochs and 1 steps of training"),
        "{error}"
    );
    assert!(error.contains("or 4 to end the epoch"), "{error}");
}

/// Requests a stop when the run or its first epoch starts.
struct StoppingAtStart {
    of_run: bool,
}

impl Callback for StoppingAtStart {
    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        if self.of_run {
            run.stop();
        }
        Ok(())
    }

    fn on_epoch_start(&mut self, run: &mut Run) -> Result<()> {
        run.stop();
        Ok(())
    }
}

#[test]
fn callback_stops_the_run_before_the_first_step() {
    let client = client();
    for of_run in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let trainer = on(&client, dir.path()).callback(StoppingAtStart { of_run });
        let fitted = fit(trainer).unwrap();
        assert_eq!(fitted.report.steps, 0);
        assert_eq!(fitted.stopped_by, Some(StopReason::Callback));
        // A model that was not trained is not validated.
        assert!(fitted.report.metrics.is_empty());
        assert!(saved(dir.path()).is_empty());
    }
}

#[test]
fn stop_at_the_last_step_keeps_the_measurements() {
    struct StopAtLast;

    impl Callback for StopAtLast {
        fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
            if run.step() == 3 {
                run.stop();
            }
            Ok(())
        }
    }

    let dir = tempfile::tempdir().unwrap();
    let client = client();
    let stopped = fit(on(&client, dir.path()).callback(StopAtLast)).unwrap();
    assert_eq!(stopped.report.steps, 3);
    let finished = fit(on(&client, dir.path()).resume(true)).unwrap().report;
    assert!(finished.training_seconds > 0.0);
    assert_eq!(finished.training_seconds, stopped.report.training_seconds);
    assert_eq!(
        finished.samples_per_second,
        stopped.report.samples_per_second
    );
}

#[test]
fn state_that_a_callback_rejects_is_an_error() {
    struct Rejecting;

    impl Callback for Rejecting {
        fn name(&self) -> String {
            "Counting".to_string()
        }

        fn load_state(&mut self, _: serde_json::Value) -> Result<()> {
            Err(failure())
        }
    }

    let dir = tempfile::tempdir().unwrap();
    let client = client();
    fit(on(&client, dir.path()).callback(Counting(Arc::default()))).unwrap();
    let again = on(&client, dir.path()).resume(true).callback(Rejecting);
    let error = fit(again).unwrap_err().to_string();
    assert!(error.contains("callback `Counting`"), "{error}");
}

#[test]
fn two_callbacks_of_one_name_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::default();
    let trainer = on(&client(), dir.path()).callback(recorder.clone());
    let error = fit(trainer.callback(recorder)).unwrap_err().to_string();
    assert!(
        error.contains("two callbacks are named `Recorder`"),
        "{error}"
    );
}

#[test]
fn arrays_reach_callbacks_before_the_commit() {
    #[derive(Clone, Default)]
    struct Names(Arc<Mutex<HashSet<String>>>);

    impl Callback for Names {
        fn on_checkpoint(&mut self, _: &mut Run, checkpoint: &mut PendingCheckpoint) -> Result<()> {
            let names = self.0.clone();
            checkpoint.before_commit(move |arrays| {
                let found = arrays.iter().map(|(name, _)| name.clone());
                names.lock().unwrap().extend(found);
                Ok(())
            });
            Ok(())
        }
    }

    let dir = tempfile::tempdir().unwrap();
    let names = Names::default();
    let fitted = fit(on(&client(), dir.path()).callback(names.clone())).unwrap();
    assert!(names.0.lock().unwrap().contains("model.out.weight"));
    assert_eq!(fitted.report.blocking_reads, 0);
}

/// Fails until it is flushed for the second time.
#[derive(Clone, Default)]
struct Unsteady(Arc<Mutex<(Vec<Row>, u64)>>);

impl Logger for Unsteady {
    fn log_metrics(&mut self, row: &Row) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        state.0.push(row.clone());
        if state.1 < 2 { Err(failure()) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        if state.1 < 2 { Err(failure()) } else { Ok(()) }
    }

    fn finalize(&mut self, _: &Report) -> Result<()> {
        Err(failure())
    }
}

#[test]
fn failing_logger_does_not_end_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let logger = Unsteady::default();
    let trainer = on(&client(), dir.path()).epochs(2).logger(logger.clone());
    fit(trainer).unwrap();
    assert_eq!(saved(dir.path()), [6, 3]);
    let (rows, flushes) = &*logger.0.lock().unwrap();
    let steps: Vec<u64> = rows.iter().map(|row| row.step).collect();
    assert_eq!(steps, [2, 3, 3, 4, 6, 6]);
    // Before each checkpoint, at the end of each epoch, and at the end of the run.
    assert_eq!(*flushes, 5);
}

/// Steps that the device has begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// [`Plane`], whose steps take the device much longer than the host.
struct Slow;

impl Task for Slow {
    type Model = Model<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Model<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let slow = CustomOp::new("slow step", |operands| Ok(operands.to_vec()));
        let [input] = slow.call(cx, &[batch.input]);
        Plane.loss(cx, model, &Labeled { input, ..*batch })
    }
}

/// Sees how many steps the device has begun at the end of each on the host.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<Vec<u64>>>);

impl Callback for Waiting {
    fn waits_for(&self, step: u64) -> bool {
        step == 4
    }

    fn on_step_end(&mut self, _: &mut Run) -> Result<()> {
        self.0.lock().unwrap().push(BEGUN.load(SeqCst));
        Ok(())
    }
}

#[test]
fn callback_waits_for_the_step_it_names() {
    custom_call::register("slow step", |call| {
        BEGUN.fetch_add(1, SeqCst);
        thread::sleep(Duration::from_millis(100));
        let ([x], [y]) = call.buffers()?;
        y.as_mut_slice::<f32>()?
            .copy_from_slice(x.as_slice::<f32>()?);
        Ok(())
    })
    .unwrap();
    let client = Accelerator::embedded().open().unwrap();
    for steps in [1, 3] {
        BEGUN.store(0, SeqCst);
        let waiting = Waiting::default();
        let trainer = Trainer::builder(&client)
            .batch_size(4)
            .steps_per_execution(steps)
            .quiet(true)
            .callback(waiting.clone())
            .build()
            .unwrap();
        let fitted = trainer.fit(Slow, Model::new(), Adam::new(0.1), samples(24), ());
        fitted.unwrap();
        let begun = waiting.0.lock().unwrap().clone();
        assert_eq!((begun.len(), begun[3]), (6, 4), "{steps}: {begun:?}");
        assert!(begun[2] < 3, "the host is ahead of the device: {begun:?}");
    }
}
