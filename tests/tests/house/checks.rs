//! The scripts of `.ci`, and that they run every test.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where `PATH` has a program.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn missing_tools_are_named_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["bash", "env", "dirname", "rustup", "cargo", "timeout"] {
        if let Some(path) = program(name) {
            symlink(path, folder.path().join(name)).unwrap();
        }
    }
    for script in ["run", "full"] {
        let mut command = Command::new(root().join(".ci").join(script));
        let output = command.env("PATH", folder.path()).output().unwrap();
        let (stdout, stderr) = text(&output);
        assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
        assert!(!stdout.contains("== "), "{stdout}");
        for remedy in ["gcc", "python3-pip", "npm"] {
            let remedy = format!("to install it: apt-get install {remedy}");
            assert!(stderr.contains(&remedy), "{stderr}");
        }
    }
}

#[test]
fn step_that_hangs_ends_with_its_name() {
    let script = ". .ci/lib; step quick 1 true; step slow 0.01 sleep 600; step never 1 true";
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]);
    let output = command.current_dir(root()).output().unwrap();
    let (stdout, stderr) = text(&output);
    assert_eq!(output.status.code(), Some(124), "{stdout}{stderr}");
    assert!(
        stderr.contains("slow: stopped after 0.01 minutes"),
        "{stderr}"
    );
    assert!(
        stdout.contains("== quick") && !stdout.contains("== never"),
        "{stdout}"
    );
}

/// All files of Rust below a folder, except programs that must not compile.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("ui") {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The text of all files that may declare the module of a file.
fn parents(path: &Path) -> String {
    let folder = path.parent().unwrap();
    let outer = folder.parent().unwrap();
    let beside = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let above = [
        folder.with_extension("rs"),
        outer.with_extension("rs"),
        outer.join("main.rs"),
        // The command has tests as unit tests.
        outer.join("../src/main.rs"),
    ];
    beside
        .chain(above)
        .filter(|file| file != path && file.extension().is_some_and(|end| end == "rs"))
        .filter_map(|file| fs::read_to_string(file).ok())
        .collect()
}

#[test]
fn every_file_of_tests_is_compiled() {
    let mut left_out = Vec::new();
    for package in super::packaging::members() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let targets = package["targets"].as_array().unwrap();
        let own: Vec<&Path> = (targets.iter())
            .map(|target| Path::new(target["src_path"].as_str().unwrap()))
            .collect();
        let mut folder = manifest.parent().unwrap().join("tests");
        // The folder is a crate of its own, but for the tests of the command.
        if folder.join("Cargo.toml").exists() {
            folder.push("cli");
        }
        let mut files = Vec::new();
        if folder.is_dir() {
            sources(&folder, &mut files);
        }
        for file in files.into_iter().filter(|file| !own.contains(&&**file)) {
            let stem = match file.ends_with("mod.rs") {
                true => file.parent().unwrap().file_name(),
                false => file.file_stem(),
            };
            let stem = stem.unwrap().to_str().unwrap();
            let (by_name, by_path) = (format!("mod {stem};"), format!("{stem}.rs\"]"));
            let parents = parents(&file);
            if !parents.contains(&by_name) && !parents.contains(&by_path) {
                left_out.push(file);
            }
        }
    }
    assert!(left_out.is_empty(), "no executable has {left_out:#?}");
}

/// Reports of other frameworks that were tried here, and the tests that stand for them.
#[test]
fn reports_of_others_name_tests_that_exist() {
    let text = fs::read_to_string(root().join("tests/campaigns/reports.json")).unwrap();
    let reports: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert!(reports.len() >= 20, "{} reports", reports.len());
    for report in &reports {
        for field in ["source", "field", "title", "expected", "before", "after"] {
            assert!(report[field].is_string(), "no {field}: {report}");
        }
        let Some(test) = report["test"].as_str() else {
            continue;
        };
        let (file, name) = test.split_once("::").unwrap_or((test, ""));
        let source = fs::read_to_string(root().join(file));
        let source = source.unwrap_or_else(|error| panic!("{test}: {error}"));
        assert!(source.contains(&format!("fn {name}(")), "{test}");
    }
}
