//! Embeddings of 1,000 sentences by MiniLM in `f32`, beside PyTorch and ONNX Runtime.
//!
//! `cargo run --release -p halite-benches --bin embed -- MODEL [PYTHON] [--rounds N]`: MODEL is the
//! directory of `all-MiniLM-L6-v2`; PYTHON has torch, transformers and onnxruntime
//! (`peers/bin/python`). Sentences are the first 1,000 of the books. Rounds go round robin over all
//! peers, and each is one pass over all sentences, tokenization included, after one that is not
//! counted.
#![forbid(unsafe_code)]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    num::NonZero,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    time::Instant,
};

use halite::{
    Error, Result,
    backends::Accelerator,
    data::text::books,
    fetch::{Cache, Quiet},
    models::SentenceEncoder,
};
use halite_benches::{Arguments, exit_code};
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sentences of a pass.
const COUNT: usize = 1000;

fn main() -> ExitCode {
    exit_code(run())
}

/// Seconds of the passes of a peer, and the first numbers of the first embedding.
struct Timed {
    name: String,
    seconds: Vec<f64>,
    first: Vec<f64>,
}

fn run() -> Result<()> {
    let arguments = Arguments::read("embed", &["--rounds"])?;
    let rounds = arguments.option("--rounds")?;
    let rounds = rounds.map_or(7, NonZero::<usize>::get);
    let words = arguments.words(&[]);
    let [model, python @ ..] = &words[..] else {
        let message = "no directory of a model; usage: embed MODEL [PYTHON] [--rounds N]";
        return Err(Error::invalid("embed", message));
    };
    let python = python.first();
    let texts = sentences()?;
    let encoders = [
        ("halite cpu", Accelerator::cpu()),
        ("halite embedded", Accelerator::embedded()),
    ];
    let encoders = encoders
        .into_iter()
        .map(|(name, accelerator)| {
            Ok((
                name,
                SentenceEncoder::from_pretrained(&accelerator.open()?, model)?,
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    let dir = tempfile::tempdir().map_err(failed)?;
    let mut peers = python
        .map(|python| Peers::start(python, model, dir.path(), &texts))
        .transpose()?;
    let mut timed: Vec<Timed> = Vec::new();
    for round in 0..=rounds {
        let mut results: Vec<(String, f64, Vec<f64>)> = Vec::new();
        for (name, encoder) in &encoders {
            let started = Instant::now();
            let embeddings = encoder.embed(&texts)?;
            let seconds = started.elapsed().as_secs_f64();
            let first = embeddings.as_slice::<f32>()?[..4].iter().map(|&x| x.into());
            results.push(((*name).to_owned(), seconds, first.collect()));
        }
        if let Some(peers) = &mut peers {
            for name in peers.names.clone() {
                let (seconds, first) = peers.pass(&name)?;
                results.push((name, seconds, first));
            }
        }
        for (place, (name, seconds, first)) in results.into_iter().enumerate() {
            if timed.len() <= place {
                timed.push(Timed {
                    name,
                    seconds: Vec::new(),
                    first,
                });
            }
            // The first round compiles.
            if round > 0 {
                timed[place].seconds.push(seconds);
            }
        }
    }
    println!("{COUNT} sentences by MiniLM, f32, {rounds} rounds: median and least seconds");
    for Timed {
        name,
        seconds,
        first,
    } in &mut timed
    {
        seconds.sort_by(f64::total_cmp);
        let (median, least) = (seconds[seconds.len() / 2], seconds[0]);
        let rate = COUNT as f64 / median;
        println!("{name:16} {median:8.3} {least:8.3}  {rate:7.0} sentences/s  first {first:.5?}");
    }
    Ok(())
}

/// The first sentences of the books, of 20 characters and more.
fn sentences() -> Result<Vec<String>> {
    let books = books(&Cache::open(None)?, &mut Quiet)?;
    let text = books.iter().map(|book| book.text.replace('\n', " "));
    let text = text.collect::<Vec<_>>().join(" ");
    let sentences = text.split_inclusive(['.', '!', '?']).map(str::trim);
    let sentences = sentences
        .filter(|sentence| sentence.len() >= 20)
        .take(COUNT);
    Ok(sentences.map(str::to_owned).collect())
}

/// The process of the Python peers.
struct Peers {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    names: Vec<String>,
}

impl Peers {
    fn start(python: &str, model: &str, dir: &Path, texts: &[String]) -> Result<Self> {
        let path = dir.join("sentences.txt");
        fs::write(&path, texts.join("\n") + "\n").map_err(failed)?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/embed_peers.py");
        let mut command = Command::new(python);
        command.arg(script).arg(model).arg(&path);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = input.zip(output).expect("both are pipes");
        let output = BufReader::new(output);
        let mut peers = Peers {
            child,
            input,
            output,
            names: Vec::new(),
        };
        let names = peers.ask("peers")?;
        let names = names.as_array().into_iter().flatten();
        peers.names = names
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect();
        Ok(peers)
    }

    fn ask(&mut self, line: &str) -> Result<Value> {
        writeln!(self.input, "{line}").map_err(failed)?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).map_err(failed)?;
        serde_json::from_str(&answer)
            .map_err(|error| Error::invalid("embed", format!("`{answer}`: {error}")))
    }

    fn pass(&mut self, name: &str) -> Result<(f64, Vec<f64>)> {
        let answer = self.ask(name)?;
        let first = answer["first"].as_array().into_iter().flatten();
        let seconds = answer["seconds"].as_f64().unwrap_or(f64::NAN);
        Ok((seconds, first.filter_map(Value::as_f64).collect()))
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::invalid("embed", error.to_string())
}
