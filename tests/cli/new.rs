//! `halite new`: the project that it writes.

use std::{fs, path::Path, process::Command};

use super::support::{assert_contains, fails, halite_alone, succeeds};

/// Runs cargo in the new project, offline, with the lock file and the build directory of the
/// workspace, so that nothing is fetched and dependencies are compiled once.
fn cargo(project: &Path, arguments: &[&str]) -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(workspace.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .arg("--offline")
        .env("CARGO_TARGET_DIR", workspace.join("target/new-project"))
        .env("CARGO_PROFILE_DEV_DEBUG", "none")
        .current_dir(project)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn new_project_has_the_program_of_the_readme() {
    let dir = tempfile::tempdir().unwrap();
    let said = succeeds(halite_alone("new ./my-model").current_dir(&dir)).stdout;
    assert_contains(&said, &["cd my-model && cargo run --release"]);
    let project = dir.path().join("my-model");
    let program = fs::read_to_string(project.join("src/main.rs")).unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mnist.rs");
    let example = fs::read_to_string(example).unwrap();
    let code = |text: &str| {
        let lines = text.lines().skip_while(|line| line.starts_with("//!"));
        lines.map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(code(&program), code(&example));
    assert!(program.starts_with("//! my-model: "), "{program}");

    // Cargo reads the manifest, and finds halite with the features that a program needs.
    let tree = cargo(&project, &["tree", "--depth", "1", "-e", "normal"]);
    assert_contains(&tree, &["my-model v0.1.0", "halite v0.1.0"]);
    let tree = cargo(&project, &["tree", "-e", "normal", "-i", "halite-embedded"]);
    assert_contains(&tree, &["halite-backends"]);
}

/// The program itself is compiled as an example of halite; this checks halite as a dependency.
#[test]
fn new_project_compiles() {
    let dir = tempfile::tempdir().unwrap();
    succeeds(halite_alone("new ./my-model").current_dir(&dir));
    cargo(&dir.path().join("my-model"), &["check"]);
}

#[test]
fn impossible_project_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (
            "new 3d",
            "`3d` cannot be the name of a package; use letters",
        ),
        ("new halite", "`halite` cannot be the name of a package"),
        ("new ./there", "there exists already"),
        (
            "new ./fresh --path .",
            ". is not a clone of halite's repository",
        ),
    ] {
        fs::create_dir_all(dir.path().join("there")).unwrap();
        let error = fails(halite_alone(arguments).current_dir(&dir));
        assert_contains(&error, &[expected]);
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing is written");
}
