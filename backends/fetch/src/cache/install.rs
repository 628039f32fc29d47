//! Installation of a package: download, verification, unpacking and commit.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Instant,
};

use halite_core::files::sync_dir;

use super::{Cache, Installed, remove, unique};
use crate::{
    client::{Work, file_name},
    error::{Context, Error, Result},
    manifest::{Manifest, sha256_of_file},
    package::{MARKER, Package},
    progress::Progress,
    unpack,
};

impl Cache {
    /// Downloads, verifies, unpacks and commits. The caller holds the lock.
    pub(super) fn install(
        &self,
        package: &Package,
        progress: &mut dyn Progress,
    ) -> Result<Installed> {
        let context = || Context {
            package,
            root: &self.root,
        };
        // Before the download, and again for the result.
        self.check_replaceable(package, &self.partial())?;
        let partial = Partial::create(&self.partial(), package)
            .map_err(|error| context().error("create a directory in", &self.partial(), error))?;
        let install = partial.0.join("install");
        let create = |directory: &Path| {
            fs::create_dir(directory)
                .map_err(|error| context().error("create the directory", directory, error))
        };
        create(&install)?;
        let mut digests = Vec::new();
        for part in package.archives() {
            let [download, scratch] = ["download", "scratch"].map(|name| partial.0.join(name));
            create(&download)?;
            create(&scratch)?;
            let context = Context {
                package: part,
                root: &self.root,
            };
            let work = Work {
                context,
                limits: &self.limits,
                started: Instant::now(),
                download,
                scratch,
            };
            let archive = work.download(progress)?;
            digests.push(verify_archive(&work.context, &archive)?);
            unpack::unpack(&work, &archive, &install, progress)?;
            // The next archive needs the space.
            remove(&work.download);
            remove(&work.scratch);
        }

        write_marker(package, digests.join(" "), &install)
            .map_err(|error| context().error("write the marker in", &install, error))?;
        self.commit(&context(), &install, &partial.0.join("replaced"))
    }

    /// Renames the finished directory to its final name, which either does not exist or is
    /// complete.
    fn commit(&self, context: &Context<'_>, install: &Path, replaced: &Path) -> Result<Installed> {
        let directory = self.directory(context.package);
        if directory.symlink_metadata().is_ok() {
            // It is damaged. Processes that have its files open keep them.
            fs::rename(&directory, replaced)
                .map_err(|error| context.error("move away", &directory, error))?;
        }
        if let Err(error) = fs::rename(install, &directory) {
            // Without locks another process may have installed it first.
            return match self.find(context.package)? {
                Some(installed) => Ok(installed),
                None => {
                    Err(context.error("rename the finished installation to", &directory, error))
                }
            };
        }
        self.check_replaceable(context.package, &directory)?;
        // The files are there, whatever a power failure would leave of them.
        let _ = sync_dir(&self.root);
        Ok(Installed {
            directory,
            fresh: true,
        })
    }
}

/// Protects the unpacked files, writes the marker that lists them, and syncs their directories.
fn write_marker(package: &Package, digests: String, install: &Path) -> io::Result<()> {
    for file in package.installed_files() {
        for path in Path::new(file.name).ancestors() {
            protect(&install.join(path))?;
        }
    }
    let marker = install.join(MARKER);
    Manifest::of(package, digests, install)?.write(&marker)?;
    protect(&marker)?;
    for file in package.installed_files() {
        for directory in Path::new(file.name).ancestors().skip(1) {
            let _ = sync_dir(&install.join(directory));
        }
    }
    Ok(())
}

/// Returns the archive's digest, if it is the pinned one or none is pinned.
fn verify_archive(context: &Context<'_>, archive: &Path) -> Result<String> {
    let package = context.package;
    let (found, found_size) = sha256_of_file(archive)
        .map_err(|error| context.error("read the archive", archive, error))?;
    match package.archive_sha256 {
        None if found_size > package.most_bytes() => Err(Error::ArchiveBroken {
            package: package.to_string(),
            archive: file_name(archive),
            reason: format!(
                "it has {found_size} bytes, expected about {}",
                package.archive_size
            ),
        }),
        Some(expected) if expected != found => Err(Error::ArchiveDigest {
            package: package.to_string(),
            archive: file_name(archive),
            expected,
            expected_size: package.archive_size,
            found,
            found_size,
        }),
        _ => Ok(found),
    }
}

/// The directory of an installation in progress, which is removed when this is dropped.
struct Partial(PathBuf);

impl Partial {
    fn create(parent: &Path, package: &Package) -> io::Result<Self> {
        let path = parent.join(format!("{}.{}", package.key(), unique()));
        create_private(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Creates a directory that only its owner can read.
fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Removes write permission for all but the owner, regardless of the umask of this process.
pub(super) fn protect(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(path)?.permissions().mode();
        fs::set_permissions(path, fs::Permissions::from_mode(mode & !0o022))?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}
