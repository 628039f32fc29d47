//! Values of schedules on the host.

use super::*;

#[test]
fn values_follow_the_definitions() {
    let cases: [(Schedule, &[(u64, f64)]); 9] = [
        (Schedule::constant(0.5), &[(0, 0.5), (1_000_000, 0.5)]),
        (
            Schedule::warmup(1.0, 4),
            &[(0, 0.25), (1, 0.5), (3, 1.0), (9, 1.0)],
        ),
        (Schedule::warmup(1.0, 1).then(0.5), &[(0, 1.0), (1, 0.5)]),
        (
            Schedule::linear(1.0, 0.0, 4),
            &[(0, 1.0), (1, 0.75), (4, 0.0), (5, 0.0)],
        ),
        (
            Schedule::polynomial(1.0, 0.5, 2.0, 2),
            &[(0, 1.0), (1, 0.625), (2, 0.5)],
        ),
        (
            Schedule::cosine_to(1.0, 0.1, 10),
            &[(0, 1.0), (5, 0.55), (10, 0.1), (11, 0.1)],
        ),
        (
            Schedule::exponential(1.0, 0.25, 2),
            &[(0, 1.0), (1, 0.5), (2, 0.25)],
        ),
        (
            Schedule::step_decay(1.0, 0.1, 3),
            &[(0, 1.0), (2, 1.0), (3, 0.1), (5, 0.1), (6, 0.01)],
        ),
        (
            Schedule::piecewise(1.0, [(2, 0.5), (4, 0.25)]),
            &[(1, 1.0), (2, 0.5), (3, 0.5), (4, 0.25)],
        ),
    ];
    for (schedule, values) in cases {
        for &(step, expected) in values {
            let value = schedule.value(step);
            assert!(
                (value - expected).abs() < 1e-12,
                "{schedule:?} at {step}: {value}, not {expected}"
            );
        }
    }
}

#[test]
fn one_cycle_has_the_values_of_pytorch() {
    // `OneCycleLR(optimizer, 0.3, total_steps=steps)`: the formula of its documentation.
    let pytorch = |steps: f64, step: f64| {
        let (low, peak, last) = (0.3 / 25.0, 0.3, 0.3 / 25.0 / 1e4);
        let (up, end) = (0.3 * steps - 1.0, steps - 1.0);
        let cosine = |from: f64, to: f64, part: f64| {
            to + (from - to) / 2.0 * (1.0 + (std::f64::consts::PI * part).cos())
        };
        if step <= up {
            cosine(low, peak, step / up)
        } else {
            cosine(peak, last, (step - up) / (end - up))
        }
    };
    for steps in [2, 3, 4, 7, 25, 26, 40, 1001] {
        for step in 0..steps {
            let (value, expected) = (
                Schedule::one_cycle(0.3, steps).value(step),
                pytorch(steps as f64, step as f64),
            );
            assert!(
                (value - expected).abs() < 1e-12,
                "{step} of {steps}: {value}, {expected}"
            );
        }
    }
    let third = Schedule::one_cycle(1.0, 25).value(2);
    assert!((third - 0.2473).abs() < 5e-5, "{third}");
    assert_eq!(Schedule::one_cycle(1.0, 25).steps(), Some(24));
}

#[test]
fn then_starts_at_the_last_step() {
    let schedule = Schedule::warmup(1.0, 2)
        .then(Schedule::linear(1.0, 0.0, 2))
        .then(Schedule::constant(7.0));
    let values: Vec<f64> = (0..6).map(|step| schedule.value(step)).collect();
    assert_eq!(values, [0.5, 1.0, 1.0, 0.5, 7.0, 7.0]);
    assert_eq!(schedule.steps(), None);
    assert_eq!(Schedule::constant(1.0).then(2.0).value(1_000), 1.0);
    assert_eq!(Schedule::constant(1.0).then_at(5, 2.0).value(5), 2.0);
    assert_eq!(Schedule::constant(1.0).then_at(0, 2.0).value(0), 2.0);
}

#[test]
fn milestones_begin_with_their_epoch() {
    let rate = Schedule::piecewise(1.0, [(30, 0.1), (60, 0.01)]).per_epoch(5);
    let values = [149, 150, 299, 300].map(|step| rate.value(step));
    assert_eq!(values, [1.0, 0.1, 0.1, 0.01]);
}

#[test]
fn zero_steps_yield_the_last_value() {
    for schedule in [
        Schedule::cosine_to(1.0, 0.5, 0),
        Schedule::linear(1.0, 0.5, 0),
    ] {
        assert_eq!(schedule.value(0), 0.5);
    }
    assert_eq!(Schedule::warmup(0.5, 0).value(0), 0.5);
    assert_eq!(Schedule::warmup(1.0, 0).then(0.25).value(0), 0.25);
    assert!(Schedule::one_cycle(1.0, 0).value(3).is_finite());
}
