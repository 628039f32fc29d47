//! The packages that `cargo publish` would upload: metadata, files, the dependencies that each of
//! them brings and their licences, and the circles of modules inside of them.

mod licences;
mod modules;

use std::{path::Path, process::Command, sync::OnceLock};

use serde_json::Value;

/// Runs cargo offline in the workspace and returns what it prints.
fn cargo(arguments: &str) -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments.split_whitespace())
        .arg("--offline")
        .current_dir(workspace)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// All members of the workspace, as `cargo metadata` describes them.
pub(crate) fn members() -> &'static [Value] {
    static MEMBERS: OnceLock<Vec<Value>> = OnceLock::new();
    MEMBERS.get_or_init(|| {
        let text = cargo("metadata --no-deps --format-version 1");
        let metadata: Value = serde_json::from_str(&text).unwrap();
        metadata["packages"].as_array().unwrap().clone()
    })
}

/// The members that are published.
fn published() -> Vec<&'static Value> {
    let is_published = |package: &&Value| package["publish"].is_null();
    members().iter().filter(is_published).collect()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

#[test]
fn published_packages_have_complete_metadata() {
    assert_eq!(published().len(), 21);
    for package in published() {
        for field in [
            "description",
            "license",
            "repository",
            "readme",
            "rust_version",
        ] {
            assert!(package[field].is_string(), "{}: no {field}", name(package));
        }
        // crates.io refuses more than five of either.
        for field in ["keywords", "categories"] {
            let count = package[field].as_array().unwrap().len();
            assert!(
                (1..=5).contains(&count),
                "{}: {count} {field}",
                name(package)
            );
        }
        let docs = &package["metadata"]["docs"]["rs"]["targets"];
        assert!(docs.is_array(), "{}: no docs.rs targets", name(package));
    }
}

#[test]
fn packages_can_be_published_in_dependency_order() {
    let (published, mut uploaded) = (published(), Vec::new());
    let depends_on = |package: &Value, member: &str| {
        package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .any(|dependency| {
                // A development dependency by path alone has no version, and is not published.
                let counts = dependency["kind"] != "dev" || dependency["req"] != "*";
                name(dependency) == member && counts
            })
    };
    let is_ready = |package: &Value, uploaded: &[&str]| {
        let missing = |member: &&Value| {
            depends_on(package, name(member)) && !uploaded.contains(&name(member))
        };
        !members().iter().any(|member| missing(&member))
    };
    while let Some(next) = published
        .iter()
        .find(|package| !uploaded.contains(&name(package)) && is_ready(package, &uploaded))
    {
        uploaded.push(name(next));
    }
    let left: Vec<&str> = published.iter().map(|package| name(package)).collect();
    let left: Vec<&&str> = left
        .iter()
        .filter(|name| !uploaded.contains(name))
        .collect();
    assert!(
        left.is_empty(),
        "circular or unpublished dependencies: {left:?}"
    );
}

/// The program that the README shows is the example, and short enough to be read at once.
#[test]
fn program_of_the_readme_is_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let (readme, example) = (text("README.md"), text("examples/mnist.rs"));
    let program = &example[example.find("use halite").unwrap()..];
    let shown = readme.split("```rust,no_run\n").nth(1).unwrap();
    assert_eq!(shown.split("```").next().unwrap(), program);
    let lines = program.lines().filter(|line| !line.trim().is_empty());
    assert!(lines.count() <= 45 && program.matches("'t").count() <= 3);
}

#[test]
fn packages_contain_sources_alone() {
    for package in published() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap())
            .parent()
            .unwrap();
        let listed = cargo(&format!(
            "package --list --allow-dirty -p {}",
            name(package)
        ));
        let files: Vec<&str> = listed.lines().collect();
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"] {
            assert!(files.contains(&file), "{}: no {file}", name(package));
        }
        for file in files {
            // Those that cargo itself generates are not on the disk.
            let size = folder
                .join(file)
                .metadata()
                .map_or(0, |metadata| metadata.len());
            assert!(
                size < 100_000 && !file.starts_with("tests/"),
                "{}: {file}",
                name(package)
            );
        }
    }
}

/// Packages that a user of `package` with these options compiles.
fn dependencies(package: &str, options: &str) -> Vec<String> {
    let tree = cargo(&format!(
        "tree -p {package} {options} -e normal --prefix none"
    ));
    let name = |line: &str| {
        line.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    tree.lines().map(name).collect()
}

#[track_caller]
fn check_absent(package: &str, options: &str, absent: &[&str]) {
    let found = dependencies(package, options);
    assert!(found.len() > 3, "{found:?}");
    for name in absent {
        assert!(
            !found.iter().any(|found| found == name),
            "{package} {options} needs {name}"
        );
    }
}

#[test]
fn library_without_cli_needs_no_argument_parser() {
    check_absent("halite", "--no-default-features", &["clap", "mimalloc"]);
    assert!(dependencies("halite", "").contains(&"clap".to_owned()));
}

#[test]
fn command_without_mimalloc_compiles_no_c() {
    let options = "--no-default-features --features cli";
    check_absent("halite", options, &["mimalloc", "libmimalloc-sys"]);
    assert!(dependencies("halite", "").contains(&"libmimalloc-sys".to_owned()));
}

#[test]
fn nn_needs_no_plugin_loader() {
    let absent = [
        "halite-pjrt",
        "halite-pjrt-sys",
        "halite-fetch",
        "libloading",
        "prost",
        "serde",
    ];
    check_absent("halite-nn", "", &absent);
}

#[test]
fn train_needs_no_backend() {
    check_absent(
        "halite-train",
        "",
        &["halite-backends", "halite-pjrt", "libloading", "clap"],
    );
}

#[test]
fn data_needs_no_model() {
    let absent = ["halite-nn", "halite-ir", "halite-backends", "halite-train"];
    check_absent("halite-data", "", &absent);
}

#[test]
fn pjrt_needs_no_model() {
    check_absent(
        "halite-pjrt",
        "",
        &["halite-ir", "halite-nn", "halite-fetch", "serde"],
    );
}

/// Types in the signatures of what the facade exports. Names that are missing do not compile.
#[allow(unused_imports)]
#[test]
fn facade_exports_types_of_its_signatures() {
    use halite::{
        Collective, CollectiveExt, CompileOptions, CounterSnapshot, Counters, Finding, FindingKind,
        FlagValue, LossScale, Metric, Pending, Placement, ReduceOp, core::Backend,
        core::ProgramKey,
    };
    // `halite::core` is the whole crate, so that no later signature can name an unreachable type.
    fn is_the_same(key: halite_core::ProgramKey) -> halite::core::ProgramKey {
        key
    }
    let _: fn(halite_core::ReduceOp) -> ReduceOp = |op| op;
    let _ = is_the_same;
}
