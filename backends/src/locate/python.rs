//! The search in the Python environment.

use std::{io, path::PathBuf, process::Command, time::Duration};

use halite_core::warning;
use halite_fetch::{sha256_of_file, stdout_of};

use super::{Located, Missed, Search, Source};
use crate::environment::TRUST_PYTHON;

impl Search<'_> {
    /// Returns the libraries of known digest in the Python environment, and adds to `missed` why
    /// others are not used.
    pub(super) fn in_python(&self, missed: &mut Missed) -> Vec<Located> {
        let modules: Vec<_> = self.known().map(|plugin| plugin.in_python().0).collect();
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
        if places.is_empty() {
            missed.refused.push(format!(
                "not installed as a Python package ({})",
                modules.join(", ")
            ));
        }
        let mut found = Vec::new();
        for (module, directory) in places {
            let Some(plugin) = self.known().find(|plugin| plugin.in_python().0 == module) else {
                continue;
            };
            let path = directory.join(plugin.in_python().1);
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
    const DEADLINE: Duration = Duration::from_secs(20);
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
    let mut reasons = Vec::new();
    for python in ["python3", "python"] {
        let mut command = Command::new(python);
        command.arg("-c").arg(QUERY).args(modules);
        // `-c` looks for modules in the current directory first, which may be anybody's.
        if cfg!(unix) {
            command.current_dir("/");
        }
        match stdout_of(&mut command, DEADLINE) {
            Ok(Some(text)) => {
                let place = |line: &str| {
                    let (module, directory) = line.strip_prefix("halite|")?.split_once('|')?;
                    Some((module.to_string(), PathBuf::from(directory)))
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
