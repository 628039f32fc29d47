//! Every parser, and the executor, on mutated inputs: none panics, hangs or takes much memory, and printed values
//! parse as the same values.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use halite_tests::fuzz::{Campaign, References, run, target, targets};

/// Seed of the inputs; the command `fuzz` takes others.
const SEED: u64 = 20_260_922;

#[track_caller]
fn check(names: &[&str], inputs: u64) {
    for name in names {
        let target = target(name).unwrap_or_else(|| panic!("no target {name}"));
        let passed =
            run(target, Campaign::new(inputs, SEED)).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(
            passed.accepted > 0,
            "{name}: no input was accepted, so no property was checked"
        );
        assert!(passed.rejected > 0, "{name}: no input was rejected");
    }
}

/// Those that need NumPy or less; the command `fuzz --reference` has others.
#[test]
fn files_are_read_as_other_packages_read_them() {
    let scratch = tempfile::tempdir().unwrap();
    let references = References {
        python: None,
        formats: ["npz", "tfrecord"].map(str::to_owned).to_vec(),
        inputs: 150,
        seed: SEED,
        deadline: Duration::from_secs(60),
        directory: scratch.path().to_owned(),
    };
    let compared = references.run().unwrap();
    assert!(
        compared.failures.is_empty(),
        "{:?}\n{compared}",
        compared.failures
    );
    assert!(compared.same() > 20, "{compared}");
}

const DATA: &[&str] = &[
    "idx",
    "idx_gzip",
    "image",
    "tokenizer",
    "byte_pairs",
    "table",
    "array_file",
    "json_lines",
    "transforms",
    "example",
    "data_set",
];
const CHECKPOINT: &[&str] = &["checkpoint_manifest", "checkpoint_arrays", "metrics_table"];
const CACHE: &[&str] = &[
    "package_marker",
    "program_entry",
    "compile_cache",
    "cache_size",
];
const PLUGIN: &[&str] = &[
    "library_needs",
    "program_frame",
    "optimized_program",
    "compile_options",
    "program_text",
    "stablehlo_text",
    "stablehlo_bytecode",
    "npy",
    "jax_artifact",
];
const WEIGHTS: &[&str] = &["safetensors", "pickle", "torch", "gguf"];
const EXECUTOR: &[&str] = &["run_program"];
const COMMAND: &[&str] = &[
    "accelerator",
    "compile_target",
    "mesh_axes",
    "partition_spec",
    "strategy",
    "pattern",
    "precision",
    "model",
    "cuda_allocator",
];

#[test]
fn parsers_of_data_survive_any_input() {
    check(DATA, 2_000);
}

#[test]
fn parsers_of_runs_survive_any_input() {
    check(CHECKPOINT, 2_000);
}

#[test]
fn parsers_of_the_cache_survive_any_input() {
    check(CACHE, 5_000);
}

#[test]
fn parsers_of_plugin_output_survive_any_input() {
    check(PLUGIN, 5_000);
}

#[test]
fn parsers_of_weights_survive_any_input() {
    check(WEIGHTS, 5_000);
}

#[test]
fn executor_survives_any_program() {
    check(EXECUTOR, 5_000);
}

#[test]
fn parsers_of_arguments_survive_any_input() {
    check(COMMAND, 10_000);
}

#[test]
fn every_target_is_tested_here() {
    let tested: BTreeSet<&str> = [DATA, CHECKPOINT, CACHE, PLUGIN, WEIGHTS, EXECUTOR, COMMAND]
        .concat()
        .into_iter()
        .collect();
    assert_eq!(tested, targets().iter().map(|target| target.name).collect());
}

#[test]
fn every_target_is_a_libfuzzer_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let files = fs::read_dir(folder.join("fuzz_targets")).unwrap();
    let files: BTreeSet<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        files,
        targets()
            .iter()
            .map(|target| format!("{}.rs", target.name))
            .collect()
    );
    for target in targets() {
        let text = fs::read_to_string(
            folder
                .join("fuzz_targets")
                .join(format!("{}.rs", target.name)),
        )
        .unwrap();
        assert!(text.contains(&format!("\"{}\"", target.name)), "{text}");
        assert!(
            manifest.contains(&format!("name = \"{}\"", target.name)),
            "{} is not in Cargo.toml",
            target.name
        );
    }
}
