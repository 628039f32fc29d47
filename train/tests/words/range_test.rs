//! The learning-rate range test.

use std::sync::{Arc, Mutex};

use halite_core::Result;
use halite_nn::{Schedule, Sgd};
use halite_train::{
    Callback, LearningRateFinder,
    callback::{MetricsWindow, Run},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::{error_of, trainer};
use crate::shared::plane::{Model, Plane, samples};

#[derive(Clone, Default)]
struct Losses(Arc<Mutex<Vec<f64>>>);

impl Callback for Losses {
    fn on_train_metrics(&mut self, _: &mut Run, window: &MetricsWindow) -> Result<()> {
        self.0.lock().unwrap().push(window.row.get("loss").unwrap());
        Ok(())
    }
}

fn finder() -> LearningRateFinder {
    LearningRateFinder {
        min_lr: 1e-5,
        max_lr: 100.0,
        num_training_steps: 80,
        ..LearningRateFinder::default()
    }
}

#[test]
fn losses_of_the_test_are_those_of_an_exponential_rate() {
    let finder = LearningRateFinder {
        max_lr: 0.3,
        ..finder()
    };
    let trainer_of_test = trainer().build().unwrap();
    let found = trainer_of_test
        .lr_find(Plane, Model::new(), Sgd::new(0.1), samples(24), finder)
        .unwrap();

    let losses = Losses::default();
    let rate = Schedule::exponential(1e-5, 0.3 / 1e-5, 79);
    let run = trainer()
        .max_steps(80)
        .log_every_n_steps(1)
        .callback(losses.clone());
    let run = run.build().unwrap();
    run.fit(Plane, Model::new(), Sgd::new(rate.clone()), samples(24), ())
        .unwrap();
    let losses = losses.0.lock().unwrap();
    assert_eq!((found.points.len(), losses.len()), (80, 80));
    let mut mean = 0.0;
    for (step, (found, loss)) in found.points.iter().zip(losses.iter()).enumerate() {
        let expected = rate.value(step as u64);
        assert!(
            (found.0 / expected - 1.0).abs() < 1e-9,
            "{} {expected}",
            found.0
        );
        mean = 0.98 * mean + 0.02 * loss;
        let smoothed = mean / (1.0 - 0.98f64.powi(step as i32 + 1));
        assert!(
            (found.1 / smoothed - 1.0).abs() < 1e-4,
            "{step}: {} {smoothed}",
            found.1
        );
    }
}

#[test]
fn suggested_rate_is_below_those_that_diverge() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let run = trainer().out(&out).max_epochs(3).build().unwrap();
    let found = run
        .lr_find(Plane, Model::new(), Sgd::new(0.1), samples(24), finder())
        .unwrap();
    let (rate, last) = (found.suggestion.unwrap(), found.points.last().unwrap().0);
    assert!(found.points.len() < 80, "it stops where the loss has grown");
    assert!((1e-3..1.0).contains(&rate) && rate < last, "{found}");
    assert!(!out.exists(), "nothing is written");

    let plot = dir.path().join("range-test.svg");
    found.plot(&plot).unwrap();
    let svg = std::fs::read_to_string(plot).unwrap();
    assert!(
        svg.contains("is suggested") && svg.contains("learning rate"),
        "{svg}"
    );

    // The trainer is as before: a run with this rate learns.
    let fitted = run
        .fit(Plane, Model::new(), Sgd::new(rate), samples(24), samples(8))
        .unwrap();
    assert_eq!(fitted.report.steps, 18);
    assert!(
        fitted.report.metrics["loss"] < found.points[0].1,
        "{fitted}"
    );
}

#[test]
fn rate_that_is_not_constant_is_refused() {
    let run = trainer().build().unwrap();
    let rate = Schedule::linear(0.1, 0.0, 50);
    let refused = run.lr_find(Plane, Model::new(), Sgd::new(rate), samples(24), finder());
    let error = error_of(refused);
    assert!(
        error.contains("of the optimizer is 0.1 at first and 0.098 after 1 steps"),
        "{error}"
    );
}

/// Collects the warnings of a thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<String>>);

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{value:?}\n"));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut Text(&mut self.0.lock().unwrap()));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn loss_that_a_range_test_drives_up_is_no_fault() {
    let warnings = |run: &dyn Fn()| {
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), run);
        warnings.0.lock().unwrap().clone()
    };
    let to_the_end = LearningRateFinder {
        early_stop_threshold: f64::INFINITY,
        ..finder()
    };
    let found = warnings(&|| {
        let run = trainer().build().unwrap();
        run.lr_find(Plane, Model::new(), Sgd::new(0.1), samples(24), to_the_end)
            .unwrap();
    });
    assert_eq!(found, "");
    // The control: a run with these rates warns.
    let found = warnings(&|| {
        let rate = Schedule::exponential(1e-5, 1e7, 79);
        let run = trainer().max_steps(80).log_every_n_steps(1);
        // It may end with a loss that is not finite.
        let run = run.build().unwrap();
        _ = run.fit(Plane, Model::new(), Sgd::new(rate), samples(24), ());
    });
    assert!(found.contains("the run has diverged"), "{found}");
}
