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

/// What precedes an id at the end of a name: `0007_ab12`. Anything else may be a part of the id
/// itself, as the 1 of `15` before a 5 is.
const SEPARATORS: [u8; 2] = *b"_-";

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
                images.push((reversed(stem), name));
            }
        }
        images.sort_unstable();
        let (reversed, names) = images.into_iter().unzip();
        Ok(Listing { names, reversed })
    }

    /// Name of the image whose name is `id`, with or without the extension; else of the one whose
    /// name without the extension ends in a separator and `id`.
    fn find(&self, id: &str) -> Result<&str, String> {
        let stem = id.rsplit_once('.').map_or(id, |(stem, _)| stem);
        let whole = self.named(&reversed(stem), true);
        if let Some(name) = whole.iter().find(|name| *name == id) {
            return Ok(name);
        }
        let tail = reversed(id);
        let ending = |separator: &u8| self.named(&[&tail[..], &[*separator]].concat(), false);
        let found: Vec<&String> = match self.named(&tail, true) {
            [] => SEPARATORS.iter().flat_map(ending).collect(),
            whole => whole.iter().collect(),
        };
        match found[..] {
            [name] => Ok(name),
            [] => Err(match self.named(&tail, false) {
                [] => format!("no image `{id}`"),
                [other, ..] => format!(
                    "no image `{id}`; an id is a whole name, or its end after `_` or `-`, which it is \
                     not in `{other}`"
                ),
            }),
            [first, second, ref more @ ..] => Err(format!(
                "`{id}` fits {} images: `{first}`, `{second}`{}",
                found.len(),
                if more.is_empty() { "" } else { ", .." }
            )),
        }
    }

    /// Names whose reversed bytes are these, or start with them.
    fn named(&self, tail: &[u8], is_whole: bool) -> &[String] {
        let start = self.reversed.partition_point(|name| &**name < tail);
        let fits = |name: &&Vec<u8>| {
            if is_whole {
                ***name == *tail
            } else {
                name.starts_with(tail)
            }
        };
        let count = self.reversed[start..].iter().take_while(fits).count();
        &self.names[start..start + count]
    }
}

fn reversed(text: &str) -> Vec<u8> {
    text.bytes().rev().collect()
}
