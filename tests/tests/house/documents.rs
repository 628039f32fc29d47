//! Documents that promise to be complete.

use std::{collections::BTreeSet, fs, path::Path};

/// Number of rows in the list of features of PyTorch/XLA and Lightning.
const FEATURES: u32 = 229;

/// Those of jobs of several processes, as ranges: each has a call, and a test that runs it.
const OF_PROCESSES: [(u32, u32); 18] = [
    (9, 19),
    (26, 27),
    (31, 32),
    (48, 48),
    (70, 72),
    (77, 77),
    (82, 82),
    (85, 92),
    (94, 98),
    (103, 103),
    (105, 105),
    (156, 156),
    (159, 159),
    (166, 168),
    (173, 173),
    (181, 181),
    (190, 190),
    (219, 219),
];

/// The cells of a row of a Markdown table. A bar inside a cell is written with a backslash.
fn cells(line: &str) -> Vec<String> {
    let line = line.replace("\\|", "/");
    let line = line
        .strip_prefix('|')
        .and_then(|line| line.strip_suffix('|'));
    let cells = line.unwrap_or_default().split('|');
    cells.map(|cell| cell.trim().to_string()).collect()
}

/// Whether `text` has `name` as a whole word.
fn has_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part)
    })
}

/// Whether `code` has a test of this name.
fn has_test(code: &str, name: &str) -> bool {
    code.split("#[test]").skip(1).any(|after| {
        let signature = after.split('{').next().unwrap_or_default();
        signature.contains(&format!("fn {name}("))
    })
}

/// Why `evidence` does not show a feature: `` `FILE: TEST` `` is a test by name,
/// `` `examples/FILE: NAME` `` an example that uses the name, and `` `halite COMMAND` `` a command,
/// whose options `tests/cli/help.rs` checks.
fn missing(root: &Path, evidence: &str) -> Option<String> {
    let evidence = evidence.trim_matches('`');
    if evidence.starts_with("halite ") {
        return None;
    }
    let Some((file, name)) = evidence.split_once(": ") else {
        return Some(format!(
            "`{evidence}` is not `FILE: TEST` or `halite COMMAND`"
        ));
    };
    let code = match fs::read_to_string(root.join(file)) {
        Ok(code) => code,
        Err(error) => return Some(format!("{file}: {error}")),
    };
    // Their programs are compiled and run: `src/lib.rs` has the pages.
    if file.starts_with("examples/") || file.starts_with("docs/") {
        return (!has_word(&code, name)).then(|| format!("{file} does not use `{name}`"));
    }
    (!has_test(&code, name)).then(|| format!("{file} has no test `{name}`"))
}

#[test]
fn every_feature_of_pytorch_xla_has_an_answer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/coming-from-pytorch-xla.md")).unwrap();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for line in text.lines().filter(|line| line.starts_with("| F")) {
        let cells = cells(line);
        let [id, theirs, status, ours, evidence] = &cells[..] else {
            panic!("not five cells: {line}")
        };
        assert!(!theirs.is_empty(), "{line}");
        let number: u32 = id[1..].parse().unwrap();
        assert!(seen.insert(number), "{id} twice");
        let of_processes = |(first, last): &(u32, u32)| (*first..=*last).contains(&number);
        if OF_PROCESSES.iter().any(of_processes) {
            let is_test = evidence.contains(".rs: ") && !evidence.starts_with("`examples/");
            if !is_test || !["there", "in part"].contains(&status.as_str()) {
                wrong.push(format!("{id}: {status} by {evidence}, expected a test"));
            }
        }
        match status.as_str() {
            "there" if evidence.is_empty() => wrong.push(format!("{id}: no test or command")),
            "there" => wrong.extend(missing(&root, evidence).map(|why| format!("{id}: {why}"))),
            "in part" => {
                assert!(!ours.is_empty(), "{id}: nothing says what is missing");
                wrong.extend(missing(&root, evidence).map(|why| format!("{id}: {why}")));
            }
            "not needed" => assert!(!ours.is_empty(), "{id}: no reason"),
            "not there" => {}
            other => panic!("{id}: unknown status `{other}`"),
        }
    }
    assert_eq!(seen, (1..=FEATURES).collect());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Arguments of the `Trainer`, callbacks, and hooks of `Callback` and `LightningModule`, of Lightning 2.6.
const OF_LIGHTNING: &str = "
    accelerator strategy devices num_nodes precision logger callbacks fast_dev_run max_epochs min_epochs
    max_steps min_steps max_time limit_train_batches limit_val_batches limit_test_batches
    limit_predict_batches overfit_batches val_check_interval check_val_every_n_epoch num_sanity_val_steps
    log_every_n_steps enable_checkpointing enable_progress_bar enable_model_summary
    accumulate_grad_batches gradient_clip_val gradient_clip_algorithm deterministic benchmark
    inference_mode use_distributed_sampler profiler detect_anomaly barebones plugins sync_batchnorm
    reload_dataloaders_every_n_epochs default_root_dir enable_autolog_hparams model_registry

    BackboneFinetuning BaseFinetuning BasePredictionWriter BatchSizeFinder Callback DeviceStatsMonitor
    EarlyStopping EMAWeightAveraging GradientAccumulationScheduler LambdaCallback LearningRateFinder
    LearningRateMonitor ModelCheckpoint ModelPruning ModelSummary OnExceptionCheckpoint ProgressBar
    RichModelSummary RichProgressBar SpikeDetection StochasticWeightAveraging ThroughputMonitor Timer
    TQDMProgressBar WeightAveraging

    setup teardown on_fit_start on_fit_end on_sanity_check_start on_sanity_check_end on_train_batch_start
    on_train_batch_end on_train_epoch_start on_train_epoch_end on_validation_epoch_start
    on_validation_epoch_end on_validation_batch_start on_validation_batch_end on_train_start on_train_end
    on_validation_start on_validation_end on_exception state_dict load_state_dict on_save_checkpoint
    on_load_checkpoint on_before_backward on_after_backward on_before_optimizer_step on_before_zero_grad
    training_step validation_step test_step predict_step configure_optimizers lr_scheduler_step
    manual_backward optimizer_step configure_gradient_clipping configure_model prepare_data
    train_dataloader transfer_batch_to_device on_before_batch_transfer on_after_batch_transfer log
    log_dict all_gather freeze unfreeze to_onnx to_torchscript
";

#[test]
fn every_word_of_lightning_has_an_answer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/coming-from-lightning.md")).unwrap();
    let rows: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(cells)
        .collect();
    let answered = |name: &str| {
        let row = rows.iter().find(|row| has_word(&row[0], name));
        row.is_some_and(|row| row.len() == 3 && !row[1].is_empty())
    };
    let missing: Vec<_> = OF_LIGHTNING
        .split_whitespace()
        .filter(|name| !answered(name))
        .collect();
    assert!(missing.is_empty(), "no answer: {missing:?}");
}

/// The guide has the files of the template in full, each after a line with its name.
#[test]
fn guide_has_the_files_of_the_template() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guide = fs::read_to_string(root.join("docs/writing-a-plugin.md")).unwrap();
    let mut files = Vec::new();
    for (before, block) in guide
        .split("\n```rust,ignore\n")
        .zip(guide.split("\n```rust,ignore\n").skip(1))
    {
        let name = before.trim_end().rsplit('\n').next().unwrap_or_default();
        let name = name.trim_matches(['`', ':']);
        let file = fs::read_to_string(root.join("plugins/template").join(name))
            .unwrap_or_else(|error| panic!("`{name}` before a block of code: {error}"));
        let code = block.split_once("```").expect("blocks end").0;
        assert!(
            code == file,
            "{name} in the guide differs from the template"
        );
        files.push(name.to_owned());
    }
    let expected = ["src/lib.rs", "src/driver.rs", "src/program.rs"];
    assert_eq!(files, expected);
}

/// A cell of `docs/what-survives.md` names tests as `` `path/of/file.rs: name_of_the_test` ``.
#[test]
fn every_test_in_what_survives_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/what-survives.md")).unwrap();
    let mut named = 0;
    for line in text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| fault "))
    {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [fault, promise, shown_by] = cells[..] else {
            panic!("not three cells: {line}")
        };
        assert!(!fault.is_empty() && !promise.is_empty(), "{line}");
        for test in shown_by.split(", ") {
            let named_test = test.trim_matches('`').split_once(": ");
            let (file, name) =
                named_test.unwrap_or_else(|| panic!("`{test}` is not `FILE: TEST` in {line}"));
            let code = fs::read_to_string(root.join(file))
                .unwrap_or_else(|error| panic!("{file}: {error}, in {line}"));
            assert!(has_test(&code, name), "{file} has no test `{name}`");
            named += 1;
        }
    }
    assert!(
        named > 20,
        "only {named} tests were found: has the form of the table changed?"
    );
}
