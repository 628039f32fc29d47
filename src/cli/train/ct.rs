//! `halite train ct`: labels or classes of images, from files and a table, such as CT slices.

mod slices;

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::{Args, ValueEnum};
use halite::{
    Array, Client, DeviceId, Error, Param, Result,
    data::{
        Dataset,
        images::{CT_IDS, Transforms},
    },
    models::{
        Classifier, ClassifierVisitor, ClassifyColor, ColorImageModel, DescribedClassifier,
        MultiLabel, TrainingStep,
    },
    nn::Adam,
    train::{Task, flags::positive, signals::StopFlag},
};
use halite_core::ProcessGroup;

use self::slices::Slices;
use super::{
    classes::SaveClasses,
    mixing::MixingArgs,
    published::published,
    run::{Run, epochs, finish},
    targets::Targets,
};
use crate::cli::{
    image_args::ImageArgs,
    step::{RateArgs, default_in_help, training_options},
    trained::labels_in_line,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  halite data fake ct --out ct                  generate a data set of the same form as the real one
  halite train ct --data ct                     ct/train.csv, ct/train/STUDY/SERIES/*ID.jpg
  halite train ct --fake-data                   such a set, generated while it is read
  halite train ct --data ct --weights resnet34.pth   start from torchvision's weights
  halite train ct --data ct --fold 1            validate on another fifth of the studies
  halite train ct --data mine --ids file --group patient   images of your own: mine/train.csv, mine/*.jpg
  halite train ct --data pets --ids file --labels kind     a class of each image: the text of a column
  halite train ct --data ct --accelerator cpu:8      eight times the batch and the learning rate";

#[derive(Args, Debug)]
#[command(
    mut_arg("max_epochs", |arg| epochs(arg, "1")),
    mut_arg("batch_size", |arg| arg
        .help("Samples of a batch on each device; a step takes as many from every device")
        .default_value("128")),
    mut_arg("limit_train_batches", |arg| arg
        .help("Training batches of an epoch, at most: a number, or a fraction of all")
        .default_value("1000")),
    mut_arg("learning_rate", |arg| arg
        .help("Learning rate of one device; it is multiplied by the number of devices")
        .default_value("1e-4")),
    mut_arg("schedule", |arg| arg
        .help("Learning-rate schedule and its settings; the default halves the rate each epoch")
        .default_value("step:every=1ep,factor=0.5")),
    mut_arg("print_every", |arg| arg.default_value("100")),
    mut_arg("data", |arg| arg
        .help("Folder with `train.csv` and the images")
        .required_unless_present("fake_data")),
    mut_arg("csv", |arg| arg.help(
        "Table of the images, a CSV file with a header: columns of identifiers, and of labels or \
         classes [default: train.csv in --data]"
    )),
    mut_arg("images", |arg| arg.help(
        "Folder of the images [default: `train` in --data, or --data if there is none]"
    )),
    mut_arg("ids", |arg| arg.default_values(CT_IDS)),
    mut_arg("out", |arg| default_in_help(arg, "runs/DATA-MODEL"))
)]
pub(super) struct Ct {
    #[command(flatten)]
    images: ImageArgs,
    /// Train on 2,000 generated slices of 100 studies, as `halite data fake ct` writes them
    #[arg(
        long,
        conflicts_with_all = ["data", "csv", "images", "ids", "group", "labels", "class"]
    )]
    fake_data: bool,
    /// Column of the group of an image, such as its patient: a fold has all images of a group [default:
    /// the first column of --ids, if there are several]
    #[arg(long, value_name = "COLUMN", conflicts_with = "split")]
    group: Option<String>,
    /// Columns of the labels, 0 or 1 each, of which an image may have several; or one column of text,
    /// whose distinct texts are classes, of which an image has one
    /// [default: all but those of --ids and --group]
    #[arg(
        long,
        visible_alias = "label",
        value_name = "COLUMNS",
        value_delimiter = ','
    )]
    labels: Vec<String>,
    /// Column of the class of an image, whose distinct values are the classes: as --labels, also of
    /// numbers
    #[arg(long, value_name = "COLUMN", conflicts_with = "labels")]
    class: Option<String>,
    /// Model: `resnet18`, `resnet34`, `resnet50`, `efficientnet-lite0` to `efficientnet-lite4`,
    /// `vit-s16`, `vit-b16`, `vit-l16`
    #[arg(long, default_value_t = Classifier::ResNet34, value_name = "NAME")]
    model: Classifier,
    /// Published weights to start from; the head is new
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Keep the head of --weights, which has an output for each label or class
    #[arg(long, requires = "weights")]
    keep_head: bool,
    /// Height and width of the images
    #[arg(long, default_value_t = 128, value_name = "PIXELS", value_parser = positive::<usize>, allow_negative_numbers = true)]
    side: usize,
    /// Preparation of the images, such as `128,random-resized-crop=0.8..1,flip=0.5`; validation
    /// leaves its random steps out [default: resize and crop to --side]
    #[arg(long, value_name = "STEPS", conflicts_with = "side")]
    transforms: Option<Transforms>,
    /// Number of folds of the studies
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    folds: usize,
    /// Fold to validate on, from 0
    #[arg(
        long,
        default_value_t = 0,
        value_name = "FOLD",
        allow_negative_numbers = true
    )]
    fold: usize,
    /// What is in one fold only: the images of a study, or each image alone. With `image`, images
    /// of one study are in training and in validation, and the scores are too good
    #[arg(long, value_enum, default_value_t = Split::Study)]
    split: Split,
    #[command(flatten)]
    mixing: MixingArgs,
    #[command(flatten)]
    rate: RateArgs,
    #[command(flatten)]
    run: Run,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Split {
    Study,
    Image,
}

impl Ct {
    pub(super) fn run(mut self, processes: Arc<dyn ProcessGroup>) -> Result<ExitCode> {
        self.run.processes = Some(processes);
        let slices = self.slices()?;
        let (client, devices) = self.run.open()?;
        let count = self.run.devices_of_all(&client, &devices);
        let batch = &mut self.run.options.batch_size;
        *batch = batch.checked_mul(count).ok_or_else(|| {
            let message = format!("--batch-size {batch} on {count} devices is too large");
            Error::invalid("train ct", message)
        })?;
        let (one, all) = self.rate.multiply(count as f64);
        if self.run.is_coordinator() {
            remark!(
                "{} images of training, {} of validation; devices: {count}, batches of {}, learning \
                 rate {all:e} ({one:e} times {count})",
                slices.sets.train.len(),
                (slices.sets.validation.as_ref()).map_or(0, |validation| validation.len()),
                self.run.options.batch_size,
            );
        }
        let (outputs, side) = (slices.targets.names().len(), self.transforms().side());
        let visitor = Training {
            command: &self,
            slices,
            client,
            devices,
        };
        self.model.visit(outputs, side, visitor)
    }

    /// The folder of the data, which the command line requires, or the name of generated data.
    fn data(&self) -> &Path {
        let generated = Path::new("fake");
        self.images.data.as_deref().unwrap_or(generated)
    }

    fn transforms(&self) -> Transforms {
        let default = || Transforms::new(self.side);
        self.transforms.clone().unwrap_or_else(default)
    }
}

/// The training of a model, whatever its type.
struct Training<'a> {
    command: &'a Ct,
    slices: Slices,
    client: Client,
    devices: Vec<DeviceId>,
}

impl ClassifierVisitor for Training<'_> {
    type Output = ExitCode;

    fn visit<M: ColorImageModel>(
        self,
        classifier: DescribedClassifier<M::Of<Param>>,
    ) -> Result<ExitCode> {
        let command = self.command;
        let file = command.weights.as_ref().map(Classifier::open).transpose()?;
        let (normalization, loaded) = published::<M>(
            &command.run,
            &self.client,
            file.as_deref(),
            &classifier,
            if command.keep_head { &[] } else { &["head"] },
        )?;
        let schedule = command
            .run
            .schedule(&command.rate, self.slices.sets.train.len())?;
        let options = training_options(&command.run.options.numerics, schedule, None);
        let side = command.transforms().side();
        let about = About {
            normalization: normalization.to_string(),
            loaded,
        };
        match &self.slices.targets {
            Targets::Labels(labels) => {
                let task = MultiLabel::<M>::new(normalization, labels);
                self.train(task.step(side, classifier.net, &options), about)
            }
            Targets::Classes { names, .. } => {
                let named = if names.len() > MOST_NAMED {
                    &[]
                } else {
                    &names[..]
                };
                let task = ClassifyColor::<M>::new(normalization).roc_auc(named);
                self.train(task.adam_step(side, classifier.net, &options), about)
            }
        }
    }
}

/// Classes of which each has a ROC-AUC, at most.
const MOST_NAMED: usize = 100;

/// What the model starts from.
struct About<M> {
    normalization: String,
    loaded: Option<M>,
}

impl Training<'_> {
    fn train<M: ColorImageModel, K: Task<Model = M> + Clone>(
        self,
        step: TrainingStep<K, Adam>,
        about: About<M::Of<Array>>,
    ) -> Result<ExitCode> {
        let Training {
            command,
            slices,
            client,
            devices,
        } = self;
        let (run, count, stop) = (&command.run, devices.len(), StopFlag::new());
        let data = name_of(command.data());
        let out = run.out(&format!("{data}-{}", command.model));
        let train = Arc::new(slices.sets.train);
        let trainer = run
            .trainer(&client, devices, &out, &stop, &step)
            .property("--model", command.model.to_string())
            .property("--data", data)
            .property("transforms", command.transforms())
            .property("normalization", about.normalization);
        let trainer = match slices.targets {
            Targets::Labels(labels) => trainer.property("labels", labels_in_line(&labels)),
            Targets::Classes { column, names } => {
                let trainer = trainer.property("class", column);
                trainer.callback(SaveClasses(names))
            }
        };
        let trainer = run.sharded(command.rate.of_run(trainer), count, &step, &train)?;
        let trainer = trainer.build()?;
        let data = (train, slices.sets.validation);
        let fitted = match run.fit(&trainer, step, data, about.loaded, &out, &stop)? {
            ControlFlow::Continue(fitted) => fitted,
            ControlFlow::Break(code) => return Ok(code),
        };
        Ok(finish(run, &fitted, &trainer))
    }
}

/// The last part of a path.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
