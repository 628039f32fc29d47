//! `halite embed` on MiniLM.

use std::{fs, path::Path};

use halite::{
    exchange::npy,
    weights::{TensorSource, open},
};

use super::support::{assert_contains, fails, halite, succeeds};

#[path = "../../models/tests/models/packages.rs"]
#[allow(dead_code, reason = "one of its packages is used here")]
mod packages;

/// Cosine of the angle of two vectors.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        products.sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn embeddings_are_those_of_transformers() {
    let dir = tempfile::tempdir().unwrap();
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/models/tests/golden/minilm.safetensors"
    );
    let golden = open(golden).unwrap();
    let texts = golden.metadata()["texts"].as_str().unwrap();
    let texts: Vec<String> = serde_json::from_str(texts).unwrap();
    fs::write(dir.path().join("texts.txt"), texts.join("\n") + "\n").unwrap();
    let embed = |accelerator: &str, options: &str| {
        let mut command = halite(&format!(
            "embed ./texts.txt --accelerator {accelerator} {options}"
        ));
        succeeds(
            command
                .arg("--model")
                .arg(packages::minilm())
                .current_dir(&dir),
        )
    };
    embed("cpu", "--output ./embeddings.npy");
    let read = |path: &Path| npy::read(&fs::read(path).unwrap()).unwrap();
    let embeddings = read(&dir.path().join("embeddings.npy"));
    assert_eq!(
        embeddings.ty().to_string(),
        format!("f32[{}, 384]", texts.len())
    );
    let expected = golden.read("embeddings").unwrap();
    let expected: Vec<&[f32]> = expected.as_slice().unwrap().chunks(384).collect();
    let embeddings = embeddings.as_slice::<f32>().unwrap();
    for (found, expected) in embeddings.chunks(384).zip(&expected) {
        assert!(cosine(found, expected) > 0.9999);
    }
    let ended = embed("embedded", "");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), texts.len());
    for ((line, text), expected) in lines.iter().zip(&texts).zip(&expected) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["text"], **text);
        let found: Vec<f32> = serde_json::from_value(line["embedding"].clone()).unwrap();
        assert!(cosine(&found, expected) > 0.9999, "{text:?}");
    }
}

#[test]
fn other_models_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("texts.txt"), "one\n").unwrap();
    let llama = concat!(env!("CARGO_MANIFEST_DIR"), "/models/tests/golden/llama3");
    let error = fails(
        halite("embed ./texts.txt --model")
            .arg(llama)
            .current_dir(&dir),
    );
    assert_contains(&error, &["`llama`", "bert"]);
}
