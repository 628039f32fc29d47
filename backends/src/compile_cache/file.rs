//! Files of the compile cache: ownership checks, atomic replacement, and cached digests.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use halite_core::hex;
use halite_fetch::{file_size_limit, open_regular, sha256_of_file, writable_by_others};
use sha2::{Digest, Sha256};

use super::PARTIAL;

/// Suffix of cached digests.
pub(super) const DIGEST: &str = ".digest";

/// Reads a file of at most `limit` bytes; with `check_owner` only if nobody but the user of this
/// process and root may write it.
pub(super) fn read_trusted(path: &Path, limit: u64, check_owner: bool) -> io::Result<Vec<u8>> {
    let mut file = open_regular(path)?;
    // Metadata of the open file, because the name may be replaced meanwhile.
    let metadata = file.metadata()?;
    if metadata.len() > limit {
        return Err(io::Error::other(format!(
            "it has {} bytes, more than the limit of the cache",
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

/// Creates a directory that only its owner can access, unless it exists.
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

/// Replaces a file atomically: writes a temporary file and renames it. Leaves nothing behind on
/// failure.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Such a write would raise a signal, which kills a process that does not ignore it.
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
    // Not synced: a power cut can only leave a damaged file, which is detected.
    let written = options
        .open(&partial)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        _ = fs::remove_file(&partial);
    }
    written
}

/// A name that no other process or thread uses. It includes the time, because other machines may
/// share the directory.
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

/// Returns whether a name consists of `digits` lower-case hexadecimal digits.
pub(super) fn is_hex(name: &str, digits: usize) -> bool {
    name.len() == digits
        && name
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns whether a name, without [`PARTIAL`], was created by [`partial`].
pub(super) fn is_partial(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('.').is_some_and(|(stem, unique)| {
        (is_hex(stem, 64) || is_hex(stem, 32))
            && unique.split('-').count() == 3
            && unique.split('-').all(is_number)
    })
}

/// Verifies a cached digest and returns the problem, if any. Computes the digest of the library
/// again if its path, size and times are unchanged.
pub(super) fn verify_digest(path: &Path) -> io::Result<Option<String>> {
    let text = String::from_utf8(read_trusted(path, 4096, false)?).unwrap_or_default();
    // The path may contain spaces; the numbers after it are seven words.
    let parts = text
        .trim_end()
        .rsplit_once('\n')
        .and_then(|(known, digest)| {
            let words: Vec<_> = known.rsplitn(8, ' ').collect();
            Some((known, digest, Path::new(*words.get(7)?)))
        });
    let Some((known, digest, library)) = parts else {
        return Ok(Some("it is not a digest".to_owned()));
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
            "{} has SHA-256 {found}, the cached digest is {digest}",
            library.display()
        )
    }))
}

/// Sets the time of a file's last use to now.
pub(super) fn touch(path: &Path) -> io::Result<()> {
    File::options()
        .append(true)
        .open(path)?
        .set_modified(SystemTime::now())
}

/// Resolution of the coarsest file system clocks: two changes within it can leave the same times.
const COARSEST_CLOCK: Duration = Duration::from_secs(2);

/// The SHA-256 of a library: cached in `directory` for a file with unchanged path, size and times,
/// or computed now, and cached if the directory may be written.
pub(super) fn digest_of(library: &Path, directory: &Path, writes: bool) -> io::Result<String> {
    let library = fs::canonicalize(library)?;
    let metadata = fs::metadata(&library)?;
    let identity = owner::identity(&library, &metadata)?;
    let name = hex(&Sha256::digest(library.as_os_str().as_encoded_bytes())[..16]);
    let path = directory.join(name + DIGEST);
    let cached = read_trusted(&path, 4096, writes)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some((known, digest)) = cached.as_deref().and_then(|text| text.trim_end().rsplit_once('\n'))
        && known == identity
        // Otherwise the library may have been changed again and look the same.
        && fs::metadata(&path)?.modified()? >= owner::changed(&metadata)? + COARSEST_CLOCK
    {
        return Ok(digest.to_owned());
    }
    let (digest, _) = sha256_of_file(&library)?;
    if writes {
        // A failure only costs the time of computing it again.
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

    /// A text that changes when the file does.
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

    /// Time of the last change of a file or its metadata, which cannot be set, unlike the time of
    /// its contents.
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

    /// A text that changes when the file does.
    pub(super) fn identity(path: &Path, metadata: &fs::Metadata) -> io::Result<String> {
        let changed = metadata
            .modified()?
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Ok(format!("{} {} {changed:?}", path.display(), metadata.len()))
    }

    /// Time of the last change of a file.
    pub(super) fn changed(metadata: &fs::Metadata) -> io::Result<SystemTime> {
        metadata.modified()
    }
}
