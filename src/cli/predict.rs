//! `halite predict`: labels of images by a run of `halite train ct`.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write as _},
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
};

use clap::Args;
use halite::{
    Client, DType, Error, ErrorKind, HostArray, Param, Result, TensorType,
    backends::Accelerator,
    core::files,
    data::{
        Dataset, DatasetExt, Field, Table,
        images::{CT_IDS, ImageTable, Transforms},
    },
    fetch,
    models::{
        Classifier, ClassifierVisitor, ColorImageModel, DescribedClassifier, MultiLabel,
        Normalization,
    },
    train::{Trainer, checkpoint::Saved, flags::positive},
};

use crate::cli::{open_options, profile};

/// Predict the labels of images with a model that `halite train ct` trained
///
/// The model is the best checkpoint of the run, or the newest if none is marked as best. Writes a CSV
/// file: the identifiers of each image, and the probability of each label.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Predict {
    /// Directory of a run of `halite train ct`
    run: PathBuf,
    /// Folder with `test.csv` and the images
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Table of the images, a CSV file with a header; it needs no labels
    /// [default: test.csv in --data]
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Folder of the images [default: `test` in --data, or --data if there is none]
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// Columns that name an image: folders, and last a file name, or the end of one
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', default_values = CT_IDS)]
    ids: Vec<String>,
    /// CSV file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Images in a launch, on each device
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    batch_size: usize,
    /// `auto`, `cpu`, `cuda`, `tpu`, `embedded`, or `plugin:PATH`
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Cache directory of plugins [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  halite predict runs/ct-resnet34 --data ct --out predictions.csv    ct/test.csv, ct/test/STUDY/SERIES/*ID.jpg
  halite predict runs/ct-resnet34 --data ct --csv ct/train.csv --images ct/train --out predictions.csv";

impl Predict {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let trained = Trained::of(Saved::of_run(&self.run)?.properties()?)?;
        let csv = (self.csv.clone()).unwrap_or_else(|| self.data.join("test.csv"));
        let table = Table::read(&csv)?;
        let test = self.data.join("test");
        let root = match &self.images {
            Some(root) => root.clone(),
            None if test.is_dir() => test,
            None => self.data.clone(),
        };
        let ids: Vec<&str> = self.ids.iter().map(String::as_str).collect();
        let images = ImageTable::open(&root, &table, &ids, trained.transforms.for_validation())?;
        let columns = ids.iter().map(|id| table.strings(id));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = open_options(self.cache_dir.clone());
        let opened = (self.accelerator).open_with(&options, &mut fetch::Bar::default())?;
        profile::opened(&opened.driver);
        let (count, side) = (trained.labels.len(), trained.transforms.side());
        let visitor = Prediction {
            command: &self,
            client: opened.client,
            normalization: trained.normalization,
            labels: &trained.labels,
            images,
        };
        let probabilities = trained.model.visit(count, side, visitor)?;
        let names = ids.iter().copied();
        let names = names.chain(trained.labels.iter().map(String::as_str));
        let mut text = line(names);
        let rows = probabilities.as_slice::<f32>()?.chunks(count.max(1));
        for (row, values) in rows.enumerate() {
            let cells = columns.iter().map(|column| column[row].to_owned());
            let cells: Vec<String> = cells
                .chain(values.iter().map(ToString::to_string))
                .collect();
            text.push_str(&line(cells.iter().map(String::as_str)));
        }
        files::write_output(&self.out, text.as_bytes()).map_err(|error| {
            let message = format!("cannot write {}", self.out.display());
            Error::new(ErrorKind::Io, "predict", message).caused_by(error)
        })?;
        let images = table.len();
        say!("{}: {images} images, {count} labels", self.out.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// A line of a CSV file. Cells with a comma, a quote or a line break are quoted.
fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let mut line = String::new();
    for (place, cell) in cells.enumerate() {
        if place > 0 {
            line.push(',');
        }
        match cell.contains([',', '"', '\n', '\r']) {
            true => _ = write!(line, "\"{}\"", cell.replace('"', "\"\"")),
            false => line.push_str(cell),
        }
    }
    line.push('\n');
    line
}

/// What the properties of a run say of its model.
struct Trained {
    model: Classifier,
    transforms: Transforms,
    labels: Vec<String>,
    normalization: Normalization,
}

impl Trained {
    fn of(properties: BTreeMap<String, String>) -> Result<Self> {
        let labels = property::<String>(&properties, "labels")?;
        Ok(Trained {
            model: property(&properties, "--model")?,
            transforms: property(&properties, "transforms")?,
            labels: labels.split(LABEL_SEPARATOR).map(str::to_owned).collect(),
            normalization: property(&properties, "normalization")?,
        })
    }
}

/// Separates the labels in the property `labels` of a run.
pub(super) const LABEL_SEPARATOR: &str = ",";

fn property<T: FromStr<Err: Display>>(
    properties: &BTreeMap<String, String>,
    name: &str,
) -> Result<T> {
    let Some(value) = properties.get(name) else {
        let message =
            format!("the run has no property `{name}`; expected a run of `halite train ct`");
        return Err(Error::invalid("predict", message));
    };
    value.parse().map_err(|error| {
        let message = format!("the run has the property `{name}` = `{value}`: {error}");
        Error::invalid("predict", message)
    })
}

/// The prediction by a model, whatever its type.
struct Prediction<'a> {
    command: &'a Predict,
    client: Client,
    normalization: Normalization,
    labels: &'a [String],
    images: ImageTable,
}

impl ClassifierVisitor for Prediction<'_> {
    type Output = HostArray;

    /// Returns the probabilities `f32[images, labels]`.
    fn visit<M: ColorImageModel>(
        self,
        classifier: DescribedClassifier<M::Of<Param>>,
    ) -> Result<HostArray> {
        let Prediction {
            command,
            client,
            normalization,
            labels,
            images,
        } = self;
        let devices = client.local_devices().len();
        // No larger than the set, rounded up to a whole number of images on each device.
        let each = command.batch_size.min(images.len().div_ceil(devices));
        let trainer = Trainer::builder(&client)
            .batch_size(each * devices)
            .build()?;
        let model = trainer.load(&classifier.net, &command.run)?;
        // The batch of the task has labels, which a prediction does not read.
        let label = TensorType::new(DType::F32, [labels.len()]);
        let fields = [images.fields()[0].clone(), Field::new("label", label)];
        let dataset = images.map(fields, |sample, into| {
            into.bytes_mut(0).copy_from_slice(sample.bytes(0));
            into.bytes_mut(1).fill(0);
            Ok(())
        });
        let task = MultiLabel::<M>::new(normalization, labels);
        trainer.predict(task, &model, dataset)
    }
}
