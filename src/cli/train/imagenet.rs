//! `halite train imagenet`: classification of color images in class folders.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::Args;
use halite::{
    Array, Client, DeviceId, Param, Result,
    data::{
        Dataset,
        images::{ClassFolders, FakeImages, Framing, Parts},
    },
    models::{
        Classifier, ClassifierVisitor, ClassifyColor, ColorImageModel, DescribedClassifier,
        TrainingStep,
    },
    nn::Optimizer,
    train::{flags::positive, signals::StopFlag},
};
use halite_core::ProcessGroup;

use super::{
    classes::{SaveClasses, say_untrained},
    mixing::{MixingArgs, Sets},
    published::published,
    run::{Run, epochs, finish},
    step_times::StepTimes,
};
use crate::cli::step::{RateArgs, default_in_help, training_options};

pub(super) const EXAMPLES: &str = "\
Examples:
  halite train imagenet --data pictures                         pictures/cat/1.jpg, pictures/dog/7.png, ..
  halite train imagenet --data imagenet --model resnet50        imagenet/train/CLASS/*.jpg, imagenet/val/CLASS/*.jpg
  halite train imagenet --data pictures --model resnet34 --weights resnet34.pth --learning-rate 1e-3
                                                                fine-tune torchvision's weights with a new head
  halite train imagenet --fake-data --model resnet50 --benchmark
                                                                how many samples a second";

#[derive(Args, Debug)]
#[command(
    mut_arg("max_epochs", |arg| epochs(arg, "90")),
    mut_arg("batch_size", |arg| arg.default_value("32")),
    mut_arg("out", |arg| default_in_help(arg, "runs/DATA-MODEL"))
)]
pub(super) struct ImageNet {
    /// Model: `resnet18`, `resnet34`, `resnet50`, `efficientnet-lite0` to `efficientnet-lite4`,
    /// `vit-s16`, `vit-b16`, `vit-l16`
    #[arg(long, default_value_t = Classifier::ResNet50, value_name = "NAME")]
    model: Classifier,
    /// Folder with a folder of PNG or JPEG images for each class; or with folders of such folders
    /// for training and validation
    #[arg(long, value_name = "DIR", required_unless_present = "fake_data")]
    data: Option<PathBuf>,
    /// Folders of training and validation in --data, or `none` if each folder is a class [default:
    /// train or training, and val, valid or validation; else train and test]
    #[arg(long, value_name = "TRAIN,VALIDATION|none", requires = "data")]
    parts: Option<Parts>,
    /// Train on generated images: as many as ImageNet has, in 1,000 classes
    #[arg(long, conflicts_with = "data")]
    fake_data: bool,
    /// Published weights to start from; a head for another number of classes is new
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Height and width of the images [default: the model's]
    #[arg(long, value_name = "PIXELS", value_parser = positive::<usize>, allow_negative_numbers = true)]
    side: Option<usize>,
    /// Label smoothing, from 0 to below 1
    #[arg(long, default_value_t = 0.1, value_name = "P", value_parser = smoothing, allow_negative_numbers = true)]
    label_smoothing: f64,
    /// Print mean, median, 90th percentile and standard deviation of the samples a second; 60
    /// steps, unless --max-steps or --max-time is given
    #[arg(long)]
    benchmark: bool,
    #[command(flatten)]
    mixing: MixingArgs,
    #[command(flatten)]
    rate: RateArgs,
    #[command(flatten)]
    run: Run,
}

/// Training images and classes of ImageNet.
const IMAGENET: (usize, usize) = (1_281_167, 1000);

/// Steps of a benchmark.
const BENCHMARK_STEPS: u64 = 60;

/// One sample in this many is for validation, where no folder is.
const VALIDATE_ONE_IN: usize = 10;

fn smoothing(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(smoothing) if (0.0..1.0).contains(&smoothing) => Ok(smoothing),
        _ => Err("expected a number from 0 to below 1, such as 0.1".into()),
    }
}

/// The data of a run.
struct Images {
    name: String,
    classes: usize,
    /// Names of the classes, if they have names.
    names: Option<Vec<String>>,
    sets: Sets,
}

impl ImageNet {
    pub(super) fn run(mut self, processes: Arc<dyn ProcessGroup>) -> Result<ExitCode> {
        self.run.processes = Some(processes);
        let options = &mut self.run.options;
        if self.benchmark && options.max_steps.is_none() && options.max_time.is_none() {
            options.max_steps = Some(BENCHMARK_STEPS);
        }
        let mut images = self.images()?;
        images.sets = self.mixing.apply(images.sets, Some(images.classes))?;
        let (client, devices) = self.run.open()?;
        let (classes, side) = (images.classes, self.framing().side);
        let visitor = Training {
            command: &self,
            images,
            client,
            devices,
        };
        self.model.visit(classes, side, visitor)
    }

    fn framing(&self) -> Framing {
        let framing = self.model.framing();
        Framing {
            side: self.side.unwrap_or(framing.side),
            ..framing
        }
    }

    /// Lists the images, or describes the generated ones.
    fn images(&self) -> Result<Images> {
        let framing = self.framing();
        let Some(root) = &self.data else {
            let (count, classes) = IMAGENET;
            let data = FakeImages::new(count, framing.side, classes, self.run.options.seed)?;
            return Ok(Images {
                name: "fake".to_owned(),
                classes,
                names: None,
                sets: Sets {
                    train: Arc::new(data),
                    validation: None,
                },
            });
        };
        let name = |root: &Path| {
            let name = root.file_name().unwrap_or(root.as_os_str());
            name.to_string_lossy().into_owned()
        };
        let parts = self.parts.clone().unwrap_or_default();
        let ClassFolders { train, validation } = ClassFolders::open(root, &parts, framing)?;
        let names = train.classes().to_vec();
        let (train, validation): (Arc<dyn Dataset>, Arc<dyn Dataset>) = match validation {
            Some(validation) => {
                if self.run.is_coordinator() && parts == Parts::Find {
                    remark!(
                        "trains on `{}`, validates on `{}`",
                        train.name(),
                        validation.name()
                    );
                }
                (Arc::new(train), Arc::new(validation))
            }
            None => {
                let validation = train.len() / VALIDATE_ONE_IN;
                let [validation, rest] =
                    halite::data::DatasetExt::split(train.clone(), validation, 0)?;
                if self.run.is_coordinator() {
                    let trained = rest.indices().iter();
                    say_untrained(&names, trained.map(|&image| train.label(image) as usize));
                }
                (Arc::new(rest), Arc::new(validation))
            }
        };
        Ok(Images {
            name: name(root),
            classes: names.len(),
            names: Some(names),
            sets: Sets {
                train,
                validation: Some(validation).filter(|data| !data.is_empty()),
            },
        })
    }
}

/// The training of a classifier, whatever its type.
struct Training<'a> {
    command: &'a ImageNet,
    images: Images,
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
        // A head for as many classes is not replaced.
        let replaced: &[&str] = match &file {
            Some(file) if Classifier::classes_of(&**file)? != self.images.classes => &["head"],
            _ => &[],
        };
        let (normalization, loaded) = published::<M>(
            &command.run,
            &self.client,
            file.as_deref(),
            &classifier,
            replaced,
        )?;
        let task = classifier.task::<M>(normalization);
        let task = task.label_smoothing(command.label_smoothing);
        let schedule = command
            .run
            .schedule(&command.rate, self.images.sets.train.len())?;
        let options = training_options(&command.run.options.numerics, schedule, None);
        let side = command.framing().side;
        if classifier.is_transformer {
            self.train(task.adamw_step(side, classifier.net, &options), loaded)
        } else {
            self.train(task.sgd_step(side, classifier.net, &options), loaded)
        }
    }
}

impl Training<'_> {
    fn train<M: ColorImageModel, O: Optimizer + Clone + 'static>(
        self,
        step: TrainingStep<ClassifyColor<M>, O>,
        loaded: Option<M::Of<Array>>,
    ) -> Result<ExitCode> {
        let Training {
            command,
            images,
            client,
            devices,
        } = self;
        let (run, count, stop) = (&command.run, devices.len(), StopFlag::new());
        let out = run.out(&format!("{}-{}", images.name, command.model));
        let train = Arc::new(images.sets.train);
        let trainer = run
            .trainer(&client, devices, &out, &stop, &step)
            .property("--model", command.model.to_string())
            .property("--data", images.name)
            .property("--side", command.framing().side)
            .property("normalization", step.task.normalization);
        // As before it was one: runs of those versions resume.
        let trainer = if command.label_smoothing == ClassifyColor::<M>::LABEL_SMOOTHING {
            trainer
        } else {
            trainer.property("--label-smoothing", command.label_smoothing)
        };
        let trainer = run.sharded(command.rate.of_run(trainer), count, &step, &train)?;
        let times = command.benchmark.then(StepTimes::default);
        let trainer = match &times {
            Some(times) => trainer.callback(times.clone()),
            None => trainer,
        };
        let trainer = match images.names.filter(|_| run.is_coordinator()) {
            Some(names) => trainer.callback(SaveClasses(names)),
            None => trainer,
        };
        let trainer = trainer.build()?;
        let data = (train, images.sets.validation);
        let fitted = match run.fit(&trainer, step, data, loaded, &out, &stop)? {
            ControlFlow::Continue(fitted) => fitted,
            ControlFlow::Break(code) => return Ok(code),
        };
        let code = finish(run, &fitted, &trainer);
        if let Some(times) = times.filter(|_| run.is_coordinator()) {
            say!("{}", times.summary());
        }
        Ok(code)
    }
}
