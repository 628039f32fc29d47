//! `halite data fake`, `view` and `stats`: sets of images.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use halite::{
    Error, ErrorKind, HostArray, Result,
    core::files,
    data::{
        Dataset, Key, Permutation, Rows, Table,
        images::{
            CT_IDS, CT_LABELS, ClassFolders, FakeCt, ImageFolder, ImageStatistics, ImageTable,
            Parts, Transforms, contact_sheet,
        },
    },
};

use crate::cli::image_args::{is_text, root_of};

/// Write a generated data set
#[derive(Args, Debug)]
pub(super) struct Fake {
    #[command(subcommand)]
    set: FakeSet,
}

#[derive(Subcommand, Debug)]
enum FakeSet {
    /// CT slices with ten labels, in the layout of the RSNA pulmonary embolism competition
    Ct(Ct),
}

#[derive(Args, Debug)]
struct Ct {
    /// Folder for `train.csv`, `test.csv` and the images
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Studies with labels; a fifth more is written without
    #[arg(long, default_value_t = 50)]
    studies: usize,
    /// Slices of each study
    #[arg(long, default_value_t = 20)]
    slices: usize,
    /// Height and width of a slice, in pixels
    #[arg(long, default_value_t = 256)]
    side: usize,
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

impl Fake {
    pub(super) fn run(self) -> Result<()> {
        let FakeSet::Ct(ct) = self.set;
        let set = FakeCt {
            studies: ct.studies,
            slices: ct.slices,
            side: ct.side,
            seed: ct.seed,
        };
        let [train, test] = set.write(&ct.out)?;
        let out = ct.out.display();
        say!("{out}: train.csv with {train} images and ten labels, test.csv with {test} images");
        say!("look at it with `halite data view {out}`");
        Ok(())
    }
}

/// Where images are
#[derive(Args, Debug)]
struct Source {
    /// Folder with a folder of images for each class, or with folders of such folders for training
    /// and validation; or with `train.csv` and the images, in `train/` or beside it; with `--csv`, the
    /// folder of the images
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Folders of training and validation in DIR, or `none` if each folder is a class [default: by
    /// their names, as in `halite train imagenet`]
    #[arg(long, value_name = "TRAIN,VALIDATION|none", conflicts_with = "csv")]
    parts: Option<Parts>,
    /// Table whose rows name the images
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Columns of FILE: folders below DIR and, last, the file or the end of its name after `_` or
    /// `-`
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    ids: Vec<String>,
    /// Columns of FILE that have labels, each 0 or 1, or one column of text, which has classes
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    labels: Vec<String>,
    /// Column of FILE that has the class of an image: as --labels, also of numbers
    #[arg(long, value_name = "COLUMN", conflicts_with = "labels")]
    class: Option<String>,
}

/// Images that were found.
enum Images {
    Classes(ImageFolder),
    Rows(ImageTable),
}

impl Source {
    fn open(&self, transforms: Transforms) -> Result<Images> {
        let found = self.dir.join("train.csv");
        let (csv, root) = match &self.csv {
            Some(csv) => (csv.clone(), self.dir.clone()),
            None if found.is_file() => (found, root_of(&self.dir, "train")),
            None if !self.ids.is_empty() || !self.labels.is_empty() || self.class.is_some() => {
                let message =
                    "--ids, --labels and --class are columns of a table; give it as --csv FILE";
                return Err(Error::invalid("data", message));
            }
            None => {
                let parts = self.parts.clone().unwrap_or_default();
                let folders = ClassFolders::open(&self.dir, &parts, transforms)?;
                if folders.validation.is_some() {
                    remark!("the images of training: `{}`", folders.train.name());
                }
                return Ok(Images::Classes(folders.train));
            }
        };
        let table = Table::read(csv)?;
        let chosen = |columns: &[String], known: &[&str]| -> Vec<String> {
            let all = known.iter().all(|column| table.has_column(column));
            if columns.is_empty() && all {
                known.iter().map(|&column| column.to_owned()).collect()
            } else {
                columns.to_vec()
            }
        };
        let ids = chosen(&self.ids, &CT_IDS);
        let labels = match self.class {
            Some(_) => Vec::new(),
            None => chosen(&self.labels, &CT_LABELS),
        };
        if ids.is_empty() {
            let message = format!(
                "{}: name the columns that locate an image with --ids; it has {}",
                table.name(),
                table.columns().join(", ")
            );
            return Err(Error::invalid("data", message));
        }
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let images = ImageTable::open(root, &table, &ids, transforms)?;
        if let Some(column) = &self.class {
            return Ok(Images::Rows(images.with_classes(&table, column)?));
        }
        Ok(Images::Rows(match labels[..] {
            [] => images,
            [column] if is_text(&table, column)? => images.with_classes(&table, column)?,
            _ => images.with_labels(&table, &labels)?,
        }))
    }
}

impl Images {
    fn dataset(&self) -> &dyn Dataset {
        match self {
            Images::Classes(images) => images,
            Images::Rows(images) => images,
        }
    }

    fn path(&self, index: usize) -> PathBuf {
        match self {
            Images::Classes(images) => images.path(index),
            Images::Rows(images) => images.path(index),
        }
    }

    /// Short text about the labels of a sample.
    fn caption(&self, index: usize) -> String {
        match self {
            Images::Classes(images) => images.classes()[images.label(index) as usize].clone(),
            Images::Rows(images) => {
                if let Some(class) = images.class(index) {
                    return images.class_names()[class as usize].clone();
                }
                let digit = |label: &f32| if *label > 0.0 { '1' } else { '0' };
                images.labels(index).iter().map(digit).collect()
            }
        }
    }

    /// Name and number of samples of each label.
    fn frequencies(&self) -> Vec<(String, usize)> {
        let len = self.dataset().len();
        let of_classes = |names: &[String], class: &dyn Fn(usize) -> Option<u32>| {
            let mut counts = vec![0; names.len()];
            (0..len)
                .filter_map(class)
                .for_each(|class| counts[class as usize] += 1);
            names.iter().cloned().zip(counts).collect()
        };
        match self {
            Images::Classes(images) => {
                of_classes(images.classes(), &|index| Some(images.label(index)))
            }
            Images::Rows(images) if !images.class_names().is_empty() => {
                of_classes(images.class_names(), &|index| images.class(index))
            }
            Images::Rows(images) => {
                let count = |place: usize| {
                    let positive = |&index: &usize| images.labels(index)[place] > 0.0;
                    (0..len).filter(positive).count()
                };
                let names = images.label_names().iter().cloned().enumerate();
                names.map(|(place, name)| (name, count(place))).collect()
            }
        }
    }
}

/// Draw images as they are trained on into one PNG file
#[derive(Args, Debug)]
pub(super) struct View {
    #[command(flatten)]
    source: Source,
    /// Transforms, for example `128,random-resized-crop=0.8..1,flip=0.5,rotate=10`
    #[arg(long, default_value = "128", value_name = "STEPS")]
    transforms: Transforms,
    /// Leave random steps out, as validation does
    #[arg(long)]
    validation: bool,
    /// Number of images
    #[arg(long, default_value_t = 32)]
    count: usize,
    /// Images in a row
    #[arg(long, default_value_t = 8)]
    columns: usize,
    /// Seed of the order and of random steps
    #[arg(long, default_value_t = 42)]
    seed: u64,
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// The sheet
    #[arg(long, default_value = "sheet.png", value_name = "FILE")]
    out: PathBuf,
}

impl View {
    pub(super) fn run(self) -> Result<()> {
        let transforms = if self.validation {
            self.transforms.for_validation()
        } else {
            self.transforms
        };
        let images = self.source.open(transforms)?;
        let dataset = images.dataset();
        let order = Permutation::new(dataset.len(), self.seed, self.epoch);
        let (mut drawn, mut captions) = (Vec::new(), Vec::new());
        for position in 0..self.count.min(dataset.len()) {
            let index = order.at(position);
            let key = Key {
                seed: self.seed,
                epoch: self.epoch,
                index,
            };
            let mut rows = Rows::zeros(dataset.fields(), 1)?;
            dataset.read(index, &mut rows.sample_mut(0).with_key(key))?;
            let ty = &dataset.fields()[0].ty;
            drawn.push(HostArray::from_bytes(rows.sample(0).bytes(0), ty.clone())?);
            captions.push(images.caption(index));
        }
        let sheet = contact_sheet(&drawn, self.columns, &captions)?;
        files::write_output(&self.out, &sheet).map_err(|error| {
            let message = format!("{}: {error}", self.out.display());
            Error::new(ErrorKind::Io, "contact sheet", message)
        })?;
        say!(
            "{}: {} of {} images",
            self.out.display(),
            drawn.len(),
            dataset.len()
        );
        if let Images::Rows(rows) = &images
            && !rows.label_names().is_empty()
        {
            say!("labels in order: {}", rows.label_names().join(", "));
        }
        Ok(())
    }
}

/// Print counts, sizes, means and standard deviations of the channels, and frequencies of labels
#[derive(Args, Debug)]
pub(super) struct Stats {
    #[command(flatten)]
    source: Source,
    /// Number of images to decode, evenly spread over all; 0 for all
    #[arg(long, default_value_t = 1000)]
    count: usize,
}

/// Sizes and damaged files that are printed.
const PRINTED: usize = 5;

impl Stats {
    pub(super) fn run(self) -> Result<()> {
        // Images are read as they are.
        let images = self.source.open(Transforms::new(1))?;
        let len = images.dataset().len();
        let count = match self.count {
            0 => len,
            count => count.min(len),
        };
        let mut statistics = ImageStatistics::default();
        for place in 0..count {
            statistics.add(images.path((place as u128 * len as u128 / count as u128) as usize));
        }
        let (decoded, damaged) = (statistics.count(), statistics.damaged.len());
        let mut counts = format!("{len}, {decoded} of them decoded");
        if damaged > 0 {
            counts += &format!(", {damaged} damaged");
        }
        if count < len {
            counts += &format!(", {} not read", len - count);
        }
        say!("images     {counts}");
        let mut sizes: Vec<_> = statistics.sizes.iter().collect();
        sizes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let rest = sizes.len().saturating_sub(PRINTED);
        let shown = sizes.iter().take(PRINTED);
        let mut shown: Vec<String> = shown
            .map(|([height, width], count)| format!("{height}x{width} ({count})"))
            .collect();
        if rest > 0 {
            shown.push(format!("and {rest} more"));
        }
        if decoded > 0 {
            say!("sizes      {}", shown.join(", "));
            let [red, green, blue] = statistics.mean();
            say!("mean       {red:.4} {green:.4} {blue:.4}");
            let [red, green, blue] = statistics.std();
            say!("deviation  {red:.4} {green:.4} {blue:.4}");
        }
        if damaged > 0 {
            say!("damaged    {damaged}");
            let shown = statistics.damaged.iter().take(PRINTED);
            shown.for_each(|error| say!("           {error}"));
            if damaged > PRINTED {
                say!("           and {} more", damaged - PRINTED);
            }
        }
        let frequencies = images.frequencies();
        if !frequencies.is_empty() {
            let width = frequencies.iter().map(|(name, _)| name.chars().count());
            let width = width.max().unwrap_or(0);
            say!("labels     of all {len} images");
            for (name, count) in frequencies {
                let part = 100.0 * count as f64 / len as f64;
                say!("  {name:<width$}  {count:>8}  {part:>5.1} %");
            }
        }
        Ok(())
    }
}
