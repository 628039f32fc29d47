//! Findings about an activity of given numbers.

use std::time::Duration;

use halite_core::{Reason, Stages};
use halite_telemetry::{
    Activity, CompileRecord, Finding, FindingKind, FunctionActivity, InterpretedActivity,
    SiteActivity,
};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Ten seconds in which `step` was launched 1000 times, and each launch ran 20 us.
fn tiny() -> Activity {
    let step = FunctionActivity {
        name: "step".into(),
        origin: None,
        compiles: 1,
        launches: 1000,
        devices: 1,
        timed: 100,
        executed: millis(2),
        interpreted: Vec::new(),
    };
    Activity {
        time: Duration::from_secs(10),
        functions: vec![step],
        ..Activity::default()
    }
}

/// A run of this length, of which compiling `step` took a part.
fn compiled(time: Duration, compile: Duration) -> Activity {
    let record = CompileRecord {
        number: 0,
        cached: false,
        function: "step".into(),
        digest: "0123456789abcdef".into(),
        origin: None,
        called_at: None,
        reason: Reason::First,
        inputs: 1,
        outputs: 1,
        stages: Stages {
            compile,
            ..Stages::default()
        },
        memory: None,
        interpreted: Vec::new(),
        at: compile,
    };
    Activity {
        time,
        compiles: vec![record],
        ..Activity::default()
    }
}

#[track_caller]
fn only(activity: &Activity) -> Finding {
    let findings = activity.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings[0].clone()
}

#[track_caller]
fn assert_silent(activity: &Activity) {
    assert_eq!(activity.findings(), []);
}

#[test]
fn tiny_steps_are_found_with_the_idle_share() {
    let finding = only(&tiny());
    assert_eq!(finding.kind, FindingKind::TinySteps);
    for part in ["`step`", "100 % of the time", "larger batch"] {
        assert!(finding.message.contains(part), "{part}: {finding}");
    }
}

#[test]
fn interpreted_operations_are_found_with_their_share() {
    let mut activity = tiny();
    let step = &mut activity.functions[0];
    // A launch takes 5 ms.
    (step.launches, step.timed, step.executed) = (100, 100, millis(500));
    let slow = |operation: &str, took| InterpretedActivity {
        operation: operation.to_owned(),
        count: 1,
        took,
    };
    step.interpreted = vec![
        slow("`top_k` of f16", millis(5)),
        slow("`sort` of f8E4M3FN", millis(210)),
    ];
    let finding = only(&activity);
    assert_eq!(finding.kind, FindingKind::Interpreted);
    for part in [
        "`sort` of f8E4M3FN, `top_k` of f16 of `step`",
        "43 %",
        "see \"Slow runs\"",
    ] {
        assert!(finding.message.contains(part), "{part}: {finding}");
    }
    activity.functions[0].interpreted[1].took = millis(20);
    assert_silent(&activity);
    // What ran before is not of this activity.
    let mut earlier = activity.clone();
    earlier.functions[0].launches = 0;
    activity.functions[0].interpreted[1].took = millis(120);
    earlier.functions[0].interpreted[1].took = millis(100);
    let since = activity.since(&earlier);
    assert_eq!(since.functions[0].interpreted[1].took, millis(20));
}

#[test]
fn steps_of_a_busy_device_are_not_tiny() {
    // 1000 launches of 20 us in 60 ms: busy for a third of the time.
    assert_silent(&Activity {
        time: millis(60),
        ..tiny()
    });
}

#[test]
fn long_launches_are_not_tiny() {
    let mut activity = tiny();
    activity.functions[0].executed = millis(11);
    assert_silent(&activity);
}

#[test]
fn few_launches_are_not_tiny_steps() {
    let mut activity = tiny();
    activity.functions[0].launches = 79;
    assert_silent(&activity);
    // And the mean of a few timed ones is not believed.
    let mut activity = tiny();
    (activity.functions[0].timed, activity.functions[0].executed) = (7, millis(0));
    assert_silent(&activity);
}

#[test]
fn compiling_most_of_a_run_is_found_with_its_times() {
    let finding = only(&compiled(Duration::from_secs(100), Duration::from_secs(60)));
    assert_eq!(finding.kind, FindingKind::CompileShare);
    for part in ["60.0 s of 100 s (60 %)", "`step`"] {
        assert!(finding.message.contains(part), "{part}: {finding}");
    }
}

/// The trainer compiles several programs at once.
#[test]
fn programs_that_compile_at_once_count_once() {
    let mut activity = compiled(Duration::from_secs(100), Duration::from_secs(60));
    let mut other = activity.compiles[0].clone();
    other.stages.compile = Duration::from_secs(50);
    other.at = Duration::from_secs(70);
    activity.compiles.push(other);
    assert_eq!(activity.compile_time(), Duration::from_secs(70));
    let finding = only(&activity);
    assert!(
        finding.message.contains("70.0 s of 100 s (70 %)"),
        "{finding}"
    );
}

#[test]
fn compiling_less_than_half_of_a_run_is_normal() {
    assert_silent(&compiled(Duration::from_secs(100), Duration::from_secs(49)));
}

#[test]
fn compiling_most_of_a_short_run_is_normal() {
    assert_silent(&compiled(Duration::from_secs(59), Duration::from_secs(58)));
}

#[test]
fn waits_of_several_threads_are_no_share() {
    let location = std::panic::Location::caller();
    let reads = |seconds| SiteActivity {
        location,
        count: 20,
        bytes: 80,
        took: Duration::from_secs(seconds),
    };
    let message = |seconds| {
        let activity = Activity {
            time: Duration::from_secs(10),
            steps: 20,
            reads: vec![reads(seconds)],
            ..Activity::default()
        };
        only(&activity).message
    };
    let one = message(4);
    assert!(one.contains("waited 4.00 s (40 % of the time)"), "{one}");
    let several = message(25);
    let words = "waited 25.0 s (on several threads, of 10.0 s)";
    assert!(several.contains(words), "{several}");
}
