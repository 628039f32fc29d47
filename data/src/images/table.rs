//! Images that the rows of a table name.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use halite_core::{DType, Error, ErrorKind, Result, TensorType};

use super::{
    Transforms,
    folder::images_below,
    listing::Listings,
    read_pixels,
    targets::{Targets, classes},
};
use crate::{
    Dataset, Field, SampleMut, Table,
    digest::{digest_of, digest_of_some},
};

/// Images that the rows of a [`Table`] name, with labels from its columns or without.
///
/// The fields are `image: u8[side, side, 3]` and, with labels, `label: f32[labels]`, each 0 or 1;
/// with classes, `label: u32[]`, the number of the class. Sample `i` is row `i`. Files are decoded
/// and [transformed](Transforms) at each read, in the thread that reads. Clones share the list of
/// files.
///
/// ```no_run
/// // Needs a set of images; `halite data fake ct --out ct` writes one.
/// use halite_data::{DatasetExt, Table, images::{ImageTable, Transforms}};
///
/// # fn main() -> halite_core::Result<()> {
/// let table = Table::read("ct/train.csv")?;
/// let transforms = Transforms::new(128).random_resized_crop(0.8..=1.0).flip(0.5);
/// // ct/train/STUDY/SERIES/0001_IMAGE.jpg
/// let ids = ["StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID"];
/// let images = ImageTable::open("ct/train", &table, &ids, transforms)?
///     .with_labels(&table, &["pe_present_on_image", "central_pe"])?;
/// let train = images.clone().subset([0, 1, 2])?;
/// let valid = images.for_validation().subset([3, 4])?;
/// # let _ = (train, valid);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ImageTable {
    root: PathBuf,
    files: Arc<Files>,
    targets: Targets,
    transforms: Transforms,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Files {
    /// Paths below the root, by row.
    paths: Vec<PathBuf>,
    /// The table that names them, if there is one.
    table: Option<Lines>,
}

/// Where the rows of a table are.
#[derive(Debug)]
struct Lines {
    table: String,
    /// Lines of the table, by row.
    lines: Vec<u64>,
}

const CONTEXT: &str = "image table";

/// Rows that an error names.
const NAMED: usize = 5;

impl ImageTable {
    /// Finds the image of each row: the cells of `columns` are the folders below `root` and, last,
    /// the file. The last cell is the name of the file, its name without the extension, or the end
    /// of that after `_` or `-`: `ab12` finds `0007_ab12.jpg` if no other image of the folder ends
    /// in it, and never `0007ab12.jpg`. A cell may be a path itself: one column `path` with
    /// `cats/7.jpg` will do.
    ///
    /// Folders are listed once each. No image is read.
    ///
    /// # Errors
    /// If the table has no rows or not these columns; if images are missing, or a row fits several
    /// of them: the error names the first rows and the number of the others. If the transforms are
    /// out of range.
    pub fn open(
        root: impl AsRef<Path>,
        table: &Table,
        columns: &[&str],
        transforms: Transforms,
    ) -> Result<Self> {
        let root = root.as_ref();
        transforms.check()?;
        if table.is_empty() || columns.is_empty() {
            let (name, rows) = (table.name(), table.len());
            let message = format!(
                "{name}: {rows} rows, {} columns; expected at least one of each",
                columns.len()
            );
            return Err(Error::invalid(CONTEXT, message));
        }
        if !root.is_dir() {
            let message = format!("{} is not a folder", root.display());
            return Err(Error::new(ErrorKind::Io, CONTEXT, message));
        }
        let cells: Vec<Vec<&str>> =
            (columns.iter().map(|column| table.strings(column))).collect::<Result<_>>()?;
        let mut listings = Listings::new(root);
        let (mut paths, mut problems, mut count) = (Vec::new(), Vec::new(), 0);
        for row in 0..table.len() {
            let cells: Vec<&str> = cells.iter().map(|column| column[row]).collect();
            match listings.find(&cells) {
                Ok(path) => paths.push(path),
                Err(problem) => {
                    count += 1;
                    if problems.len() < NAMED {
                        problems.push(format!("line {}: {problem}", table.line(row)));
                    }
                }
            }
        }
        if count > 0 {
            let more = match count - problems.len() {
                0 => String::new(),
                more => format!("; and {more} more rows"),
            };
            let message = format!(
                "{}: {count} of {} rows have no image below {}: {}{more}",
                table.name(),
                table.len(),
                root.display(),
                problems.join("; ")
            );
            return Err(Error::new(ErrorKind::Io, CONTEXT, message));
        }
        let side = transforms.side();
        Ok(ImageTable {
            root: root.to_owned(),
            files: Arc::new(Files {
                paths,
                table: Some(Lines {
                    table: table.name().to_owned(),
                    lines: (0..table.len()).map(|row| table.line(row)).collect(),
                }),
            }),
            targets: Targets::Nothing,
            transforms,
            fields: vec![image_field(side)],
        })
    }

    /// Lists the images of a folder and of the folders below it, sorted by their paths. They have
    /// no labels. Files whose names do not end in `.png`, `.jpg` or `.jpeg`, and names that start
    /// with a dot, are ignored.
    ///
    /// # Errors
    /// If a folder cannot be read, or there are no images; if the transforms are out of range. No
    /// image is read.
    pub fn of_folder(root: impl AsRef<Path>, transforms: Transforms) -> Result<Self> {
        let root = root.as_ref();
        transforms.check()?;
        let paths = images_below(root)?;
        if paths.is_empty() {
            let message = format!("no .png, .jpg or .jpeg files below {}", root.display());
            return Err(Error::new(ErrorKind::Io, CONTEXT, message));
        }
        let fields = vec![image_field(transforms.side())];
        Ok(ImageTable {
            root: root.to_owned(),
            files: Arc::new(Files { paths, table: None }),
            targets: Targets::Nothing,
            transforms,
            fields,
        })
    }

    /// Adds the field `label: f32[labels]` of the cells of these columns, in this order.
    ///
    /// # Errors
    /// If the table has another number of rows or not these columns, or a cell is not 0 or 1; the
    /// error has file, line and column.
    pub fn with_labels(mut self, table: &Table, columns: &[&str]) -> Result<Self> {
        self.check_rows(table, columns.len())?;
        let mut labels = vec![0.0; table.len() * columns.len()];
        for (place, column) in columns.iter().enumerate() {
            for (row, cell) in table.strings(column)?.into_iter().enumerate() {
                labels[row * columns.len() + place] = match cell.trim().parse::<f32>() {
                    Ok(value) if value == 0.0 || value == 1.0 => value,
                    Ok(value) => {
                        let reason = format!("the label {value} is out of range; expected 0 or 1");
                        return Err(table.error(row, column, reason));
                    }
                    Err(_) => {
                        let reason = format!(
                            "the label `{cell}` is not a number; expected 0 or 1, in a column for each \
                             label"
                        );
                        return Err(table.error(row, column, reason));
                    }
                };
            }
        }
        self.targets = Targets::Labels {
            names: columns.iter().map(|&name| name.to_owned()).collect(),
            values: labels.into(),
        };
        let ty = TensorType::new(DType::F32, [columns.len()]);
        self.fields = vec![image_field(self.transforms.side()), Field::new("label", ty)];
        Ok(self)
    }

    /// Adds the field `label: u32[]`, the class of each image: the cells of one column, of which
    /// each distinct text, as [`Table::categories`] has it, is a class. Classes are numbered from 0
    /// in the order of their names, or of their numbers if all names are whole numbers.
    ///
    /// ```
    /// # use halite_core::HostArray;
    /// use halite_data::{Table, images::{ImageTable, Transforms}};
    ///
    /// # fn open(dir: &std::path::Path) -> halite_core::Result<()> {
    /// let table = Table::parse("pets.csv", b"file,kind\n1.jpg,dog\n2.jpg,cat\n3.jpg,dog\n")?;
    /// let images = ImageTable::open(dir, &table, &["file"], Transforms::new(64))?
    ///     .with_classes(&table, "kind")?;
    /// assert_eq!(images.class_names(), ["cat", "dog"]);
    /// assert_eq!(images.class(0), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the table has another number of rows or not this column; if a cell is empty or has a line
    /// break, two differ only by blanks, there is one class alone, or each row has a class of its
    /// own.
    pub fn with_classes(mut self, table: &Table, column: &str) -> Result<Self> {
        self.check_rows(table, 1)?;
        let (names, values) = classes(CONTEXT, table, column)?;
        self.targets = Targets::Classes {
            names,
            values: values.into(),
        };
        let field = Field::new("label", TensorType::scalar(DType::U32));
        self.fields = vec![image_field(self.transforms.side()), field];
        Ok(self)
    }

    /// # Errors
    /// If the table has no row for each image, or there are no columns.
    fn check_rows(&self, table: &Table, columns: usize) -> Result<()> {
        if table.len() == self.len() && columns > 0 {
            return Ok(());
        }
        let message = format!(
            "{columns} labels of {} rows in {} for {} images; expected at least one label, and a row \
             for each image",
            table.len(),
            table.name(),
            self.len()
        );
        Err(Error::invalid(CONTEXT, message))
    }

    /// Sets the transforms.
    ///
    /// # Errors
    /// If they are out of range.
    pub fn with_transforms(mut self, transforms: Transforms) -> Result<Self> {
        transforms.check()?;
        self.fields[0] = image_field(transforms.side());
        self.transforms = transforms;
        Ok(self)
    }

    /// Returns the same images [without random steps](Transforms::for_validation).
    pub fn for_validation(&self) -> Self {
        ImageTable {
            transforms: self.transforms.for_validation(),
            ..self.clone()
        }
    }

    /// The transforms.
    pub fn transforms(&self) -> &Transforms {
        &self.transforms
    }

    /// Names of the labels, in order; none without labels.
    pub fn label_names(&self) -> &[String] {
        match &self.targets {
            Targets::Labels { names, .. } => names,
            _ => &[],
        }
    }

    /// Labels of a sample, `[labels]`; empty without labels.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    pub fn labels(&self, index: usize) -> &[f32] {
        match &self.targets {
            Targets::Labels { names, values } => {
                &values[index * names.len()..(index + 1) * names.len()]
            }
            _ => &[],
        }
    }

    /// Names of the classes, by number; none without classes.
    pub fn class_names(&self) -> &[String] {
        match &self.targets {
            Targets::Classes { names, .. } => names,
            _ => &[],
        }
    }

    /// Number of the class of a sample, if there are classes.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    pub fn class(&self, index: usize) -> Option<u32> {
        match &self.targets {
            Targets::Classes { values, .. } => Some(values[index]),
            _ => None,
        }
    }

    /// Path of the file of a sample.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    pub fn path(&self, index: usize) -> PathBuf {
        self.root.join(self.path_below(index))
    }

    /// Path of the file of a sample, below the folder of the images.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    pub fn path_below(&self, index: usize) -> &Path {
        &self.files.paths[index]
    }
}

fn image_field(side: usize) -> Field {
    Field::new("image", TensorType::new(DType::U8, [side, side, 3]))
}

impl Dataset for ImageTable {
    fn len(&self) -> usize {
        self.files.paths.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let note = |error: Error| match &self.files.table {
            Some(Lines { table, lines }) => {
                error.with_note(&format!("of {table}, line {}", lines[index]))
            }
            None => error,
        };
        let path = self.path(index);
        let image = read_pixels(&path).map_err(note)?;
        let image = self.transforms.transformed(image.view(), into.key());
        let image = image.map_err(|error| note(error.with_note(&path.display().to_string())))?;
        into.bytes_mut(0).copy_from_slice(&image.bytes);
        match &self.targets {
            Targets::Nothing => Ok(()),
            Targets::Labels { .. } => into.write(1, self.labels(index)),
            Targets::Classes { values, .. } => into.write(1, &[values[index]]),
        }
    }

    /// Digest of the paths and labels, the transforms, and a few of the images.
    fn digest(&self) -> Option<String> {
        let names = match &self.targets {
            Targets::Classes { names, .. } => names,
            _ => self.label_names(),
        };
        let described = [
            self.transforms.to_string(),
            names.join(","),
            digest_of_some(self)?,
        ];
        let listed = (self.files.paths.iter().enumerate()).map(|(index, path)| {
            let path = path.to_string_lossy();
            match self.class(index) {
                Some(class) => format!("{class} {path}"),
                None => format!("{:?} {path}", self.labels(index)),
            }
        });
        Some(digest_of(described.into_iter().chain(listed)))
    }

    fn name(&self) -> String {
        let name = self.root.file_name().unwrap_or(self.root.as_os_str());
        name.to_string_lossy().into_owned()
    }
}
