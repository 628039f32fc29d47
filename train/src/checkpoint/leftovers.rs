//! Files that only a killed run leaves in a directory of checkpoints, and their removal.

use std::{fs, io, path::Path};

use halite_core::Result;

use super::{
    listing::{BEST, is_folder_name},
    store::OP,
};
use crate::files;

/// Start of the name of a folder that is being written.
pub(super) const TEMPORARY: &str = ".tmp-";
/// Start of the name of a folder that is being removed.
const TRASH: &str = ".trash-";
/// Start of the name of a file by which the processes of a job see that the directory is one.
pub(crate) const TOKEN: &str = ".job-";

/// Removes the folder of a checkpoint.
pub(super) fn remove(dir: &Path, path: &Path) -> Result<()> {
    let name = path
        .file_name()
        .expect("a checkpoint is in a folder")
        .to_string_lossy();
    // Renamed first: a process killed while files are removed must not leave a checkpoint that
    // looks damaged.
    let trash = dir.join(format!("{TRASH}{name}"));
    let removed = fs::rename(path, &trash).and_then(|()| fs::remove_dir_all(&trash));
    removed.map_err(|error| files::failed(OP, "remove the old checkpoint", path, &error))
}

/// Removes the leftovers of a killed run. Called under the lock, so that they belong to no live
/// process.
pub(super) fn remove_leftovers(dir: &Path) -> Result<()> {
    let failed =
        |doing: &str, path: &Path, error: io::Error| files::failed(OP, doing, path, &error);
    let pointer = files::temporary_of(&dir.join(BEST));
    if pointer
        .symlink_metadata()
        .is_ok_and(|found| !found.is_dir())
    {
        fs::remove_file(&pointer)
            .map_err(|error| failed("remove the leftover of a killed run", &pointer, error))?;
    }
    for entry in fs::read_dir(dir).map_err(|error| failed("read the directory", dir, error))? {
        let path = entry
            .map_err(|error| failed("read the directory", dir, error))?
            .path();
        let name = path.file_name().and_then(|name| name.to_str());
        let folder_of = |kind| {
            let name = name?.strip_prefix(kind)?;
            is_folder_name(name).then_some(name)
        };
        let removed = match path.is_dir() {
            // Renamed first: a process of the killed job may still create a file by its path.
            true if let Some(name) = folder_of(TEMPORARY) => {
                let trash = dir.join(format!("{TRASH}{name}"));
                let renamed = fs::rename(&path, &trash);
                fs::remove_dir_all(renamed.map_or(&path, |()| &trash))
            }
            true if folder_of(TRASH).is_some() => fs::remove_dir_all(&path),
            false if name.is_some_and(is_token) => fs::remove_file(&path),
            _ => continue,
        };
        tracing::debug!("removing {}, a leftover of a killed run", path.display());
        // It does no harm. The directory may have listed a folder under both names.
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            let error = failed("remove the leftover of a killed run", &path, error);
            halite_core::warning!("{error}");
        }
    }
    Ok(())
}

/// Whether a file of this name is a token: [`TOKEN`], the id of a process, and nanoseconds.
fn is_token(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name
        .strip_prefix(TOKEN)
        .and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(id, since)| is_number(id) && is_number(since))
}
