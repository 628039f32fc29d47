//! `halite finetune text`: what is trained, saved and resumed.

use std::{fs, path::Path};

use halite::{
    exchange::npy,
    train::checkpoint::Saved,
    weights::{TensorSource, WeightFile, open},
};
use serde_json::Value;

use super::support::{Ended, arrays, assert_contains, fails, halite, succeeds, table};

/// Small models.
pub(crate) const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/tests/golden");

/// Words of the text; token 0 is any other.
const WORDS: [&str; 7] = ["row", "your", "boat", "gently", "down", "the", "stream"];

/// Writes a random Llama with a tokenizer of words to `model`, and `song.txt`.
pub(crate) fn song(dir: &Path) {
    let model = dir.join("model");
    fs::create_dir(&model).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(
            Path::new(GOLDEN).join("llama3").join(name),
            model.join(name),
        )
        .unwrap();
    }
    let words = WORDS.iter().enumerate();
    let mut vocab: serde_json::Map<String, Value> = words
        .map(|(id, word)| ((*word).to_owned(), (id + 1).into()))
        .collect();
    vocab.insert("<unk>".to_owned(), 0.into());
    let tokenizer = serde_json::json!({
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": { "type": "Whitespace" },
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "<unk>" },
    });
    fs::write(model.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let song = "row row row your boat gently down the stream\n".repeat(40);
    fs::write(dir.join("song.txt"), song).unwrap();
}

/// Options of all runs.
pub(crate) const RUN: &str = "finetune text --model ./model --data ./song.txt --context 8 --batch-size 8 \
                   --learning-rate 0.01 --quiet";

/// Runs it in the directory of [`song`].
fn finetune(dir: &Path, options: &str) -> Ended {
    succeeds(halite(&format!("{RUN} {options}")).current_dir(dir))
}

/// Losses of the epochs of a run, of training and of validation.
fn losses(run: &Path) -> Vec<f64> {
    let rows = table(run);
    let loss = rows[0].iter().position(|name| name == "loss").unwrap();
    let rows = rows[1..].iter();
    rows.map(|row| row[loss].parse().unwrap()).collect()
}

/// The files of weights at two paths.
fn opened(dir: &Path, paths: [&str; 2]) -> [WeightFile; 2] {
    paths.map(|path| open(dir.join(path)).unwrap())
}

#[test]
fn adapters_train_alike_on_four_devices() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    song(dir);
    finetune(
        dir,
        "--lora 2 --max-epochs 2 --out ./one --accelerator embedded:1",
    );
    finetune(
        dir,
        "--lora 2 --max-epochs 2 --out ./four --accelerator cpu --devices 4",
    );
    let [one, four] = ["one", "four"].map(|run| losses(&dir.join(run)));
    assert!(one.len() == 4 && one[2] < one[0], "{one:?}");
    for (one, four) in one.iter().zip(&four) {
        assert!((one - four).abs() < 1e-5 * one, "{one} is not {four}");
    }
}

#[test]
fn adapters_are_loaded_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    song(dir);
    let train = "--lora 2 --lora-targets blocks.attention.q|v --max-steps 5 --merge --out ./run";
    let ended = finetune(dir, &format!("{train} --accelerator embedded"));
    let lines = ["adapters: run/adapter\n", "merged model: run/model\n"];
    assert_contains(&ended.stdout, &lines);
    let adapters = open(dir.join("run/adapter")).unwrap();
    assert_eq!(adapters.tensors().len(), 2 * 2 * 2, "A and B of two layers");
    // The merged model is the base, but for the adapted weights.
    let [merged, base] = opened(dir, ["run/model", "model"]);
    for info in base.tensors() {
        let is_equal = merged.read(&info.name).unwrap() == base.read(&info.name).unwrap();
        let is_adapted = info.name.contains("q_proj") || info.name.contains("v_proj");
        assert_ne!(is_equal, is_adapted, "{}", info.name);
    }
    // Its logits are those of the base with the loaded adapters.
    for (model, out) in [
        ("./run/model", "merged"),
        ("./model --adapter ./run/adapter", "loaded"),
    ] {
        let export = format!("export --model {model} --context 4 --output ./{out}.jax");
        succeeds(halite(&export).current_dir(dir));
        let run = format!("run ./{out}.jax -i zeros --output ./{out} --accelerator embedded");
        succeeds(halite(&run).current_dir(dir));
    }
    let [merged, loaded] = ["merged", "loaded"].map(|out| {
        let logits = npy::read(&fs::read(dir.join(out).join("0.npy")).unwrap()).unwrap();
        logits.as_slice::<f32>().unwrap().to_vec()
    });
    for (merged, loaded) in merged.iter().zip(&loaded) {
        assert!((merged - loaded).abs() < 1e-5, "{merged} is not {loaded}");
    }
}

/// Text by the base with adapters is that of the merged model.
#[test]
fn generation_takes_adapters() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    song(dir);
    let settings = r#"{"eos_token_id": [6, 7], "temperature": 0.5, "do_sample": true,
        "repetition_penalty": 100}"#;
    fs::write(dir.join("model/generation_config.json"), settings).unwrap();
    finetune(
        dir,
        "--lora 2 --max-steps 20 --merge --out ./run --accelerator embedded",
    );
    let says = |model: &str| {
        let generate = format!(
            "generate --model {model} --prompt row --max-tokens 6 --ignore-eos --accelerator embedded"
        );
        let ended = succeeds(halite(&generate).current_dir(dir));
        assert_contains(
            &ended.stderr,
            &["the model's settings are --temperature 0.5"],
        );
        ended.stdout
    };
    let base = says("./model");
    let merged = says("./run/model");
    assert_ne!(base, merged);
    assert_eq!(says("./model --adapter ./run/adapter"), merged);
    says("./model --adapter ./run/adapter --dtype bf16");
    // The penalty is that of the settings.
    assert_eq!(says("./model --repetition-penalty 100"), base);
    assert_ne!(says("./model --repetition-penalty 1"), base);
    let saved = fs::read_to_string(dir.join("run/model/generation_config.json")).unwrap();
    assert_eq!(saved, settings);
}

#[test]
fn run_leaves_its_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    song(dir);
    finetune(
        dir,
        "--lora 2 --max-steps 3 --out ./run --accelerator embedded:1",
    );
    let config = fs::read_to_string(dir.join("run/config.toml")).unwrap();
    assert_contains(
        &config,
        &[
            "finetune = \"text\"\n",
            "lora = 2\n",
            "`halite finetune --config FILE` repeats",
        ],
    );
    let again = "finetune --config ./run/config.toml --out ./again";
    succeeds(halite(again).current_dir(dir));
    assert!(arrays(&dir.join("run")) == arrays(&dir.join("again")));
    let config = fs::read_to_string(dir.join("again/config.toml")).unwrap();
    assert_eq!(
        config,
        fs::read_to_string(dir.join("run/config.toml")).unwrap()
    );
}

/// The projections of GPT-2 are one layer in the files of peft.
#[test]
fn adapters_that_cannot_be_saved_are_not_trained() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    song(dir);
    for name in ["config.json", "model.safetensors"] {
        let from = Path::new(GOLDEN).join("gpt2").join(name);
        fs::copy(from, dir.join("model").join(name)).unwrap();
    }
    let options = "--lora 2 --max-steps 2 --accelerator embedded:1 --out ./run";
    let targets = "--lora-targets blocks.attention.q|v,blocks.mlp.up";
    let error = fails(halite(&format!("{RUN} {options} {targets}")).current_dir(dir));
    assert_contains(
        &error,
        &[
            "c_attn.lora_A.weight` is of 3 parts, 2 of which have adapters",
            "--lora-targets blocks.mlp.up works",
        ],
    );
    assert!(!dir.join("run").exists());
    finetune(dir, options);
    // The names of the language model, whatever those of the file.
    let adapters = open(dir.join("run/adapter")).unwrap();
    let name = "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight";
    assert_eq!(adapters.read(name).unwrap().ty().dims(), [48, 6]);
    let generate = "generate --model ./model --adapter ./run/adapter --tokens 1 --max-tokens 2 \
                    --accelerator embedded";
    succeeds(halite(generate).current_dir(dir));
}

#[test]
fn checkpoints_of_adapters_leave_out_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    song(dir);
    let run = "--lora 2 --max-epochs 2 --accelerator embedded:1 --out";
    finetune(dir, &format!("{run} ./whole"));
    finetune(dir, &format!("{run} ./parts --checkpoint-every 3"));
    // Back to step 9.
    fs::remove_dir_all(dir.join("parts/checkpoints/step-00000010")).unwrap();
    finetune(dir, &format!("{run} ./parts --resume"));
    assert!(arrays(&dir.join("parts")) == arrays(&dir.join("whole")));
    let saved = Saved::of_run(dir.join("parts")).unwrap();
    let names: Vec<&str> = saved.arrays().map(|(name, _)| name).collect();
    assert!(
        names.iter().all(|name| !name.starts_with("model.base.")),
        "{names:?}"
    );
    let adapter = "model.adapters.blocks.attention.q.lora_A.weight";
    assert!(names.contains(&adapter), "{names:?}");

    // Other weights at the same path.
    let path = dir.join("model/model.safetensors");
    let mut weights = fs::read(&path).unwrap();
    *weights.last_mut().unwrap() ^= 1;
    fs::write(&path, weights).unwrap();
    let error = fails(halite(&format!("{RUN} {run} ./parts --resume")).current_dir(dir));
    assert_contains(
        &error,
        &["frozen parameters: saved", "arrays of model, xxh3"],
    );
}

#[test]
fn all_weights_are_trained_on_embedded() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    song(dir);
    finetune(dir, "--max-epochs 2 --accelerator embedded --out ./run");
    let losses = losses(&dir.join("run"));
    assert!(losses[2] < losses[0], "{losses:?}");
    let [tuned, base] = opened(dir, ["run/model", "model"]);
    let names = |file: &WeightFile| -> Vec<String> {
        (file.tensors().iter())
            .map(|info| info.name.clone())
            .collect()
    };
    assert_eq!(names(&tuned), names(&base));
    let generate =
        "generate --model ./run/model --prompt row --max-tokens 3 --accelerator embedded";
    let ended = succeeds(halite(generate).current_dir(dir));
    assert_contains(&ended.stdout, &["row"]);
}

#[test]
fn range_test_of_adapters_trains_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    song(dir);
    let ended = finetune(
        dir,
        "--lora 2 --range-test --out ./run --accelerator embedded:1",
    );
    assert_contains(&ended.stdout, &["steps with learning rates from 1.00e-8"]);
    assert!(dir.join("run/range-test.svg").exists());
    assert!(!dir.join("run/adapter").exists());
    finetune(
        dir,
        "--lora 2 --merge --fast-dev-run --out ./none --accelerator embedded:1",
    );
    assert!(!dir.join("none").exists());
}
