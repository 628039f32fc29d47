//! Packages of several archives.

use std::{fs, path::Path};

use halite_fetch::{Check, Client, Error, FileSpec, Package, Quiet, State, Transform};

use crate::install::support::{IS_NUMBER, SIX, ZEROS, assert_nothing_partial, cache};

/// One wheel of several, with a file of a second archive.
const BOTH: Package = Package {
    client: Client::Wheel {
        // The wheel of six is for every Python.
        python: "3.11",
        platform: "manylinux2014_x86_64",
    },
    parts: &[TOOL],
    ..SIX
};
const TOOL: Package = Package {
    files: &[TOOL_FILE],
    ..IS_NUMBER
};
const TOOL_FILE: FileSpec = FileSpec {
    name: "tools/bin/is-number",
    transform: Transform::Executable,
    ..IS_NUMBER.files[0]
};

#[test]
fn parts_of_a_package_share_a_directory() {
    let (_guard, cache) = cache();
    assert_eq!(
        (BOTH.download_size(), BOTH.installed_size()),
        (11_053 + 3_730, 34_549 + 411)
    );
    let installed = cache.ensure(&BOTH, &mut Quiet).unwrap();
    assert!(installed.fresh);
    assert!(!is_executable(&installed.path("six.py")));
    assert!(is_executable(&installed.path("tools/bin/is-number")));
    assert!(!cache.ensure(&BOTH, &mut Quiet).unwrap().fresh);
    let state = cache.state(&BOTH, Check::Full).unwrap();
    assert!(matches!(state, State::Installed(_)));
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().unwrap().permissions().mode() & 0o111 != 0
}

#[test]
fn damaged_part_is_installed_again() {
    let (_guard, cache) = cache();
    let installed = cache.ensure(&BOTH, &mut Quiet).unwrap();
    fs::write(installed.path("tools/bin/is-number"), "exit 1").unwrap();
    let State::Damaged(reason) = cache.state(&BOTH, Check::Quick).unwrap() else {
        panic!("it is taken")
    };
    assert!(
        reason.starts_with("tools/bin/is-number has 6 bytes instead of 411"),
        "{reason}"
    );
    assert!(cache.ensure(&BOTH, &mut Quiet).unwrap().fresh);
}

#[test]
fn package_with_a_wrong_part_leaves_no_files() {
    const WRONG: Package = Package {
        archive_sha256: Some(ZEROS),
        ..TOOL
    };
    let (_guard, cache) = cache();
    let package = Package {
        parts: &[WRONG],
        ..BOTH
    };
    let error = cache.ensure(&package, &mut Quiet).unwrap_err();
    assert!(matches!(error, Error::ArchiveDigest { .. }), "{error}");
    assert_eq!(cache.state(&package, Check::Quick).unwrap(), State::Absent);
    assert_nothing_partial(&cache);
}
