//! Download of one archive by pip, npm or apt-get.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{
    cache::Limits,
    error::{Context, Error, Result},
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

    /// Downloads a wheel; `tags` select one of several.
    fn pip(&self, tags: &[&str], progress: &mut dyn Progress) -> Result<()> {
        let package = self.context.package;
        let mut tried = Vec::new();
        for python in ["python3", "python"] {
            let mut command = Command::new(python);
            // Wheels only: pip runs the code of source packages.
            command
                .args([
                    "-m",
                    "pip",
                    "download",
                    "--no-deps",
                    "--only-binary=:all:",
                    "--no-cache-dir",
                    "--no-input",
                ])
                .args([
                    "--disable-pip-version-check",
                    "--progress-bar=off",
                    "--retries=2",
                ])
                .args(tags)
                .arg("--dest")
                .arg(&self.download)
                .arg(format!("{}=={}", package.name, package.version))
                // An empty directory: `-m` looks for modules in the current one first.
                .current_dir(&self.scratch)
                .envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, &self.scratch)));
            match self.run(&mut command, progress)? {
                Ran::Missing => tried.push(format!("{python} was not found")),
                Ran::Failed { output, .. } if output.contains("No module named pip") => {
                    tried.push(format!("{python} has no pip"));
                }
                Ran::Failed { status, output } => {
                    return Err(self.failed(
                        &format!("{python} -m pip download"),
                        status,
                        "Look at the network and at pip's index-url and proxy settings; \"no matching distribution\" \
                         means that the index has no build of it for this system",
                        output,
                    ));
                }
                Ran::Succeeded => return Ok(()),
            }
        }
        let advice = "install Python 3 with pip (Debian and Ubuntu: apt-get install python3-pip) and try again";
        Err(Error::ClientMissing {
            package: package.to_string(),
            tried: tried.join(", "),
            advice,
        })
    }

    fn npm(&self, progress: &mut dyn Progress) -> Result<()> {
        let package = self.context.package;
        let mut command = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
        command
            .args([
                "pack",
                "--ignore-scripts",
                "--loglevel=error",
                "--no-update-notifier",
            ])
            .args([
                "--fetch-retries=2",
                "--fetch-retry-mintimeout=1000",
                "--fetch-retry-maxtimeout=5000",
                "--cache",
            ])
            .arg(self.scratch.join("npm"))
            .arg(format!("{}@{}", package.name, package.version))
            .current_dir(&self.download);
        match self.run(&mut command, progress)? {
            Ran::Succeeded => Ok(()),
            Ran::Missing => Err(Error::ClientMissing {
                package: package.to_string(),
                tried: "npm was not found".into(),
                advice: "install Node.js with npm (Debian and Ubuntu: apt-get install npm) and try again",
            }),
            Ran::Failed { status, output }
                if output.contains("env: node:") || output.contains("env: 'node'") =>
            {
                Err(Error::ClientMissing {
                    package: package.to_string(),
                    tried: format!("npm is installed, but cannot start node ({status})"),
                    advice: "install Node.js and try again",
                })
            }
            Ran::Failed { status, output } => Err(self.failed(
                "npm pack",
                status,
                "Look at the network and at npm's registry and proxy settings",
                output,
            )),
        }
    }

    fn apt(&self, progress: &mut dyn Progress) -> Result<()> {
        let package = self.context.package;
        let lists = self.scratch.join("apt-lists");
        let cache = self.scratch.join("apt-cache");
        let apt = |private: bool, arguments: &[&str]| {
            let mut command = Command::new("apt-get");
            // Packages that apt cannot verify against signed lists are refused, regardless of its
            // configuration.
            command
                .args(["-q", "-y", "-o", "APT::Get::AllowUnauthenticated=false"])
                .env("LC_ALL", "C")
                .current_dir(&self.download);
            if private {
                for (name, path) in [("Dir::State::lists", &lists), ("Dir::Cache", &cache)] {
                    let mut option = std::ffi::OsString::from(format!("{name}="));
                    option.push(path);
                    command.arg("-o").arg(option);
                }
            }
            command.args(arguments);
            command
        };
        let advice = "Look at the network and at the sources of apt (`apt-cache policy` names the package if one has it)";

        match self.run(&mut apt(false, &["download", package.name]), progress)? {
            Ran::Succeeded => return Ok(()),
            Ran::Missing => {
                return Err(Error::ClientMissing {
                    package: package.to_string(),
                    tried: "apt-get was not found".into(),
                    advice: "this package is only to be had with apt-get, on Debian, Ubuntu and their kin: install \
                             on such a machine or container and copy the cache directory here",
                });
            }
            // The system's package lists are empty (as in container images) or out of date.
            // Updating them would need root and change the system, so a private copy is fetched
            // instead.
            Ran::Failed { output, .. }
                if [
                    "Unable to locate package",
                    "Can't find",
                    "Can't select",
                    "404 ",
                ]
                .iter()
                .any(|sign| output.contains(sign)) => {}
            Ran::Failed { status, output } => {
                return Err(self.failed("apt-get download", status, advice, output));
            }
        }
        for directory in [
            lists.join("partial"),
            cache.join("archives").join("partial"),
        ] {
            fs::create_dir_all(&directory).map_err(|error| {
                self.context
                    .error("create the directory", &directory, error)
            })?;
        }
        // The exit status of `update` is irrelevant: the download decides.
        let _ = self.run(&mut apt(true, &["update"]), progress)?;
        match self.run(&mut apt(true, &["download", package.name]), progress)? {
            Ran::Succeeded => Ok(()),
            Ran::Missing => Err(self.failed(
                "apt-get download",
                "it vanished".into(),
                advice,
                String::new(),
            )),
            Ran::Failed { status, output } => {
                Err(self.failed("apt-get download", status, advice, output))
            }
        }
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
        match outcome {
            Ok(Outcome::Ended { status, .. }) if status.success() => Ok(Ran::Succeeded),
            Ok(Outcome::Ended { output, .. })
                if ["No space left on device", "ENOSPC", "Disk quota exceeded"]
                    .iter()
                    .any(|sign| output.contains(sign)) =>
            {
                let said = output
                    .lines()
                    .rfind(|line| line.contains("space") || line.contains("quota"));
                Err(self
                    .context
                    .disk_full(said.unwrap_or("ENOSPC").trim().to_string()))
            }
            Ok(Outcome::Ended { status, output }) => Ok(Ran::Failed {
                status: status.to_string(),
                output,
            }),
            Ok(Outcome::TimedOut { waited }) => Err(Error::Timeout {
                what: format!(
                    "downloading {package} with {}",
                    command.get_program().to_string_lossy()
                ),
                waited,
                detail: format!(
                    ", with {} of {} there (at most {} s in all, {} s without progress)",
                    Bytes(done),
                    Bytes(package.archive_size),
                    self.limits.download.as_secs(),
                    deadline.stall.as_secs()
                ),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ran::Missing),
            // For the user, an inaccessible entry of PATH is the same as none.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(Ran::Missing),
            Err(error) => {
                let program = Path::new(command.get_program());
                Err(self.context.error("start", program, error))
            }
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
