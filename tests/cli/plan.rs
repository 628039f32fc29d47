//! `halite plan` for CPU targets. Other targets are tested in the crate of tests.

use crate::support::{halite, run};

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
