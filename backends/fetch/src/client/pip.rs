//! Downloads by pip.

use std::{env, process::Command};

use super::{Ran, Work, settings};
use crate::{
    error::{Error, Result},
    progress::Progress,
};

impl Work<'_> {
    /// Downloads a wheel; `tags` select one of several.
    pub(super) fn pip(&self, tags: &[&str], progress: &mut dyn Progress) -> Result<()> {
        let package = self.context.package;
        let mut tried = Vec::new();
        for python in ["python3", "python"] {
            match self.run(&mut self.pip_download(python, tags), progress)? {
                Ran::Missing => tried.push(format!("{python} was not found")),
                Ran::Failed { output, .. } if output.contains("No module named pip") => {
                    tried.push(format!("{python} has no pip"));
                }
                Ran::Failed { status, output } => {
                    let advice = match env::var_os("PIP_NO_INDEX") {
                        Some(_) => NO_INDEX,
                        None => settings::advice(&output, NETWORK),
                    };
                    let what = format!("{python} -m pip download");
                    return Err(self.failed(&what, status, advice, output));
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

    fn pip_download(&self, python: &str, tags: &[&str]) -> Command {
        let package = self.context.package;
        let mut command = Command::new(python);
        command
            .args(["-m", "pip", "download", "--no-deps"])
            // Wheels only: pip runs the code of source packages.
            .arg("--only-binary=:all:")
            .args([
                "--no-cache-dir",
                "--no-input",
                "--disable-pip-version-check",
            ])
            .args(["--progress-bar=off", "--retries=2"])
            .args(tags)
            .arg("--dest")
            .arg(&self.download)
            .arg(format!("{}=={}", package.name, package.version))
            // An empty directory: `-m` looks for modules in the current one first.
            .current_dir(&self.scratch)
            .envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, &self.scratch)));
        settings::PIP.alone(&mut command);
        // Variables count more than files, and an empty file replaces the one that a file names.
        let empty = if cfg!(windows) { "NUL" } else { "/dev/null" };
        command.envs([
            ("PIP_REQUIRE_VIRTUALENV", "false"),
            ("PIP_REQUIRE_HASHES", "false"),
            ("PIP_CONSTRAINT", empty),
            ("PIP_REQUIREMENT", empty),
        ]);
        command
    }
}

const NETWORK: &str = "Look at the network and at pip's index-url and proxy settings; \"no \
                       matching distribution\" means that the index has no build of it for this \
                       system";
const NO_INDEX: &str = "PIP_NO_INDEX is set, so that pip looks only where PIP_FIND_LINKS says: put \
                        the archive there, or unset it";
