//! Files of the compile cache: who may have written them, replacing them in one step, and digests that are remembered.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use halite_fetch::sha256_of_file;
use sha2::{Digest, Sha256};

use super::PARTIAL;

/// How the names of remembered digests end.
pub(super) const DIGEST: &str = ".digest";

/// The whole file, of at most `limit` bytes; with `check_owner` only if the user of this process owns it, and nobody else
/// may write it.
pub(super) fn read_trusted(path: &Path, limit: u64, check_owner: bool) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    // Of the open file: what the name stands for may change meanwhile.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if metadata.len() > limit {
        return Err(io::Error::other(format!("it has {} bytes, more than the whole cache may", metadata.len())));
    }
    if check_owner {
        owner::check(path, &metadata)?;
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    Read::by_ref(&mut file).take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
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

/// Writes `bytes` under another name, and gives them this one in one step. Nothing is left of it if it fails.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = partial(path);
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o644);
    // Not synced: what a power cut leaves is damaged at worst, which is seen.
    let written = options.open(&partial).and_then(|mut file| file.write_all(bytes)).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        _ = fs::remove_file(&partial);
    }
    written
}

/// A name that no other process or thread uses: other machines may share the directory, so the time is in it too.
fn partial(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    path.with_extension(format!("{}-{now}-{}{PARTIAL}", process::id(), COUNT.fetch_add(1, Relaxed)))
}

/// Notes that a file was used now.
pub(super) fn touch(path: &Path) -> io::Result<()> {
    File::options().append(true).open(path)?.set_modified(SystemTime::now())
}

/// A change so short after another may leave a file with the same times: that is how coarse the clocks of file systems are.
const COARSEST_CLOCK: Duration = Duration::from_secs(2);

/// The SHA-256 of a library: as remembered in `directory` for a file that is still the same by place, size and times, or taken
/// now, and remembered if the directory may be written.
pub(super) fn digest_of(library: &Path, directory: &Path, writes: bool) -> io::Result<String> {
    let library = fs::canonicalize(library)?;
    let metadata = fs::metadata(&library)?;
    let identity = owner::identity(&library, &metadata)?;
    let name =
        Sha256::digest(library.as_os_str().as_encoded_bytes())[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let path = directory.join(name + DIGEST);
    let remembered = read_trusted(&path, 4096, writes).ok().and_then(|bytes| String::from_utf8(bytes).ok());
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
        _ = create_for_owner(directory).and_then(|()| replace(&path, format!("{identity}\n{digest}\n").as_bytes()));
    }
    Ok(digest)
}

#[cfg(unix)]
mod owner {
    use std::{
        fs, io,
        os::unix::fs::MetadataExt,
        path::Path,
        sync::OnceLock,
        time::{Duration, SystemTime, UNIX_EPOCH},
    };

    /// Whether what is in a file was written by the user of this process.
    pub(super) fn check(path: &Path, metadata: &fs::Metadata) -> io::Result<()> {
        let (owner, mode) = (metadata.uid(), metadata.mode());
        let user = user(path)?;
        if owner != user {
            return Err(io::Error::other(format!("it belongs to user {owner}, this is user {user}")));
        }
        if mode & 0o022 != 0 {
            return Err(io::Error::other(format!("others than its owner may write it (mode {:o})", mode & 0o777)));
        }
        Ok(())
    }

    /// The user as whom this process makes files.
    fn user(near: &Path) -> io::Result<u32> {
        static USER: OnceLock<u32> = OnceLock::new();
        if let Some(user) = USER.get() {
            return Ok(*user);
        }
        let user = match of_proc() {
            Some(user) => user,
            // Elsewhere than on Linux a new file tells.
            None => {
                let probe = super::partial(near);
                let user = fs::File::create(&probe)?.metadata()?.uid();
                fs::remove_file(&probe)?;
                user
            }
        };
        Ok(*USER.get_or_init(|| user))
    }

    /// Real, effective, saved and file system's user are in this line of Linux's description of a process.
    fn of_proc() -> Option<u32> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(3)?.parse().ok()
    }

    /// What changes when a file does.
    pub(super) fn identity(path: &Path, metadata: &fs::Metadata) -> io::Result<String> {
        let (size, device, inode) = (metadata.size(), metadata.dev(), metadata.ino());
        let (changed, moved) = ((metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec()));
        Ok(format!("{} {size} {device} {inode} {changed:?} {moved:?}", path.display()))
    }

    /// When a file was changed last, in whatever way: unlike the time of its contents, nobody can set this one.
    pub(super) fn changed(metadata: &fs::Metadata) -> io::Result<SystemTime> {
        Ok(UNIX_EPOCH + Duration::new(metadata.ctime().max(0) as u64, metadata.ctime_nsec().max(0) as u32))
    }
}

#[cfg(not(unix))]
mod owner {
    use std::{
        fs, io,
        path::Path,
        time::{SystemTime, UNIX_EPOCH},
    };

    /// The directory's own protection is the user's profile's.
    pub(super) fn check(_: &Path, _: &fs::Metadata) -> io::Result<()> {
        Ok(())
    }

    /// What changes when a file does.
    pub(super) fn identity(path: &Path, metadata: &fs::Metadata) -> io::Result<String> {
        let changed = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(format!("{} {} {changed:?}", path.display(), metadata.len()))
    }

    /// When a file was changed last.
    pub(super) fn changed(metadata: &fs::Metadata) -> io::Result<SystemTime> {
        metadata.modified()
    }
}
