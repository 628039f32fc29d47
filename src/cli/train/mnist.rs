//! `halite train mnist`: image classification.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use halite::{
    Param, Result,
    data::{Dataset, DatasetExt, Digits, InMemory, Subset},
    fetch,
    models::{Classify, Cnn, ImageModel, Mlp, TrainingOptions},
    train::{flags::positive, signals::StopFlag},
};

use super::run::{Run, finish, fitted};
use crate::cli::step::{default_in_help, learning_rate, training_options};

pub(super) const EXAMPLES: &str = "\
Examples:
  halite train mnist                            two epochs, a few minutes on two cores
  halite train mnist --model mlp --limit 2000   seconds: a quick check that everything works
  halite train mnist --resume                   continue an interrupted run; the result is bit-identical
  halite train mnist --accelerator cpu:8        data parallel over eight virtual CPU devices
  halite train mnist --accelerator cpu:8 --mesh data=2,model=4 --strategy dp+tp
                                                data parallel over 2 groups, tensor parallel over 4 devices in each";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// Two convolutions and two dense layers
    Cnn,
    /// Two hidden dense layers of 512 features
    Mlp,
}

#[derive(Args, Debug)]
#[command(
    mut_arg("epochs", |arg| arg.default_value("2")),
    mut_arg("batch_size", |arg| arg.default_value("64")),
    mut_arg("out", |arg| default_in_help(arg, "runs/DATA-MODEL"))
)]
pub(super) struct Mnist {
    /// Model architecture
    #[arg(long, value_enum, default_value_t = Model::Cnn)]
    model: Model,
    /// Data set: `mnist` or `fashion`
    #[arg(long, default_value_t = Digits::Mnist)]
    data: Digits,
    /// Peak learning rate (10 % linear warmup, then cosine decay)
    #[arg(long, default_value_t = TrainingOptions::LEARNING_RATE, value_name = "RATE", value_parser = learning_rate, allow_negative_numbers = true)]
    learning_rate: f64,
    /// Train on the first N of the 60,000 images and validate on at most N of the 10,000
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    limit: Option<usize>,
    #[command(flatten)]
    run: Run,
}

impl Mnist {
    pub(super) fn run(self) -> Result<ExitCode> {
        match self.model {
            Model::Cnn => self.train::<Cnn<()>>(Cnn::new(10)),
            Model::Mlp => self.train::<Mlp<()>>(Mlp::new(&[28 * 28, 512, 512, 10])),
        }
    }

    fn train<M: ImageModel>(self, model: M::Of<Param>) -> Result<ExitCode>
    where
        M::Of<Param>: Send + Sync,
    {
        let (client, devices, (train, test)) =
            self.run.open_and_load(self.data.package(), |cache| {
                let mut progress = fetch::Bar::default();
                let (train, test) = (
                    self.data.train(cache, &mut progress)?,
                    self.data.test(cache, &mut progress)?,
                );
                Ok((first(train, self.limit)?, first(test, self.limit)?))
            })?;

        let model_name = self
            .model
            .to_possible_value()
            .expect("every model has a name");
        let name = format!("{}-{}", self.data, model_name.get_name());
        let out = self.run.out(&name);
        let stop = StopFlag::new();
        let options = &self.run.options;
        let per_epoch = (train.len() / options.batch_size) as u64;
        let steps = options.epochs.saturating_mul(per_epoch);
        let options = training_options(&options.numerics, self.learning_rate, steps, None);
        let step = Classify::<M>::step(model, &options);
        let trainer = self
            .run
            .trainer(&client, devices, &out, &stop, &step)
            .property("--model", model_name.get_name())
            .property("--data", self.data)
            .build()?;
        let fitted = fitted(
            trainer.fit(step.task, step.model, step.optimizer, train, test),
            &stop,
        )?;
        Ok(finish(&fitted, &out))
    }
}

/// Returns the first samples, at most `limit` of them.
fn first(data: InMemory, limit: Option<usize>) -> Result<Subset<InMemory>> {
    let count = data.len().min(limit.unwrap_or(usize::MAX));
    data.subset((0..count).collect::<Vec<_>>())
}
