//! Runs of several processes: their directory, stops and resumes.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use halite_core::Result;
use halite_train::{
    Callback, TrainerBuilder,
    callback::Run,
    signals::{StopFlag, StopReason},
};

use super::{EXECUTORS, alike, in_processes, mlp};

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

fn whole(
    out: &Path,
) -> impl Fn(TrainerBuilder) -> Result<halite_train::Fitted<mlp::Regression>> + Sync {
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

    // From the same checkpoint, by four processes.
    let again = runs.path().join("again");
    alike(EXECUTORS[0], [2, 1], |builder| {
        mlp::fit_epochs(builder.out(&again), 64, 2)
    });
    let four = alike(EXECUTORS[0], [4, 1], whole(&again));
    assert!(super::most(&four.weights, &expected.weights) < 1e-12);
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
