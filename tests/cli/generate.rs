//! `halite generate`: tokens of a small model, and what is refused.

use crate::support::{fails, halite, succeeds};

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
        ("--prompt one", "tokenizer.json"),
    ] {
        let mut command = halite(RUN);
        command.arg(MODEL).args(options.split_whitespace());
        let error = fails(&mut command);
        assert!(error.contains(part), "{options}: {error}");
    }
}
