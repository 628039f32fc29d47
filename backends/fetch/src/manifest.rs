//! The commit marker: a list of the installed files, for quick checks by later runs.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
    time::UNIX_EPOCH,
};

use halite_core::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    files::open_regular,
    package::{MARKER, Package},
};

const FORMAT: u32 = 1;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: u32,
    pub(crate) package: String,
    /// Digests of the archives of all parts, separated by spaces.
    archive_sha256: String,
    pub(crate) files: Vec<Entry>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) sha256: String,
    /// What changes with the contents. The digest is trusted while it and the size are unchanged.
    #[serde(flatten)]
    pub(crate) stamp: Stamp,
}

/// What a file system knows of the last change of a file. Markers of older versions have the
/// modification time alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// Modification time, in nanoseconds since 1970. A program can set it.
    modified: u64,
    /// Time of the last change of contents or metadata in nanoseconds, which no program can set.
    #[serde(default)]
    changed: i64,
    /// Number of the file in its file system.
    #[serde(default)]
    inode: u64,
}

impl Stamp {
    pub(crate) fn of(metadata: &fs::Metadata) -> io::Result<Self> {
        let since = metadata
            .modified()?
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        #[cfg(unix)]
        let (changed, inode) = {
            use std::os::unix::fs::MetadataExt;
            let seconds = metadata.ctime().saturating_mul(1_000_000_000);
            let changed = seconds.saturating_add(metadata.ctime_nsec());
            (changed, metadata.ino())
        };
        #[cfg(not(unix))]
        let (changed, inode) = (0, 0);
        Ok(Stamp {
            modified: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            changed,
            inode,
        })
    }
}

impl Manifest {
    /// Describes files that were just written to `directory`, with digests verified by the caller.
    pub(crate) fn of(
        package: &Package,
        archive_sha256: String,
        directory: &Path,
    ) -> io::Result<Self> {
        let files = package.installed_files().map(|file| {
            let metadata = fs::symlink_metadata(directory.join(file.name))?;
            Ok(Entry {
                name: file.name.into(),
                size: file.size,
                sha256: file.sha256.into(),
                stamp: Stamp::of(&metadata)?,
            })
        });
        let files = files.collect::<io::Result<_>>()?;
        Ok(Self {
            format: FORMAT,
            package: package.to_string(),
            archive_sha256,
            files,
        })
    }

    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        const LARGEST: u64 = 4 << 20;
        let mut bytes = Vec::new();
        open_regular(directory.join(MARKER))?
            .take(LARGEST)
            .read_to_end(&mut bytes)?;
        serde_json::from_slice(&bytes).map_err(io::Error::from)
    }

    /// Writes and syncs the marker under `name` in `directory`.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::from)?;
        let mut file = File::create(path)?;
        io::Write::write_all(&mut file, &bytes)?;
        file.sync_all()
    }

    /// Returns whether the marker lists exactly these files with these digests.
    pub(crate) fn agrees_with(&self, package: &Package) -> bool {
        self.format == FORMAT
            && self.files.len() == package.installed_files().count()
            && self
                .files
                .iter()
                .zip(package.installed_files())
                .all(|(entry, file)| {
                    entry.name == file.name
                        && entry.size == file.size
                        && entry.sha256 == file.sha256
                })
    }
}

/// The SHA-256 of a file in lower-case hex, and its size in bytes. Reads the file once, in pieces.
///
/// # Errors
///
/// When the file cannot be opened or read, or is not a regular file.
pub fn sha256_of_file(path: impl AsRef<Path>) -> io::Result<(String, u64)> {
    let mut file = DigestReader::new(open_regular(path)?);
    let mut size = 0;
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok((file.sha256(), size)),
            Ok(count) => size += count as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Bytes that are read at once: they are digested while they are in the processor's cache.
const PIECE: usize = 1 << 18;

/// A reader that computes the SHA-256 of what is read from it.
#[derive(Debug)]
pub struct DigestReader<R> {
    inner: R,
    hasher: Sha256,
}

impl<R> DigestReader<R> {
    /// Reads from `inner`.
    pub fn new(inner: R) -> Self {
        DigestReader {
            inner,
            hasher: Sha256::new(),
        }
    }

    /// The SHA-256 of what was read, in lower-case hex.
    pub fn sha256(self) -> String {
        hex(&self.hasher.finalize())
    }
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let piece = into.len().min(PIECE);
        let count = self.inner.read(&mut into[..piece])?;
        self.hasher.update(&into[..count]);
        Ok(count)
    }
}
