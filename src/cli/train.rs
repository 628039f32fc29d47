//! `halite train`: train a model.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand, ValueEnum};
use halite::{
    Error, Param, Result,
    backends::{Accelerator, OpenOptions},
    data::{Dataset, DatasetExt, Digits, InMemory, Subset},
    fetch,
    models::{Classify, Cnn, ImageModel, Mlp},
    nn::{Adam, Schedule},
    train::{Trainer, signals::StopReason},
};

/// Train a model. Interrupted with Ctrl-C or SIGTERM it saves, and goes on with --resume.
#[derive(Args, Debug)]
pub(crate) struct Train {
    #[command(subcommand)]
    model: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Gray 28x28 images in ten classes: handwritten digits, or clothing
    #[command(after_help = EXAMPLES)]
    Mnist(Mnist),
}

const EXAMPLES: &str = "\
Examples:
  halite train mnist                               both epochs, in a few minutes on two cores
  halite train mnist --model mlp --limit 2000      seconds: whether all works here
  halite train mnist --resume                      go on where it was stopped, to the same weights
  halite train mnist --devices 8 --out runs/eight  over eight virtual devices, into a directory of your choice";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// Two convolutions and two dense layers
    Cnn,
    /// Two hidden dense layers of 512
    Mlp,
}

#[derive(Args, Debug)]
struct Mnist {
    /// The model
    #[arg(long, value_enum, default_value_t = Model::Cnn)]
    model: Model,
    /// The data: `mnist` or `fashion`
    #[arg(long, default_value_t = Digits::Mnist)]
    data: Digits,
    /// Passes over the training images
    #[arg(long, default_value_t = 2, value_name = "N")]
    epochs: u64,
    /// Images of one step, over all devices
    #[arg(long, default_value_t = 64, value_name = "N")]
    batch_size: usize,
    /// The highest learning rate; it warms up for a tenth of the run, and then goes down on a cosine
    #[arg(long, default_value_t = 2e-3, value_name = "RATE", value_parser = learning_rate, allow_negative_numbers = true)]
    learning_rate: f64,
    /// What to train on: `auto`, `cpu`, `cuda`, `cuda:0,1`, `tpu`, or `plugin:PATH` of a PJRT plugin
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Over how many devices to split each batch; on the CPU they are virtual
    #[arg(long, default_value_t = 1, value_name = "N")]
    devices: usize,
    /// All that is drawn at random is a function of it
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    seed: u64,
    /// Go on from the latest checkpoint in --out, if there is one
    #[arg(long)]
    resume: bool,
    /// Directory of the run [default: runs/DATA-MODEL]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Threads that read images; they do not change the results
    #[arg(long, default_value_t = 1, value_name = "N")]
    workers: usize,
    /// Train on the first N of the 60,000 images and score on at most N of the 10,000: a quick look at whether all works
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Steps between two checkpoints, besides the one after each epoch
    #[arg(long, value_name = "N")]
    checkpoint_every: Option<u64>,
    /// Where packages are kept [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// No progress bar
    #[arg(long)]
    quiet: bool,
}

impl Train {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.model {
            What::Mnist(mnist) => match mnist.model {
                Model::Cnn => mnist.train::<Cnn<()>>(Cnn::new(10)),
                Model::Mlp => mnist.train::<Mlp<()>>(Mlp::new(&[28 * 28, 512, 512, 10])),
            },
        }
    }
}

impl Mnist {
    fn train<M: ImageModel>(self, model: M::Of<Param>) -> Result<ExitCode>
    where
        M::Of<Param>: Send + Sync,
    {
        let accelerator = with_devices(self.accelerator.clone(), self.devices)?;
        let opened = accelerator
            .open_with(&OpenOptions { cache: self.cache_dir.clone(), ..OpenOptions::default() }, &mut fetch::Bar::default())?;
        let client = opened.client;
        let local = client.local_devices();
        let Some(devices) = local.get(..self.devices) else {
            let message = format!("--devices {}: {accelerator} has {}", self.devices, local.len());
            return Err(Error::invalid("train", message));
        };
        let cache = fetch::Cache::open(self.cache_dir.as_deref())?;
        let mut progress = fetch::Bar::default();
        let (train, test) = (self.data.train(&cache, &mut progress)?, self.data.test(&cache, &mut progress)?);
        let (train, test) = (first(train, self.limit)?, first(test, self.limit)?);

        let model_name = self.model.to_possible_value().expect("every model has a name");
        let name = format!("{}-{}", self.data, model_name.get_name());
        // More epochs are the same run for longer, with a schedule that ends later.
        let label = format!("{name}, learning rate {}", self.learning_rate);
        let out = self.out.unwrap_or_else(|| PathBuf::from("runs").join(name));
        let trainer = Trainer::builder(&client)
            .epochs(self.epochs)
            .batch_size(self.batch_size)
            .seed(self.seed)
            .workers(self.workers)
            .resume(self.resume)
            .quiet(self.quiet)
            .out(&out)
            .label(label)
            .devices(devices.iter().copied());
        let trainer = match self.checkpoint_every {
            Some(steps) => trainer.checkpoint_every(steps),
            None => trainer,
        };
        let steps = self.epochs.saturating_mul((train.len() / self.batch_size.max(1)) as u64);
        let warmup = steps / 10;
        let rate = Schedule::warmup(self.learning_rate, warmup).then(Schedule::cosine(self.learning_rate, steps - warmup));
        let fitted = trainer.build()?.fit(Classify::<M>::new(), model, Adam::new(rate), train, test)?;

        say!("{fitted}\nplot, table and report: {}", out.display());
        // What a shell expects of a program that a signal ended.
        let code = match fitted.stopped_by {
            None => return Ok(ExitCode::SUCCESS),
            Some(StopReason::Interrupt) => 130,
            Some(StopReason::Terminate) => 143,
            Some(StopReason::Asked) => 0,
        };
        eprintln!("stopped before its last epoch; the same command with --resume goes on from here");
        Ok(ExitCode::from(code))
    }
}

/// The first samples, at most `limit` of them.
fn first(data: InMemory, limit: Option<usize>) -> Result<Subset<InMemory>> {
    let count = data.len().min(limit.unwrap_or(usize::MAX));
    data.subset((0..count).collect::<Vec<_>>())
}

/// More than one device of the CPU are virtual ones, which have to be asked for.
fn with_devices(accelerator: Accelerator, devices: usize) -> Result<Accelerator> {
    match accelerator {
        Accelerator::Auto | Accelerator::Cpu { devices: None } if devices != 1 => format!("cpu:{devices}").parse(),
        other => Ok(other),
    }
}

fn learning_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("a learning rate is a positive number, such as 2e-3".into()),
    }
}
