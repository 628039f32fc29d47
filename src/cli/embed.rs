//! `halite embed`: embeddings of texts.

use std::{
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use halite::{
    Error, ErrorKind, HostArray, Result,
    backends::Accelerator,
    core::files,
    exchange::npy,
    fetch,
    models::{Bert, EmbedOptions, Pooling, Pretrained, SentenceEncoder},
    train::flags::positive,
};
use serde_json::json;

use crate::cli::{io_error, open};

/// Embed texts with a sentence encoder: BERT and the models made from it, such as MiniLM
///
/// Each line of the input is a text; empty lines are texts, too. Prints one line of JSON for each:
/// the text and its embedding.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Embed {
    /// Directory of the model: config.json, weights and tokenizer.json
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Key of the model's files that counts as missing; a key that halite does not know is an error
    /// otherwise
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    ignore_key: Vec<String>,
    /// File of texts, one a line; `-` reads stdin
    file: PathBuf,
    /// Write the embeddings to FILE.npy, f32[texts, features], in place of printing them
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How the vectors of the tokens become one [default: that of the module of modules.json, or else
    /// the mean]
    #[arg(long, value_enum, value_name = "NAME")]
    pooling: Option<PoolingKind>,
    /// Keep the lengths of the embeddings [default: they are 1, if the model's modules.json normalizes
    /// or there is none]
    #[arg(long)]
    no_normalize: bool,
    /// Scale the embeddings to length 1, whatever the model's modules.json says
    #[arg(long, conflicts_with = "no_normalize")]
    normalize: bool,
    /// Tokens of a text that are used [default: as many as the model was trained with, if
    /// sentence_bert_config.json or tokenizer_config.json says so, or else has positions for]
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    longest: Option<usize>,
    /// Texts in a launch
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    batch_size: usize,
    /// `auto`, `cpu`, `cuda`, `tpu`, `embedded`, `rocm`, `oneapi`, `tt`, or `plugin:PATH`
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  halite embed --model all-MiniLM-L6-v2 sentences.txt > embeddings.jsonl
  halite embed --model all-MiniLM-L6-v2 sentences.txt --output embeddings.npy
  echo 'Hello world' | halite embed --model all-MiniLM-L6-v2 -";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PoolingKind {
    /// Mean over the tokens
    Mean,
    /// Vector of the first token, `[CLS]`
    Cls,
    /// Largest value of each feature
    Max,
    /// Vector of the last token
    LastToken,
}

/// Texts that are embedded before their results are printed.
const CHUNK: usize = 4096;

impl Embed {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let source = Pretrained::open(&self.model)?.ignore_keys(&self.ignore_key);
        let opened = Bert::of(source)?;
        let tokenizer = opened.source.open_tokenizer()?;
        let mut options = EmbedOptions::of(&opened.source, opened.model.config.context_length)?;
        options.batch_size = self.batch_size;
        options.longest = self.longest.unwrap_or(options.longest);
        options.normalize = (options.normalize || self.normalize) && !self.no_normalize;
        if let Some(pooling) = self.pooling {
            options.pooling = match pooling {
                PoolingKind::Mean => Pooling::Mean,
                PoolingKind::Cls => Pooling::Cls,
                PoolingKind::Max => Pooling::Max,
                PoolingKind::LastToken => Pooling::LastToken,
            };
        }
        let texts = Texts::open(&self.file)?;
        let bar = &mut fetch::Bar::default();
        let client = open(&self.accelerator, self.cache_dir.clone(), bar)?.client;
        let encoder = SentenceEncoder::new(&client, opened.load(&client)?, tokenizer, options)?;
        self.embed(&encoder, texts)?;
        Ok(ExitCode::SUCCESS)
    }

    fn embed(&self, encoder: &SentenceEncoder, mut texts: Texts) -> Result<()> {
        let mut all: Vec<f32> = Vec::new();
        let mut count = 0;
        loop {
            let chunk = texts.next(CHUNK)?;
            if chunk.is_empty() {
                break;
            }
            count += chunk.len();
            let embeddings = encoder.embed(&chunk)?;
            let embeddings = embeddings.as_slice::<f32>()?;
            if self.output.is_some() {
                all.extend(embeddings);
                continue;
            }
            for (text, embedding) in chunk.iter().zip(embeddings.chunks(encoder.features())) {
                say!("{}", line(text, embedding));
            }
        }
        let Some(path) = &self.output else {
            return Ok(());
        };
        let array = HostArray::from_slice(&all, [count, encoder.features()])?;
        files::write_output(path, &npy::write(&array)).map_err(io_error("embed", "write", path))?;
        say!("{}: f32[{count}, {}]", path.display(), encoder.features());
        Ok(())
    }
}

/// A line of JSON, with as many digits as the numbers have.
fn line(text: &str, embedding: &[f32]) -> String {
    let mut line = format!("{{\"text\":{},\"embedding\":[", json!(text));
    for (index, value) in embedding.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        if value.is_finite() {
            write!(line, "{comma}{value}")
        } else {
            write!(line, "{comma}null")
        }
        .expect("writing to a string does not fail");
    }
    line + "]}"
}

/// Lines of a file, or of stdin.
struct Texts {
    reader: BufReader<Box<dyn Read>>,
    origin: String,
}

impl Texts {
    fn open(path: &Path) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Texts {
                reader: BufReader::new(Box::new(io::stdin())),
                origin: "stdin".into(),
            });
        }
        let origin = path.display().to_string();
        let file = files::open_input(path).map_err(|error| unreadable(&origin, error))?;
        Ok(Texts {
            reader: BufReader::new(Box::new(file)),
            origin,
        })
    }

    /// The next lines, at most `count`; none at the end.
    fn next(&mut self, count: usize) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut bytes = Vec::new();
        while lines.len() < count {
            bytes.clear();
            let read = self.reader.read_until(b'\n', &mut bytes);
            if read.map_err(|error| unreadable(&self.origin, error))? == 0 {
                break;
            }
            let text = String::from_utf8(std::mem::take(&mut bytes)).map_err(|_| {
                let message = format!("{} is not UTF-8", self.origin);
                Error::new(ErrorKind::Corrupt, "embed", message)
            })?;
            lines.push(text.trim_end_matches(['\n', '\r']).to_owned());
        }
        Ok(lines)
    }
}

fn unreadable(origin: &str, error: io::Error) -> Error {
    let message = format!("cannot read {origin}");
    Error::new(ErrorKind::Io, "embed", message).caused_by(error)
}
