//! `halite train`: trains a built-in model.

mod classes;
mod ct;
pub(super) mod finetune;
mod imagenet;
mod images;
mod mixing;
mod published;
mod run;
mod step_times;
mod targets;
pub(super) mod text;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use halite::{Result, cluster::Job};

/// Train a model. Ctrl-C, SIGTERM and SIGHUP save a checkpoint, from which --resume continues.
/// `halite train --config FILE` trains as a configuration says, such as the config.toml of a run.
#[derive(Args, Debug)]
pub(crate) struct Train {
    #[command(subcommand)]
    model: Model,
}

#[derive(Subcommand, Debug)]
enum Model {
    /// Image classification: handwritten digits, or clothing, 28x28 grayscale pixels in ten classes
    #[command(after_help = images::MNIST_EXAMPLES)]
    Mnist(Box<images::Mnist>),
    /// Image classification that downloads no data: handwritten digits, 8x8 grayscale pixels
    #[command(after_help = images::DIGITS_EXAMPLES)]
    Digits(Box<images::Digits>),
    /// Image classification: color photographs in class folders, or generated images
    #[command(name = "imagenet", after_help = imagenet::EXAMPLES)]
    ImageNet(Box<imagenet::ImageNet>),
    /// Labels or classes of images: files and a table, folds by group, as CT slices by study
    #[command(after_help = ct::EXAMPLES)]
    Ct(Box<ct::Ct>),
    /// Language modeling: a transformer, which writes a sample of text at the end
    #[command(after_help = text::EXAMPLES)]
    Text(Box<text::Text>),
}

impl Train {
    /// Trains, together with the other processes if a launcher started this one.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let job = Job::from_env()?;
        let group = job.group();
        let result = match self.model {
            Model::Mnist(mnist) => mnist.run(group),
            Model::Digits(digits) => digits.run(group),
            Model::ImageNet(imagenet) => imagenet.run(group),
            Model::Ct(ct) => ct.run(group),
            Model::Text(text) => text.run(group),
        };
        job.finish_with(result)
    }
}
