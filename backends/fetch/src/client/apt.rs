//! Downloads by apt-get.

use std::{ffi::OsString, fs, process::Command};

use super::{Ran, Work};
use crate::{
    error::{Error, Result},
    progress::Progress,
};

/// Package lists and cache that a command of apt uses.
#[derive(Clone, Copy, PartialEq)]
enum Lists {
    /// Those of the system.
    System,
    /// A copy in the scratch directory, which needs no root.
    Private,
}

impl Work<'_> {
    /// Downloads a package of the system's distribution.
    pub(super) fn apt(&self, progress: &mut dyn Progress) -> Result<()> {
        let package = self.context.package;
        let download = ["download", package.name];
        match self.run(&mut self.apt_get(Lists::System, &download), progress)? {
            Ran::Succeeded => return Ok(()),
            Ran::Missing => {
                return Err(Error::ClientMissing {
                    package: package.to_string(),
                    tried: "apt-get was not found".into(),
                    advice: "only apt-get has this package, on Debian, Ubuntu and their \
                             derivatives: install on such a machine or container and copy the \
                             cache directory here",
                });
            }
            // The system's package lists are empty (as in container images) or out of date.
            // Updating them would need root and change the system, so a private copy is fetched
            // instead.
            Ran::Failed { output, .. } if is_unlisted(&output) => {}
            Ran::Failed { status, output } => return Err(self.apt_failed(status, output)),
        }
        self.create_private_lists()?;
        // The exit status of `update` is irrelevant: the download decides.
        let _ = self.run(&mut self.apt_get(Lists::Private, &["update"]), progress)?;
        match self.run(&mut self.apt_get(Lists::Private, &download), progress)? {
            Ran::Succeeded => Ok(()),
            Ran::Missing => Err(self.apt_failed("apt-get was removed".into(), String::new())),
            Ran::Failed { status, output } => Err(self.apt_failed(status, output)),
        }
    }

    fn apt_get(&self, lists: Lists, arguments: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        // Packages that apt cannot verify against signed lists are refused, regardless of its
        // configuration.
        command
            .args(["-q", "-y", "-o", "APT::Get::AllowUnauthenticated=false"])
            // Settings that replace a download by a list.
            .args([
                "-o",
                "APT::Get::Simulate=false",
                "-o",
                "APT::Get::Print-URIs=false",
            ])
            .env("LC_ALL", "C")
            .current_dir(&self.download);
        if lists == Lists::Private {
            for (name, directory) in [("Dir::State::lists", LISTS), ("Dir::Cache", CACHE)] {
                let mut option = OsString::from(format!("{name}="));
                option.push(self.scratch.join(directory));
                command.arg("-o").arg(option);
            }
        }
        command.args(arguments);
        command
    }

    fn create_private_lists(&self) -> Result<()> {
        let lists = self.scratch.join(LISTS).join("partial");
        let archives = self.scratch.join(CACHE).join("archives").join("partial");
        [lists, archives].iter().try_for_each(|directory| {
            fs::create_dir_all(directory)
                .map_err(|error| self.context.error("create the directory", directory, error))
        })
    }

    fn apt_failed(&self, status: String, output: String) -> Error {
        const ADVICE: &str = "Look at the network and at the sources of apt (`apt-cache policy` \
                              names the package if one has it)";
        self.failed("apt-get download", status, ADVICE, output)
    }
}

/// Names of the private directories below the scratch directory.
const LISTS: &str = "apt-lists";
const CACHE: &str = "apt-cache";

/// Returns whether apt-get failed because its lists lack the package or are out of date.
fn is_unlisted(output: &str) -> bool {
    const SIGNS: [&str; 4] = [
        "Unable to locate package",
        "Can't find",
        "Can't select",
        "404 ",
    ];
    SIGNS.iter().any(|sign| output.contains(sign))
}
