//! `halite generate`: text by a published decoder.

use std::{fmt, ops::ControlFlow, path::PathBuf, process::ExitCode, sync::Arc, time::Instant};

use clap::{Args, ValueEnum};
use halite::{
    Array, Client, DType, Error, Param, Result, Tree,
    backends::Accelerator,
    data::text::Tokenizer,
    fetch,
    models::{
        FinishReason, GeneratedSequence, GenerationOptions, Generator, Pretrained, PretrainedModel,
        Sampling, open_decoder,
    },
    nn::Transformer,
    train::flags::positive,
};

use super::{open, say_part, waiting};

/// Generate text with a published model
///
/// The model is a directory of Hugging Face (config.json, weights, tokenizer.json) or a GGUF file, of
/// Llama's form (Llama, SmolLM2, Mistral, Qwen2) or GPT-2. Text is printed as it is generated, and
/// the rates of tokens and what ended it on stderr. Generation ends at the model's end-of-text token.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Generate {
    /// Model: a directory, or a GGUF file
    #[arg(long, value_name = "PATH")]
    model: PathBuf,
    /// Adapters that are added to the weights of the model: a directory that `halite finetune` or
    /// peft wrote
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// Key of the files of the model and the adapters that counts as missing; a key that halite does
    /// not know is an error otherwise
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    ignore_key: Vec<String>,
    /// Text to continue
    #[arg(long, value_name = "TEXT", required_unless_present = "tokens")]
    prompt: Option<String>,
    /// Token ids to continue; ids are printed then, and no tokenizer is needed
    #[arg(
        long,
        value_name = "IDS",
        value_delimiter = ',',
        conflicts_with = "prompt"
    )]
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
    /// Divide the logits of tokens that occurred by this; 1 changes nothing [default: that of the
    /// model's generation_config.json, or else 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    repetition_penalty: Option<f64>,
    /// Token at which to stop, besides the model's end-of-text tokens. A number is an id; anything
    /// else is the token's text, such as `<|im_end|>`
    #[arg(long, value_name = "TOKEN")]
    stop: Vec<String>,
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
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    tokens_per_launch: usize,
    /// `auto`, `cpu`, `cuda`, `tpu`, `embedded`, `rocm`, `oneapi`, `tt`, or `plugin:PATH`
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  halite generate --model SmolLM2-135M-Instruct.Q4_1.gguf --prompt 'The capital of France is'
  halite generate --model Llama-3.2-1B --dtype bf16 --prompt 'Once' --temperature 0.8 --top-p 0.95
  halite generate --model Llama-3.2-1B --adapter runs/notes-Llama-3/adapter --prompt 'It was'
  halite generate --model gpt2 --tokens 464,3139 --max-tokens 64      token ids in and out";

type Published = PretrainedModel<Transformer<Param>>;

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
        let source = Pretrained::open(&self.model)?.ignore_keys(&self.ignore_key);
        let published = open_decoder(source)?;
        let tokenizer = match &self.prompt {
            Some(_) => Some(published.source.open_tokenizer()?),
            None => None,
        };
        let mut tokens = self.tokens.clone();
        if let (Some(tokenizer), Some(prompt)) = (&tokenizer, &self.prompt) {
            tokenizer.check_vocabulary(published.model.config.vocab_size)?;
            tokens = tokenizer.encode_input(prompt, None)?;
        }
        // Mistakes are found before the weights are loaded.
        let config = &published.model.config;
        let sampling = self.sampling(&published.source)?;
        sampling.check(config.vocab_size)?;
        if tokens.is_empty() {
            let message =
                "the prompt is empty, and the tokenizer adds no token to it; expected text";
            return Err(Error::invalid("generate", message));
        }
        let stop = self.stop_tokens(&published, tokenizer.as_ref())?;
        self.remark_on_sampling(&published.source)?;
        let bar = &mut fetch::Bar::default();
        let client = open(&self.accelerator, self.cache_dir.clone(), bar)?.client;

        let spinner = waiting(format!("loading {}", self.model.display()));
        let start = Instant::now();
        let loaded = self.load(&client, &published);
        spinner.finish_and_clear();
        let model = loaded?;
        let seconds = start.elapsed().as_secs_f64();
        remark!("{}: loaded in {seconds:.2} s", published.model.config);

        let options = GenerationOptions {
            max_tokens: self.max_tokens,
            stop,
            sampling,
        };
        let mut generator =
            Generator::new(&client, &model).tokens_per_launch(self.tokens_per_launch);
        let mut text = tokenizer.as_ref().map(Tokenizer::stream);
        let generation = generator.stream(&[&tokens], &options, |event| {
            match &mut text {
                Some(text) => say_part(format_args!("{}", text.push(event.token))),
                None => say_part(format_args!("{} ", event.token)),
            }
            ControlFlow::Continue(())
        })?;
        say!("{}", text.map_or(String::new(), |text| text.finish()));
        remark!("{}", generation.report);
        let GeneratedSequence { tokens, finish } = &generation.sequences[0];
        let count = tokens.len();
        match finish {
            FinishReason::Stop(token) => remark!("ended after {count} tokens by token {token}"),
            _ => remark!("ended after {count} tokens by --max-tokens"),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Loads the weights, with the adapters added to them.
    fn load(&self, client: &Client, published: &Published) -> Result<Transformer<Array>> {
        let stored = self.dtype.dtype();
        let Some(directory) = &self.adapter else {
            let loader = published.loader().stored_as(stored);
            return Ok(loader.load(client, &published.model)?.model);
        };
        let names = published.adapter_names()?;
        let model = published.load_adapted(client, &names, directory)?;
        // The sum is taken in f32.
        model.try_map_leaves(|_, array| {
            if array.stored() == stored {
                Ok(array)
            } else {
                Array::upload_as(client, &Arc::new(array.read()?), array.sharding(), stored)
            }
        })
    }

    /// The tokens of `--stop`, and those of the model.
    fn stop_tokens(
        &self,
        published: &Published,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Vec<u32>> {
        let mut stop = if self.ignore_eos {
            Vec::new()
        } else {
            published.source.stop_tokens()?
        };
        let vocabulary = published.model.config.vocab_size;
        for text in &self.stop {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let token = if is_number {
                (text.parse().ok()).filter(|&id: &u32| (id as usize) < vocabulary)
            } else {
                tokenizer.and_then(|tokenizer| tokenizer.token_id(text))
            };
            let token = token.ok_or_else(|| {
                let message = format!(
                    "--stop {text:?} is neither a token of the model nor an id below {vocabulary}"
                );
                Error::invalid("generate", message)
            })?;
            stop.push(token);
        }
        Ok(stop)
    }

    /// Says how the model's settings of generation would draw tokens, if no option says how.
    fn remark_on_sampling(&self, source: &Pretrained) -> Result<()> {
        const OPTIONS: [&str; 3] = ["temperature", "top_k", "top_p"];
        let is_given = self.temperature != 0.0 || self.top_k.is_some() || self.top_p.is_some();
        let settings = if is_given || source.is_gguf() {
            None
        } else {
            source.json("generation_config.json")?
        };
        let Some(settings) = settings.filter(|settings| settings["do_sample"] == true) else {
            return Ok(());
        };
        let option = |name: &str| {
            let value = settings.get(name).filter(|value| value.is_number())?;
            Some(format!("--{} {value}", name.replace('_', "-")))
        };
        let options: Vec<String> = OPTIONS.into_iter().filter_map(option).collect();
        if !options.is_empty() {
            let options = options.join(" ");
            remark!("note: the most likely tokens are taken; the model's settings are {options}");
        }
        Ok(())
    }

    fn sampling(&self, source: &Pretrained) -> Result<Sampling> {
        Ok(Sampling {
            repetition_penalty: match self.repetition_penalty {
                Some(penalty) => penalty,
                None => source.repetition_penalty()?,
            },
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            seed: self.seed,
        })
    }
}
