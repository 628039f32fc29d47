//! Progress reports of installations.

use std::{
    fmt,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::package::Package;

/// A step of an installation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Step<'a> {
    /// An installation of a package that is not in the cache begins.
    Starting {
        /// The package.
        package: &'a Package,
        /// Directory for its files.
        directory: &'a Path,
    },
    /// Before the installation: the terms of its owner, which the user accepts by using it.
    Terms {
        /// The package.
        package: &'a Package,
        /// The terms, or their address.
        terms: &'a str,
    },
    /// The package in the cache is damaged and fetched again.
    Damaged {
        /// The package.
        package: &'a Package,
        /// The file and its damage.
        reason: &'a str,
    },
    /// Another process is installing the same package.
    Waiting {
        /// The package.
        package: &'a Package,
        /// Time waited so far.
        waited: Duration,
        /// The installing process according to its lock: `process 4711 on host, for 35 s`.
        holder: &'a str,
    },
    /// The client is downloading.
    Downloading {
        /// The package, or a part of it.
        package: &'a Package,
        /// Bytes seen on disk so far. Never above `total`.
        done: u64,
        /// Size of the archive in bytes.
        total: u64,
    },
    /// Files are being verified and unpacked.
    Unpacking {
        /// The package, or a part of it.
        package: &'a Package,
        /// Bytes written so far.
        done: u64,
        /// Bytes of all required files.
        total: u64,
    },
    /// The package is complete and verified.
    Installed {
        /// The package.
        package: &'a Package,
        /// Directory of its files.
        directory: &'a Path,
    },
}

/// Receives the steps of an installation, from the thread that called
/// [`ensure`](crate::Cache::ensure), often.
pub trait Progress {
    /// Reports a step, at each change and periodically.
    fn step(&mut self, step: Step<'_>);
}

/// Reports nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn step(&mut self, _: Step<'_>) {}
}

/// A line on stderr when an installation begins, and a progress bar while it lasts if stderr is a
/// terminal.
#[derive(Debug, Default)]
pub struct Bar {
    /// The lines on the terminal of this bar and of those [beside](Self::beside) it.
    lines: MultiProgress,
    bar: Option<ProgressBar>,
    /// Waiting time at the last report of it.
    waiting_said: Option<Duration>,
}

impl Bar {
    /// Time between two lines about a wait, if stderr is not a terminal.
    const WAITING: Duration = Duration::from_secs(30);

    /// Returns a bar with a line of its own on the terminal, for another installation at the same
    /// time.
    pub fn beside(&self) -> Self {
        Self {
            lines: self.lines.clone(),
            bar: None,
            waiting_said: None,
        }
    }

    /// Reports the awaited process, at once and then periodically.
    fn waits(&mut self, package: &Package, waited: Duration, holder: &str) {
        if self
            .waiting_said
            .is_none_or(|said| waited >= said + Self::WAITING)
        {
            self.waiting_said = Some(waited);
            self.remark(format_args!(
                "halite: waiting for another process to install {package}: {holder}"
            ));
        }
    }

    fn show(&mut self, package: &Package, message: String, done: u64, total: u64) {
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template(
                "{prefix} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {msg}",
            )
            .expect("the template of the progress bar is valid")
            .progress_chars("=> ");
            self.lines.add(ProgressBar::new(total).with_style(style))
        });
        bar.set_prefix(package.to_string());
        // The position first: the old one could be beyond the new length.
        bar.set_position(done);
        bar.set_length(total);
        bar.set_message(message);
    }

    /// Prints a line on stderr, above the bars. One that cannot be printed must not end an
    /// installation.
    fn remark(&self, line: fmt::Arguments<'_>) {
        // One write, so that lines of several threads do not mix.
        let line = format!("{line}\n");
        _ = self
            .lines
            .suspend(|| io::stderr().write_all(line.as_bytes()));
    }
}

impl Progress for Bar {
    fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Starting { package, directory } => {
                let size = Bytes(package.download_size());
                let parts = match package.parts.len() {
                    0 => String::new(),
                    count => format!(" with {count} more packages"),
                };
                self.remark(format_args!(
                    "halite: installing {package}{parts}, {size}, into {}",
                    directory.display()
                ));
            }
            Step::Terms { package, terms } => {
                self.remark(format_args!(
                    "halite: {package} is subject to its owner's terms: {terms}"
                ));
            }
            Step::Damaged { package, reason } => {
                self.show(
                    package,
                    format!("damaged, fetching again: {reason}"),
                    0,
                    package.archive_size,
                );
            }
            Step::Waiting {
                package,
                waited,
                holder,
            } => {
                self.waits(package, waited, holder);
                let message = format!("another process is installing it ({} s)", waited.as_secs());
                self.show(package, message, 0, package.archive_size);
            }
            Step::Downloading {
                package,
                done,
                total,
            } => self.show(package, "downloading".into(), done, total),
            Step::Unpacking {
                package,
                done,
                total,
            } => self.show(package, "unpacking".into(), done, total),
            Step::Installed { .. } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_with_message("installed");
                }
            }
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // A bar that is left belongs to a failed installation.
        if let Some(bar) = self.bar.take() {
            bar.abandon();
        }
    }
}

/// A number of bytes for messages: `62.7 MB`, in decimal units as in registries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} bytes", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kB", bytes / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} MB", bytes / 1e6),
            _ => write!(f, "{:.1} GB", bytes / 1e9),
        }
    }
}
