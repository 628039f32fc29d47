//! The system's loader: opens the library of a plugin, and knows the libraries whose constructors
//! are running. It does not know what is in a library.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use halite_core::{Error, ErrorKind, Result};
#[cfg(not(unix))]
use libloading::Library;
#[cfg(unix)]
use libloading::os::unix::Library;

/// The operation of loading a plugin, for errors.
pub(crate) const OP: &str = "load plugin";

/// Opens a library, which counts as [`running`] while its constructors run.
pub(crate) fn open(path: &Path) -> Result<Library> {
    in_loader().push(path.to_owned());
    let opened = open_now(path);
    in_loader().retain(|other| other != path);
    opened.map_err(|error| {
        // The source has the loader's own message.
        let source = std::error::Error::source(&error)
            .unwrap_or(&error)
            .to_string();
        let advice = halite_core::loader_advice(path, &source);
        let message = format!("{} cannot be loaded; {advice}", path.display());
        Error::new(ErrorKind::Unavailable, OP, message).caused_by(source)
    })
}

/// A library whose constructors have not returned, the one that was loaded first.
pub(crate) fn running() -> Option<PathBuf> {
    in_loader().first().cloned()
}

/// Libraries whose constructors are running, in the order of their loads.
fn in_loader() -> MutexGuard<'static, Vec<PathBuf>> {
    static IN_LOADER: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    IN_LOADER.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(unix)]
fn open_now(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{RTLD_LOCAL, RTLD_NOW};
    // Local, so that two plugins with the same symbols inside do not meet. SAFETY: loading runs the
    // library's constructors; the caller of `Plugin::load` chose to trust the file.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
}

#[cfg(not(unix))]
fn open_now(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: loading runs the library's constructors; the caller of `Plugin::load` chose to trust
    // the file.
    unsafe { Library::new(path) }
}
