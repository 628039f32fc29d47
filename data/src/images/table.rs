//! Images that the rows of a table name.

use std::{
    collections::HashMap,
    fs,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use halite_core::{DType, Error, ErrorKind, Result, TensorType};

use super::{Transforms, folder::is_image_name, read_pixels};
use crate::{
    Dataset, Field, SampleMut, Table,
    digest::{digest_of, digest_of_some},
};

/// Images that the rows of a [`Table`] name, with labels from its columns or without.
///
/// The fields are `image: u8[side, side, 3]` and, with labels, `label: f32[labels]`, each 0 or 1.
/// Sample `i` is row `i`. Files are decoded and [transformed](Transforms) at each read, in the
/// thread that reads. Clones share the list of files.
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
    label_names: Vec<String>,
    /// `[rows, labels]`
    labels: Arc<[f32]>,
    transforms: Transforms,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Files {
    /// Paths below the root, by row.
    paths: Vec<PathBuf>,
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
    /// of that: `ab12` finds `0007_ab12.jpg` if no other image of the folder ends in it. A cell may
    /// be a path itself: one column `path` with `cats/7.jpg` will do.
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
                table: table.name().to_owned(),
                lines: (0..table.len()).map(|row| table.line(row)).collect(),
            }),
            label_names: Vec::new(),
            labels: Arc::new([]),
            transforms,
            fields: vec![image_field(side)],
        })
    }

    /// Adds the field `label: f32[labels]` of the cells of these columns, in this order.
    ///
    /// # Errors
    /// If the table has another number of rows or not these columns, or a cell is not 0 or 1; the
    /// error has file, line and column.
    pub fn with_labels(mut self, table: &Table, columns: &[&str]) -> Result<Self> {
        if table.len() != self.len() || columns.is_empty() {
            let message = format!(
                "{} labels of {} rows in {} for {} images; expected at least one label, and a row for each image",
                columns.len(),
                table.len(),
                table.name(),
                self.len()
            );
            return Err(Error::invalid(CONTEXT, message));
        }
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
                            "the label `{cell}` is no number; expected 0 or 1, in a column for each \
                             label"
                        );
                        return Err(table.error(row, column, reason));
                    }
                };
            }
        }
        self.labels = labels.into();
        self.label_names = columns.iter().map(|&name| name.to_owned()).collect();
        let ty = TensorType::new(DType::F32, [columns.len()]);
        self.fields = vec![image_field(self.transforms.side()), Field::new("label", ty)];
        Ok(self)
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
        &self.label_names
    }

    /// Labels of a sample, `[labels]`; empty without labels.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    pub fn labels(&self, index: usize) -> &[f32] {
        let count = self.label_names.len();
        &self.labels[index * count..(index + 1) * count]
    }

    /// Path of the file of a sample.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    pub fn path(&self, index: usize) -> PathBuf {
        self.root.join(&self.files.paths[index])
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
        let note = |error: Error| {
            let (table, line) = (&self.files.table, self.files.lines[index]);
            error.with_note(&format!("of {table}, line {line}"))
        };
        let path = self.path(index);
        let image = read_pixels(&path).map_err(note)?;
        let image = self.transforms.transformed(image.view(), into.key());
        let image = image.map_err(|error| note(error.with_note(&path.display().to_string())))?;
        into.bytes_mut(0).copy_from_slice(&image.bytes);
        match self.label_names.is_empty() {
            true => Ok(()),
            false => into.write(1, self.labels(index)),
        }
    }

    /// Digest of the paths and labels, the transforms, and a few of the images.
    fn digest(&self) -> Option<String> {
        let described = [
            self.transforms.to_string(),
            self.label_names.join(","),
            digest_of_some(self)?,
        ];
        let listed = (self.files.paths.iter().enumerate()).map(|(index, path)| {
            let path = path.to_string_lossy();
            format!("{:?} {path}", self.labels(index))
        });
        Some(digest_of(described.into_iter().chain(listed)))
    }

    fn name(&self) -> String {
        let name = self.root.file_name().unwrap_or(self.root.as_os_str());
        name.to_string_lossy().into_owned()
    }
}

/// The images of folders, each of which is listed when it is asked for first.
#[derive(Debug)]
struct Listings<'a> {
    root: &'a Path,
    folders: HashMap<PathBuf, Result<Listing, String>>,
}

/// The images of one folder.
#[derive(Debug)]
struct Listing {
    /// Names, in the order of `reversed`.
    names: Vec<String>,
    /// Bytes of the names without extensions, each from the last to the first, sorted.
    reversed: Vec<Vec<u8>>,
}

impl<'a> Listings<'a> {
    fn new(root: &'a Path) -> Self {
        let folders = HashMap::new();
        Listings { root, folders }
    }

    /// Path, below the root, of the image that these cells name.
    fn find(&mut self, cells: &[&str]) -> Result<PathBuf, String> {
        let mut below = PathBuf::new();
        for cell in cells {
            let cell = Path::new(cell.trim());
            if cell.as_os_str().is_empty() {
                return Err("an id is empty".to_owned());
            }
            for part in cell.components() {
                match part {
                    Component::Normal(part) => below.push(part),
                    Component::CurDir => {}
                    _ => return Err(format!("`{}` leaves the folder", cell.display())),
                }
            }
        }
        let id = below.file_name().and_then(|name| name.to_str());
        let id = id.ok_or("an id is empty")?.to_owned();
        below.pop();
        let listing = (self.folders.entry(below))
            .or_insert_with_key(|folder| Listing::read(&self.root.join(folder)));
        let name = match listing {
            Ok(listing) => listing.find(&id)?.to_owned(),
            Err(error) => return Err(error.clone()),
        };
        let mut path: PathBuf = cells.iter().map(|cell| cell.trim()).collect();
        path.set_file_name(name);
        Ok(path)
    }
}

impl Listing {
    /// Lists a folder. Names that are not UTF-8 are left out: no row can name them.
    fn read(folder: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        let mut images = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_image_name(Path::new(&name)) && !is_folder {
                let stem = name.rsplit_once('.').map_or(&*name, |(stem, _)| stem);
                images.push((stem.bytes().rev().collect::<Vec<u8>>(), name));
            }
        }
        images.sort_unstable();
        let (reversed, names) = images.into_iter().unzip();
        Ok(Listing { names, reversed })
    }

    /// Name of the image whose name is `id`, or without the extension, or ends in it.
    fn find(&self, id: &str) -> Result<&str, String> {
        let tail: Vec<u8> = id.bytes().rev().collect();
        let start = self.reversed.partition_point(|name| *name < tail);
        let found = self.reversed[start..].iter();
        let count = found.take_while(|name| name.starts_with(&tail)).count();
        let named = &self.names[start..start + count];
        let exact = self.reversed[start..start + count].iter();
        let exact = exact.take_while(|name| **name == tail).count();
        match (exact, named) {
            (1, [name, ..]) | (_, [name]) => Ok(name),
            // A whole file name.
            (_, []) => {
                let stem = id.rsplit_once('.').map_or(id, |(stem, _)| stem);
                let stem: Vec<u8> = stem.bytes().rev().collect();
                let start = self.reversed.partition_point(|name| *name < stem);
                let names = self.names[start..].iter().zip(&self.reversed[start..]);
                let mut same = names.take_while(|(_, reversed)| **reversed == stem);
                let found = same.find(|(name, _)| *name == id);
                found
                    .map(|(name, _)| &**name)
                    .ok_or_else(|| format!("no image `{id}`"))
            }
            (_, [first, second, ..]) => Err(format!(
                "`{id}` fits {} images: `{first}`, `{second}`{}",
                named.len(),
                if named.len() > 2 { ", .." } else { "" }
            )),
        }
    }
}
