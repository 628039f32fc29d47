//! Files that users name: reads of regular files, and replacement, after which a reader, or the
//! next run, finds the old content or the new.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// Opens a file that a user named, for reading. What is not a regular file is an error at once: a
/// pipe waits for its writer, and a device such as `/dev/zero` has no end.
///
/// # Errors
/// If it cannot be opened, or is a directory, a pipe, a device or a socket.
pub fn open_input(path: &Path) -> io::Result<File> {
    // Before it is opened: opening a pipe would wait.
    check_regular(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads a file that a user named, as [`open_input`] opens it.
///
/// # Errors
/// As [`open_input`], and if it cannot be read.
pub fn read_input(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open_input(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a text file that a user named, as [`open_input`] opens it.
///
/// # Errors
/// As [`read_input`], and if it is compressed, or not UTF-8.
pub fn read_input_text(path: &Path) -> io::Result<String> {
    let bytes = read_input(path)?;
    check_uncompressed(&bytes)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let message = format!("it is not UTF-8 text, at byte {at}");
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

/// Checks by the first bytes of a file of text, records or tokens that it is not compressed.
///
/// # Errors
/// If it is: the error names what compressed it, and how that is undone.
pub fn check_uncompressed(start: &[u8]) -> io::Result<()> {
    let known: [(&[u8], &str, &str); 6] = [
        (b"\x1f\x8b\x08", "gzip", "decompress it with `gzip -d`"),
        (b"\x28\xb5\x2f\xfd", "zstd", "decompress it with `zstd -d`"),
        (b"\xfd7zXZ\0", "xz", "decompress it with `xz -d`"),
        (b"\x04\x22\x4d\x18", "lz4", "decompress it with `lz4 -d`"),
        (b"PK\x03\x04", "zip", "extract it with `unzip`"),
        (b"7z\xbc\xaf\x27\x1c", "7z", "extract it with `7z x`"),
    ];
    // The fourth byte is the size of its blocks.
    let is_bzip2 = start.starts_with(b"BZh") && start.get(4..10) == Some(b"1AY&SY");
    let bzip2 = is_bzip2.then_some((&[][..], "bzip2", "decompress it with `bzip2 -d`"));
    let found = known
        .into_iter()
        .find(|(magic, ..)| start.starts_with(magic));
    found.or(bzip2).map_or(Ok(()), |(_, name, remedy)| {
        let message = format!("it is compressed with {name}; {remedy}");
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    })
}

/// First bytes of a file that [`check_uncompressed`] compares.
pub const START: usize = 10;

/// The file that this process writes where each of a job was given the same `path`: with its number
/// before the extension, `trace.1.json` for `trace.json`. A launcher says it by `PMI_RANK` and
/// `PMI_SIZE`, which `variable` returns; one process has the path itself.
pub fn of_process(path: PathBuf, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let number = |name| variable(name)?.to_str()?.trim().parse::<usize>().ok();
    let (Some(rank), Some(2..)) = (number("PMI_RANK"), number("PMI_SIZE")) else {
        return path;
    };
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!(".{rank}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Creates a file that is written during a run. A pipe is an error at once: opening it would wait
/// for its reader.
///
/// # Errors
/// If it cannot be created, or is a pipe.
pub fn create_output(path: &Path) -> io::Result<File> {
    match fs::metadata(path).map(|metadata| kind_of(metadata.file_type())) {
        Ok(kind @ "a pipe") => Err(not_regular(kind)),
        _ => File::create(path),
    }
}

fn check_regular(metadata: &fs::Metadata) -> io::Result<()> {
    match metadata.is_file() {
        true => Ok(()),
        false => Err(not_regular(kind_of(metadata.file_type()))),
    }
}

fn not_regular(kind: &str) -> io::Error {
    let message = format!("it is {kind}, not a plain file");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// What something that is not a regular file is, for messages.
fn kind_of(kind: fs::FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if kind.is_dir() {
        "a directory"
    } else {
        "special"
    }
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
    fn processes_of_a_job_have_files_of_their_own() {
        let of = |rank: Option<&str>, size: &str, path: &str| {
            of_process(path.into(), |name| match name {
                "PMI_RANK" => rank.map(OsString::from),
                _ => Some(size.into()),
            })
        };
        assert_eq!(
            of(Some("3"), "4", "a/trace.json"),
            Path::new("a/trace.3.json")
        );
        assert_eq!(of(Some("0"), "2", "trace"), Path::new("trace.0"));
        for (rank, size) in [(None, "4"), (Some("0"), "1"), (Some("x"), "4")] {
            assert_eq!(of(rank, size, "a/trace.json"), Path::new("a/trace.json"));
        }
    }

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

    /// A pipe without a writer would be waited for, and `/dev/zero` read without end.
    #[cfg(unix)]
    #[test]
    fn inputs_are_regular_files() {
        let dir = tempfile::tempdir().unwrap();
        let [pipe, file] = ["pipe", "file"].map(|name| dir.path().join(name));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        fs::write(&file, b"text\xff").unwrap();
        for (path, what) in [
            (&*pipe, "it is a pipe, not a plain file"),
            (dir.path(), "it is a directory, not a plain file"),
            (Path::new("/dev/zero"), "it is a device, not a plain file"),
        ] {
            assert_eq!(open_input(path).unwrap_err().to_string(), what);
            assert_eq!(read_input(path).unwrap_err().to_string(), what);
            assert_eq!(read_input_text(path).unwrap_err().to_string(), what);
        }
        let error = create_output(&pipe).unwrap_err().to_string();
        assert_eq!(error, "it is a pipe, not a plain file");
        create_output(Path::new("/dev/null")).unwrap();
        assert_eq!(read_input(&file).unwrap(), b"text\xff");
        let error = read_input_text(&file).unwrap_err().to_string();
        assert_eq!(error, "it is not UTF-8 text, at byte 4");
    }

    #[test]
    fn compression_is_named() {
        for (start, name) in [
            (&b"\x1f\x8b\x08\0"[..], "gzip; decompress it with `gzip -d`"),
            (
                b"\x28\xb5\x2f\xfd\x24",
                "zstd; decompress it with `zstd -d`",
            ),
            (b"BZh51AY&SY", "bzip2; decompress it with `bzip2 -d`"),
            (b"\xfd7zXZ\0\0", "xz; decompress it with `xz -d`"),
            (b"PK\x03\x04", "zip; extract it with `unzip`"),
        ] {
            let error = check_uncompressed(start).unwrap_err().to_string();
            assert_eq!(error, format!("it is compressed with {name}"));
        }
        for text in [&b""[..], b"BZh", b"id,label\n", b"{\"a\": 1}"] {
            check_uncompressed(text).unwrap();
        }
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
