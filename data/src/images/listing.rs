//! Images of folders, by the ends of their names.

use std::{
    collections::HashMap,
    fs,
    path::{Component, Path, PathBuf},
};

use super::folder::is_image_name;

/// The images of folders, each of which is listed when it is asked for first.
#[derive(Debug)]
pub(super) struct Listings<'a> {
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
    pub(super) fn new(root: &'a Path) -> Self {
        let folders = HashMap::new();
        Listings { root, folders }
    }

    /// Path, below the root, of the image that these cells name.
    pub(super) fn find(&mut self, cells: &[&str]) -> Result<PathBuf, String> {
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
        let given = self.root.join(&below);
        below.pop();
        let listing = (self.folders.entry(below))
            .or_insert_with_key(|folder| Listing::read(&self.root.join(folder)));
        let name = match listing {
            Ok(listing) => match listing.find(&id) {
                Ok(name) => name.to_owned(),
                Err(_) if given.is_dir() => {
                    return Err(format!(
                        "`{id}` is a folder; the columns are those of folders and, last, of the file"
                    ));
                }
                Err(problem) => return Err(problem),
            },
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
