//! Rates of text generation: a prompt of 512 tokens, then 64 greedy tokens, of one sequence.
//!
//! `generation MODEL [f32|bf16] [ACCELERATOR]` loads a model, a directory or a GGUF file, runs once
//! to compile, and then once for each line on stdin, and prints seconds as a line of JSON.
//! `benches/peers/generation/compare.py` runs it beside PyTorch and candle.
#![forbid(unsafe_code)]

use std::{
    io::{self, BufRead},
    process::ExitCode,
};

use halite::{
    DType, Error, Result,
    backends::Accelerator,
    models::{GenerationOptions, Generator, Pretrained, Sampling, open_decoder},
};
use halite_benches::exit_code;

/// Tokens of the prompt.
const PROMPT: usize = 512;
/// Generated tokens: the first one is the prompt's.
const GENERATED: usize = 65;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    exit_code(run(&arguments))
}

fn run(arguments: &[String]) -> Result<()> {
    let usage = || {
        Error::invalid(
            "generation",
            "usage: generation MODEL [f32|bf16] [ACCELERATOR]",
        )
    };
    let path = arguments.first().ok_or_else(usage)?;
    let stored = match arguments.get(1).map_or("f32", String::as_str) {
        "f32" => DType::F32,
        "bf16" => DType::Bf16,
        _ => return Err(usage()),
    };
    let accelerator: Accelerator = arguments.get(2).map_or("cpu", String::as_str).parse()?;
    let client = accelerator.open()?;
    let published = open_decoder(Pretrained::open(path)?)?;
    let loader = published.loader().stored_as(stored);
    let model = loader.load(&client, &published.model)?.model;
    let vocabulary = published.model.config.vocab_size;
    let prompt: Vec<u32> = (0..PROMPT)
        .map(|place| (place * 7919 % vocabulary) as u32)
        .collect();
    let options = GenerationOptions {
        max_tokens: GENERATED,
        sampling: Sampling::greedy(),
        ..Default::default()
    };
    let mut generator = Generator::new(&client, &model);
    let mut once = || -> Result<String> {
        let generation = generator.generate(&[&prompt], &options)?;
        let report = generation.report;
        let last = generation.sequences[0].tokens.last();
        Ok(format!(
            r#"{{"prefill": {}, "decode": {}, "compile": {}, "last": {}}}"#,
            report.prefill.time.as_secs_f64(),
            report.decode.time.as_secs_f64(),
            report.compile.as_secs_f64(),
            last.copied().unwrap_or_default(),
        ))
    };
    println!("{}", once()?);
    for _ in io::stdin().lock().lines() {
        println!("{}", once()?);
    }
    Ok(())
}
