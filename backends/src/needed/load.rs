//! Loads libraries that a plugin then finds by their names.

// `load` says why.
#![allow(unsafe_code)]

use std::path::PathBuf;

use halite_core::{Error, ErrorKind, Result};

/// Loads these libraries in this order. They stay loaded.
///
/// # Errors
/// [`ErrorKind::Unavailable`] with the first one that does not load, and the loader's message.
pub(super) fn all(libraries: &[PathBuf]) -> Result<()> {
    for path in libraries {
        // SAFETY: runs the library's initialisers. A known plugin needs it by this name, and it is
        // in the Python environment that the user made for it.
        match unsafe { libloading::Library::new(path) } {
            // The plugin finds it by its name.
            Ok(library) => std::mem::forget(library),
            Err(error) => {
                let message = format!("{}, which the plugin needs, does not load", path.display());
                let error =
                    Error::new(ErrorKind::Unavailable, "load plugin", message).caused_by(error);
                return Err(error);
            }
        }
    }
    Ok(())
}
