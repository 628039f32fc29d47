//! Schedules as text.

use expect_test::{Expect, expect};
use halite_nn::{Schedule, ScheduleSpec, schedule::RunLength};

const RUN: RunLength = RunLength {
    steps: 1000,
    steps_per_epoch: 40,
};

/// Checks the schedule of a text, and that the text of the parsed one is this.
#[track_caller]
fn check(text: &str, printed: &str, expected: Expect) {
    let spec: ScheduleSpec = text.parse().unwrap();
    assert_eq!(spec.to_string(), printed);
    assert_eq!(printed.parse::<ScheduleSpec>().unwrap(), spec);
    expected.assert_eq(&format!("{:?}", spec.schedule(0.1, RUN).unwrap()));
}

#[test]
fn texts_are_schedules() {
    check("constant", "constant", expect!["0.1"]);
    check(
        "constant:warmup=5",
        "constant:warmup=5",
        expect!["0.1.with_warmup(5)"],
    );
    check(
        "linear:end=0.1",
        "linear:end=0.1",
        expect!["linear(0.1, 0.010000000000000002, 1000)"],
    );
    check(
        "cosine:end=0,warmup=10%",
        "cosine:warmup=10%",
        expect!["cosine(0.1, 1000).with_warmup(100)"],
    );
    check(
        "polynomial:power=2",
        "polynomial:power=2",
        expect!["polynomial(0.1, 0.0, 2.0, 1000)"],
    );
    check(
        "step:every=2ep",
        "step:every=2ep",
        expect!["step_decay(0.1, 0.1, 80)"],
    );
    check(
        "exponential:warmup=0.5ep",
        "exponential:warmup=0.5ep",
        expect!["exponential(0.1, 0.9, 40).with_warmup(20)"],
    );
    check("one-cycle", "one-cycle", expect!["one_cycle(0.1, 1000)"]);
    check(
        "inverse-sqrt:warmup=7",
        "inverse-sqrt:warmup=7",
        expect!["inverse_sqrt(0.1, 7)"],
    );
    check(
        "warm-restarts:first=50,multiplier=2",
        "warm-restarts:first=50,multiplier=2",
        expect!["warm_restarts(0.1, 0.0, 50, 2)"],
    );
    check(
        "plateau:monitor=accuracy,mode=max,patience=3",
        "plateau:monitor=accuracy,mode=max,patience=3",
        expect!["0.1"],
    );
    let plateau: ScheduleSpec = "plateau:mode=max,factor=0.5".parse().unwrap();
    expect![[r#"Plateau { monitor: "loss", mode: Some(Max), factor: 0.5, patience: 10, threshold: 0.0001, cooldown: 0, min_factor: 0.0 }"#]].assert_eq(&format!("{:?}", plateau.plateau().unwrap()));
}

#[test]
fn every_name_is_a_schedule() {
    for name in ScheduleSpec::names() {
        let spec: ScheduleSpec = name.parse().unwrap();
        let schedule = spec.schedule(0.1, RUN).unwrap();
        assert!(schedule.value(999).is_finite(), "{name}");
        assert_eq!(spec.to_string(), name);
    }
}

#[test]
fn wrong_texts_are_refused() {
    let refused = |text: &str| text.parse::<ScheduleSpec>().unwrap_err().to_string();
    expect!["schedule: `cosin`: unknown schedule `cosin`; expected one of constant, linear, cosine, polynomial, step, exponential, one-cycle, inverse-sqrt, warm-restarts, plateau"].assert_eq(&refused("cosin"));
    expect!["schedule: `cosine:warm=3`: unknown key `warm`; `cosine` has end, warmup"]
        .assert_eq(&refused("cosine:warm=3"));
    expect!["schedule: `cosine:warmup`: `warmup` is not KEY=VALUE, such as warmup=100"]
        .assert_eq(&refused("cosine:warmup"));
    expect!["schedule: `cosine:warmup=3,warmup=4`: `warmup` is given twice"]
        .assert_eq(&refused("cosine:warmup=3,warmup=4"));
    expect!["schedule: `cosine:warmup=-3`: `warmup` is `-3`; expected a length: steps (100), epochs (3ep), or a part of the run (10%)"].assert_eq(&refused("cosine:warmup=-3"));
    expect!["schedule: `cosine:warmup=200%`: `warmup` is `200%`; expected a length: steps (100), epochs (3ep), or a part of the run (10%)"].assert_eq(&refused("cosine:warmup=200%"));
    expect!["schedule: `one-cycle:warmup=3`: unknown key `warmup`; `one-cycle` has no keys"]
        .assert_eq(&refused("one-cycle:warmup=3"));
    expect!["schedule: `step:factor=NaN`: `factor` is `NaN`; expected 0 or a positive number, such as 0.1"].assert_eq(&refused("step:factor=NaN"));
    expect!["plateau: factor is 2; expected a number from 0 to below 1, such as 0.1"]
        .assert_eq(&refused("plateau:factor=2"));
    expect!["schedule: `plateau:mode=down`: `mode` is `down`; expected auto, min or max"]
        .assert_eq(&refused("plateau:mode=down"));
    let long: ScheduleSpec = "linear:warmup=1000".parse().unwrap();
    let error = long.schedule(0.1, RUN).unwrap_err().to_string();
    expect!["schedule: the warmup has 1000 steps, and linear(0.1, 0.0, 1000) ends at step 1000; a warmup is shorter than its schedule"].assert_eq(&error);
}

#[test]
fn debug_text_is_the_code() {
    for (schedule, text) in [
        (Schedule::constant(1e-3), "0.001"),
        (
            Schedule::warmup(0.1, 10).then(0.1),
            "warmup(0.1, 10).then(0.1)",
        ),
        (Schedule::from(0.1).then_at(5, 0.2), "0.1.then_at(5, 0.2)"),
        (
            Schedule::polynomial(0.1, 0.0, 2.0, 9),
            "polynomial(0.1, 0.0, 2.0, 9)",
        ),
        (Schedule::linear(0.1, 0.0, 9), "linear(0.1, 0.0, 9)"),
        (
            Schedule::cosine(0.1, 9).with_warmup(3),
            "cosine(0.1, 9).with_warmup(3)",
        ),
        (Schedule::cosine_to(0.1, 0.01, 9), "cosine_to(0.1, 0.01, 9)"),
        (
            Schedule::piecewise(0.1, [(5, 0.01)]),
            "piecewise(0.1, [(5, 0.01)])",
        ),
        (
            Schedule::step_decay(0.1, 0.5, 1).per_epoch(40),
            "step_decay(0.1, 0.5, 1).per_epoch(40)",
        ),
        (
            Schedule::custom("mine", |step| step * 0.1),
            "custom(\"mine\")",
        ),
    ] {
        assert_eq!(format!("{schedule:?}"), text);
    }
}
