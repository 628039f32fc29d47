//! `halite train mnist` and `halite train digits`: image classification.

use std::{ops::ControlFlow, process::ExitCode, sync::Arc};

use clap::{Args, ValueEnum};
use halite::{
    Client, DeviceId, Param, Result,
    data::{self, Dataset, DatasetExt, InMemory, Subset, images::FakeImages},
    models::{Classify, Cnn, ImageModel, Mlp},
    train::{flags::positive, signals::StopFlag},
};

use halite_core::ProcessGroup;

use super::run::{Run, epochs, finish};
use crate::cli::step::{RateArgs, default_in_help, training_options};

pub(super) const MNIST_EXAMPLES: &str = "\
Examples:
  halite train mnist                            two epochs, a few minutes on two cores
  halite train mnist --model mlp --limit 2000   seconds: a quick check that everything works
  halite train mnist --fake-data --limit 2000   generated images: downloads no data
  halite train mnist --resume                   continue an interrupted run; on CPUs bit-identical
  halite train mnist --accelerator cpu:8        data parallel over eight virtual CPU devices
  halite train mnist --accelerator cpu:8 --mesh data=2,model=4 --strategy dp+tp
                                                data parallel over 2 groups, tensor parallel over 4 devices in each";

pub(super) const DIGITS_EXAMPLES: &str = "\
Examples:
  halite train digits                           some seconds on two cores
  halite train digits --model mlp --max-epochs 60   a smaller model, for longer
  halite train digits --accelerator cpu:8       data parallel over eight virtual CPU devices
The images are part of halite: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits,
UCI Machine Learning Repository (CC BY 4.0).";

/// Options of every image classifier.
#[derive(Args, Debug)]
struct Classifier {
    /// Model architecture
    #[arg(long, value_enum, default_value_t = Model::Cnn)]
    model: Model,
    #[command(flatten)]
    rate: RateArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// Two convolutions and two dense layers
    Cnn,
    /// Two hidden dense layers of 512 features
    Mlp,
}

#[derive(Args, Debug)]
#[command(
    mut_arg("max_epochs", |arg| epochs(arg, "2")),
    mut_arg("batch_size", |arg| arg.default_value("64")),
    mut_arg("out", |arg| default_in_help(arg, "runs/DATA-MODEL"))
)]
pub(super) struct Mnist {
    #[command(flatten)]
    classifier: Classifier,
    /// Data set: `mnist` or `fashion`
    #[arg(long, default_value_t = data::Mnist::Digits)]
    data: data::Mnist,
    /// Train on generated images, as many as MNIST has, in ten classes
    #[arg(long, conflicts_with = "data")]
    fake_data: bool,
    /// Train on the first N of the 60,000 images and validate on at most N of the 10,000
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    limit: Option<usize>,
    #[command(flatten)]
    run: Run,
}

impl Mnist {
    pub(super) fn run(mut self, processes: Arc<dyn ProcessGroup>) -> Result<ExitCode> {
        self.run.processes = Some(processes);
        self.run.options.check_metrics(&METRICS)?;
        let (data, limit) = (self.data, self.limit);
        if self.fake_data {
            let (client, devices) = self.run.open()?;
            return self
                .classifier
                .train(&self.run, client, devices, self.generated()?);
        }
        let (client, devices, (train, test)) = self.run.open_and_load(move |cache, bar| {
            let (train, test) = (data.train(cache, bar)?, data.test(cache, bar)?);
            Ok((first(train, limit)?, first(test, limit)?))
        })?;
        let images = Images {
            name: self.data.to_string(),
            side: SIDE,
            train: Arc::new(train),
            test: Arc::new(test),
        };
        self.classifier.train(&self.run, client, devices, images)
    }

    /// Generated images in place of those of MNIST.
    fn generated(&self) -> Result<Images> {
        let seed = self.run.options.seed;
        let images = |count: usize, seed| -> Result<Arc<dyn Dataset>> {
            let count = count.min(self.limit.unwrap_or(usize::MAX));
            Ok(Arc::new(FakeImages::gray(count, SIDE, CLASSES, seed)?))
        };
        let [train, test] = MNIST;
        Ok(Images {
            name: "fake".to_owned(),
            side: SIDE,
            train: images(train, seed)?,
            // Other noise around the same classes.
            test: images(test, seed.wrapping_add(1))?,
        })
    }
}

/// Images of MNIST to train on and to test on, their height and width, and their classes.
const MNIST: [usize; 2] = [60_000, 10_000];
const SIDE: usize = 28;
const CLASSES: usize = 10;

/// Metrics of `Classify`.
const METRICS: [&str; 2] = ["loss", "accuracy"];

/// Images of the test data that the report shows with their predictions.
const SHOWN: usize = 24;

#[derive(Args, Debug)]
#[command(
    mut_arg("max_epochs", |arg| epochs(arg, "20")),
    mut_arg("batch_size", |arg| arg.default_value("32")),
    mut_arg("out", |arg| default_in_help(arg, "runs/digits-MODEL"))
)]
pub(super) struct Digits {
    #[command(flatten)]
    classifier: Classifier,
    #[command(flatten)]
    run: Run,
}

impl Digits {
    pub(super) fn run(mut self, processes: Arc<dyn ProcessGroup>) -> Result<ExitCode> {
        self.run.processes = Some(processes);
        let (client, devices) = self.run.open()?;
        let images = Images {
            name: "digits".to_owned(),
            side: 8,
            train: Arc::new(data::digits::train()?),
            test: Arc::new(data::digits::test()?),
        };
        self.classifier.train(&self.run, client, devices, images)
    }
}

/// A data set of grayscale images in ten classes.
struct Images {
    name: String,
    /// Pixels of a row and of a column.
    side: usize,
    train: Arc<dyn Dataset>,
    test: Arc<dyn Dataset>,
}

impl Classifier {
    fn train(
        &self,
        run: &Run,
        client: Client,
        devices: Vec<DeviceId>,
        images: Images,
    ) -> Result<ExitCode> {
        let side = images.side;
        match self.model {
            Model::Cnn => {
                let model = Cnn::new(side, CLASSES);
                self.train_model::<Cnn<()>>(run, client, devices, images, model)
            }
            Model::Mlp => {
                let sizes = [side * side, 512, 512, CLASSES];
                self.train_model::<Mlp<()>>(run, client, devices, images, Mlp::new(&sizes))
            }
        }
    }

    fn train_model<M: ImageModel>(
        &self,
        run: &Run,
        client: Client,
        devices: Vec<DeviceId>,
        images: Images,
        model: M::Of<Param>,
    ) -> Result<ExitCode> {
        let Images {
            name,
            side,
            train,
            test,
        } = images;
        let model_name = self
            .model
            .to_possible_value()
            .expect("every model has a name");
        let (train, count) = (Arc::new(train), devices.len());
        let out = run.out(&format!("{name}-{}", model_name.get_name()));
        let stop = StopFlag::new();
        let options = &run.options;
        let schedule = run.schedule(&self.rate, train.len())?;
        let options = training_options(&options.numerics, schedule, None);
        let step = Classify::<M>::step(side, model, &options);
        let trainer = run
            .trainer(&client, devices, &out, &stop, &step)
            .property("--model", model_name.get_name())
            .property("--data", name);
        let trainer = run.sharded(self.rate.of_run(trainer), count, &step, &train)?;
        let trainer = trainer.build()?;
        let shown = (0..SHOWN.min(test.len())).collect::<Vec<_>>();
        let shown = test.clone().subset(shown)?;
        let mut fitted = match run.fit(&trainer, step, (train, test), None, &out, &stop)? {
            ControlFlow::Continue(fitted) => fitted,
            ControlFlow::Break(code) => return Ok(code),
        };
        if let (Some(out), None, true) = (&trainer.options().out, fitted.stopped_by, run.is_alone())
        {
            let classes =
                trainer.predict(Classify::<M>::new(), fitted.validated(), shown.clone())?;
            fitted.report.set_predictions(&shown, &classes)?;
            fitted.report.write_to(out)?;
        }
        Ok(finish(run, &fitted, &trainer))
    }
}

/// Returns the first samples, at most `limit` of them.
fn first(data: InMemory, limit: Option<usize>) -> Result<Subset<InMemory>> {
    let count = data.len().min(limit.unwrap_or(usize::MAX));
    data.subset((0..count).collect::<Vec<_>>())
}
