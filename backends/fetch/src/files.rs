//! Access to files that other users may have created, and checks of their permissions.

#[cfg(unix)]
use std::collections::BTreeMap;
use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

/// Opens a regular file for reading. A pipe, a socket or a device is an error at once, where
/// [`File::open`] waits for its other end.
///
/// # Errors
/// If the file cannot be opened, or is not a regular file.
pub fn open_regular(path: impl AsRef<Path>) -> io::Result<File> {
    open_regular_with(OpenOptions::new().read(true), path.as_ref(), Links::Follow)
}

/// Treatment of a symbolic link in place of a file.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Links {
    Follow,
    Refuse,
}

/// As [`open_regular`], with other options.
pub(crate) fn open_regular_with(
    options: &mut OpenOptions,
    path: &Path,
    links: Links,
) -> io::Result<File> {
    let refused = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file; remove it",
        )
    };
    let looked_at = match links {
        Links::Follow => fs::metadata(path),
        Links::Refuse => fs::symlink_metadata(path),
    };
    match looked_at {
        Ok(metadata) if !metadata.is_file() => return Err(refused()),
        // It may be created by this call.
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        // What has the name may have changed meanwhile.
        let links = if links == Links::Refuse {
            OFlags::NOFOLLOW
        } else {
            OFlags::empty()
        };
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            options,
            (OFlags::NONBLOCK | links).bits() as i32,
        );
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(refused())
    }
}

/// Why other users than this process's and root may change what `metadata` describes; `None` if
/// they may not. Always `None` on systems without Unix's permissions.
///
/// Write permission of a group counts as nobody else's where the group has the owner's number, as
/// the groups do that systems make for single users.
pub fn writable_by_others(metadata: &fs::Metadata) -> Option<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
        if owner != user && owner != 0 {
            return Some(format!("it belongs to user {owner}, this is user {user}"));
        }
        // In a sticky directory nobody can rename or remove what belongs to another.
        if unix::lets_others_write(metadata) && !unix::is_sticky(metadata) {
            return Some(format!(
                "others than its owner may write it (mode {:o})",
                metadata.mode() & 0o7777
            ));
        }
    }
    #[cfg(not(unix))]
    let _ = metadata;
    None
}

/// Why users other than this process's, root and the owner of the directory `root` could change or
/// replace one of `paths` below it, with a remedy; `None` if they cannot. Paths may be missing.
/// Always `None` on systems without Unix's permissions.
///
/// The directories above `root` may have any owner, because the user chose them with `root`. An
/// entry of a sticky directory such as `/tmp` is trusted only if it belongs to this user, to root
/// or to the owner of that directory: anybody may have created it.
pub(crate) fn replaceable_by_others(root: &Path, paths: &[PathBuf]) -> io::Result<Option<String>> {
    #[cfg(unix)]
    {
        let mut steps = BTreeMap::new();
        let mut add = |path: &Path, root: &Path| {
            for step in path.ancestors() {
                steps.insert(step.to_path_buf(), step != root && step.starts_with(root));
            }
        };
        let resolved_root = fs::canonicalize(root)?;
        for path in paths {
            match fs::canonicalize(path) {
                Ok(resolved) => {
                    add(path, root);
                    add(&resolved, &resolved_root);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        for (step, is_below) in steps {
            if let Some(reason) = unix::replaceable(&step, is_below)? {
                return Ok(Some(reason));
            }
        }
    }
    #[cfg(not(unix))]
    let _ = (root, paths);
    Ok(None)
}

#[cfg(unix)]
mod unix {
    use std::{
        fs::{self, Metadata},
        io,
        os::unix::fs::MetadataExt,
        path::Path,
    };

    const STICKY: u32 = 0o1000;
    const GROUP: u32 = 0o020;
    const OTHERS: u32 = 0o002;

    /// Returns whether a group or all users may write a file, or create files in a directory.
    pub(super) fn lets_others_write(metadata: &Metadata) -> bool {
        let (mode, owner, group) = (metadata.mode(), metadata.uid(), metadata.gid());
        // The mode of a link has no meaning.
        !metadata.is_symlink() && (mode & OTHERS != 0 || mode & GROUP != 0 && group != owner)
    }

    pub(super) fn is_sticky(metadata: &Metadata) -> bool {
        metadata.is_dir() && metadata.mode() & STICKY != 0
    }

    /// Why others could replace what is at `path`, a path of the cache if `is_below`.
    pub(super) fn replaceable(path: &Path, is_below: bool) -> io::Result<Option<String>> {
        let metadata = fs::symlink_metadata(path)?;
        let parent = path.parent().map(fs::metadata).transpose()?;
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        let shown = path.display();
        let user = rustix::process::geteuid().as_raw();
        let mut trusted = [user, 0]
            .into_iter()
            .chain(parent.as_ref().map(Metadata::uid));
        let needs_trust = is_below || parent.as_ref().is_some_and(lets_others_write);
        if needs_trust && !trusted.any(|trusted| trusted == owner) {
            return Ok(Some(format!(
                "{shown} (mode {mode:o}) belongs to user {owner}, and this process runs as user \
                 {user}; let this user or root install it (`chown -R {user} {shown}` as root)"
            )));
        }
        let is_safe = !lets_others_write(&metadata) || is_sticky(&metadata) && !is_below;
        Ok((!is_safe).then(|| {
            format!(
                "{shown} (mode {mode:o}, owner {owner}) may be written by users other than its \
                 owner; remove that permission (`chmod go-w {shown}`)"
            )
        }))
    }
}

/// Largest file that this process may write, where it has such a limit. A longer write is ended by
/// a signal that kills a process which does not ignore it.
pub fn file_size_limit() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    #[cfg(not(unix))]
    None
}
