//! Folders of images, one for each class.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use halite_core::{DType, Error, ErrorKind, Result, TensorType};

use super::{Transforms, read_pixels};
use crate::{
    Dataset, Field, SampleMut,
    digest::{digest_of, digest_of_some},
    table::without_blanks,
};

/// A folder with a folder of images for each class: `cat/1.jpg`, `dog/7.png`, `dog/more/8.png`.
///
/// The fields are `image: u8[side, side, 3]` and `label: u32[]`, the number of the class. Files are
/// decoded and [transformed](Transforms) at each read, in the thread that reads: a
/// [`Loader`](crate::Loader) reads on worker threads.
#[derive(Clone, Debug)]
pub struct ImageFolder {
    root: PathBuf,
    classes: Vec<String>,
    /// Paths below `root`, and labels.
    files: Vec<(PathBuf, u32)>,
    transforms: Transforms,
    fields: [Field; 2],
}

/// Levels of folders below a class.
const DEEPEST: usize = 16;

impl ImageFolder {
    /// Lists the files of a folder. Classes are the names of its folders, sorted, and numbered from 0
    /// in this order, as in torchvision; samples are sorted by their paths. Files whose names do not
    /// end in `.png`, `.jpg` or `.jpeg`, and names that start with a dot, are ignored. Images become
    /// squares by a [`Framing`](super::Framing) or by [`Transforms`].
    ///
    /// # Errors
    /// If a folder cannot be read, there are fewer than two classes, a class has no images, its name
    /// has a line break or differs from another only by blanks; if the transforms are out of range.
    /// No image is read.
    pub fn open(root: impl AsRef<Path>, transforms: impl Into<Transforms>) -> Result<Self> {
        Self::open_path(root.as_ref(), transforms.into())
    }

    fn open_path(root: &Path, transforms: Transforms) -> Result<Self> {
        transforms.check()?;
        let classes = folders(root)?;
        check_classes(root, &classes)?;
        let (mut files, mut empty) = (Vec::new(), Vec::new());
        for (label, (name, path)) in classes.iter().enumerate() {
            let before = files.len();
            let label = u32::try_from(label)
                .map_err(|_| Error::invalid(CONTEXT, "more classes than u32 counts"))?;
            list(path, DEEPEST, &mut |path: &Path| {
                let below = path.strip_prefix(root).unwrap_or(path);
                files.push((below.to_owned(), label));
            })?;
            if files.len() == before {
                empty.push(format!("`{name}`"));
            }
        }
        if !empty.is_empty() {
            let message = format!(
                "no .png, .jpg or .jpeg files in {} of {}; remove folders that are not classes",
                empty.join(", "),
                root.display()
            );
            return Err(Error::invalid(CONTEXT, message));
        }
        let side = transforms.side();
        Ok(ImageFolder {
            root: root.to_owned(),
            classes: classes.into_iter().map(|(name, _)| name).collect(),
            files,
            transforms,
            fields: [
                Field::new("image", TensorType::new(DType::U8, [side, side, 3])),
                Field::new("label", TensorType::scalar(DType::U32)),
            ],
        })
    }

    /// Names of the classes, by label.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Class of a sample.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    pub fn label(&self, index: usize) -> u32 {
        self.files[index].1
    }

    /// Returns the same images [without random steps](Transforms::for_validation).
    pub fn for_validation(&self) -> Self {
        ImageFolder {
            transforms: self.transforms.for_validation(),
            ..self.clone()
        }
    }

    /// Path of the file of a sample.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    pub fn path(&self, index: usize) -> PathBuf {
        self.root.join(&self.files[index].0)
    }
}

fn check_classes(root: &Path, classes: &[(String, PathBuf)]) -> Result<()> {
    if let Some((name, _)) = classes.iter().find(|(name, _)| name.contains(['\n', '\r'])) {
        let message = format!(
            "{}: the name of the folder {name:?} has a line break, which the name of a class cannot \
             have; rename it",
            root.display()
        );
        return Err(Error::invalid(CONTEXT, message));
    }
    if classes.is_empty() {
        let message = format!(
            "{} has no folders; expected one for each class, with its images",
            root.display()
        );
        return Err(Error::invalid(CONTEXT, message));
    }
    if let [(name, path)] = classes {
        let inner = match folders(path)?.len() {
            0 => String::new(),
            inner => format!(
                "; if the {inner} folders in it are the classes, give {}",
                path.display()
            ),
        };
        let message = format!(
            "{} has one class alone, `{name}`; expected two or more{inner}",
            root.display()
        );
        return Err(Error::invalid(CONTEXT, message));
    }
    let mut seen = HashMap::new();
    for (name, _) in classes {
        if let Some(other) = seen.insert(without_blanks(name), name) {
            let message = format!(
                "{}: the folders `{other}` and `{name}` differ only by blanks; rename one of them, \
                 or move its images to the other",
                root.display()
            );
            return Err(Error::invalid(CONTEXT, message));
        }
    }
    Ok(())
}

const CONTEXT: &str = "image folder";

/// Names and paths of the folders in a folder, sorted by name. Hidden ones are left out.
pub(super) fn folders(root: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = entries(root)?;
    found.retain(|(_, path)| path.is_dir());
    Ok(found)
}

/// Names and paths of a folder's entries, sorted by name. Hidden ones are left out.
fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let failed = |error: io::Error| {
        let message = format!("{}: {error}", folder.display());
        Error::new(ErrorKind::Io, CONTEXT, message)
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            let message = format!("{} is not UTF-8", entry.path().display());
            return Err(Error::invalid(CONTEXT, message));
        };
        if !name.starts_with('.') {
            found.push((name.to_owned(), entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Paths, below a folder, of the images in it and in folders below it, sorted.
pub(super) fn images_below(root: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    list(root, DEEPEST, &mut |path: &Path| {
        paths.push(path.strip_prefix(root).unwrap_or(path).to_owned());
    })?;
    Ok(paths)
}

/// Calls `each` for the images in a folder and `levels` levels of folders below it, sorted.
fn list(folder: &Path, levels: usize, each: &mut impl FnMut(&Path)) -> Result<()> {
    for (_, path) in entries(folder)? {
        if is_image(&path) {
            each(&path);
        } else if path.is_dir() {
            if levels == 0 {
                let message = format!("{} is more than {DEEPEST} folders deep", path.display());
                return Err(Error::invalid(CONTEXT, message));
            }
            list(&path, levels - 1, each)?;
        }
    }
    Ok(())
}

fn is_image(path: &Path) -> bool {
    is_image_name(path) && !path.is_dir()
}

/// Whether the name of a file is that of an image.
pub(super) fn is_image_name(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    let known = ["png", "jpg", "jpeg"];
    known
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let path = self.path(index);
        let image = read_pixels(&path)?;
        let image = self
            .transforms
            .transformed(image.view(), into.key())
            .map_err(|error| error.with_note(&format!("for {}", path.display())))?;
        into.bytes_mut(0).copy_from_slice(&image.bytes);
        into.write(1, &[self.files[index].1])
    }

    /// Digest of the paths and labels, the transforms, and a few of the images.
    fn digest(&self) -> Option<String> {
        let listed = self.files.iter().map(|(path, label)| {
            let path = path.to_string_lossy();
            format!("{label} {path}")
        });
        // Without random steps, as versions before them described it.
        let transforms = if self.transforms.is_random() {
            self.transforms.to_string()
        } else {
            format!("{:?}", self.transforms.framing)
        };
        let described = [transforms, digest_of_some(self)?];
        Some(digest_of(described.into_iter().chain(listed)))
    }

    fn name(&self) -> String {
        let name = self.root.file_name().unwrap_or(self.root.as_os_str());
        name.to_string_lossy().into_owned()
    }
}
