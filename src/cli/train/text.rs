//! `halite train text`: a transformer that tells what comes next.

use std::{fmt, fs, path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use halite::{
    Error, ErrorKind, Result,
    data::{
        Dataset, DatasetExt,
        text::{TokenWindows, Tokenizer, books, read},
    },
    fetch,
    models::{LanguageModel, Sampling, generate},
    nn::{AdamW, Transformer, TransformerConfig},
    train::signals::StopFlag,
};
use indicatif::HumanCount;

use crate::cli::{positive, waiting};

use super::run::{Run, finish, fitted, learning_rate, schedule};

pub(super) const EXAMPLES: &str = "\
Examples:
  halite train text                                     18 books, character by character: minutes on two cores
  halite train text --steps 3000                        the whole of them
  halite train text --steps 100 --sample 400            a minute: whether all works here
  halite train text --data moby.txt --epochs 5          a text of yours
  halite train text --config gpt2-124m --tokens gpt2 --context 256 --batch-size 4   GPT-2's shape and tokens";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Tokens {
    /// The characters of the text
    Chars,
    /// The bytes of its UTF-8
    Bytes,
    /// GPT-2's byte pairs
    Gpt2,
}

/// Where text comes from.
#[derive(Clone, Debug)]
enum Source {
    /// The 18 books.
    Books,
    /// A file of the user's.
    File(PathBuf),
}

#[derive(Args, Debug)]
pub(super) struct Text {
    /// The model's shape: `tiny`, `small`, `gpt2-124m`, `gpt2-medium`, `gpt2-large`, `gpt2-xl`,
    /// `llama-7b`, `llama-13b`, `llama3-8b`
    #[arg(long, default_value = "small", value_name = "NAME", value_parser = config)]
    config: (String, TransformerConfig),
    /// The text: `books`, 18 of Project Gutenberg, or a file
    #[arg(long, default_value = "books", value_name = "NAME", value_parser = source)]
    data: Source,
    /// What the text is cut into
    #[arg(long, value_enum, default_value_t = Tokens::Chars)]
    tokens: Tokens,
    /// Tokens that the model sees at once [default: the model's]
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    context: Option<usize>,
    /// Passes over the text
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = positive::<u64>, allow_negative_numbers = true)]
    epochs: u64,
    /// At most so many steps in an epoch, on windows of text drawn by the seed
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    steps: usize,
    /// Windows of one step, over all devices
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    batch_size: usize,
    /// The highest learning rate; it warms up for a tenth of the run, and then goes down on a
    /// cosine
    #[arg(long, default_value_t = 2e-3, value_name = "RATE", value_parser = learning_rate, allow_negative_numbers = true)]
    learning_rate: f64,
    /// The part of features that is dropped in training
    #[arg(
        long,
        default_value_t = 0.0,
        value_name = "PART",
        allow_negative_numbers = true
    )]
    dropout: f64,
    /// The part of each text, at its end, that is kept for validation
    #[arg(
        long,
        default_value_t = 0.05,
        value_name = "PART",
        allow_negative_numbers = true
    )]
    validation: f64,
    /// Tokens to write at the end; 0 for none
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = sample, allow_negative_numbers = true)]
    sample: usize,
    /// How freely it writes: 1 as it learnt, less is more careful, 0 always the most likely
    #[arg(long, default_value_t = 0.8, value_name = "T", value_parser = temperature, allow_negative_numbers = true)]
    temperature: f64,
    /// What it goes on with when it writes [default: `The `, or how the text begins if it has not
    /// all of these letters]
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    prompt: Option<String>,
    #[command(flatten)]
    run: Run,
}

impl Text {
    pub(super) fn run(self) -> Result<ExitCode> {
        let (cache, mut progress) = (self.run.cache()?, fetch::Bar::default());
        let texts: Vec<String> = match &self.data {
            Source::Books => books(&cache, &mut progress)?
                .into_iter()
                .map(|book| book.text)
                .collect(),
            Source::File(path) => vec![read(path)?],
        };
        if let (Source::File(path), [text]) = (&self.data, &texts[..])
            && text.is_empty()
        {
            return Err(Error::invalid(
                "train text",
                format!(
                    "{} is empty; there is nothing to learn from",
                    path.display()
                ),
            ));
        }
        let tokenizer = match self.tokens {
            Tokens::Chars => Tokenizer::characters_of(&texts)?,
            Tokens::Bytes => Tokenizer::Bytes,
            Tokens::Gpt2 => Tokenizer::gpt2(&cache, &mut progress)?,
        };
        // Before anything is trained.
        let prompt = match &self.prompt {
            Some(prompt) => {
                let said = |error: Error| {
                    Error::invalid(
                        "train text",
                        format!("--prompt {prompt:?}: {}", error.message()),
                    )
                };
                tokenizer.encode(prompt).map_err(said)?
            }
            None => match tokenizer.encode("The ") {
                Ok(prompt) => prompt,
                Err(_) => tokenizer.encode(&texts[0].chars().take(4).collect::<String>())?,
            },
        };
        let (name, shape) = &self.config;
        let config = TransformerConfig {
            dropout: self.dropout,
            ..shape.vocabulary(tokenizer.vocabulary())
        };
        let config = config.context(self.context.unwrap_or(shape.context));
        let model = Transformer::new(&config)?;

        let tokens = texts
            .iter()
            .map(|text| tokenizer.encode(text))
            .collect::<Result<Vec<_>>>()?;
        let [train, validation] = TokenWindows::split(&tokens, config.context, self.validation)?;
        let windows = train.len();
        let per_epoch = (windows / self.batch_size.max(1)).min(self.steps);
        // What is less than a batch is refused by the loader, in its words.
        let used = if per_epoch == 0 {
            windows
        } else {
            per_epoch * self.batch_size
        };
        let [train, _] = train.split(used, self.run.seed)?;

        let (client, devices) = self.run.open()?;
        let tokens_name = self.tokens.to_possible_value().expect("all have names");
        let out = self
            .run
            .out(&format!("{}-{name}-{}", self.data, tokens_name.get_name()));
        let stop = StopFlag::new();
        let trainer = self
            .run
            .trainer(&client, devices, &out, &stop)
            .epochs(self.epochs)
            .batch_size(self.batch_size)
            .clip_norm(1.0)
            .property("--config", name)
            .property("--data", &self.data)
            .property("--tokens", tokens_name.get_name())
            .property("--steps", per_epoch)
            .property("--validation", self.validation)
            .property("tokenizer", described(&tokenizer));
        let trainer = shape_of(&config)
            .into_iter()
            .fold(trainer, |trainer, (name, value)| {
                trainer.property(name, value)
            })
            .build()?;
        let rate = schedule(
            self.learning_rate,
            self.epochs.saturating_mul(per_epoch as u64),
        );
        let optimizer = AdamW::new(rate)
            .betas(0.9, 0.99)
            .weight_decay(0.1)
            .decay(LanguageModel::decay());
        remark!(
            "{} parameters: {config}; {used} windows to train on, {} to validate on",
            HumanCount(config.parameters()? as u64),
            validation.len()
        );
        let fitted = fitted(
            trainer.fit(LanguageModel, model, optimizer, train, validation),
            &stop,
        )?;

        tokenizer.save(&out.join("tokenizer.json"))?;
        let code = finish(&fitted, &out);
        if fitted.stopped_by.is_none() {
            if let Some(loss) = fitted.report.metrics.get("loss") {
                say!(
                    "perplexity {:.2}, {:.3} bits a token",
                    loss.exp(),
                    loss / std::f64::consts::LN_2
                );
            }
            if self.sample > 0 {
                let sampling = Sampling {
                    count: self.sample,
                    temperature: self.temperature,
                    seed: self.run.seed,
                };
                let spinner = waiting("writing a sample".into());
                let tokens = generate(&client, &fitted.model, &prompt, sampling);
                spinner.finish_and_clear();
                let text = tokenizer.decode(&tokens?);
                let path = out.join("sample.txt");
                fs::write(&path, &text).map_err(|error| {
                    Error::new(
                        ErrorKind::Io,
                        "train text",
                        format!("{}: {error}", path.display()),
                    )
                })?;
                say!("\n{text}");
            }
        }
        Ok(code)
    }
}

/// All that decides what a token means, in words.
fn described(tokenizer: &Tokenizer) -> String {
    match tokenizer {
        Tokenizer::Bytes => "bytes".into(),
        Tokenizer::Gpt2(_) => "gpt2".into(),
        Tokenizer::Characters(_) => {
            let tokens: Vec<u16> = (0..tokenizer.vocabulary())
                .map(|token| token as u16)
                .collect();
            format!("chars {:?}", tokenizer.decode(&tokens))
        }
    }
}

/// What a resume compares of the shape, one property for each field: an option changes only those
/// that it sets.
fn shape_of(config: &TransformerConfig) -> Vec<(&'static str, String)> {
    let TransformerConfig {
        vocabulary,
        context,
        layers,
        width,
        heads,
        kv_heads,
        hidden,
        positions,
        norm,
        norm_eps,
        mlp,
        bias,
        tied,
        dropout,
        // It saves memory, and changes no result.
        remat: _,
    } = *config;
    vec![
        ("vocabulary", vocabulary.to_string()),
        ("--context", context.to_string()),
        ("layers", layers.to_string()),
        ("width", width.to_string()),
        ("heads", heads.to_string()),
        ("kv_heads", kv_heads.to_string()),
        ("hidden", hidden.to_string()),
        ("positions", format!("{positions:?}")),
        ("norm", format!("{norm:?}")),
        ("norm_eps", norm_eps.to_string()),
        ("mlp", format!("{mlp:?}")),
        ("bias", bias.to_string()),
        ("tied", tied.to_string()),
        ("--dropout", dropout.to_string()),
    ]
}

fn config(name: &str) -> Result<(String, TransformerConfig)> {
    Ok((name.to_string(), name.parse()?))
}

/// Upper bound of `--sample`.
const MOST_SAMPLED: usize = 1_000_000_000;

fn sample(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= MOST_SAMPLED);
    number.ok_or_else(|| format!("want a whole number from 0 to {MOST_SAMPLED}"))
}

fn temperature(text: &str) -> Result<f64, String> {
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "a temperature is a number from 0 on, such as 0.8".to_string())
}

fn source(name: &str) -> Result<Source, String> {
    match name {
        "books" => Ok(Source::Books),
        path if fs::metadata(path).is_ok_and(|file| file.is_dir()) => {
            Err("it is a directory; want `books`, or one text file".into())
        }
        // A pipe, as of a shell's <(..), is read as well.
        path if fs::metadata(path).is_ok() => Ok(Source::File(path.into())),
        _ => Err("there is no such file; want `books` or a text file".into()),
    }
}

/// As in names of directories.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Books => f.write_str("books"),
            Source::File(path) => {
                f.write_str(&path.file_stem().unwrap_or_default().to_string_lossy())
            }
        }
    }
}
