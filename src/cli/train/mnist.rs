//! `halite train mnist`: gray images in ten classes.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use halite::{
    Param, Result,
    data::{Dataset, DatasetExt, Digits, InMemory, Subset},
    fetch,
    models::{Classify, Cnn, ImageModel, Mlp},
    nn::Adam,
    train::signals::StopFlag,
};

use crate::cli::positive;

use super::run::{Run, finish, fitted, learning_rate, schedule};

pub(super) const EXAMPLES: &str = "\
Examples:
  halite train mnist                               both epochs, in a few minutes on two cores
  halite train mnist --model mlp --limit 2000      seconds: whether all works here
  halite train mnist --resume                      go on where it was stopped, to the same weights
  halite train mnist --devices 8 --out runs/eight  over eight virtual devices, into a directory of your choice
  halite train mnist --mesh data=2,model=4 --strategy dp+tp
                                                   the batch over two groups of four devices, the layers within each";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// Two convolutions and two dense layers
    Cnn,
    /// Two hidden dense layers of 512
    Mlp,
}

#[derive(Args, Debug)]
pub(super) struct Mnist {
    /// The model
    #[arg(long, value_enum, default_value_t = Model::Cnn)]
    model: Model,
    /// The data: `mnist` or `fashion`
    #[arg(long, default_value_t = Digits::Mnist)]
    data: Digits,
    /// Passes over the training images
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = positive::<u64>, allow_negative_numbers = true)]
    epochs: u64,
    /// Images of one step, over all devices
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    batch_size: usize,
    /// The highest learning rate; it warms up for a tenth of the run, and then goes down on a
    /// cosine
    #[arg(long, default_value_t = 2e-3, value_name = "RATE", value_parser = learning_rate, allow_negative_numbers = true)]
    learning_rate: f64,
    /// Train on the first N of the 60,000 images and score on at most N of the 10,000: a quick look
    /// at whether all works
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
        let trainer = self
            .run
            .trainer(&client, devices, &out, &stop)
            .epochs(self.epochs)
            .batch_size(self.batch_size)
            .property("--model", model_name.get_name())
            .property("--data", self.data);
        let steps = self
            .epochs
            .saturating_mul((train.len() / self.batch_size.max(1)) as u64);
        let optimizer = Adam::new(schedule(self.learning_rate, steps));
        let fitted = fitted(
            trainer
                .build()?
                .fit(Classify::<M>::new(), model, optimizer, train, test),
            &stop,
        )?;
        Ok(finish(&fitted, &out))
    }
}

/// The first samples, at most `limit` of them.
fn first(data: InMemory, limit: Option<usize>) -> Result<Subset<InMemory>> {
    let count = data.len().min(limit.unwrap_or(usize::MAX));
    data.subset((0..count).collect::<Vec<_>>())
}
