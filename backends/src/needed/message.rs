//! The error that names what a plugin lacks, and where it comes from.

use std::path::Path;

use super::Missing;
use crate::plugins::{Need, Provider};

/// Returns the message for all libraries that are missing, with the commands that bring them.
pub(super) fn missing(plugin: &Path, missing: &[Missing], needs: &[Need]) -> String {
    let provider = |name: &str| {
        let fits = |need: &&Need| need.names.iter().any(|start| name.starts_with(start));
        needs.iter().find(fits).map(|need| need.from)
    };
    let (mut pip, mut others, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    let add = |list: &mut Vec<&str>, one: &'static str| {
        if !list.contains(&one) {
            list.push(one);
        }
    };
    for library in missing {
        match provider(&library.name) {
            Some(Provider::Pip(package)) => add(&mut pip, package),
            Some(Provider::Other(description)) => add(&mut others, description),
            None => unknown.push(library.name.as_str()),
        }
    }
    let mut sources = Vec::new();
    if !pip.is_empty() {
        sources.push(format!("`python3 -m pip install {}`", pip.join(" ")));
    }
    sources.extend(others.into_iter().map(str::to_owned));
    let advice = match (sources.is_empty(), unknown.is_empty()) {
        (true, _) => {
            "install the packages that have them, or add their directories to LD_LIBRARY_PATH"
                .into()
        }
        (false, true) => format!(
            "install them with {}, or add their directories to LD_LIBRARY_PATH",
            sources.join(" and ")
        ),
        (false, false) => format!(
            "install {}, of which halite knows no package, and the others with {}; or add their \
             directories to LD_LIBRARY_PATH",
            unknown.join(", "),
            sources.join(" and ")
        ),
    };
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let count = match names.len() {
        1 => "a library that it needs is missing".to_owned(),
        count => format!("{count} libraries that it needs are missing"),
    };
    format!(
        "{} is not loaded: {count}: {}; {advice}",
        plugin.display(),
        names.join(", ")
    )
}

/// `libmpi.so.12`, or with the file that cannot be used.
impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        match &self.refused {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}
