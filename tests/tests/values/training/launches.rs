//! Several steps in one launch compute what single steps compute.

use halite::{
    prelude::*,
    train::{Callback, Fitted, Report, Strategy, TrainerBuilder, callback::Run},
};

use halite_tests::eval::client;

use crate::training::support::{Arms, Net, on_all_devices, spirals, trainer, values};

/// Trains three epochs of 25 steps with dropout, running statistics and a schedule.
fn fit(trainer: TrainerBuilder) -> Fitted<Arms> {
    let rate = Schedule::warmup(1e-2, 10).then(Schedule::cosine(1e-2, 65));
    let trainer = trainer.epochs(3).batch_size(16).log_every(10);
    let trainer = trainer.build().unwrap();
    let (train, validation) = (spirals(16 * 25), spirals(100));
    let fitted = trainer.fit(Arms, Net::new(), Adam::new(rate), train, validation);
    fitted.unwrap()
}

/// The metrics and every array of the model.
fn result(fitted: &Fitted<Arms>) -> String {
    let Report {
        steps,
        train_metrics,
        metrics,
        ..
    } = &fitted.report;
    let model = values(&fitted.model);
    format!("{steps} {train_metrics:?} {metrics:?} {model:?}")
}

/// As many steps in a launch as in another, or single steps where the rest of an epoch has fewer.
#[test]
fn the_number_of_steps_per_launch_changes_no_bit() {
    let expected = result(&fit(trainer().steps_per_execution(2)));
    for steps in [4, 10] {
        let fitted = fit(trainer().steps_per_execution(steps));
        assert_eq!(result(&fitted), expected, "{steps} steps a launch");
    }
}

/// On the embedded executor as a plugin too, which registers the memory.
#[test]
fn pinned_memory_changes_no_bit() {
    let plugin = halite_tests::embedded::open_plugin(1, false).unwrap();
    for client in [client().clone(), plugin] {
        for steps in [1, 4] {
            let trainer = || {
                let devices = client.local_devices().into_iter().take(1);
                let trainer = Trainer::builder(&client).quiet(true).devices(devices);
                trainer.steps_per_execution(steps)
            };
            let expected = result(&fit(trainer()));
            let fitted = fit(trainer().pinned_memory(true));
            let platform = &client.platform().name;
            assert_eq!(
                result(&fitted),
                expected,
                "{steps} steps a launch on {platform}"
            );
        }
    }
}

/// Without the step as one function, which rounds in another way.
#[test]
fn several_steps_per_launch_change_no_bit() {
    let trainer = || {
        let mut capabilities = client().capabilities();
        capabilities.one_function = false;
        let client = client().clone().with_capabilities(capabilities);
        let devices = client.local_devices().into_iter().take(1);
        Trainer::builder(&client).quiet(true).devices(devices)
    };
    let expected = result(&fit(trainer()));
    let fitted = fit(trainer().steps_per_execution(4));
    assert_eq!(result(&fitted), expected);
}

#[test]
fn sharded_steps_per_launch_change_no_bit() {
    let data_parallel = || on_all_devices().strategy(Strategy::fsdp());
    let expected = result(&fit(data_parallel()));
    let fitted = fit(data_parallel().steps_per_execution(4));
    assert_eq!(result(&fitted), expected);
}

/// Requests a stop after this step.
#[derive(Clone, Debug)]
struct StopAt(u64);

impl Callback for StopAt {
    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        if run.step() == self.0 {
            run.stop();
        }
        Ok(())
    }
}

#[test]
fn stop_takes_effect_after_the_launch() {
    let fitted = fit(trainer().steps_per_execution(4).callback(StopAt(42)));
    // Launches of the second epoch start at steps 25, 26, .. 30, 34, 38, 39, 40.
    assert_eq!(fitted.report.steps, 44);
    assert!(fitted.report.interrupted);
}

#[test]
fn interrupted_launches_resume_bit_for_bit() {
    let directory = tempfile::tempdir().unwrap();
    let run = || trainer().steps_per_execution(4).out(directory.path());
    let expected = result(&fit(trainer().steps_per_execution(4)));
    assert_eq!(fit(run().callback(StopAt(42))).report.steps, 44);
    assert_eq!(result(&fit(run().resume(true))), expected);
}
