//! Access to files that other users may have created, and checks of their permissions.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::Path,
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
        const STICKY: u32 = 0o1000;
        const OTHERS: u32 = 0o002;
        const GROUP: u32 = 0o020;
        let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
        let user = rustix::process::geteuid().as_raw();
        if owner != user && owner != 0 {
            return Some(format!("it belongs to user {owner}, this is user {user}"));
        }
        // In a sticky directory nobody can rename or remove what belongs to another.
        if metadata.is_symlink() || metadata.is_dir() && mode & STICKY != 0 {
            return None;
        }
        if mode & OTHERS != 0 || mode & GROUP != 0 && group != owner {
            return Some(format!(
                "others than its owner may write it (mode {:o})",
                mode & 0o7777
            ));
        }
    }
    #[cfg(not(unix))]
    let _ = metadata;
    None
}

/// Why other users than this process's and root may replace `path`: who owns and may write it, and
/// every directory above it.
pub(crate) fn replaceable_by_others(path: &Path) -> io::Result<Option<String>> {
    let canonical = fs::canonicalize(path)?;
    for step in path
        .ancestors()
        .filter(|step| !step.as_os_str().is_empty())
        .chain(canonical.ancestors())
    {
        if let Some(reason) = writable_by_others(&fs::symlink_metadata(step)?) {
            return Ok(Some(format!("{}: {reason}", step.display())));
        }
    }
    Ok(None)
}

/// Largest file that this process may write, where it has such a limit. A longer write is ended by
/// a signal that kills a process which does not ignore it.
pub fn file_size_limit() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    #[cfg(not(unix))]
    None
}
