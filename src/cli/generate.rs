//! `halite generate`: text by a published decoder.

use std::{fmt, ops::ControlFlow, path::PathBuf, process::ExitCode, time::Instant};

use clap::{Args, ValueEnum};
use halite::{
    DType, Result,
    backends::Accelerator,
    fetch,
    models::{GenerationOptions, Generator, Pretrained, Sampling, open_decoder},
};

use super::{open_options, profile, say_part, waiting};

/// Generate text with a published model
///
/// The model is a directory of Hugging Face (config.json, weights, tokenizer.json) or a GGUF file, of
/// Llama's form (Llama, SmolLM2, Mistral, Qwen2) or GPT-2. Text is printed as it is generated, and
/// the rates of tokens on stderr. Generation ends at the model's end-of-text token.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Generate {
    /// Model: a directory, or a GGUF file
    #[arg(long, value_name = "PATH")]
    model: PathBuf,
    /// Token ids to continue
    #[arg(long, value_name = "IDS", value_delimiter = ',', required = true)]
    tokens: Vec<u32>,
    /// Upper bound of the number of generated tokens
    #[arg(long, default_value_t = 128, value_name = "N")]
    max_tokens: usize,
    /// Sampling temperature: 0 always takes the most likely token
    #[arg(
        long,
        default_value_t = 0.0,
        value_name = "T",
        allow_negative_numbers = true
    )]
    temperature: f64,
    /// Draw only from this many most likely tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Draw only from the most likely tokens, whose probabilities add up to this
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f64>,
    /// Divide the logits of tokens that occurred by this; 1 changes nothing
    #[arg(
        long,
        default_value_t = 1.0,
        value_name = "X",
        allow_negative_numbers = true
    )]
    repetition_penalty: f64,
    /// Token id at which to stop, besides the model's end-of-text tokens
    #[arg(long, value_name = "ID")]
    stop: Vec<u32>,
    /// Do not stop at the model's end-of-text tokens
    #[arg(long)]
    ignore_eos: bool,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Type in which devices store the weights
    #[arg(long, value_enum, default_value_t = Stored::F32, value_name = "TYPE")]
    dtype: Stored,
    /// Number of tokens that one launch generates
    #[arg(long, default_value_t = 8, value_name = "N")]
    tokens_per_launch: usize,
    /// `auto`, `cpu`, `cuda`, `tpu`, `embedded`, or `plugin:PATH`
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  halite generate --model SmolLM2-135M-Instruct.Q4_1.gguf --tokens 504,1296,768 --max-tokens 64
  halite generate --model Llama-3.2-1B --dtype bf16 --tokens 128000,791 --temperature 0.8 --top-p 0.95";

/// Element type of weights on devices.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Stored {
    F32,
    Bf16,
    F16,
}

impl Stored {
    fn dtype(self) -> DType {
        match self {
            Stored::F32 => DType::F32,
            Stored::Bf16 => DType::Bf16,
            Stored::F16 => DType::F16,
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dtype())
    }
}

impl Generate {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let published = open_decoder(Pretrained::open(&self.model)?)?;
        let mut stop = self.stop.clone();
        if !self.ignore_eos {
            stop.extend(published.source.stop_tokens()?);
        }
        let options = open_options(self.cache_dir.clone());
        let opened = (self.accelerator).open_with(&options, &mut fetch::Bar::default())?;
        profile::opened(&opened.driver);
        let client = opened.client;

        let spinner = waiting(format!("loading {}", self.model.display()));
        let start = Instant::now();
        let loader = published.loader().stored_as(self.dtype.dtype());
        let loaded = loader.load(&client, &published.model);
        spinner.finish_and_clear();
        let model = loaded?.model;
        let seconds = start.elapsed().as_secs_f64();
        remark!("{}: loaded in {seconds:.2} s", published.model.config);

        let options = GenerationOptions {
            max_tokens: self.max_tokens,
            stop,
            sampling: self.sampling(),
        };
        let mut generator =
            Generator::new(&client, &model).tokens_per_launch(self.tokens_per_launch);
        let generation = generator.stream(&[&self.tokens], &options, |event| {
            say_part(format_args!("{} ", event.token));
            ControlFlow::Continue(())
        })?;
        say!("");
        remark!("{}", generation.report);
        Ok(ExitCode::SUCCESS)
    }

    fn sampling(&self) -> Sampling {
        Sampling {
            repetition_penalty: self.repetition_penalty,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            seed: self.seed,
        }
    }
}
