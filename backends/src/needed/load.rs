//! Loads libraries that a plugin then finds by their names.

// `open` says why.
#![allow(unsafe_code)]

use std::path::{Path, PathBuf};

use halite_core::{Error, ErrorKind, Result};

/// Loads these libraries, each after those that it names as its needs. They stay loaded.
///
/// Some use symbols of others without naming them, as MKL's do, which a plugin loads together. Those
/// are loaded after the others, whose symbols are made visible to them.
///
/// # Errors
/// [`ErrorKind::Unavailable`] with the first one that does not load, and the loader's message.
pub(super) fn all(libraries: &[PathBuf]) -> Result<()> {
    let mut left: Vec<&PathBuf> = libraries.iter().collect();
    // Symbols are visible from the second pass on. Each pass but the first and the last loads some.
    for pass in 0_usize.. {
        let is_global = pass > 0;
        if is_global {
            for path in libraries.iter().filter(|path| !left.contains(path)) {
                // It is loaded already.
                let _ = open(path, true);
            }
        }
        let before = left.len();
        let mut reason = None;
        left.retain(|path| match open(path, is_global) {
            Ok(()) => false,
            Err(message) => {
                reason.get_or_insert((*path, message));
                true
            }
        });
        let Some((path, message)) = reason else {
            break;
        };
        if is_global && left.len() == before {
            let what = format!("{}, which the plugin needs, does not load", path.display());
            let error = Error::new(ErrorKind::Unavailable, "load plugin", what);
            return Err(error.caused_by(message));
        }
    }
    Ok(())
}

/// Loads a library for the rest of the process. Its symbols are visible to libraries that are loaded
/// later if it `is_global`.
///
/// # Errors
/// The loader's message.
fn open(path: &Path, is_global: bool) -> Result<(), String> {
    #[cfg(unix)]
    // SAFETY: runs the library's initialisers. A known plugin needs it by this name, and it is in
    // the Python environment that the user made for it.
    let opened = unsafe {
        use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
        let visible = if is_global { RTLD_GLOBAL } else { RTLD_LOCAL };
        Library::open(Some(path), RTLD_LAZY | visible)
    };
    #[cfg(not(unix))]
    // SAFETY: as above.
    let opened = unsafe {
        let _ = is_global;
        libloading::Library::new(path)
    };
    match opened {
        // The plugin finds it by its name.
        Ok(library) => {
            std::mem::forget(library);
            Ok(())
        }
        // The source has the loader's own words.
        Err(error) => Err(std::error::Error::source(&error)
            .unwrap_or(&error)
            .to_string()),
    }
}
