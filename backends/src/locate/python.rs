//! The search in the Python environment.

use std::{collections::BTreeSet, io, path::PathBuf, process::Command, time::Duration};

use halite_core::warning;
use halite_fetch::{sha256_of_file, stdout_of};

use super::{Located, Missed, Search, Source};
use crate::environment::TRUST_PYTHON;

impl Search<'_> {
    /// Returns the libraries of known digest in the Python environment, and adds to `missed` why
    /// others are not used.
    pub(super) fn in_python(&self, missed: &mut Missed) -> Vec<Located> {
        let modules: BTreeSet<_> = self.known().map(|plugin| plugin.in_python().0).collect();
        let modules = Vec::from_iter(modules);
        if modules.is_empty() {
            return Vec::new();
        }
        let places = match directories_of(&modules) {
            Ok(places) => places,
            Err(reason) => {
                missed.refused.push(reason);
                return Vec::new();
            }
        };
        // Packages of other vendors install into the same module.
        let files = places.iter().flat_map(|(module, directory)| {
            let of_module = self
                .known()
                .filter(move |plugin| plugin.in_python().0 == module);
            of_module.map(|plugin| (plugin, directory.join(plugin.in_python().1)))
        });
        let files: Vec<_> = files.filter(|(_, path)| path.exists()).collect();
        if files.is_empty() {
            let packages: Vec<_> = self.known().map(|plugin| plugin.package.name).collect();
            missed.refused.push(format!(
                "not installed as a Python package ({})",
                packages.join(", ")
            ));
        }
        let mut found = Vec::new();
        for (plugin, path) in files {
            match sha256_of_file(&path) {
                Ok((digest, _)) if digest == plugin.library.sha256 => {
                    found.push(Located {
                        path,
                        source: Source::Python,
                        plugin: Some(plugin),
                    });
                }
                Ok((digest, _)) if self.trust_python => {
                    warning!(
                        "{} has SHA-256 {digest}, which halite does not know; it is taken because \
                         Python's packages are trusted ({TRUST_PYTHON})",
                        path.display()
                    );
                    found.push(Located {
                        path,
                        source: Source::Python,
                        plugin: None,
                    });
                }
                Ok((digest, _)) => missed.found(format!(
                    "{} has SHA-256 {digest}; expected {}, of {} {}; take it with \
                     --trust-python, {TRUST_PYTHON}=1 or {}=PATH",
                    path.display(),
                    plugin.library.sha256,
                    plugin.package.name,
                    plugin.package.version,
                    self.variable
                )),
                Err(error) => missed.found(format!("{}: {error}", path.display())),
            }
        }
        found
    }
}

/// Returns the directories of these modules in the Python environment, without importing them.
pub(crate) fn directories_of(modules: &[&str]) -> Result<Vec<(String, PathBuf)>, String> {
    const QUERY: &str = "
import importlib.util, sys
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        continue
    for place in (spec.submodule_search_locations or []) if spec else []:
        print('halite', name, place, sep='|')
";
    answers(QUERY, modules)
}

/// Returns the directories of the Python environment that pip installs packages in.
pub(crate) fn packages_directories() -> Result<Vec<PathBuf>, String> {
    const QUERY: &str = "
import sys
for place in sys.path:
    if place.endswith('-packages'):
        print('halite', 'packages', place, sep='|')
";
    let places = answers(QUERY, &[])?;
    Ok(places.into_iter().map(|(_, place)| place).collect())
}

/// Runs a program of Python that prints lines `halite|name|path`.
fn answers(program: &str, arguments: &[&str]) -> Result<Vec<(String, PathBuf)>, String> {
    const DEADLINE: Duration = Duration::from_secs(20);

    let mut reasons = Vec::new();
    for python in ["python3", "python"] {
        let mut command = Command::new(python);
        command.arg("-c").arg(program).args(arguments);
        // `-c` looks for modules in the current directory first, which may be anybody's.
        if cfg!(unix) {
            command.current_dir("/");
        }
        match stdout_of(&mut command, DEADLINE) {
            Ok(Some(text)) => {
                let place = |line: &str| {
                    let (name, path) = line.strip_prefix("halite|")?.split_once('|')?;
                    Some((name.to_string(), PathBuf::from(path)))
                };
                return Ok(text.lines().filter_map(place).collect());
            }
            Ok(None) => reasons.push(format!("{python} failed")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                reasons.push(format!("no {python}"))
            }
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(format!(
        "no Python environment to look in ({})",
        reasons.join(", ")
    ))
}
