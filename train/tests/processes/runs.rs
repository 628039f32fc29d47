//! Runs of several processes: their directory, stops and resumes.

use std::{
    fmt, fs,
    mem::take,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use halite_core::{Collective, Exchange, HostArray, ProcessGroup, Result, ThreadProcess};
use halite_train::{
    Callback, CheckpointMode, Fitted, ModelCheckpoint, Strategy, TrainerBuilder,
    callback::{MetricsWindow, PendingCheckpoint, Run},
    checkpoint::CheckpointStore,
    signals::{StopFlag, StopReason},
};

use super::{EXECUTORS, Trained, alike, in_process, in_processes, mlp};
use crate::shared::regression::Regression;

/// Sets a stop flag after a step.
struct StopAt {
    step: u64,
    flag: StopFlag,
}

impl Callback for StopAt {
    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        if run.step() == self.step {
            self.flag.stop();
        }
        Ok(())
    }
}

fn whole(out: &Path) -> impl Fn(TrainerBuilder) -> Result<Fitted<Regression>> + Sync {
    let out = out.to_path_buf();
    move |builder| mlp::fit(builder.out(&out).resume(true), 64)
}

#[test]
fn resumed_runs_equal_whole_ones_on_any_number() {
    let runs = tempfile::tempdir().unwrap();
    let [uncut, cut] = ["uncut", "cut"].map(|name| runs.path().join(name));
    let expected = alike(EXECUTORS[0], [2, 1], whole(&uncut));
    assert!(uncut.join("report.json").exists() && uncut.join("metrics.csv").exists());

    let ranks = AtomicUsize::new(0);
    let stopped = alike(EXECUTORS[0], [2, 1], |builder| {
        let builder = builder.out(&cut);
        // Of both processes one sets a flag.
        let (flag, is_first) = (StopFlag::new(), ranks.fetch_add(1, Ordering::SeqCst) == 1);
        let at = StopAt {
            step: if is_first { 6 } else { 0 },
            flag: flag.clone(),
        };
        let fitted = mlp::fit(builder.stop_flag(&flag).callback(at), 64)?;
        assert_eq!(fitted.stopped_by, Some(StopReason::Asked));
        Ok(fitted)
    });
    assert!((6..20).contains(&stopped.steps), "{stopped:?}");

    let resumed = alike(EXECUTORS[0], [2, 1], whole(&cut));
    assert_eq!(resumed.weights, expected.weights, "not the same bits");

    // A checkpoint of two epochs, by another number of processes.
    for (written, read) in [(2, 4), (1, 4), (4, 2), (4, 1)] {
        let again = runs.path().join(format!("{written}-{read}"));
        alike(EXECUTORS[0], [written, 1], |builder| {
            mlp::fit_epochs(builder.out(&again), 64, 2)
        });
        let resumed = alike(EXECUTORS[0], [read, 1], whole(&again));
        // The samples of each step are the same; sums round differently.
        let distance = super::most(&resumed.weights, &expected.weights);
        assert!(distance < 1e-12, "{written} to {read}: {distance}");
    }
}

/// Names of the files of the newest checkpoint, and its arrays.
fn newest(out: &Path) -> (Vec<String>, Vec<(String, HostArray)>) {
    let store = CheckpointStore::open_read_only(out.join("checkpoints")).unwrap();
    let mut saved = store.latest().unwrap().expect("a checkpoint");
    let mut files: Vec<String> = (fs::read_dir(saved.path()).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let wanted = saved
        .arrays()
        .map(|(name, ty)| (name.to_string(), ty.clone()));
    let wanted: Vec<_> = wanted.collect();
    let arrays = saved.take_all(&wanted).unwrap();
    let names = wanted.into_iter().map(|(name, _)| name);
    (files, names.zip(arrays).collect())
}

#[test]
fn each_process_writes_a_part_of_the_state() {
    for mode in [CheckpointMode::Copy, CheckpointMode::Stream] {
        let runs = tempfile::tempdir().unwrap();
        let run = |name: &str, processes| {
            let out = runs.path().join(name);
            alike(EXECUTORS[0], [processes, 1], |builder| {
                mlp::fit(builder.out(&out).checkpoint_mode(mode), 64)
            });
            newest(&out)
        };
        let (one, whole) = run("one", 1);
        assert_eq!(one, ["COMMIT", "arrays.safetensors", "manifest.json"]);
        let (files, parts) = run("several", 4);
        let of = |rank| format!("process-0000{rank}-arrays.safetensors");
        let expected = ["COMMIT".into(), "manifest.json".into()].into_iter();
        assert_eq!(files, expected.chain((0..4).map(of)).collect::<Vec<_>>());
        for ((name, one), (other, several)) in whole.iter().zip(&parts) {
            assert_eq!((name, one.ty()), (other, several.ty()));
            if let (Ok(one), Ok(several)) = (one.as_slice::<f64>(), several.as_slice::<f64>()) {
                assert!(super::most(one, several) < 1e-12, "{name}");
            }
        }
    }
}

#[test]
fn checkpoints_by_time_are_saved_together() {
    let runs = tempfile::tempdir().unwrap();
    let saved = watched(
        |_| (),
        |builder, rank| {
            // The clock of process 1 starts later than that of process 0.
            thread::sleep(Duration::from_millis(300 * rank as u64));
            let timed = ModelCheckpoint::default().train_time_interval(Duration::from_millis(200));
            let builder = builder.checkpoint(timed.every_n_epochs(0)).out(runs.path());
            mlp::fit_epochs(builder.callback(Slowly), 64, 8)
        },
    );
    assert!(saved.into_iter().all(|one| one.unwrap().steps == 32));
    let store = CheckpointStore::open_read_only(runs.path().join("checkpoints")).unwrap();
    let steps: Vec<u64> = (store.list().unwrap().into_iter())
        .map(|(_, position)| position.step)
        .collect();
    assert!(steps[0] == 32 && steps.len() == 2, "{steps:?}");
}

#[test]
fn different_checkpoints_are_refused() {
    let runs = tempfile::tempdir().unwrap();
    let ranks = AtomicUsize::new(1);
    let all = in_processes(EXECUTORS[0], [2, 1], |builder| {
        let every = ranks.fetch_add(1, Ordering::SeqCst) as u64;
        mlp::fit(builder.checkpoint_every(every).out(runs.path()), 64)
    });
    for error in all {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("every_n_train_steps: Some("), "{error}");
    }
}

/// What is called with the name of an exchange, before it is made.
type Hook = Arc<dyn Fn(&str) + Send + Sync>;

/// A process whose exchanges of buffers a test counts or delays.
struct Watched {
    process: ThreadProcess,
    exchange: Hook,
}

/// A lane of it.
struct WatchedLane {
    lane: Arc<dyn Collective>,
    exchange: Hook,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.process.fmt(f)
    }
}

impl fmt::Debug for WatchedLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lane.fmt(f)
    }
}

impl Collective for Watched {
    fn rank(&self) -> usize {
        self.process.rank()
    }
    fn size(&self) -> usize {
        self.process.size()
    }
    fn all_gather(&self, name: &str, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        self.process.all_gather(name, mine, patience)
    }
    fn exchange(&self, name: &str, exchange: Exchange<'_>, patience: Duration) -> Result<()> {
        (self.exchange)(name);
        self.process.exchange(name, exchange, patience)
    }
}

impl ProcessGroup for Watched {
    fn lane(&self, name: &str) -> Result<Arc<dyn Collective>> {
        Ok(Arc::new(WatchedLane {
            lane: self.process.lane(name)?,
            exchange: self.exchange.clone(),
        }))
    }
}

impl Collective for WatchedLane {
    fn rank(&self) -> usize {
        self.lane.rank()
    }
    fn size(&self) -> usize {
        self.lane.size()
    }
    fn all_gather(&self, name: &str, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        self.lane.all_gather(name, mine, patience)
    }
    fn exchange(&self, name: &str, exchange: Exchange<'_>, patience: Duration) -> Result<()> {
        (self.exchange)(name);
        self.lane.exchange(name, exchange, patience)
    }
}

/// What each of two processes has computed, with this before each exchange of buffers. `fit` gets
/// the rank.
fn watched(
    exchange: impl Fn(&str) + Send + Sync + 'static,
    fit: impl Fn(TrainerBuilder, usize) -> Result<Fitted<Regression>> + Sync,
) -> Vec<Result<Trained>> {
    let exchange: Hook = Arc::new(exchange);
    let run = |process: ThreadProcess| {
        let (rank, exchange) = (process.rank(), exchange.clone());
        let group = Arc::new(Watched { process, exchange });
        in_process(EXECUTORS[0], 1, group, |builder| fit(builder, rank))
    };
    thread::scope(|scope| {
        let all = ThreadProcess::group(2).into_iter();
        let all: Vec<_> = all.map(|process| scope.spawn(|| run(process))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// Exchanges of each step of two processes, which clips the norm of the gradients.
fn exchanges_of_steps(strategy: &str, accumulated: usize) -> usize {
    let exchanges = Arc::new(AtomicUsize::new(0));
    let counted = exchanges.clone();
    let count = move |_: &str| {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    let all = watched(count, |builder, _| {
        let builder = builder.strategy(strategy.parse()?);
        mlp::fit(builder.accumulate_grad_batches(accumulated), 64)
    });
    let steps: Vec<u64> = all.into_iter().map(|one| one.unwrap().steps).collect();
    assert_eq!(steps, [20 / accumulated as u64; 2]);
    let (exchanges, of_each) = (exchanges.load(Ordering::SeqCst), 2 * steps[0] as usize);
    assert!(exchanges.is_multiple_of(of_each), "{exchanges}");
    exchanges / of_each
}

#[test]
fn steps_exchange_few_times() {
    for accumulated in [1, 2] {
        // The gradients, with all else.
        assert_eq!(exchanges_of_steps("dp", accumulated), 1);
        // The gradients, their norm, and the parameters.
        assert_eq!(exchanges_of_steps("zero1", accumulated), 3);
    }
}

#[test]
fn slow_steps_stop_soon() {
    let slow = |_: &str| thread::sleep(Duration::from_millis(300));
    let all = watched(slow, |builder, rank| {
        let flag = StopFlag::new();
        let at = StopAt {
            step: if rank == 1 { 3 } else { 0 },
            flag: flag.clone(),
        };
        // 60 steps, which are queued faster than they are done.
        mlp::fit_epochs(builder.stop_flag(&flag).callback(at), 960, 1)
    });
    for stopped in all {
        let steps = stopped.unwrap().steps;
        assert!((3..=6).contains(&steps), "stopped after {steps} steps");
    }
}

#[test]
fn arrays_of_a_checkpoint_are_exchanged_as_buffers() {
    let runs = tempfile::tempdir().unwrap();
    alike(EXECUTORS[0], [2, 1], |builder| {
        mlp::fit_epochs(builder.out(runs.path()), 64, 1)
    });
    let names = Arc::new(Mutex::new(Vec::new()));
    let record = {
        let names = names.clone();
        move |name: &str| names.lock().unwrap().push(name.to_string())
    };
    for resumed in watched(record, |builder, _| whole(runs.path())(builder)) {
        assert_eq!(resumed.unwrap().steps, 20);
    }
    // MPI has a tree for these, where process 0 would gather them for each of the others.
    let names = names.lock().unwrap();
    for name in ["model.hidden", "model.out"] {
        let name = format!("checkpoint: {name}");
        let both = names.iter().filter(|one| **one == name).count();
        assert_eq!(both, 2, "{name} of {names:?}");
    }
}

/// Sleeps after each step.
struct Slowly;

impl Callback for Slowly {
    fn on_step_end(&mut self, _: &mut Run) -> Result<()> {
        thread::sleep(Duration::from_millis(30));
        Ok(())
    }
}

#[test]
fn timed_validations_are_due_alike_after_a_resume() {
    let runs = tempfile::tempdir().unwrap();
    let fit = |builder: TrainerBuilder, epochs| {
        mlp::fit_epochs(builder.out(runs.path()).resume(true), 64, epochs)
    };
    alike(EXECUTORS[0], [2, 1], |builder| fit(builder, 1));
    // The clock of process 1 starts later than that of process 0.
    let all = watched(
        |_| (),
        |builder, rank| {
            thread::sleep(Duration::from_millis(700 * rank as u64));
            let builder = builder.val_check_interval(Duration::from_secs(1));
            fit(builder.callback(Slowly), 16)
        },
    );
    for resumed in all {
        assert_eq!(resumed.unwrap().steps, 64);
    }
}

/// Halves the learning rate after the metrics of the second step.
struct Halve;

impl Callback for Halve {
    fn changes_learning_rate(&self) -> bool {
        true
    }

    fn on_train_metrics(&mut self, run: &mut Run, window: &MetricsWindow) -> Result<()> {
        match window.row.step {
            2 => run.set_learning_rate_factor(0.5),
            _ => Ok(()),
        }
    }
}

#[test]
fn callbacks_act_alike_beside_checkpoints() {
    let runs = tempfile::tempdir().unwrap();
    let fit =
        |builder: TrainerBuilder, samples| mlp::fit_epochs(builder.callback(Halve), samples, 1);
    let saving = |builder: TrainerBuilder| fit(builder.checkpoint_every(3).out(runs.path()), 400);
    // All take the metrics of step 2 at the save after step 3, and without it after step 18.
    let saved = alike(EXECUTORS[0], [2, 1], saving);
    let unsaved = alike(EXECUTORS[0], [2, 1], |builder| fit(builder, 400));
    assert_ne!(saved.weights, unsaved.weights);
    assert_eq!(saved.losses.len(), 25);
}

#[test]
fn metrics_before_a_checkpoint_are_in_the_table() {
    let runs = tempfile::tempdir().unwrap();
    let fit = |builder: TrainerBuilder| {
        let builder = builder.callback(Halve).checkpoint_every(3).keep_last(99);
        mlp::fit_epochs(builder.out(runs.path()), 400, 1)
    };
    let whole = alike(EXECUTORS[0], [2, 1], fit);
    // The rate was halved by the metrics that the save took.
    let resumed = alike(
        EXECUTORS[0],
        [2, 1],
        |builder| fit(builder.resume_from("3")),
    );
    assert_eq!(resumed.weights, whole.weights);
    assert_eq!(resumed.losses, whole.losses[3..]);
    let table = fs::read_to_string(runs.path().join("metrics.csv")).unwrap();
    let rows = table.lines().filter(|line| line.contains("train"));
    assert_eq!(rows.count(), 25, "{table}");
}

#[test]
fn copies_that_differ_are_named() {
    for checks in [false, true] {
        let runs = tempfile::tempdir().unwrap();
        let all = watched(
            |_| (),
            |builder, rank| {
                let builder = builder.callback(HalveIn { here: rank == 1 });
                let builder = builder.strategy(Strategy::data_parallel());
                let builder = builder.checkpoint_every(20).check_replicas(checks);
                mlp::fit_epochs(builder.out(runs.path()), 400, 1)
            },
        );
        for result in all {
            if !checks {
                assert_eq!(result.unwrap().steps, 25);
                continue;
            }
            let error = result.unwrap_err().to_string();
            let expected = "copies of the state differ from those of process 0:";
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("`model.hidden` in process 1"), "{error}");
        }
    }
}

/// Saves after a step, in one of the processes.
struct SaveIn {
    here: bool,
}

impl Callback for SaveIn {
    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        if self.here && run.step() == 3 {
            run.save();
        }
        Ok(())
    }
}

#[test]
fn process_that_saves_alone_is_an_error_of_all() {
    let runs = tempfile::tempdir().unwrap();
    let all = watched(
        |_| (),
        |builder, rank| {
            let builder = builder.process_timeout(Duration::from_secs(4));
            let builder = builder.callback(SaveIn { here: rank == 0 });
            mlp::fit_epochs(builder.out(runs.path()), 400, 1)
        },
    );
    for result in all {
        // That of the save, or of a process that found the other one gone.
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("checkpoint") || error.contains("members"),
            "{error}"
        );
    }
}

/// Writes its part of a checkpoint slowly, once.
struct WriteSlowly {
    here: bool,
}

impl Callback for WriteSlowly {
    fn on_checkpoint(&mut self, _: &mut Run, checkpoint: &mut PendingCheckpoint) -> Result<()> {
        let mut here = take(&mut self.here);
        checkpoint.for_each_array(move |_, _| {
            if take(&mut here) {
                thread::sleep(Duration::from_secs(7));
            }
            Ok(())
        });
        Ok(())
    }
}

/// The others wait for the process as for one that writes, and not as for one that is in a step.
#[test]
fn streamed_checkpoint_may_take_longer_than_a_step() {
    let runs = tempfile::tempdir().unwrap();
    let all = watched(
        |_| (),
        |builder, rank| {
            let builder = builder.process_timeout(Duration::from_secs(4));
            let builder = builder.checkpoint_mode(CheckpointMode::Stream);
            let builder = builder.callback(WriteSlowly { here: rank == 1 });
            let builder = builder.callback(SaveIn { here: true });
            mlp::fit_epochs(builder.out(runs.path()), 400, 1)
        },
    );
    for result in all {
        assert_eq!(result.unwrap().steps, 25);
    }
}

/// As [`Halve`], in one of the processes.
struct HalveIn {
    here: bool,
}

impl Callback for HalveIn {
    fn changes_learning_rate(&self) -> bool {
        true
    }

    fn on_train_metrics(&mut self, run: &mut Run, window: &MetricsWindow) -> Result<()> {
        match self.here {
            true => Halve.on_train_metrics(run, window),
            false => Ok(()),
        }
    }
}

#[test]
fn different_times_of_exchanges_are_refused() {
    let ranks = AtomicUsize::new(1);
    let all = in_processes(EXECUTORS[0], [2, 1], |builder| {
        let rank = ranks.fetch_add(1, Ordering::SeqCst) as u64;
        mlp::fit(builder.check_val_every_n_epoch(rank), 64)
    });
    for error in all {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("check_val_every_n_epoch: "), "{error}");
    }
}

#[test]
fn directory_of_another_run_is_refused_everywhere() {
    let runs = tempfile::tempdir().unwrap();
    let run = || {
        in_processes(EXECUTORS[0], [2, 1], |builder| {
            mlp::fit(builder.out(runs.path()), 64)
        })
    };
    assert!(run().into_iter().all(|result| result.is_ok()));
    let errors: Vec<String> = (run().into_iter())
        .map(|result| result.unwrap_err().to_string())
        .collect();
    assert!(errors[0].contains("already contains a run"), "{errors:?}");
    assert!(
        errors[1].contains("process 0 cannot open the run"),
        "{errors:?}"
    );
}
