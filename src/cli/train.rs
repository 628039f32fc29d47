//! `halite train`: train a model.

mod mnist;
mod run;
mod text;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use halite::Result;

/// Train a model. Interrupted with Ctrl-C, SIGTERM or SIGHUP it saves; --resume continues it.
#[derive(Args, Debug)]
pub(crate) struct Train {
    #[command(subcommand)]
    model: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Gray 28x28 images in ten classes: handwritten digits, or clothing
    #[command(after_help = mnist::EXAMPLES)]
    Mnist(Box<mnist::Mnist>),
    /// A transformer that tells what comes next in a text, and writes some at the end
    #[command(after_help = text::EXAMPLES)]
    Text(Box<text::Text>),
}

impl Train {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.model {
            What::Mnist(mnist) => mnist.run(),
            What::Text(text) => text.run(),
        }
    }
}
