//! Download of one archive by pip, npm or apt-get.

mod apt;
mod npm;
mod pip;
mod settings;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{
    error::{Context, Error, Result},
    limits::Limits,
    package::Client,
    process::{self, Deadline, Limited, Outcome},
    progress::{Bytes, Progress, Step},
};

/// The directories of an installation in progress, which are removed with it.
pub(crate) struct Work<'a> {
    pub(crate) context: Context<'a>,
    pub(crate) limits: &'a Limits,
    /// Start of the work on this archive.
    pub(crate) started: Instant,
    /// Directory for the archive.
    pub(crate) download: PathBuf,
    /// Directory for temporary files and caches of the client, so that none are left elsewhere and
    /// the growing file is visible.
    pub(crate) scratch: PathBuf,
}

impl Work<'_> {
    /// Downloads the package's archive and returns its path. It is not verified yet.
    pub(crate) fn download(&self, progress: &mut dyn Progress) -> Result<PathBuf> {
        match self.context.package.client {
            Client::Pip => self.pip(&[], progress)?,
            Client::Wheel { python, platform } => {
                let abi = format!("cp{}", python.replace('.', ""));
                let tags = [
                    "--implementation",
                    "cp",
                    "--python-version",
                    python,
                    "--abi",
                    &abi,
                    "--platform",
                    platform,
                ];
                self.pip(&tags, progress)?;
            }
            Client::Npm => self.npm(progress)?,
            Client::Apt => self.apt(progress)?,
        }
        self.archive()
    }

    /// Writes the archive's content as a tar file, for formats that only their own tool opens.
    pub(crate) fn deb_to_tar(&self, archive: &Path) -> Result<PathBuf> {
        let tar = self.scratch.join("content.tar");
        let file =
            fs::File::create(&tar).map_err(|error| self.context.error("create", &tar, error))?;
        let mut command = Command::new("dpkg-deb");
        command
            .arg("--fsys-tarfile")
            .arg(archive)
            .env("LC_ALL", "C");
        // Its digest is unknown, so it may unpack to any size.
        let most = self.context.package.most_bytes_unpacked();
        let stdout = Limited { file, most };
        let ran = self.run_to(&mut command, Some(stdout), &mut crate::progress::Quiet)?;
        if fs::metadata(&tar).is_ok_and(|metadata| metadata.len() > most) {
            return Err(Error::ArchiveBroken {
                package: self.context.package.to_string(),
                archive: file_name(archive),
                reason: format!("it unpacks to more than {most} bytes"),
            });
        }
        match ran {
            Ran::Succeeded => Ok(tar),
            Ran::Missing => Err(Error::ClientMissing {
                package: self.context.package.to_string(),
                tried: "apt-get is installed, but dpkg-deb was not found".into(),
                advice: "install dpkg and try again",
            }),
            Ran::Failed { output, .. } => Err(Error::ArchiveBroken {
                package: self.context.package.to_string(),
                archive: file_name(archive),
                reason: format!("dpkg-deb: {}", output.trim()),
            }),
        }
    }

    /// The one archive that the client left in the download directory.
    fn archive(&self) -> Result<PathBuf> {
        let package = self.context.package;
        let extension = package.client.extension();
        let entries =
            fs::read_dir(&self.download).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(|error| self.context.error("list", &self.download, error))?;
        let mut archives = entries
            .iter()
            .map(fs::DirEntry::path)
            .filter(|path| path.extension().is_some_and(|it| it == extension));
        match (archives.next(), archives.next()) {
            (Some(archive), None) => Ok(archive),
            _ => {
                let names: Vec<_> = entries
                    .iter()
                    .map(|it| it.file_name().to_string_lossy().into_owned())
                    .collect();
                Err(self.failed(
                    &format!("{} download", package.client),
                    format!("it reported success but left no single .{extension} file"),
                    "Look at the client's version and configuration",
                    format!(
                        "  files: {}",
                        if names.is_empty() {
                            "none".into()
                        } else {
                            names.join(", ")
                        }
                    ),
                ))
            }
        }
    }

    fn run(&self, command: &mut Command, progress: &mut dyn Progress) -> Result<Ran> {
        self.run_to(command, None, progress)
    }

    fn run_to(
        &self,
        command: &mut Command,
        stdout: Option<Limited>,
        progress: &mut dyn Progress,
    ) -> Result<Ran> {
        let package = self.context.package;
        let left = self.limits.download.saturating_sub(self.started.elapsed());
        let deadline = Deadline {
            total: left,
            stall: self.limits.stall,
        };
        let mut done = 0;
        let outcome = process::run(command, stdout, deadline, || {
            let (mut all, mut largest) = (0, 0);
            sizes(&self.download, &mut all, &mut largest);
            sizes(&self.scratch, &mut all, &mut largest);
            // A client may write the archive twice (its own cache, then the result): the larger
            // file counts.
            done = largest.min(package.archive_size).max(done);
            progress.step(Step::Downloading {
                package,
                done,
                total: package.archive_size,
            });
            all
        });
        let program = Path::new(command.get_program());
        match outcome {
            Ok(Outcome::Ended { status, .. }) if status.success() => Ok(Ran::Succeeded),
            Ok(Outcome::Ended { status, output }) => match full_disk(&output) {
                Some(line) => Err(self.context.disk_full(line.to_string())),
                None => Ok(Ran::Failed {
                    status: status.to_string(),
                    output,
                }),
            },
            Ok(Outcome::TimedOut { waited }) => Err(Error::Timeout {
                what: format!("downloading {package} with {}", program.display()),
                waited,
                detail: format!(
                    ", with {} of {} there (at most {} s in all, {} s without progress)",
                    Bytes(done),
                    Bytes(package.archive_size),
                    self.limits.download.as_secs(),
                    deadline.stall.as_secs()
                ),
            }),
            // For the user, an inaccessible entry of PATH is the same as none.
            Err(error)
                if [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied]
                    .contains(&error.kind()) =>
            {
                Ok(Ran::Missing)
            }
            Err(error) => Err(self.context.error("start", program, error)),
        }
    }

    fn failed(&self, what: &str, status: String, advice: &'static str, output: String) -> Error {
        Error::ClientFailed {
            what: what.into(),
            package: self.context.package.to_string(),
            status,
            advice,
            output,
        }
    }
}

enum Ran {
    Succeeded,
    Missing,
    Failed { status: String, output: String },
}

/// The line of a command's output that reports a full disk, if there is one.
fn full_disk(output: &str) -> Option<&str> {
    const SIGNS: [&str; 3] = ["No space left on device", "ENOSPC", "Disk quota exceeded"];
    if !SIGNS.iter().any(|sign| output.contains(sign)) {
        return None;
    }
    let mut lines = output.lines();
    let line = lines.rfind(|line| line.contains("space") || line.contains("quota"));
    Some(line.unwrap_or("ENOSPC").trim())
}

/// Sums the sizes of all files below `directory`, and finds the largest. Files may appear and
/// vanish meanwhile.
fn sizes(directory: &Path, all: &mut u64, largest: &mut u64) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => sizes(&entry.path(), all, largest),
            Ok(metadata) => {
                *all += metadata.len();
                *largest = metadata.len().max(*largest);
            }
            Err(_) => {}
        }
    }
}

pub(crate) fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
