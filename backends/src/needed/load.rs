//! Loads libraries that a plugin then finds by their names.
//!
//! `unsafe` is needed to load a library, which runs its initialisers. It stands here and not in
//! `halite-pjrt`, which loads one plugin: which libraries a vendor's plugin needs, and where they
//! are, is known in this crate alone.
#![allow(unsafe_code)]

use std::path::{Path, PathBuf};

use halite_core::{Error, ErrorKind, Result};

/// Loads these libraries, each after those that it names as its needs. They stay loaded.
///
/// Some use symbols of others without naming them, and in circles: MKL's do, which programs load
/// together. The symbols of those that load alone are made visible to them. Where that does not
/// suffice, the first one that loads without its functions begins: they are resolved later.
///
/// # Errors
/// [`ErrorKind::Unavailable`] with the first one that does not load, and the loader's message.
pub(super) fn all(libraries: &[PathBuf]) -> Result<()> {
    let mut left: Vec<&PathBuf> = libraries.iter().collect();
    left.retain(|path| open(path, Binding::Local).is_err());
    if left.is_empty() {
        return Ok(());
    }
    for path in libraries.iter().filter(|path| !left.contains(path)) {
        // It is loaded already.
        let _ = open(path, Binding::Visible);
    }
    // Each turn loads at least one.
    loop {
        let (before, mut reason) = (left.len(), None);
        left.retain(|path| match open(path, Binding::Visible) {
            Ok(()) => false,
            Err(message) => {
                reason.get_or_insert((*path, message));
                true
            }
        });
        let Some((path, message)) = reason else {
            return Ok(());
        };
        if left.len() < before {
            continue;
        }
        let begins = |path: &&PathBuf| open(path, Binding::VisibleLater).is_ok();
        let Some(first) = left.iter().position(begins) else {
            let advice = halite_core::loader_advice(path, &message);
            let what = format!(
                "{}, which the plugin needs, does not load; {advice}",
                path.display()
            );
            let error = Error::new(ErrorKind::Unavailable, "load plugin", what);
            return Err(error.caused_by(message));
        };
        left.remove(first);
    }
}

/// How the symbols of a library are bound.
#[derive(Clone, Copy)]
enum Binding {
    /// All at once; an undefined one is an error. They are visible to libraries that name it.
    Local,
    /// As `Local`, but visible to all libraries that are loaded later.
    Visible,
    /// As `Visible`, but functions are bound when they are called: an undefined one ends the
    /// process then.
    VisibleLater,
}

/// Loads a library for the rest of the process.
///
/// # Errors
/// The loader's message.
fn open(path: &Path, binding: Binding) -> Result<(), String> {
    #[cfg(unix)]
    // SAFETY: runs the library's initialisers. A known plugin needs it by this name, and it is in
    // the Python environment that the user made for it.
    let opened = unsafe {
        use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};
        let flags = match binding {
            Binding::Local => RTLD_NOW | RTLD_LOCAL,
            Binding::Visible => RTLD_NOW | RTLD_GLOBAL,
            Binding::VisibleLater => RTLD_LAZY | RTLD_GLOBAL,
        };
        Library::open(Some(path), flags)
    };
    #[cfg(not(unix))]
    // SAFETY: as above.
    let opened = unsafe {
        let _ = binding;
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
