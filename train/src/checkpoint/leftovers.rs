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
        let is_ours = |name: &str| {
            [TEMPORARY, TRASH]
                .iter()
                .any(|ours| name.strip_prefix(ours).is_some_and(is_folder_name))
        };
        let name = path.file_name().and_then(|name| name.to_str());
        let removed = match path.is_dir() {
            true if name.is_some_and(is_ours) => fs::remove_dir_all(&path),
            false if name.is_some_and(|name| name.starts_with(TOKEN)) => fs::remove_file(&path),
            _ => continue,
        };
        tracing::debug!("removing {}, a leftover of a killed run", path.display());
        removed.map_err(|error| failed("remove the leftover of a killed run", &path, error))?;
    }
    Ok(())
}
