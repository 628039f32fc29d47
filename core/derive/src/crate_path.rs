//! Finds the crate that holds the module `tree`, by reading the `Cargo.toml` of the package being
//! compiled.
//!
//! The package `proc-macro-crate` does this with a full TOML parser, which every user would have to
//! build. Only the keys of the dependency tables are needed here; for unusual manifests there is
//! `#[tree(crate = "path")]`.

use std::{env, fs, path::Path};

use proc_macro2::Span;
use syn::Ident;

/// Packages with the module `tree`, in order of preference.
const PACKAGES: [&str; 2] = ["halite-core", "halite"];

/// `::halite_core`, `::halite`, or their names in the package being compiled.
pub(crate) fn detect() -> syn::Path {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .and_then(|folder| fs::read_to_string(Path::new(&folder).join("Cargo.toml")).ok())
        .unwrap_or_default();
    let name = Ident::new(&name_in(&manifest), Span::call_site());
    syn::parse_quote!(::#name)
}

/// The name under which the package with this manifest reaches the module `tree`.
fn name_in(manifest: &str) -> String {
    let dependencies = dependencies_of(manifest);
    let find = |for_tests: bool| {
        PACKAGES.iter().find_map(|package| {
            let found = dependencies
                .iter()
                .find(|found| found.package == *package && found.for_tests == for_tests);
            Some(found?.name.clone())
        })
    };
    // A dev-dependency is missing when the library is compiled, so it comes second. Without either,
    // this is halite-core itself (which has the alias `halite_core`) or a build without Cargo.
    let name = find(false)
        .or_else(|| find(true))
        .unwrap_or_else(|| PACKAGES[0].to_owned());
    name.replace('-', "_")
}

#[derive(Debug, PartialEq)]
struct Dependency {
    name: String,
    package: String,
    for_tests: bool,
}

/// Section of a manifest.
enum Section {
    Other,
    /// `[dependencies]`: every line is one.
    Dependencies {
        for_tests: bool,
    },
    /// `[dependencies.NAME]`: the lines describe the dependency that was pushed last.
    OneDependency,
}

fn dependencies_of(manifest: &str) -> Vec<Dependency> {
    let mut dependencies = Vec::new();
    let mut section = Section::Other;
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = enter(
                header.split(']').next().unwrap_or_default(),
                &mut dependencies,
            );
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        match section {
            Section::Dependencies { for_tests } => {
                // `halite-core.workspace = true` has the name before the first dot.
                let name = unquoted(key.split('.').next().unwrap_or_default());
                let package = package_in(value).unwrap_or(name);
                dependencies.push(Dependency {
                    name: name.to_owned(),
                    package: package.to_owned(),
                    for_tests,
                });
            }
            Section::OneDependency => {
                if let Some(dependency) = dependencies.last_mut()
                    && unquoted(key) == "package"
                {
                    dependency.package =
                        unquoted(value.split('#').next().unwrap_or_default()).to_owned();
                }
            }
            Section::Other => {}
        }
    }
    dependencies
}

/// The section that `[header]` begins. `[dependencies.NAME]` is itself a dependency.
fn enter(header: &str, dependencies: &mut Vec<Dependency>) -> Section {
    // `[target.'cfg(unix)'.dependencies]` counts like `[dependencies]`; `[workspace.dependencies]`
    // does not.
    if header.trim_start().starts_with("workspace") {
        return Section::Other;
    }
    for (table, for_tests) in [
        ("dev-dependencies", true),
        ("build-dependencies", true),
        ("dependencies", false),
    ] {
        let Some(start) = header.rfind(table) else {
            continue;
        };
        let rest = header[start + table.len()..].trim();
        if table == "build-dependencies" {
            return Section::Other;
        }
        if rest.is_empty() {
            return Section::Dependencies { for_tests };
        }
        if let Some(name) = rest.strip_prefix('.') {
            let name = unquoted(name).to_owned();
            dependencies.push(Dependency {
                package: name.clone(),
                name,
                for_tests,
            });
            return Section::OneDependency;
        }
    }
    Section::Other
}

/// `halite` from `{ package = "halite", version = "1" }`.
fn package_in(inline_table: &str) -> Option<&str> {
    let after = inline_table
        .trim()
        .strip_prefix('{')?
        .split(['{', ',', '}'])
        .find_map(|entry| {
            let (key, value) = entry.split_once('=')?;
            (unquoted(key) == "package").then_some(value)
        })?;
    Some(unquoted(after))
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\''])
}

#[cfg(test)]
mod tests {
    use super::name_in;

    #[test]
    fn crate_is_found_by_its_manifest_name() {
        let table = [
            (
                "halite_core",
                "[dependencies]\nhalite-core.workspace = true\nhalite = \"1\"\n",
            ),
            (
                "halite",
                "[dependencies]\nserde = \"1\"\nhalite = { version = \"1\", features = [\"plot\"] } # trains\n",
            ),
            (
                "halite",
                "[dependencies]\nhalite = \"1\"\n[dev-dependencies]\nhalite-core = \"1\"\n",
            ),
            (
                "halite_core",
                "[dev-dependencies]\n\"halite-core\" = { path = \"../core\" }\n",
            ),
            (
                "halite",
                "[package]\nname = \"mine\"\n\n[dependencies.halite]\nversion = \"1\"\n",
            ),
            (
                "hal",
                "[dependencies]\nhal = { version = \"1\", package = \"halite\" }\n",
            ),
            (
                "hal_core",
                "[dependencies.hal-core]\npackage = \"halite-core\" # renamed\nversion = \"1\"\n",
            ),
            (
                "halite",
                "[target.'cfg(unix)'.dependencies]\nhalite = \"1\"\n",
            ),
        ];
        for (name, manifest) in table {
            assert_eq!(name_in(manifest), name, "{manifest}");
        }
    }

    #[test]
    fn other_manifest_tables_are_ignored() {
        let table = [
            "",
            "[package]\nname = \"halite\"\n",
            "[workspace.dependencies]\nhalite = \"1\"\n",
            "[workspace.dependencies.halite]\nversion = \"1\"\n",
            "[build-dependencies]\nhalite = \"1\"\n",
            "[dependencies]\nhalite-data = \"1\"\nother = { version = \"1\", package = \"halite-nn\" }\n",
            "[features]\nhalite = []\n",
        ];
        for manifest in table {
            assert_eq!(name_in(manifest), "halite_core", "{manifest}");
        }
    }
}
