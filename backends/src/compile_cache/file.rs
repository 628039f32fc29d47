//! Files of the compile cache: who may have written them, replacing them in one step, and digests
//! that are remembered.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use halite_fetch::{file_size_limit, open_regular, sha256_of_file, writable_by_others};
use sha2::{Digest, Sha256};

use super::PARTIAL;

/// How the names of remembered digests end.
pub(super) const DIGEST: &str = ".digest";

/// The whole file, of at most `limit` bytes; with `check_owner` only if nobody but the user of this
/// process and root may write it.
pub(super) fn read_trusted(path: &Path, limit: u64, check_owner: bool) -> io::Result<Vec<u8>> {
    let mut file = open_regular(path)?;
    // Of the open file: what the name stands for may change meanwhile.
    let metadata = file.metadata()?;
    if metadata.len() > limit {
        return Err(io::Error::other(format!(
            "it has {} bytes, more than the whole cache may",
            metadata.len()
        )));
    }
    if check_owner && let Some(reason) = writable_by_others(&metadata) {
        return Err(io::Error::other(reason));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    Read::by_ref(&mut file)
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes a directory that nobody but its owner can look into, unless there is one.
pub(super) fn create_for_owner(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(directory) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        other => other,
    }
}

/// Writes `bytes` under another name, and gives them this one in one step. Nothing is left of it if
/// it fails.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Such a write would be ended by a signal, which kills a process that does not ignore it.
    if file_size_limit().is_some_and(|limit| bytes.len() as u64 > limit) {
        let message = format!(
            "{} bytes are more than a file of this process may have (`ulimit -f`)",
            bytes.len()
        );
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    let partial = partial(path);
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o644);
    // Not synced: what a power cut leaves is damaged at worst, which is seen.
    let written = options
        .open(&partial)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        _ = fs::remove_file(&partial);
    }
    written
}

/// A name that no other process or thread uses: other machines may share the directory, so the time
/// is in it too.
fn partial(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    path.with_extension(format!(
        "{}-{now}-{}{PARTIAL}",
        process::id(),
        COUNT.fetch_add(1, Relaxed)
    ))
}

/// Whether a name has `digits` hexadecimal digits of lower case.
pub(super) fn is_hex(name: &str, digits: usize) -> bool {
    name.len() == digits
        && name
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a name, without [`PARTIAL`], is one that [`partial`] gives.
pub(super) fn is_partial(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('.').is_some_and(|(stem, unique)| {
        (is_hex(stem, 64) || is_hex(stem, 32))
            && unique.split('-').count() == 3
            && unique.split('-').all(is_number)
    })
}

/// What is wrong with a remembered digest: takes the digest of the library again, if it is still
/// the same by place, size and times.
pub(super) fn verify_digest(path: &Path) -> io::Result<Option<String>> {
    let text = String::from_utf8(read_trusted(path, 4096, false)?).unwrap_or_default();
    // The path may have spaces in it; the numbers behind it are seven words.
    let parts = text
        .trim_end()
        .rsplit_once('\n')
        .and_then(|(known, digest)| {
            let words: Vec<_> = known.rsplitn(8, ' ').collect();
            Some((known, digest, Path::new(*words.get(7)?)))
        });
    let Some((known, digest, library)) = parts else {
        return Ok(Some("it is no digest".to_owned()));
    };
    let same = fs::metadata(library)
        .and_then(|metadata| owner::identity(library, &metadata))
        .is_ok_and(|now| now == known);
    if !same {
        return Ok(None);
    }
    let (found, _) = sha256_of_file(library)?;
    Ok((found != digest).then(|| {
        format!(
            "{} has SHA-256 {found}, {digest} is noted",
            library.display()
        )
    }))
}

/// Notes that a file was used now.
pub(super) fn touch(path: &Path) -> io::Result<()> {
    File::options()
        .append(true)
        .open(path)?
        .set_modified(SystemTime::now())
}

/// A change so short after another may leave a file with the same times: that is how coarse the
/// clocks of file systems are.
const COARSEST_CLOCK: Duration = Duration::from_secs(2);

/// The SHA-256 of a library: as remembered in `directory` for a file that is still the same by
/// place, size and times, or taken now, and remembered if the directory may be written.
pub(super) fn digest_of(library: &Path, directory: &Path, writes: bool) -> io::Result<String> {
    let library = fs::canonicalize(library)?;
    let metadata = fs::metadata(&library)?;
    let identity = owner::identity(&library, &metadata)?;
    let name = Sha256::digest(library.as_os_str().as_encoded_bytes())[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    let path = directory.join(name + DIGEST);
    let remembered = read_trusted(&path, 4096, writes)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some((known, digest)) = remembered.as_deref().and_then(|text| text.trim_end().rsplit_once('\n'))
        && known == identity
        // Else the library may have been changed again since, and look the same.
        && fs::metadata(&path)?.modified()? >= owner::changed(&metadata)? + COARSEST_CLOCK
    {
        return Ok(digest.to_owned());
    }
    let (digest, _) = sha256_of_file(&library)?;
    if writes {
        // Only saves the time of taking it again.
        _ = create_for_owner(directory)
            .and_then(|()| replace(&path, format!("{identity}\n{digest}\n").as_bytes()));
    }
    Ok(digest)
}

#[cfg(unix)]
mod owner {
    use std::{
        fs, io,
        os::unix::fs::MetadataExt,
        path::Path,
        time::{Duration, SystemTime, UNIX_EPOCH},
    };

    /// What changes when a file does.
    pub(super) fn identity(path: &Path, metadata: &fs::Metadata) -> io::Result<String> {
        let (size, device, inode) = (metadata.size(), metadata.dev(), metadata.ino());
        let (changed, moved) = (
            (metadata.mtime(), metadata.mtime_nsec()),
            (metadata.ctime(), metadata.ctime_nsec()),
        );
        Ok(format!(
            "{} {size} {device} {inode} {changed:?} {moved:?}",
            path.display()
        ))
    }

    /// When a file was changed last, in whatever way: unlike the time of its contents, nobody can
    /// set this one.
    pub(super) fn changed(metadata: &fs::Metadata) -> io::Result<SystemTime> {
        Ok(UNIX_EPOCH
            + Duration::new(
                metadata.ctime().max(0) as u64,
                metadata.ctime_nsec().max(0) as u32,
            ))
    }
}

#[cfg(not(unix))]
mod owner {
    use std::{
        fs, io,
        path::Path,
        time::{SystemTime, UNIX_EPOCH},
    };

    /// What changes when a file does.
    pub(super) fn identity(path: &Path, metadata: &fs::Metadata) -> io::Result<String> {
        let changed = metadata
            .modified()?
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Ok(format!("{} {} {changed:?}", path.display(), metadata.len()))
    }

    /// When a file was changed last.
    pub(super) fn changed(metadata: &fs::Metadata) -> io::Result<SystemTime> {
        metadata.modified()
    }
}
