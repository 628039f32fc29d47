//! Extreme values of every numeric option: an error, never a panic, and never an endless run.

use std::time::{Duration, Instant};

use crate::support::{Ended, Running, halite, newest_step, run};

const EXTREMES: [&str; 6] = [
    "-1",
    "nan",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999999",
];

#[track_caller]
fn assert_reported(arguments: &str, ended: &Ended) {
    let text = format!("{}{}", ended.stdout, ended.stderr);
    for word in ["panicked", "ended its process", "overflow"] {
        assert!(!text.contains(word), "{arguments}: {ended:?}");
    }
    assert!(
        matches!(ended.status.code(), Some(0..=3)),
        "{arguments}: {ended:?}"
    );
}

#[test]
fn plan_refuses_sizes_that_overflow() {
    for (arguments, part) in [
        (
            "tiny --target cpu:1 --context 18446744073709551615",
            "a context of 18446744073709551615 tokens is too large",
        ),
        (
            "tiny --target cpu:1 --context 9223372036854775807",
            "`batch.0`: u32[8, 9223372036854775808]",
        ),
        (
            "gpt2-124m --target cpu:1 --context 4611686018427387904 --batch-size 4611686018427387904",
            "address space",
        ),
        (
            "tiny --target cpu:1 --batch-size 18446744073709551615",
            "18446744073709551615",
        ),
        (
            "mnist-mlp --target cpu:1 --batch-size 18446744073709551615",
            "18446744073709551615",
        ),
        (
            "mnist-cnn --target cpu:1 --batch-size 9223372036854775807",
            "9223372036854775807",
        ),
    ] {
        let ended = run(&mut halite(&format!("plan {arguments} --offline")));
        assert_reported(arguments, &ended);
        assert_eq!(ended.status.code(), Some(1), "{arguments}: {ended:?}");
        assert!(ended.stderr.contains(part), "{arguments}: {ended:?}");
    }
}

/// Sizes that no machine has: the value and the limit, before anything of that size is computed.
#[test]
fn impossible_sizes_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (song, program) = (dir.path().join("song.txt"), dir.path().join("large.mlir"));
    std::fs::write(&song, "row, row, row your boat\n".repeat(60)).unwrap();
    let text = "func.func @main(%a: tensor<100000x1000000xf32>) -> tensor<f32> {
        %0 = stablehlo.constant dense<1.0> : tensor<f32>
        return %0 : tensor<f32>
    }";
    std::fs::write(&program, text).unwrap();
    let train = format!(
        "train text --model tiny --quiet --prompt row --data {}",
        song.display()
    );
    let run = format!("run {}", program.display());
    for (start, arguments, code, part) in [
        (
            "plan",
            "tiny --target cpu:2 --context 1000000000",
            1,
            "TB of a large machine",
        ),
        (
            "plan",
            "small --target cpu:1 --context 1000000000",
            1,
            "TB of a large machine",
        ),
        (
            "plan",
            "gpt2-124m --target cpu:8 --context 1000000000",
            1,
            "can address",
        ),
        (
            "plan",
            "gpt2-xl --target cpu:64 --context 30000000000",
            1,
            "any address space",
        ),
        (
            "plan",
            "tiny --target cpu:1 --batch-size 1000000000",
            1,
            "TB of a large machine",
        ),
        (
            "plan",
            "tiny --target cpu:1000000000",
            2,
            "expected 1 to 1024",
        ),
        (
            "plan",
            "tiny --target cpu:8 --mesh data=1000000000",
            1,
            "cpu:8 has 8",
        ),
        (
            "plan",
            "tiny --target cpu:1 --deadline 1000000000",
            2,
            "1..=1000000",
        ),
        (
            &train,
            "--context 1000000000",
            1,
            "a context of at most 1367",
        ),
        (
            &train,
            "--batch-size 1000000000",
            1,
            "a batch size of at most",
        ),
        (&train, "--sample 1000000000", 2, "from 0 to 1000000"),
        (
            &train,
            "--steps-per-execution 1000000000",
            1,
            "use at most 50",
        ),
        (&train, "--accelerator embedded:1000000000", 2, "1 to 1024"),
        (
            &train,
            "--accelerator embedded --devices 1000000000",
            1,
            "1 to 1024",
        ),
        (
            &train,
            "--accelerator embedded --mesh data=1000000000",
            1,
            "1 to 1024",
        ),
        (
            "train digits",
            "--batch-size 1000000000",
            1,
            "a batch size of at most",
        ),
        (
            &run,
            "-i zeros --accelerator embedded",
            1,
            "400000000000 bytes, more than the",
        ),
        (
            &run,
            "-i random:1 --accelerator cpu",
            1,
            "400000000000 bytes, more than the",
        ),
    ] {
        let arguments = format!("{start} {arguments}");
        let mut command = halite(&arguments);
        command.current_dir(dir.path());
        let started = Instant::now();
        let ended = crate::support::run(&mut command);
        let took = started.elapsed();
        assert_reported(&arguments, &ended);
        assert_eq!(ended.code(), Some(code), "{arguments}: {ended:?}");
        assert!(ended.stderr.contains(part), "{arguments}: {ended:?}");
        assert!(took < Duration::from_secs(2), "{arguments}: {took:?}");
    }
}

#[test]
fn plan_survives_extreme_numbers() {
    for option in ["--context", "--batch-size", "--deadline"] {
        for value in EXTREMES {
            let arguments = format!("plan tiny --target cpu:1 {option} {value} --offline");
            assert_reported(&arguments, &run(&mut halite(&arguments)));
        }
    }
    for target in [
        "cpu:18446744073709551615",
        "cpu:18446744073709551616",
        "tpu:v5e:4294967296x4294967296",
        "cuda:h100:0x8",
    ] {
        let arguments = format!("plan tiny --target {target} --offline");
        assert_reported(&arguments, &run(&mut halite(&arguments)));
    }
    let arguments = "plan tiny --target cpu:8 --mesh data=4294967296,model=4294967296 --offline";
    assert_reported(arguments, &run(&mut halite(arguments)));
}

#[test]
fn mnist_survives_extreme_numbers() {
    let dir = tempfile::tempdir().unwrap();
    // What else these need to be refused, or to be small runs that work.
    let options = [
        ("--batch-size", "--limit 64"),
        // More than there are images, so that nothing is trained.
        ("--limit", "--batch-size 70000"),
        ("--learning-rate", "--limit 64"),
        ("--devices", "--limit 64 --accelerator cpu"),
        ("--workers", "--limit 64"),
        ("--checkpoint-every", "--limit 64"),
    ];
    for (option, others) in options {
        // Of those that are accepted, one is enough.
        let values = EXTREMES
            .into_iter()
            .filter(|value| option == "--batch-size" || !value.starts_with("92"));
        for value in values {
            let arguments =
                format!("train mnist --model mlp --epochs 1 --quiet {others} {option} {value}");
            let out = dir.path().join(format!("{option}{value}"));
            assert_reported(&arguments, &run(halite(&arguments).arg("--out").arg(out)));
        }
    }
    for mesh in [
        "data=18446744073709551615",
        "data=4294967296,model=4294967296",
        "data=0",
    ] {
        let arguments = format!("train mnist --model mlp --limit 64 --batch-size 32 --mesh {mesh}");
        assert_reported(
            &arguments,
            &run(halite(&arguments).arg("--out").arg(dir.path().join("mesh"))),
        );
    }
}

#[test]
fn the_largest_number_of_epochs_trains() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = format!(
        "train mnist --model mlp --limit 64 --batch-size 32 --epochs {} --out",
        u64::MAX
    );
    let mut running = Running::start(halite(&arguments).arg(dir.path()));
    running.until("its first checkpoint", || newest_step(dir.path()) > 0);
    running.signal("TERM");
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(143), "{ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
}

#[test]
fn text_survives_extreme_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let song = dir.path().join("song.txt");
    std::fs::write(&song, "row, row, row your boat\n".repeat(60)).unwrap();
    let options = [
        "--context",
        "--batch-size",
        "--steps",
        "--dropout",
        "--validation",
        "--sample",
        "--temperature",
    ];
    for option in options {
        let values = EXTREMES
            .into_iter()
            .filter(|value| option == "--sample" || !value.starts_with("92"));
        for value in values {
            let defaults = [("--batch-size", "8"), ("--steps", "2"), ("--sample", "3")];
            let others = defaults
                .into_iter()
                .filter(|(name, _)| *name != option)
                .map(|(name, value)| format!("{name} {value}"));
            let others = others.collect::<Vec<_>>().join(" ");
            let arguments =
                format!("train text --model tiny --quiet --prompt row {others} {option} {value}");
            let out = dir.path().join(format!("{option}{value}"));
            assert_reported(
                &arguments,
                &run(halite(&arguments)
                    .arg("--data")
                    .arg(&song)
                    .arg("--out")
                    .arg(out)),
            );
        }
    }
}
