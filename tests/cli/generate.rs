//! `halite generate`: tokens of a small model, and what is refused.

use super::support::{fails, halite, succeeds};

/// A random Qwen2 without a tokenizer.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/tests/golden/qwen2");

const RUN: &str = "generate --accelerator embedded --model";

#[test]
fn tokens_are_continued_by_tokens() {
    let run = |options: &str| {
        let mut command = halite(RUN);
        command.arg(MODEL).args(options.split_whitespace());
        let ended = succeeds(&mut command);
        let tokens = ended
            .stdout
            .split_whitespace()
            .map(|token| token.parse().unwrap());
        let tokens: Vec<u32> = tokens.collect();
        assert!(ended.stderr.contains("tokens/s"), "{ended:?}");
        let count = format!("ended after {} tokens by ", tokens.len());
        assert!(ended.stderr.contains(&count), "{ended:?}");
        tokens
    };
    let greedy = run("--tokens 1,2,3 --max-tokens 12");
    assert_eq!(greedy.len(), 12);
    let stop = greedy[5];
    let first = greedy.iter().position(|&token| token == stop).unwrap();
    let stopped = run(&format!(
        "--tokens 1,2,3 --max-tokens 12 --stop {stop} --dtype f32"
    ));
    assert_eq!(stopped, greedy[..first]);
    let drawn = |seed: u64| {
        run(&format!(
            "--tokens 1 --temperature 1.5 --top-k 9 --top-p 0.9 --seed {seed}"
        ))
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn unusable_requests_are_refused() {
    for (options, part) in [
        (
            "--tokens 20",
            "token 20, and the vocabulary size of the model is 20",
        ),
        ("--tokens 1 --top-p 2", "top-p 2"),
        ("--tokens 1 --stop end", "--stop \"end\" is neither a token"),
        ("--tokens 1 --stop 20", "nor an id below 20"),
        ("--tokens 1 --temperature -1", "temperature -1"),
        ("--tokens 1 --temperature 1 --top-k 0", "top-k 0"),
        (
            "--tokens 1 --repetition-penalty inf",
            "repetition penalty inf",
        ),
        ("--tokens 4294967295", "the prompt has token 4294967295"),
        ("--prompt one", "tokenizer.json"),
    ] {
        let mut command = halite(RUN);
        command.arg(MODEL).args(options.split_whitespace());
        let error = fails(&mut command);
        assert!(error.contains(part), "{options}: {error}");
    }
}

/// Limits that no model has, and prompts beyond the context.
#[test]
fn extreme_lengths_end() {
    let long = vec!["1"; 500].join(",");
    for (options, tokens) in [
        ("--tokens 1 --max-tokens 0".to_owned(), 0),
        (
            "--tokens 1 --max-tokens 3 --tokens-per-launch 100000000".to_owned(),
            3,
        ),
        (format!("--tokens {long} --max-tokens 2"), 2),
    ] {
        let mut command = halite(RUN);
        let ended = succeeds(command.arg(MODEL).args(options.split_whitespace()));
        assert_eq!(ended.stdout.split_whitespace().count(), tokens, "{ended:?}");
    }
}

#[test]
fn paths_without_a_decoder_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("empty.safetensors"), "").unwrap();
    std::fs::create_dir(dir.path().join("nothing")).unwrap();
    let bert = concat!(env!("CARGO_MANIFEST_DIR"), "/models/tests/golden/bert");
    let weights = concat!(env!("CARGO_MANIFEST_DIR"), "/weights/tests/golden");
    for (model, part) in [
        ("./none", "cannot read `none`"),
        ("./nothing", "`nothing` holds no .safetensors"),
        ("./empty.safetensors", "the file is empty"),
        (
            bert,
            "`model_type` is `bert`; supported: `llama`, `mistral`, `qwen2`, `gpt2`",
        ),
        (&format!("{weights}/resnet.pth"), "no config.json in"),
    ] {
        let mut command = halite(RUN);
        let error = fails(
            command
                .args([model, "--tokens", "1"])
                .current_dir(dir.path()),
        );
        assert!(error.contains(part), "{model}: {error}");
    }
}
