//! Downloads by npm.

use std::process::Command;

use super::{Ran, Work, settings};
use crate::{
    error::{Error, Result},
    progress::Progress,
};

impl Work<'_> {
    /// Downloads a package of npm's registry.
    pub(super) fn npm(&self, progress: &mut dyn Progress) -> Result<()> {
        let package = self.context.package;
        let mut command = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
        command
            .args([
                "pack",
                "--ignore-scripts",
                "--loglevel=error",
                "--no-update-notifier",
            ])
            // What files may set, for the command's own work.
            .args(["--pack-destination=.", "--dry-run=false", "--json=false"])
            .args(["--workspaces=false", "--global=false", "--location=project"])
            .args([
                "--fetch-retries=2",
                "--fetch-retry-mintimeout=1000",
                "--fetch-retry-maxtimeout=5000",
                "--cache",
            ])
            .arg(self.scratch.join("npm"))
            .arg(format!("{}@{}", package.name, package.version))
            .current_dir(&self.download);
        settings::NPM.alone(&mut command);
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
                settings::advice(
                    &output,
                    "Look at the network and at npm's registry and proxy settings",
                ),
                output,
            )),
        }
    }
}
