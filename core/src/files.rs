//! Files that users name: bounded reads, and replacement, after which a reader, or the next run,
//! finds the old content or the new.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// Most bytes that are read of what is not a plain file: a device such as `/dev/zero` has no end.
const LONGEST_STREAM: u64 = 1 << 30;

/// Reads a file that a user named: a plain file, or a pipe or device of at most 1 GiB.
///
/// # Errors
/// If it cannot be read, or is longer.
pub fn read_input(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.is_file() {
        return fs::read(path);
    }
    read_stream(File::open(path)?, LONGEST_STREAM)
}

fn read_stream(stream: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let message = format!("it is not a plain file, and has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(bytes)
}

/// Replaces the content of `path` atomically, also with respect to a power cut. A pipe, a device or
/// a link there is replaced too, not written to.
///
/// # Errors
/// If the new file cannot be written beside it or renamed; the old one is untouched then.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_by(path, &temporary_of(path), bytes, None)
}

/// Writes to a path that a user named. A file there is [replaced](replace), and its permissions
/// stay; a link is followed; what is not a file, such as `/dev/stdout` or a pipe, is written to.
///
/// # Errors
/// If it cannot be written; an old file is untouched then.
pub fn write_output(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let known = match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return fs::write(path, bytes),
        Ok(metadata) => Some(metadata.permissions()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let path = match known {
        Some(_) => fs::canonicalize(path)?,
        None => path.to_owned(),
    };
    // A name for this process alone: several may write the same file.
    let temporary = beside(&path, &format!(".{}.tmp", std::process::id()));
    replace_by(&path, &temporary, bytes, known)
}

fn replace_by(
    path: &Path,
    temporary: &Path,
    bytes: &[u8],
    permissions: Option<fs::Permissions>,
) -> io::Result<()> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "not the path of a file");
    path.file_name().ok_or_else(invalid)?;
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = File::create_new(temporary).and_then(|mut file| {
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(temporary, path)) {
        let _ = fs::remove_file(temporary);
        return Err(error);
    }
    sync_dir(parent_of(path))
}

/// Path to which [`replace`] writes before it renames. It is fixed, so that the next run overwrites
/// or removes the leftover of a killed one.
pub fn temporary_of(path: &Path) -> PathBuf {
    beside(path, ".tmp")
}

/// The hidden file beside `path` whose name has this ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(ending);
    parent_of(path).join(name)
}

/// The directory that holds `path`; `.` for a bare name.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes renames and new names in `dir` survive a power cut, where the system can: some file
/// systems cannot sync a directory, and one that may not be read cannot be opened for it.
///
/// # Errors
/// Those of the system, such as a failing disk.
#[cfg(unix)]
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        Err(error) if matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported) => {
            Ok(())
        }
        synced => synced,
    }
}

/// Directories cannot be opened for this on other systems; their file systems journal renames.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn sync_dir(_dir: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_leaves_only_the_new_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        for write in [replace, write_output] {
            write(&path, b"one").unwrap();
            write(&path, b"two").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"two");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn failed_replacement_keeps_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        // A directory with something in it cannot be replaced by a file.
        let path = dir.path().join("report.json");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), b"kept").unwrap();
        for write in [replace, write_output] {
            assert!(write(&path, b"new").is_err());
            assert_eq!(fs::read(path.join("inside")).unwrap(), b"kept");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    /// The kernel's file system of processes has nothing to sync.
    #[cfg(target_os = "linux")]
    #[test]
    fn directory_that_cannot_be_synced_is_no_error() {
        sync_dir(Path::new("/proc")).unwrap();
        let missing = sync_dir(Path::new("/proc/none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn endless_streams_are_refused() {
        assert_eq!(read_stream(&b"four"[..], 4).unwrap(), b"four");
        let error = read_stream(io::repeat(0), 4).unwrap_err().to_string();
        assert_eq!(error, "it is not a plain file, and has more than 4 bytes");
    }

    #[cfg(unix)]
    #[test]
    fn output_follows_links() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| dir.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink("file", &link).unwrap();
        write_output(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        write_output(Path::new("/dev/null"), b"new").unwrap();
    }
}
