//! `halite export`: writes a trained or published model as a program.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use halite::{
    ExportOptions, Result, exchange, export_pretrained, export_run, train::flags::positive,
};

/// Export a model as a program with its weights, which halite, JAX and Rust programs run
///
/// The program is the forward pass of a run's best checkpoint, or of its newest if none is marked as
/// best, or of a published model. Image classifiers map images u8[batch, side, side], or in color
/// u8[batch, side, side, 3], to logits, language models tokens s32[batch, context] to logits, and BERT tokens and a mask
/// bool[batch, context] to embeddings, pooled as `halite embed` does.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Export {
    /// Directory of a run of `halite train`
    #[arg(required_unless_present = "model", conflicts_with = "model")]
    run: Option<PathBuf>,
    /// Published model: a directory of Hugging Face (config.json and weights), or a GGUF file
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Adapters that are added to the weights of the model: a directory that `halite finetune` or
    /// peft wrote
    #[arg(long, value_name = "DIR", requires = "model")]
    adapter: Option<PathBuf>,
    /// Key of the files of the model and the adapters that counts as missing; a key that halite does
    /// not know is an error otherwise
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "model")]
    ignore_key: Vec<String>,
    /// Tokens of an input of a published model
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true, requires = "model")]
    context: usize,
    /// Weights and forward pass in one file, which a Rust program runs with the crate
    /// `halite-exchange` alone: the default; not with `--parameters arguments`
    #[arg(long, conflicts_with = "parameters")]
    program: bool,
    /// File to write, an artifact of `jax.export`
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Batch size of the inputs
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    batch_size: usize,
    /// Place of the model's parameters
    #[arg(long, value_enum, default_value_t = Parameters::Constants, value_name = "PLACE")]
    parameters: Parameters,
    /// Platforms that may run it, by the names of their PJRT plugins
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "cpu,cuda,tpu",
        value_name = "NAMES"
    )]
    platforms: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  halite export runs/mnist-cnn --output cnn.jax --batch-size 32
  halite run cnn.jax -i images.npy                               run it with halite
  halite export runs/books-small-chars -o text.jax --parameters arguments
  halite export --program --model all-MiniLM-L6-v2 -o minilm.jax --batch-size 32
  halite export --program --model SmolLM2.gguf --adapter runs/notes-SmolLM2/adapter -o notes.jax

In Python:
  cnn = jax.export.deserialize(bytearray(open('cnn.jax', 'rb').read()))
  logits, = cnn.call(images)                                     # u8[32, 28, 28] to f32[32, 10]";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Parameters {
    /// Constants of the program, which is a function of the inputs
    Constants,
    /// The first argument, a dict
    Arguments,
}

impl Export {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let parameters = match self.parameters {
            Parameters::Constants => exchange::Parameters::Constants,
            Parameters::Arguments => exchange::Parameters::Arguments,
        };
        let exported = match (&self.run, &self.model) {
            (_, Some(model)) => {
                let options = ExportOptions {
                    batch_size: self.batch_size,
                    context: self.context,
                    adapter: self.adapter,
                    parameters,
                    ignored_keys: self.ignore_key,
                };
                export_pretrained(model, &options)?
            }
            (Some(run), None) => export_run(run, self.batch_size, parameters)?,
            (None, None) => unreachable!("the command line requires one of both"),
        };
        let exported = exported.with_platforms(&self.platforms)?;
        exported.save(&self.output)?;
        say!("{}", self.output.display());
        Ok(ExitCode::SUCCESS)
    }
}
