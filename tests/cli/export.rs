//! `halite export`: a trained model in JAX.

use std::{fs, path::Path};

use halite::{
    Array, DType, HostArray, Result, Sharding,
    backends::Accelerator,
    exchange::npy,
    models::{Cnn, Llama},
    nn::{Adapted, jit_like},
    train::Trainer,
    weights::{TensorSource, WeightFile, load_adapters, open},
};
use halite_tests::python::python;

use super::{
    finetune::{self, GOLDEN, song},
    support::{assert_contains, fails, halite_alone, succeeds},
};

const EMBEDDED: &str = "--accelerator embedded";

/// Trains a CNN on digits for an epoch, into `run`, and writes `inputs.npy`, a batch of four.
fn trained() -> (tempfile::TempDir, HostArray) {
    let dir = tempfile::tempdir().unwrap();
    let train = format!("train digits --epochs 1 --quiet --out ./run {EMBEDDED}");
    succeeds(halite_alone(&train).current_dir(&dir));
    let pixels: Vec<u8> = (0..4 * 64).map(|i| (i * 37 % 17) as u8).collect();
    let images = HostArray::from_slice(&pixels, [4, 8, 8]).unwrap();
    fs::write(dir.path().join("inputs.npy"), npy::write(&images)).unwrap();
    (dir, images)
}

/// Logits of the run's model by the library.
fn logits(dir: &Path, images: &HostArray) -> Result<HostArray> {
    let client = "embedded".parse::<Accelerator>()?.open()?;
    let trainer = Trainer::builder(&client).build()?;
    let model = trainer.load(&Cnn::new(8, 10), dir.join("run"))?;
    let images = Array::upload(&client, images, &Sharding::replicated(trainer.mesh()))?;
    let forward = jit_like(&client, (&model, &images), |_cx, (model, images)| {
        let pixels = images.convert(DType::F32) / 255.0;
        [model.forward(pixels.unsqueeze(3))]
    });
    let [logits] = forward.run((&model, &images))?;
    logits.read()
}

fn read(path: &Path) -> HostArray {
    npy::read(&fs::read(path).unwrap()).unwrap()
}

/// The `logits` of a Python program that has an artifact as `model`, and `inputs`.
fn in_jax(dir: &Path, artifact: &str, call: &str) -> HostArray {
    let script = format!(
        "import jax, jax.export, numpy
from safetensors.numpy import load_file
model = jax.export.deserialize(bytearray(open('{artifact}', 'rb').read()))
inputs = numpy.load('inputs.npy')
{call}
numpy.save('logits.npy', logits)"
    );
    let mut command = python();
    command.env("JAX_PLATFORMS", "cpu").current_dir(dir);
    let output = command.args(["-c", &script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{artifact}: {stderr}");
    read(&dir.join("logits.npy"))
}

#[track_caller]
fn assert_close(name: &str, found: &HostArray, expected: &HostArray) {
    assert_eq!(found.ty(), expected.ty(), "{name}");
    let (found, expected) = (found.as_slice::<f32>(), expected.as_slice::<f32>());
    for (found, expected) in found.unwrap().iter().zip(expected.unwrap()) {
        let error = (found - expected).abs();
        assert!(
            error < 2e-5 * expected.abs().max(1.0),
            "{name}: {found} != {expected}"
        );
    }
}

#[test]
fn exported_model_has_the_same_logits_in_jax() {
    let (dir, images) = trained();
    let dir = dir.path();
    let halite = |command: &str| succeeds(halite_alone(command).current_dir(dir));
    let expected = logits(dir, &images).unwrap();

    halite("export ./run --output ./model.jax --batch-size 4");
    halite(&format!(
        "run ./model.jax -i ./inputs.npy --output ./results {EMBEDDED}"
    ));
    assert_close("halite run", &read(&dir.join("results/0.npy")), &expected);
    let found = in_jax(dir, "model.jax", "logits, = model.call(inputs)");
    assert_close("JAX", &found, &expected);

    halite("export ./run -o ./open.jax --batch-size 4 --parameters arguments --platforms cpu");
    let described = halite("run ./open.jax --describe");
    let lines = [
        "platforms  cpu\n",
        "argument   0.conv1.bias: f32[32]",
        "argument   1: u8[4, 8, 8]",
        "result     0: f32[4, 10]",
    ];
    assert_contains(&described.stdout, &lines);
    let call = "
from pathlib import Path
saved = load_file(next(Path('run/checkpoints').glob('step-*/arrays.safetensors')))
parameters = {layer: {name: saved[f'model.{layer}.{name}'] for name in ['weight', 'bias']}
              for layer in ['conv1', 'conv2', 'hidden', 'out']}
logits, = model.call(parameters, inputs)";
    let found = in_jax(dir, "open.jax", call);
    assert_close("parameters as arguments", &found, &expected);
}

#[test]
fn exporting_what_is_not_a_run_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    let export = |run: &str| {
        let command = format!("export ./{run} --output ./model.jax");
        fails(halite_alone(&command).current_dir(&dir))
    };
    assert_contains(&export("empty"), &["no checkpoint in empty"]);
    assert_contains(&export("missing"), &["missing"]);
    assert!(!dir.path().join("model.jax").exists());
}

#[test]
fn language_model_is_exported() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(
        dir.join("song.txt"),
        "row, row, row your boat\n".repeat(150),
    )
    .unwrap();
    let halite = |command: &str| succeeds(halite_alone(command).current_dir(dir));
    let train =
        "train text --model tiny --quiet --data ./song.txt --tokenizer bytes --context 8 --steps 2";
    halite(&format!(
        "{train} --epochs 1 --sample 0 --out ./run {EMBEDDED}"
    ));

    halite("export ./run --output ./text.jax --batch-size 2");
    let described = halite("run ./text.jax --describe");
    let lines = ["argument   0: s32[2, 8]", "result     0: f32[2, 8, 256]"];
    assert_contains(&described.stdout, &lines);
    halite(&format!(
        "run ./text.jax -i zeros --output ./results {EMBEDDED}"
    ));
    let tokens = HostArray::zeros(halite::TensorType::new(DType::S32, [2, 8]));
    fs::write(dir.join("inputs.npy"), npy::write(&tokens)).unwrap();
    let found = in_jax(dir, "text.jax", "logits, = model.call(inputs)");
    assert_close("JAX", &found, &read(&dir.join("results/0.npy")));
}

/// Makes the token embedding of the Llama in `model` its output layer.
fn tie(dir: &Path) {
    let path = dir.join("model/config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["tie_word_embeddings"] = true.into();
    fs::write(path, config.to_string()).unwrap();
}

/// Logits of the tokens in `inputs.npy`, by JAX and by halite, of an exported model.
fn exported_logits(dir: &Path, export: &str) -> [HostArray; 2] {
    let halite = |command: &str| succeeds(halite_alone(command).current_dir(dir));
    halite(&format!(
        "export {export} --context 32 --batch-size 2 -o ./model.jax"
    ));
    halite(&format!(
        "run ./model.jax -i ./inputs.npy --output ./results {EMBEDDED}"
    ));
    let found = in_jax(dir, "model.jax", "logits, = model.call(inputs)");
    [found, read(&dir.join("results/0.npy"))]
}

/// Writes the tokens of the golden file to `inputs.npy`: `s32[2, 32]`.
fn write_tokens(dir: &Path, golden: &WeightFile) -> HostArray {
    let tokens = golden.read("tokens").unwrap();
    let rows = tokens.as_slice::<i32>().unwrap().chunks(33);
    let tokens: Vec<i32> = rows.flat_map(|row| row[..32].to_vec()).collect();
    let tokens = HostArray::from_slice(&tokens, [2, 32]).unwrap();
    fs::write(dir.join("inputs.npy"), npy::write(&tokens)).unwrap();
    tokens
}

#[test]
fn decoder_has_the_logits_of_transformers_in_jax() {
    let dir = tempfile::tempdir().unwrap();
    song(dir.path());
    let golden = open(Path::new(GOLDEN).join("llama3.safetensors")).unwrap();
    write_tokens(dir.path(), &golden);
    let found = exported_logits(dir.path(), "--model ./model");
    for (name, found) in ["JAX", "halite run"].iter().zip(&found) {
        assert_close(name, found, &golden.read("logits").unwrap());
    }
}

#[test]
fn trained_tied_decoder_has_the_same_logits_in_jax() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    song(dir);
    tie(dir);
    let golden = open(Path::new(GOLDEN).join("llama3.safetensors")).unwrap();
    let tokens = write_tokens(dir, &golden);
    let train = |options: &str| {
        let command = format!("{} --max-steps 5 {EMBEDDED} {options}", finetune::RUN);
        succeeds(halite_alone(&command).current_dir(dir));
    };
    train("--out ./whole");
    train("--lora 2 --out ./lora");
    for (export, trained) in [
        ("--model ./whole/model", "whole/model"),
        ("--model ./model --adapter ./lora/adapter", "lora"),
    ] {
        let expected = decoder_logits(dir, trained, &tokens).unwrap();
        let [jax, run] = exported_logits(dir, export);
        assert_close(&format!("JAX, {export}"), &jax, &expected);
        assert_close(&format!("halite run, {export}"), &run, &expected);
    }
}

/// Logits by the library of a trained model, or of the model with the adapters of a run, which are
/// not merged here.
fn decoder_logits(dir: &Path, trained: &str, tokens: &HostArray) -> Result<HostArray> {
    let client = "embedded".parse::<Accelerator>()?.open()?;
    let sharding = Sharding::single(client.local_devices()[0]);
    let tokens = Array::upload(&client, tokens, &sharding)?;
    let is_whole = dir.join(trained).join("config.json").exists();
    let opened = Llama::from_pretrained(dir.join(if is_whole { trained } else { "model" }))?;
    let base = opened.load(&client)?;
    let [logits] = if is_whole {
        let forward = jit_like(&client, (&base, &tokens), |_cx, (model, tokens)| {
            [model.forward(tokens)]
        });
        forward.run((&base, &tokens))?
    } else {
        let directory = dir.join(trained).join("adapter");
        let (_, adapters) = load_adapters(&client, &opened.names, opened.model, directory)?;
        let adapted = Adapted { base, adapters };
        let forward = jit_like(&client, (&adapted, &tokens), |_cx, (adapted, tokens)| {
            [adapted.model().forward(tokens)]
        });
        forward.run((&adapted, &tokens))?
    };
    logits.read()
}

#[test]
fn published_model_is_exported() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tests/golden/bert");
    let halite = |command: &str| succeeds(halite_alone(command).current_dir(dir));
    let export = format!("export --program --model {} --context 7", model.display());
    halite(&format!("{export} --batch-size 3 --output ./bert.jax"));
    let described = halite("run ./bert.jax --describe");
    let lines = [
        "argument   0: s32[3, 7]",
        "argument   1: bool[3, 7]",
        "f32[3, 12]",
    ];
    assert_contains(&described.stdout, &lines);
    let tokens: Vec<i32> = (0..21).map(|i| 1 + i * 5 % 28).collect();
    let mask: Vec<bool> = (0..21).map(|i| i % 7 < 3 + i / 7).collect();
    let tokens = HostArray::from_slice(&tokens, [3, 7]).unwrap();
    let mask = HostArray::from_slice(&mask, [3, 7]).unwrap();
    fs::write(dir.join("inputs.npy"), npy::write(&tokens)).unwrap();
    fs::write(dir.join("mask.npy"), npy::write(&mask)).unwrap();
    halite(&format!(
        "run ./bert.jax -i ./inputs.npy -i ./mask.npy --output ./results {EMBEDDED}"
    ));
    let call = "logits, = model.call(inputs, numpy.load('mask.npy'))";
    let found = in_jax(dir, "bert.jax", call);
    assert_close("JAX", &found, &read(&dir.join("results/0.npy")));
    // Embeddings have length 1.
    let first = &found.as_slice::<f32>().unwrap()[..12];
    let length: f32 = first.iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-5, "{length}");

    let error = fails(halite_alone(&export.replace("7", "10")).args(["-o", "long.jax"]));
    assert_contains(&error, &["a context of 10; expected 1 to 9 tokens"]);
}
