//! `halite predict`: labels or classes of images by a run of `halite train ct` or `imagenet`.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use halite::{
    Error, Result,
    backends::Accelerator,
    core::files,
    data::{
        BadSample, Dataset, Table,
        images::{CT_IDS, ImageTable, Transforms},
    },
    fetch,
    train::flags::positive,
};

use crate::cli::{
    config,
    image_args::{ImageArgs, check_ids},
    io_error, open,
    trained::{Outputs, Readable, Trained},
};

/// Predict the labels or classes of images with a model that `halite train ct` or `imagenet` trained
///
/// The model is the best checkpoint of the run, or the newest if none is marked as best. Writes a CSV
/// file: the identifiers of each image, and the probability of each label; or its most probable class
/// and the probability of each class.
///
/// The images are those of a table, `--csv` or `test.csv` in `--data`; without a table, those below
/// a folder, whose paths are their identifiers. What is not given is that of the training.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    mut_arg("data", |arg| arg.help(
        "Folder with `test.csv` and the images [default: that of the training, if it has `test.csv`]"
    )),
    mut_arg("csv", |arg| arg.help(
        "Table of the images, a CSV file with a header; it needs no labels [default: test.csv in \
         --data, if there is one]"
    )),
    mut_arg("images", |arg| arg.help(
        "Folder of the images; without a table, all images below it [default: `test` in --data, or \
         --data if there is none]"
    )),
    mut_arg("ids", |arg| arg.help(
        "Columns that name an image: folders, and last a file name, or the end of one [default: \
         those of the training, else the first column]"
    )),
)]
pub(crate) struct Predict {
    /// Directory of a run of `halite train ct` or `halite train imagenet`
    run: PathBuf,
    #[command(flatten)]
    images: ImageArgs,
    /// CSV file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace the file of --out
    #[arg(long)]
    force: bool,
    /// Images that cannot be read: `fail` ends the command, `skip:N` leaves up to N without a
    /// prediction
    #[arg(long, value_name = "fail|skip:N", default_value_t = BadSample::Fail)]
    bad_samples: BadSample,
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
  halite predict runs/ct-resnet34 --out predictions.csv              test.csv of the folder of the training
  halite predict runs/ct-resnet34 --data ct --csv ct/train.csv --images ct/train --out predictions.csv
  halite predict runs/pictures-resnet50 --images new --out classes.csv   new/*.jpg, new/more/*.png";

/// Images with their identifiers.
struct Source {
    images: ImageTable,
    /// Names of the columns of identifiers.
    ids: Vec<String>,
    /// Cells of each of these columns.
    columns: Vec<Vec<String>>,
}

impl Predict {
    pub(crate) fn run(self) -> Result<ExitCode> {
        self.check_output()?;
        let trained = Trained::of_run("predict", &self.run)?;
        let source = self.source(&trained)?;
        let bar = &mut fetch::Bar::default();
        let client = open(&self.accelerator, self.cache_dir.clone(), bar)?.client;
        let readable = Readable::new(source.images.clone(), self.bad_samples);
        let probabilities = trained.probabilities(&client, readable.clone(), self.batch_size)?;
        let unread = readable.unread();
        for reason in unread.values() {
            remark!("no prediction: {reason}");
        }
        let names = trained.outputs.names();
        let mut text = line(
            header(&source.ids, &trained.outputs)
                .iter()
                .map(String::as_str),
        );
        let rows = probabilities.as_slice::<f32>()?.chunks(names.len().max(1));
        for (row, values) in rows.enumerate() {
            let mut cells: Vec<String> =
                (source.columns.iter().map(|column| column[row].clone())).collect();
            let is_read = !unread.contains_key(&row);
            let shown = |text: String| if is_read { text } else { String::new() };
            if let Outputs::Classes(names) = &trained.outputs {
                cells.push(shown(names[largest(values)].clone()));
            }
            cells.extend(values.iter().map(|value| shown(value.to_string())));
            text.push_str(&line(cells.iter().map(String::as_str)));
        }
        files::write_output(&self.out, text.as_bytes())
            .map_err(io_error("predict", "write", &self.out))?;
        let skipped = match unread.len() {
            0 => String::new(),
            count => format!("; {count} without a prediction"),
        };
        let kind = match &trained.outputs {
            Outputs::Labels(_) => "labels",
            Outputs::Classes(_) => "classes",
        };
        let (images, count) = (source.images.len(), names.len());
        let out = self.out.display();
        say!("{out}: {images} images, {count} {kind}{skipped}");
        Ok(ExitCode::SUCCESS)
    }

    /// # Errors
    /// If the output is a folder, or a file that may not be replaced.
    fn check_output(&self) -> Result<()> {
        let Ok(found) = fs::metadata(&self.out) else {
            return Ok(());
        };
        // Where a shell directs the output is not a file of the user's.
        let is_standard = self.out.starts_with("/dev") || self.out.starts_with("/proc");
        let reason = match (found.is_dir(), found.is_file()) {
            (true, _) => "it is a folder",
            (_, true) if !self.force && !is_standard => "it exists; --force replaces it",
            _ => return Ok(()),
        };
        let message = format!("cannot write {}: {reason}", self.out.display());
        Err(Error::invalid("predict", message))
    }

    /// Finds the images.
    fn source(&self, trained: &Trained) -> Result<Source> {
        let of_run = match trained.file(config::FILE) {
            Some(path) => config::read(&path)?,
            None => toml::Table::new(),
        };
        let of_run = |key: &str| config::text(&of_run, key);
        let given = &self.images;
        let transforms = trained.transforms.clone();
        if let (None, None, Some(folder)) = (&given.data, &given.csv, &given.images) {
            return without_table(folder, transforms);
        }
        let data = given.data.clone();
        let data = data.or_else(|| of_run("data").map(PathBuf::from));
        let csv = match (&given.csv, &data) {
            (Some(csv), _) => csv.clone(),
            (None, Some(data)) => data.join("test.csv"),
            (None, None) => return Err(self.nothing_given("the run has no config.toml")),
        };
        if given.csv.is_none() && !csv.is_file() {
            let Some(data) = given.data.as_deref() else {
                return Err(self.nothing_given(&format!("the run has no {}", csv.display())));
            };
            return without_table(&given.root(data, "test"), transforms);
        }
        let table = Table::read(&csv)?;
        let root = match (&given.data, &data) {
            (Some(data), _) => given.root(data, "test"),
            (None, Some(data)) => match given.root(data, "test") {
                root if root == *data => of_run("images").map_or(root, PathBuf::from),
                root => root,
            },
            (None, None) => {
                let beside = csv.parent().filter(|parent| *parent != Path::new(""));
                given.root(beside.unwrap_or(Path::new(".")), "test")
            }
        };
        let ids = match (&given.ids[..], of_run("ids")) {
            ([], Some(ids)) => ids.split(',').map(str::to_owned).collect(),
            ([], None) if CT_IDS.iter().all(|id| table.has_column(id)) => {
                CT_IDS.map(str::to_owned).to_vec()
            }
            ([], None) => table.columns().iter().take(1).cloned().collect(),
            (given, _) => given.to_vec(),
        };
        check_ids("predict", &ids, &table)?;
        let names: Vec<&str> = ids.iter().map(String::as_str).collect();
        let images = ImageTable::open(&root, &table, &names, transforms)?;
        let column = |id: &&str| -> Result<Vec<String>> {
            Ok(table.strings(id)?.into_iter().map(str::to_owned).collect())
        };
        let columns = names.iter().map(column).collect::<Result<_>>()?;
        Ok(Source {
            images,
            ids,
            columns,
        })
    }

    fn nothing_given(&self, reason: &str) -> Error {
        let message = format!(
            "{reason}; --csv FILE is a table of images, --images DIR a folder, --data DIR a folder with \
             test.csv"
        );
        Error::invalid("predict", message)
    }
}

/// All images below a folder, whose identifiers are their paths.
fn without_table(folder: &Path, transforms: Transforms) -> Result<Source> {
    let images = ImageTable::of_folder(folder, transforms)?;
    let path = |index| images.path_below(index).to_string_lossy().into_owned();
    let paths = (0..images.len()).map(path).collect();
    Ok(Source {
        ids: vec!["file".to_owned()],
        columns: vec![paths],
        images,
    })
}

/// Names of the columns, each of another name.
fn header(ids: &[String], outputs: &Outputs) -> Vec<String> {
    let mut columns = ids.to_vec();
    let mut add = |prefix: &str, name: &str| {
        let mut name = name.to_owned();
        while columns.contains(&name) {
            name = format!("{prefix} {name}");
        }
        columns.push(name);
    };
    if let Outputs::Classes(_) = outputs {
        add("predicted", "class");
    }
    for name in outputs.names() {
        add("probability of", name);
    }
    columns
}

/// Index of the largest value; the first of equals.
fn largest(values: &[f32]) -> usize {
    let larger = |best: usize, index: usize| {
        if values[index] > values[best] {
            index
        } else {
            best
        }
    };
    (0..values.len()).reduce(larger).unwrap_or_default()
}

/// A line of a CSV file. Cells with a comma, a quote or a line break are quoted.
fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let mut line = String::new();
    for (place, cell) in cells.enumerate() {
        if place > 0 {
            line.push(',');
        }
        if cell.contains([',', '"', '\n', '\r']) {
            _ = write!(line, "\"{}\"", cell.replace('"', "\"\""))
        } else {
            line.push_str(cell)
        }
    }
    line.push('\n');
    line
}
