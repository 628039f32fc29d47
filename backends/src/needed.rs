//! Libraries that a plugin needs beside it: names what is missing before the plugin is loaded.
//!
//! The needs are read from the files (`DT_NEEDED`, transitively), and searched for as the system's
//! loader does. A known plugin's needs are searched for in the Python environment, too: in the
//! directories that its search path (`DT_RUNPATH`) names for the place where its package would
//! install it. What is found only there is loaded first, and the plugin finds it by its name.
//!
//! Where `ldconfig` does not list the system's libraries nothing is refused: the loader decides.

mod elf;
pub(crate) mod fuzz;
mod load;
mod loader;
mod message;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    path::{Component, Path, PathBuf},
};

use halite_core::{Error, ErrorKind, Result};

use crate::{
    locate::{Located, packages_directories},
    plugins::{KnownPlugin, PLUGINS},
};
use elf::{Dynamic, directories};
use loader::Loader;

/// Longest chain of needs that is followed, in libraries.
const DEEPEST: usize = 200;

/// Loads the libraries that the plugin needs and the system's loader would not find.
///
/// # Errors
/// [`ErrorKind::Unavailable`] with all libraries that are missing, and the commands that bring
/// them.
pub(crate) fn provide(located: &Located) -> Result<()> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let path = located.path.canonicalize();
    let path = path.as_deref().unwrap_or(&located.path);
    // The load itself reports a damaged plugin.
    let dynamic = match Dynamic::of_file(path) {
        Ok(dynamic) => dynamic,
        Err(reason) => {
            tracing::info!(file = %path.display(), reason, "its needs are not known");
            return Ok(());
        }
    };
    let loader = Loader::of_this_process();
    let mut walk = Walk::new(&loader, Vec::new());
    walk.needs_of(path, &dynamic, &[], 0);
    if walk.missing.is_empty() {
        return Ok(());
    }
    let row = located.plugin.or_else(|| resembling(path));
    if let Some(row) = row {
        walk = Walk::new(&loader, in_python(&dynamic, row));
        walk.needs_of(path, &dynamic, &[], 0);
    }
    if walk.missing.is_empty() {
        return load::all(&walk.first);
    }
    if !loader.knows_the_system() {
        tracing::warn!(missing = ?walk.missing, "not found, and `ldconfig` does not run");
        return Ok(());
    }
    let message = message::missing(path, &walk.missing, row.map_or(&[], |row| row.needs));
    Err(Error::new(ErrorKind::Unavailable, "load plugin", message))
}

/// Returns the known plugin with a library of this name, if one is built for this machine.
fn resembling(path: &Path) -> Option<&'static KnownPlugin> {
    let here = || PLUGINS.iter().filter(|plugin| plugin.runs_here());
    let by_path = here().find(|plugin| path.ends_with(plugin.library.inside));
    by_path.or_else(|| {
        here().find(|plugin| path.file_name() == Path::new(plugin.library.inside).file_name())
    })
}

/// Returns the directories of the Python environment in which the plugin's package searches for
/// what it needs.
fn in_python(dynamic: &Dynamic, row: &KnownPlugin) -> Vec<PathBuf> {
    let Some(path) = dynamic.runpath.as_ref().or(dynamic.rpath.as_ref()) else {
        return Vec::new();
    };
    let sites = packages_directories().unwrap_or_default();
    let inside = |site: &PathBuf| {
        let library = site.join(row.library.inside);
        directories(path, library.parent().unwrap_or(site))
    };
    // The directory of the package itself need not exist.
    sites
        .iter()
        .flat_map(inside)
        .map(|directory| without_dots(&directory))
        .collect()
}

/// Returns the path with each `..` and the directory before it removed.
fn without_dots(path: &Path) -> PathBuf {
    let mut kept = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(kept.pop()),
            Component::CurDir => {}
            part => kept.push(part),
        }
    }
    kept
}

/// A library that is not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Its name, as the library that needs it names it.
    name: String,
    /// A file of this name that cannot be loaded, with the reason.
    refused: Option<String>,
}

/// Search for what a library needs.
struct Walk<'a> {
    loader: &'a Loader,
    /// Directories that the loader does not search.
    extra: Vec<PathBuf>,
    seen: HashSet<String>,
    missing: Vec<Missing>,
    /// Libraries of the extra directories, each after those that it needs.
    first: Vec<PathBuf>,
}

impl<'a> Walk<'a> {
    fn new(loader: &'a Loader, extra: Vec<PathBuf>) -> Self {
        Walk {
            loader,
            extra,
            seen: HashSet::new(),
            missing: Vec::new(),
            first: Vec::new(),
        }
    }

    /// Finds the needs of a library. `inherited` are the directories of `DT_RPATH` of the libraries
    /// that need it.
    fn needs_of(&mut self, file: &Path, dynamic: &Dynamic, inherited: &[PathBuf], depth: usize) {
        let origin = file.parent().unwrap_or(Path::new("/"));
        let (mut before, mut after) = (Vec::new(), Vec::new());
        match (&dynamic.runpath, &dynamic.rpath) {
            (Some(path), _) => after = directories(path, origin),
            (None, Some(path)) => before = directories(path, origin),
            (None, None) => {}
        }
        before.extend_from_slice(inherited);
        // A library with `DT_RUNPATH` uses no `DT_RPATH`, but passes on what it inherited.
        let own: &[PathBuf] = if dynamic.runpath.is_some() {
            &[]
        } else {
            &before
        };
        for name in &dynamic.needed {
            if self.loader.is_loaded(name) || !self.seen.insert(name.clone()) {
                continue;
            }
            let mut refused = None;
            let mut usable = |path: PathBuf| match Dynamic::of_file(&path) {
                Ok(dynamic) => Some((path, dynamic)),
                Err(reason) => {
                    if path.exists() {
                        refused.get_or_insert_with(|| format!("{}: {reason}", path.display()));
                    }
                    None
                }
            };
            let searched = self.loader.candidates(name, own, &after);
            let found = searched.into_iter().find_map(&mut usable);
            let is_extra = found.is_none();
            let found = found.or_else(|| {
                let extra = self.extra.iter().map(|directory| directory.join(name));
                extra.into_iter().find_map(usable)
            });
            match found {
                None => self.missing.push(Missing {
                    name: name.clone(),
                    refused,
                }),
                Some((path, dynamic)) => {
                    if depth < DEEPEST {
                        self.needs_of(&path, &dynamic, &before, depth + 1);
                    }
                    if is_extra {
                        self.first.push(path);
                    }
                }
            }
        }
    }
}
