//! `halite train text`: language modeling.

mod corpus;

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::{Args, ValueEnum};
use halite::{
    Client, Result,
    data::{
        Dataset,
        text::{Tokenizer, write},
    },
    models::{GenerationOptions, Generator, LanguageModel, Sampling, TrainingStep},
    nn::{AdamW, Positions, TransformerConfig},
    train::{Fitted, TrainerBuilder, flags::positive, signals::StopFlag},
};
use halite_core::ProcessGroup;
use indicatif::HumanCount;

use self::corpus::{Corpus, Source, TokenizerKind, described, source};
use super::run::{Run, epochs, finish};
use crate::cli::{
    step::{RateArgs, TransformerArgs, default_in_help, training_options},
    waiting,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  halite train text                              18 books, one token per character: minutes on two cores
  halite train text --steps 3000                 the whole of the books
  halite train text --steps 100 --sample 400     a minute: a quick check that everything works
  halite train text --data moby.txt --epochs 5   a text of your own
  halite train text --fake-data --steps 100      generated text: downloads no data
  halite train text --model gpt2-124m --tokenizer gpt2 --context 256 --batch-size 4   GPT-2's architecture and tokens";

#[derive(Args, Debug)]
#[command(
    mut_arg("max_epochs", |arg| epochs(arg, "1")),
    mut_arg("batch_size", |arg| arg.default_value("32")),
    mut_arg("gradient_clip_val", |arg| default_in_help(arg, "1")),
    mut_arg("out", |arg| default_in_help(arg, "runs/DATA-MODEL-TOKENIZER"))
)]
pub(super) struct Text {
    /// Model: `tiny`, `small`, `gpt2-124m`, `gpt2-medium`, `gpt2-large`, `gpt2-xl`, `llama-7b`,
    /// `llama-13b`, `llama3-8b`
    #[arg(long, default_value = "small", value_name = "NAME", value_parser = model)]
    model: (String, TransformerConfig),
    /// Data set: `books` (18 of Project Gutenberg), or the path of a text file
    #[arg(long, default_value = "books", value_name = "NAME", value_parser = source)]
    data: Source,
    /// Train on generated text, of 2 MB; with the characters or bytes of it as tokens, nothing is
    /// downloaded
    #[arg(long, conflicts_with = "data")]
    fake_data: bool,
    /// Tokenizer
    #[arg(long, value_enum, default_value_t = TokenizerKind::Chars)]
    tokenizer: TokenizerKind,
    /// Upper bound of the optimizer steps of an epoch; shorter epochs take windows at random, by the
    /// seed
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    steps: usize,
    #[command(flatten)]
    rate: RateArgs,
    /// Fraction at the end of each text that is held out for validation
    #[arg(
        long,
        default_value_t = 0.05,
        value_name = "FRACTION",
        allow_negative_numbers = true
    )]
    validation: f64,
    /// Number of tokens to generate after training; 0 for none
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = sample, allow_negative_numbers = true)]
    sample: usize,
    /// Sampling temperature; 0 always takes the most likely token
    #[arg(long, default_value_t = 0.8, value_name = "T", value_parser = temperature, allow_negative_numbers = true)]
    temperature: f64,
    /// Prompt of the sample [default: `The `, or the first four characters of the text if it lacks
    /// one of these]
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    prompt: Option<String>,
    #[command(flatten)]
    transformer: TransformerArgs,
    #[command(flatten)]
    run: Run,
}

impl Text {
    pub(super) fn run(mut self, processes: Arc<dyn ProcessGroup>) -> Result<ExitCode> {
        self.run.processes = Some(processes);
        if self.fake_data {
            self.data = Source::Fake;
        }
        let corpus = self.corpus()?;
        let (client, devices) = self.run.open()?;
        let count = devices.len();
        let out = self.out();
        let stop = StopFlag::new();
        let step = self.training_step(&corpus.config, corpus.train.len())?;
        let trainer = self.run.trainer(&client, devices, &out, &stop, &step);
        let trainer = self.with_properties(trainer, &corpus);
        let trainer = self
            .run
            .sharded(trainer, count, &step, &corpus.train)?
            .build()?;
        let Corpus {
            tokenizer,
            prompt,
            config,
            train,
            validation,
            ..
        } = corpus;
        let is_coordinator = self.run.is_coordinator();
        if is_coordinator {
            remark!(
                "{} parameters: {config}; {} training windows, {} validation windows",
                HumanCount(config.parameters()? as u64),
                train.len(),
                validation.len()
            );
        }
        let mut fitted =
            match self
                .run
                .fit(&trainer, step, (train, validation), None, &out, &stop)?
            {
                ControlFlow::Continue(fitted) => fitted,
                ControlFlow::Break(code) => return Ok(code),
            };
        let code = finish(&self.run, &fitted, &trainer);
        // A program on the devices of several processes runs in all of them.
        let runs_here = is_coordinator || !client.addresses(trainer.mesh().devices());
        let samples = self.sample > 0 && fitted.stopped_by.is_none() && runs_here;
        let text = samples.then(|| self.generated(&client, &fitted, &tokenizer, &prompt));
        let text = text.transpose()?;
        if !is_coordinator {
            return Ok(code);
        }
        let out = trainer.options().out.as_ref().map(|_| &*out);
        if let Some(out) = out {
            tokenizer.save(&out.join("tokenizer.json"))?;
        }
        if fitted.stopped_by.is_none() {
            say_perplexity(&fitted);
            if let Some(text) = text {
                write_sample(&mut fitted, text, out)?;
            }
        }
        Ok(code)
    }

    /// The trainer with the properties that a resumed run must share.
    fn with_properties(&self, trainer: TrainerBuilder, corpus: &Corpus) -> TrainerBuilder {
        let trainer = trainer
            .property("--model", &self.model.0)
            .property("--data", &self.data)
            .property("--tokenizer", self.tokenizer_name())
            .property("--steps", corpus.per_epoch)
            .property("--validation", self.validation)
            .property("tokenizer", described(&corpus.tokenizer));
        let shape = shape_of(&corpus.config).into_iter();
        let trainer = shape.fold(trainer, |trainer, (name, value)| {
            trainer.property(name, value)
        });
        self.rate.of_run(trainer)
    }

    fn tokenizer_name(&self) -> String {
        let name = self.tokenizer.to_possible_value().expect("named");
        name.get_name().to_owned()
    }

    fn out(&self) -> PathBuf {
        let tokenizer = self.tokenizer_name();
        (self.run).out(&format!("{}-{}-{tokenizer}", self.data, self.model.0))
    }

    /// Generates a sample of text that continues the prompt.
    fn generated(
        &self,
        client: &Client,
        fitted: &Fitted<LanguageModel>,
        tokenizer: &Tokenizer,
        prompt: &[u32],
    ) -> Result<String> {
        let spinner = waiting("generating a sample".into());
        let mut generator = Generator::new(client, fitted.validated());
        let generation = generator.generate(&[prompt], &self.generation());
        spinner.finish_and_clear();
        let generated = &generation?.sequences[0].tokens;
        Ok(tokenizer.decode(&[prompt, generated].concat()))
    }

    fn config(&self, vocabulary: usize) -> TransformerConfig {
        self.transformer
            .config(&self.model.1.vocab_size(vocabulary))
    }

    /// Returns the training step of a model of this `config`, for epochs of this many windows.
    fn training_step(
        &self,
        config: &TransformerConfig,
        windows: usize,
    ) -> Result<TrainingStep<LanguageModel, AdamW>> {
        let options = &self.run.options;
        let schedule = self.run.schedule(&self.rate, windows)?;
        let clip = Some(LanguageModel::CLIP_NORM);
        let options = training_options(&options.numerics, schedule, clip);
        LanguageModel::step(config, &options)
    }

    fn generation(&self) -> GenerationOptions {
        GenerationOptions {
            max_tokens: self.sample,
            stop: Vec::new(),
            sampling: Sampling {
                temperature: self.temperature,
                seed: self.run.options.seed,
                ..Sampling::default()
            },
        }
    }
}

/// Prints a generated text, after it is written to the directory of the run.
fn write_sample(
    fitted: &mut Fitted<LanguageModel>,
    text: String,
    out: Option<&Path>,
) -> Result<()> {
    if let Some(out) = out {
        write(out.join("sample.txt"), &text)?;
        fitted.report.samples.push(("Sample".into(), text.clone()));
        fitted.report.write_to(out)?;
    }
    say!("\n{text}");
    Ok(())
}

/// Prints the perplexity of the validation data, or of the training where nothing was validated.
fn say_perplexity(fitted: &Fitted<LanguageModel>) {
    let report = &fitted.report;
    let of = if report.metrics == report.train_metrics {
        " in training"
    } else {
        ""
    };
    if let Some(loss) = report.metrics.get("loss") {
        say!(
            "perplexity{of} {:.2}, {:.3} bits per token",
            loss.exp(),
            loss / std::f64::consts::LN_2
        );
    }
}

/// Returns the properties of the architecture that a resumed run must share, one for each field.
fn shape_of(config: &TransformerConfig) -> Vec<(&'static str, String)> {
    let TransformerConfig {
        vocab_size,
        context_length,
        layers,
        hidden_size,
        heads,
        kv_heads,
        head_size,
        mlp_size,
        positions,
        norm,
        norm_eps,
        mlp,
        bias,
        qkv_bias,
        tied,
        dropout,
        // Rematerialization does not change results.
        remat: _,
    } = *config;
    // As before there were scaled positions: runs of those versions resume.
    let positions = match positions {
        Positions::Rotary {
            theta,
            scaling: None,
        } => format!("Rotary {{ theta: {theta:?} }}"),
        other => format!("{other:?}"),
    };
    let mut shape = vec![
        ("vocabulary", vocab_size.to_string()),
        ("--context", context_length.to_string()),
        ("layers", layers.to_string()),
        ("width", hidden_size.to_string()),
        ("heads", heads.to_string()),
        ("kv_heads", kv_heads.to_string()),
        ("hidden", mlp_size.to_string()),
        ("positions", positions),
        ("norm", format!("{norm:?}")),
        ("norm_eps", norm_eps.to_string()),
        ("mlp", format!("{mlp:?}")),
        ("bias", bias.to_string()),
        ("tied", tied.to_string()),
        ("--dropout", dropout.to_string()),
    ];
    // Only where they are not the default, for the same reason.
    shape.extend(head_size.map(|size| ("head_size", size.to_string())));
    shape.extend(qkv_bias.then(|| ("qkv_bias", "true".to_owned())));
    shape
}

fn model(name: &str) -> Result<(String, TransformerConfig)> {
    Ok((name.to_string(), name.parse()?))
}

/// Upper bound of `--sample`.
const MOST_SAMPLED: usize = 1_000_000;

fn sample(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= MOST_SAMPLED);
    number.ok_or_else(|| format!("expected a whole number from 0 to {MOST_SAMPLED}"))
}

fn temperature(text: &str) -> Result<f64, String> {
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected 0 or a positive number, such as 0.8".to_string())
}

#[cfg(test)]
pub(in crate::cli) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        text: Text,
    }

    /// Returns the training step of `train text` with these arguments, for the model's own
    /// vocabulary.
    pub(in crate::cli) fn training_step(arguments: &str) -> TrainingStep<LanguageModel, AdamW> {
        let arguments = ["text"].into_iter().chain(arguments.split_whitespace());
        let Command { text } = Command::try_parse_from(arguments).unwrap();
        let config = text.config(text.model.1.vocab_size);
        // Enough windows for a warmup: a schedule without one is another program.
        text.training_step(&config, 20_000).unwrap()
    }
}
