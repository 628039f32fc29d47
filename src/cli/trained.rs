//! Classifiers of color images that `halite train ct` or `halite train imagenet` trained.

use std::{
    collections::BTreeMap,
    fmt::Display,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use halite::{
    Client, DType, Error, ErrorKind, HostArray, Param, Result, TensorType,
    core::files,
    data::{
        BadSample, Dataset, Field, SampleMut, Table,
        images::{Framing, Transforms},
    },
    models::{
        Classifier, ClassifierVisitor, ClassifyColor, ColorImageModel, DescribedClassifier,
        MultiLabel, Normalization,
    },
    train::{Trainer, checkpoint::Saved},
};

use crate::cli::io_error;

/// Names of the classes of a run, one a line, in its directory.
pub(super) const CLASSES: &str = "classes.txt";

/// Names of labels as the property `labels` of a run: the header of a CSV file.
pub(super) fn labels_in_line(labels: &[String]) -> String {
    let is_plain = |label: &str| !label.contains([',', ';', '\t', '"', '\n', '\r']);
    let cell = |label: &String| {
        if is_plain(label) {
            label.clone()
        } else {
            format!("\"{}\"", label.replace('"', "\"\""))
        }
    };
    labels.iter().map(cell).collect::<Vec<_>>().join(",")
}

/// The names of labels in the property `labels` of a run.
fn labels_of_line(line: &str) -> Result<Vec<String>> {
    Ok(Table::parse("labels", line.as_bytes())?.columns().to_vec())
}

/// Folders above a checkpoint that may be the directory of its run.
const ABOVE: usize = 3;

/// The best checkpoint of a run, or the newest if none is marked as best. Of averages of the
/// parameters, where the run has some: they are what it validated.
pub(super) struct Trained {
    run: PathBuf,
    /// Folder of the checkpoint.
    checkpoint: PathBuf,
    model: Classifier,
    normalization: Normalization,
    /// Preparation of the images, without random steps.
    pub(super) transforms: Transforms,
    pub(super) outputs: Outputs,
}

/// What the outputs of a model are, by their names.
pub(super) enum Outputs {
    /// Labels that do not exclude each other.
    Labels(Vec<String>),
    /// Classes, of which an image has one.
    Classes(Vec<String>),
}

impl Outputs {
    pub(super) fn names(&self) -> &[String] {
        match self {
            Outputs::Labels(names) | Outputs::Classes(names) => names,
        }
    }
}

impl Trained {
    /// Reads what the run says of its model.
    ///
    /// # Errors
    /// If there is no checkpoint, or it is not of such a run.
    pub(super) fn of_run(context: &'static str, run: &Path) -> Result<Self> {
        let saved = Saved::of_run(run)?;
        let properties = Properties {
            context,
            values: saved.properties()?,
        };
        let model: Classifier = properties.parsed("--model")?;
        let transforms = if properties.values.contains_key("transforms") {
            properties.parsed::<Transforms>("transforms")?
        } else {
            // As `halite train imagenet` prepares images.
            Transforms::from(Framing {
                side: properties.parsed("--side")?,
                ..model.framing()
            })
        };
        let outputs = match properties.values.get("labels") {
            Some(labels) => Outputs::Labels(labels_of_line(labels)?),
            None => Outputs::Classes(class_names(context, &saved)?),
        };
        Ok(Trained {
            run: run.to_owned(),
            checkpoint: saved.path().to_owned(),
            model,
            normalization: properties.parsed("normalization")?,
            transforms: transforms.for_validation(),
            outputs,
        })
    }

    /// The file of this name in the directory of the run, if there is one.
    pub(super) fn file(&self, name: &str) -> Option<PathBuf> {
        file_of_run(&self.checkpoint, name)
    }

    /// Probabilities `f32[images, outputs]` of images `u8[side, side, 3]`, the first field of
    /// `images`; of each label, or of classes, which add up to 1. Batches have at most
    /// `batch_size` images on each device.
    ///
    /// # Errors
    /// If the model cannot be loaded, or an image cannot be read.
    pub(super) fn probabilities(
        &self,
        client: &Client,
        images: impl Dataset + 'static,
        batch_size: usize,
    ) -> Result<HostArray> {
        let (count, side) = (self.outputs.names().len(), self.transforms.side());
        let visitor = Prediction {
            trained: self,
            client,
            images,
            batch_size,
        };
        self.model.visit(count, side, visitor)
    }
}

/// The file of this name beside a checkpoint, in the directory of its run.
fn file_of_run(checkpoint: &Path, name: &str) -> Option<PathBuf> {
    let above = checkpoint.ancestors().skip(1).take(ABOVE);
    let mut found = above.map(|dir| dir.join(name));
    found.find(|file| file.is_file())
}

/// Names of the classes of a run: those of its file, or numbers if there is none.
fn class_names(context: &'static str, saved: &Saved) -> Result<Vec<String>> {
    let mut arrays = saved.arrays();
    let head = arrays.find(|(name, ty)| *name == "model.head.bias" && ty.rank() == 1);
    let Some(count) = head.map(|(_, ty)| ty.dims()[0]) else {
        let message = format!(
            "{} has no vector `model.head.bias`; expected a run of `halite train ct` or `halite train \
             imagenet`",
            saved.path().display()
        );
        return Err(Error::invalid(context, message));
    };
    let Some(path) = file_of_run(saved.path(), CLASSES) else {
        return Ok((0..count).map(|class| class.to_string()).collect());
    };
    let text = files::read_input_text(&path).map_err(io_error(context, "read", &path))?;
    let names: Vec<String> = text.lines().map(str::to_owned).collect();
    if names.len() != count {
        let message = format!(
            "{} has {} lines; the model has {count} classes",
            path.display(),
            names.len()
        );
        return Err(Error::invalid(context, message));
    }
    Ok(names)
}

/// Properties of a run, by name.
struct Properties {
    context: &'static str,
    values: BTreeMap<String, String>,
}

impl Properties {
    fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T> {
        let Some(value) = self.values.get(name) else {
            let message = format!(
                "the run has no property `{name}`; expected a run of `halite train ct` or `halite \
                 train imagenet`"
            );
            return Err(Error::invalid(self.context, message));
        };
        value.parse().map_err(|error| {
            let message = format!(
                "the run has the property `{name}` = `{value}`: {error}; expected a run of `halite \
                 train ct` or `halite train imagenet`"
            );
            Error::invalid(self.context, message)
        })
    }
}

/// The prediction by a model, whatever its type.
struct Prediction<'a, D> {
    trained: &'a Trained,
    client: &'a Client,
    images: D,
    batch_size: usize,
}

impl<D: Dataset + 'static> ClassifierVisitor for Prediction<'_, D> {
    type Output = HostArray;

    /// Returns the probabilities `f32[images, outputs]`.
    fn visit<M: ColorImageModel>(
        self,
        classifier: DescribedClassifier<M::Of<Param>>,
    ) -> Result<HostArray> {
        let Prediction {
            trained,
            client,
            images,
            batch_size,
        } = self;
        let devices = client.local_devices().len();
        // No larger than the set, rounded up to a whole number of images on each device.
        let each = batch_size.min(images.len().div_ceil(devices));
        let trainer = Trainer::builder(client)
            .batch_size(each * devices)
            .build()?;
        let model = trainer.load_validated(&classifier.net, &trained.run)?;
        let normalization = trained.normalization;
        match &trained.outputs {
            Outputs::Labels(labels) => {
                let label = TensorType::new(DType::F32, [labels.len()]);
                let task = MultiLabel::<M>::new(normalization, labels);
                trainer.predict(task, &model, Unlabeled::new(images, label))
            }
            Outputs::Classes(_) => {
                let label = TensorType::scalar(DType::U32);
                let task = ClassifyColor::<M>::new(normalization);
                trainer.predict(task, &model, Unlabeled::new(images, label))
            }
        }
    }
}

/// Images with labels of 0: the batch of a task has labels, which a prediction does not read.
struct Unlabeled<D> {
    images: D,
    fields: [Field; 2],
}

impl<D: Dataset> Unlabeled<D> {
    fn new(images: D, label: TensorType) -> Self {
        let fields = [images.fields()[0].clone(), Field::new("label", label)];
        Unlabeled { images, fields }
    }
}

impl<D: Dataset> Dataset for Unlabeled<D> {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        into.bytes_mut(1).fill(0);
        self.images.read(index, into)
    }
}

/// Images of which some may be unreadable: those are black, and listed.
///
/// The loader's own policy has copies of other images in their place, whose predictions nothing
/// tells apart.
#[derive(Clone)]
pub(super) struct Readable<D> {
    images: D,
    policy: BadSample,
    /// Reasons by index.
    unread: Arc<Mutex<BTreeMap<usize, String>>>,
}

impl<D: Dataset> Readable<D> {
    pub(super) fn new(images: D, policy: BadSample) -> Self {
        Readable {
            images,
            policy,
            unread: Arc::default(),
        }
    }

    /// The images that could not be read so far, with the reasons, by index.
    pub(super) fn unread(&self) -> BTreeMap<usize, String> {
        let unread = self.unread.lock();
        unread.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<D: Dataset> Dataset for Readable<D> {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn fields(&self) -> &[Field] {
        self.images.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let Err(error) = self.images.read(index, into) else {
            return Ok(());
        };
        let at_most = match (self.policy, error.kind()) {
            (_, ErrorKind::Cancelled | ErrorKind::Internal) => return Err(error),
            (BadSample::Skip { at_most }, _) => at_most,
            (BadSample::Fail, _) => {
                return Err(error.with_note("--bad-samples skip:N leaves such images out"));
            }
        };
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        if unread.len() >= at_most && !unread.contains_key(&index) {
            let message = format!("more than {at_most} images cannot be read (--bad-samples)");
            return Err(Error::new(error.kind(), "predict", message).caused_by(error));
        }
        unread.insert(index, error.to_string());
        into.bytes_mut(0).fill(0);
        Ok(())
    }
}
