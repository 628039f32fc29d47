//! `halite export`: writes a trained model for JAX.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use halite::{Result, exchange, export_run, train::flags::positive};

/// Export a trained model to an artifact that JAX reads
///
/// The artifact is the forward pass of the run's best checkpoint, or of its newest if none is marked
/// as best. Image classifiers map images u8[batch, side, side] to logits, language models tokens
/// s32[batch, context] to logits.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Export {
    /// Directory of a run of `halite train`
    run: PathBuf,
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
        let exported = export_run(&self.run, self.batch_size, parameters)?;
        let exported = exported.with_platforms(&self.platforms)?;
        exported.save(&self.output)?;
        say!("{}", self.output.display());
        Ok(ExitCode::SUCCESS)
    }
}
