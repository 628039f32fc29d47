//! `halite plan` for CPU targets. Other targets are tested in the crate of tests.

use std::time::{Duration, Instant};

use crate::support::{EXTREMES, assert_contains, assert_reported, fails, halite, run, succeeds};

#[test]
fn plan_reports_memory_operations_collectives() {
    let ended = run(&mut halite(
        "plan mnist-mlp --target cpu:8 --strategy fsdp --json --offline",
    ));
    assert!(ended.status.success(), "{}", ended.stderr);
    let plan: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let number = |pointer: &str| {
        plan.pointer(pointer)
            .unwrap_or_else(|| panic!("{pointer} in {plan}"))
            .as_f64()
            .unwrap()
    };
    assert_eq!(
        (
            number("/devices"),
            number("/batch_size"),
            number("/parameters")
        ),
        (8.0, 1024.0, 669_706.0)
    );
    // Expected: each weight of 784x512, 512x512, 512x10 meets every sample in the forward pass, in
    // the gradient by itself, and, but for the first layer, in the gradient by its input.
    let weights = 784.0 * 512.0 + 512.0 * 512.0 + 512.0 * 10.0;
    let contractions = 2.0 * 1024.0 * (3.0 * weights - 784.0 * 512.0);
    assert_eq!(number("/work/contractions"), contractions);
    // Weights of 16,384 elements and more are in eighths, with their two slots; the rest is whole
    // on each device.
    let (large, small) = (
        784.0 * 512.0 + 512.0 * 512.0,
        512.0 * 10.0 + 512.0 + 512.0 + 10.0,
    );
    let state = 3.0 * 4.0 * (large / 8.0 + small);
    let batch = 128.0 * (28.0 * 28.0 + 1.0 + 4.0);
    let rest = number("/arguments") - state - batch;
    assert!(
        (0.0..100.0).contains(&rest),
        "{rest} bytes for the step's number, the key, the metrics and the hyperparameters"
    );
    assert_eq!(number("/memory/arguments"), number("/arguments"));
    let kinds: Vec<&str> = plan["collectives"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["kind"].as_str().unwrap())
        .collect();
    assert!(
        kinds.contains(&"all-gather"),
        "weights in shards are gathered: {kinds:?}"
    );
}

#[test]
fn plan_options_are_those_of_train() {
    let operations = |options: &str| {
        let command = format!("plan tiny --target cpu:1 --json --offline {options}");
        let ended = run(&mut halite(&command));
        let plan: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let number = |name: &str| plan["work"][name].as_f64().unwrap();
        (
            number("contractions"),
            number("model_flops"),
            number("flops"),
        )
    };
    // `train` saves activations and clips gradients.
    let (executed, model, flops) = operations("");
    assert_eq!(executed, model, "nothing is recomputed");
    let (recomputed, same, _) = operations("--remat full");
    assert!(recomputed > model && same == model, "{recomputed}, {same}");
    let (.., unclipped) = operations("--clip-norm 0");
    assert!(unclipped < flops, "{unclipped}, {flops}");

    let ended = run(&mut halite("plan mnist-mlp --target cpu:1 --remat full"));
    assert_eq!(ended.error(), "plan: --remat applies to transformers only");
}

#[test]
fn search_lists_shardings_that_fit_first() {
    let ended = run(&mut halite(
        "plan mnist-mlp --target cpu:4 --search --offline",
    ));
    assert!(ended.status.success(), "{}", ended.stderr);
    // Targets of CPUs have no time estimate.
    for word in [
        "fsdp=4",
        "data=2,model=2",
        "dp+tp",
        "no time estimate for this target",
        "least traffic between devices",
    ] {
        assert!(ended.stdout.contains(word), "{word} in\n{}", ended.stdout);
    }
}

#[test]
fn invalid_plans_are_errors_with_reasons() {
    let cases = [
        (
            "plan gpt9 --target cpu:8",
            vec!["unknown model `gpt9`", "gpt2-124m"],
        ),
        ("plan mnist-mlp --target tpu:v9:2x2", vec!["tpu:v9:2x2"]),
        (
            "plan mnist-mlp --target cpu:8 --mesh data=3,model",
            vec!["invalid axis `model`"],
        ),
        (
            "plan mnist-mlp --target cpu:8 --mesh data=16",
            vec!["mesh(data=16) needs 16 devices", "cpu:8 has 8"],
        ),
        (
            "plan mnist-mlp --target cpu:8 --batch-size 100",
            vec!["batch.input", "100 is not a multiple of 8"],
        ),
        (
            "plan mnist-mlp --target cpu:8 --mesh data=4,model=2",
            vec!["model", "`tp` splits parameters"],
        ),
        (
            "plan tiny --target cpu:2 --batch-size 1000000000000",
            vec![
                ", 1000000000000, ",
                "PB on each of 2 devices, more than the 141 TB",
                "lower the batch size",
            ],
        ),
    ];
    for (arguments, parts) in cases {
        let ended = run(&mut halite(&format!("{arguments} --offline")));
        assert!(!ended.status.success(), "{arguments}");
        for part in parts {
            assert!(
                ended.stderr.contains(part),
                "{arguments}: {part} in\n{}",
                ended.stderr
            );
        }
    }
}

#[test]
fn largest_batch_fits_the_memory() {
    const LIMIT: u64 = 40 << 20;
    let plan = "plan mnist-mlp --target cpu:2 --json --offline --memory-limit 40M";
    let ended = succeeds(&mut halite(&format!("{plan} --largest-batch")));
    let best: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let samples = best["batch_size"].as_u64().unwrap();
    assert!((samples / 2).is_power_of_two(), "{samples}");
    assert!(best["memory"]["peak"].as_u64().unwrap() <= LIMIT, "{best}");
    let ended = run(&mut halite(&format!("{plan} --batch-size {}", 2 * samples)));
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    let twice: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(
        twice["fit"]["required"].as_u64().unwrap() > LIMIT,
        "{twice}"
    );

    let ended = run(&mut halite(
        &format!("{plan} --largest-batch").replace("40M", "1M"),
    ));
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    let error = fails(&mut halite(
        "plan mnist-mlp --target cpu:2 --offline --largest-batch",
    ));
    assert_contains(
        &error,
        &["cpu:2 reports no limit of its memory", "--memory-limit 16G"],
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
