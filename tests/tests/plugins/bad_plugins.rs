//! Files that are not a usable plugin. Each is an error with the file, the reason and a remedy;
//! none ends or blocks the process.
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::Command,
};

use halite_backends::{Accelerator, Driver, OpenOptions, PLUGINS, Search, Source, install, plugin};
use halite_core::{Error, ErrorKind, Result};
use halite_fetch::{Bar, Cache, Check, Quiet, State};
use halite_pjrt::Plugin;
use halite_tests::hanging::in_time;

/// The real CPU plugin, installed if it is missing.
fn real() -> PathBuf {
    let cache = Cache::open(None).unwrap();
    install(plugin("cpu").unwrap(), &cache, &mut Bar::default())
        .unwrap()
        .path
}

/// Checks that opening it fails in time, with the name of the file and these parts, in one
/// paragraph.
fn check(path: &Path, kind: ErrorKind, parts: &[&str]) {
    let accelerator = Accelerator::Plugin(path.to_path_buf());
    let result: Result<()> = in_time(move || accelerator.open().map(drop));
    let error = result.expect_err(&format!("{} is opened", path.display()));
    let text = error.to_string();
    println!("{text}");
    assert_eq!(error.kind(), kind, "{text}");
    assert!(
        text.contains(path.to_str().unwrap()),
        "the name of the file is missing: {text}"
    );
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert!(
        !text.contains('\n') && text.len() < 600,
        "not one paragraph: {text}"
    );
}

#[test]
fn other_files_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        fs::write(directory.path().join(name), bytes).unwrap();
        directory.path().join(name)
    };
    check(
        &directory.path().join("missing.so"),
        ErrorKind::Unavailable,
        &["cannot be read", "give the path of a PJRT plugin"],
    );
    check(
        directory.path(),
        ErrorKind::InvalidArgument,
        &[
            "is not a file",
            "give the path of the shared library itself",
        ],
    );
    check(
        &file("empty.so", b""),
        ErrorKind::InvalidArgument,
        &[
            "is not a shared library (0 bytes",
            "is it a plugin's `.so`?",
        ],
    );
    check(
        &file("text.so", b"#!/bin/sh\necho plugin\n"),
        ErrorKind::InvalidArgument,
        &["is not a shared library", "no ELF header"],
    );
    check(
        &file("magic.so", b"\x7fELF"),
        ErrorKind::Corrupt,
        &["is truncated: 4 bytes", "fetch it again"],
    );
    check(
        &file("zeros.so", &[0; 100_000]),
        ErrorKind::InvalidArgument,
        &["is not a shared library"],
    );
    // An executable; a position-independent one can be loaded, but has no entry point.
    let program = std::env::current_exe().unwrap();
    Accelerator::Plugin(program).open().unwrap_err();
}

#[test]
fn truncated_plugin_is_rejected_with_both_sizes() {
    let real = real();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut.so");
    let length = fs::metadata(&real).unwrap().len();
    for keep in [40, 1000, 1 << 20] {
        let mut bytes = vec![0; keep];
        fs::File::open(&real)
            .unwrap()
            .read_exact(&mut bytes)
            .unwrap();
        fs::write(&path, &bytes).unwrap();
        check(
            &path,
            ErrorKind::Corrupt,
            &[
                "is truncated",
                &keep.to_string(),
                "delete it and fetch it again",
            ],
        );
    }
    fs::copy(&real, &path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for keep in [length - 1, length / 2] {
        file.set_len(keep).unwrap();
        check(
            &path,
            ErrorKind::Corrupt,
            &["is truncated", &keep.to_string(), &length.to_string()],
        );
    }
}

#[test]
fn plugin_for_another_machine_is_rejected() {
    let real = real();
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = vec![0; 1 << 20];
    fs::File::open(&real)
        .unwrap()
        .read_exact(&mut bytes)
        .unwrap();
    let mut with = |offset: usize, value: u8, kind, parts: &[&str]| {
        let old = std::mem::replace(&mut bytes[offset], value);
        let path = directory.path().join(format!("{offset}.so"));
        fs::write(&path, &bytes).unwrap();
        check(&path, kind, parts);
        bytes[offset] = old;
    };
    let other = if cfg!(target_arch = "x86_64") {
        ("aarch64", 183)
    } else {
        ("x86_64", 62)
    };
    let advice = "install the plugin built for this architecture";
    with(
        18,
        other.1,
        ErrorKind::Unsupported,
        &[other.0, std::env::consts::ARCH, advice],
    );
    with(
        18,
        22,
        ErrorKind::Unsupported,
        &["another architecture (ELF machine 22)", advice],
    );
    with(
        4,
        1,
        ErrorKind::InvalidArgument,
        &["not a 64-bit little-endian library"],
    );
    with(
        5,
        2,
        ErrorKind::InvalidArgument,
        &["not a 64-bit little-endian library"],
    );
}

/// Compiles C code to a shared library.
fn library(directory: &Path, name: &str, code: &str) -> PathBuf {
    let source = directory.join(format!("{name}.c"));
    fs::write(&source, code).unwrap();
    let path = directory.join(format!("{name}.so"));
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .args([&path, &source])
        .status();
    assert!(
        status
            .expect("a C compiler, which Rust links with as well")
            .success()
    );
    path
}

#[test]
fn other_libraries_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let library = |name: &str, code: &str| library(directory.path(), name, code);
    let plain = library("plain", "int answer(void) { return 42; }");
    check(
        &plain,
        ErrorKind::InvalidArgument,
        &[
            "is a library but not a PJRT plugin",
            "GetPjrtApi",
            "pass the path",
        ],
    );
    let needs = library(
        "needs",
        "int nobody_has_this(void); int answer(void) { return nobody_has_this(); }",
    );
    check(
        &needs,
        ErrorKind::Unavailable,
        &["cannot be loaded", "nobody_has_this"],
    );
    check(
        &library("null", "void *GetPjrtApi(void) { return 0; }"),
        ErrorKind::InvalidArgument,
        &["no table of functions"],
    );
    // The table starts with its size and extensions, then the size, extensions, major and minor of
    // the version.
    let table = |name: &str, size: usize, major: i32, minor: i32| {
        let code = format!(
            "static struct {{ unsigned long size; void *next; unsigned long version_size; void *version_next;
               int major, minor; void *functions[200]; }} table = {{ {size}, 0, 24, 0, {major}, {minor} }};
             void *GetPjrtApi(void) {{ return &table; }}"
        );
        library(name, &code)
    };
    check(
        &table("short", 24, 0, 90),
        ErrorKind::InvalidArgument,
        &["a table of 24 bytes"],
    );
    check(
        &table("old", 800, 0, 40),
        ErrorKind::Unsupported,
        &["uses PJRT 0.40", "install a newer plugin"],
    );
    check(
        &table("new", 800, 1, 0),
        ErrorKind::Unsupported,
        &["uses PJRT 1.0", "install a newer halite"],
    );
    check(
        &table("hollow", 800, 0, 90),
        ErrorKind::Unsupported,
        &["(PJRT 0.90) lacks PJRT_", "more", "use a complete build"],
    );
}

#[test]
fn rejected_plugin_may_be_replaced_at_its_path() {
    let real = real();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plugin.so");
    fs::write(&path, b"half a download").unwrap();
    check(
        &path,
        ErrorKind::InvalidArgument,
        &["is not a shared library"],
    );
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&real, &path).unwrap();
    assert_eq!(
        Plugin::load(&path).unwrap().path(),
        real.canonicalize().unwrap()
    );
}

fn flip_bit_of(path: &Path, byte: u64) {
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut content = [0];
    file.seek(SeekFrom::Start(byte)).unwrap();
    file.read_exact(&mut content).unwrap();
    file.seek(SeekFrom::Start(byte)).unwrap();
    file.write_all(&[content[0] ^ 1]).unwrap();
}

#[test]
fn installed_plugin_with_a_flipped_bit_is_not_used() {
    let plugin = &PLUGINS[0];
    let whole = Cache::open(None)
        .unwrap()
        .ensure(&plugin.package, &mut Bar::default())
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::at(directory.path());
    let place = cache.directory(&plugin.package);
    fs::create_dir_all(&place).unwrap();
    for entry in fs::read_dir(&whole.directory).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), place.join(entry.file_name())).unwrap();
    }
    // This variable is never set.
    let search = Search {
        variable: "HALITE_TEST_NO_PLUGIN",
        ..Search::cpu(&cache)
    };
    assert_eq!(
        search.find().unwrap().source,
        Source::Cache,
        "a copy is as valid"
    );

    flip_bit_of(&place.join(plugin.library.name), plugin.library.size / 2);
    let State::Damaged(reason) = cache.state(&plugin.package, Check::Quick).unwrap() else {
        panic!("the damage is not detected")
    };
    assert!(reason.contains(plugin.library.sha256), "{reason}");
    let not_used = |text: &str| {
        for part in [
            "is damaged and not used",
            plugin.library.name,
            "halite plugins install cpu",
        ] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
    };
    match search.find() {
        Err(error) => not_used(&error.to_string()),
        // Another file with the right digest.
        Ok(located) => assert_eq!(located.source, Source::Python),
    }
    if std::env::var_os("HALITE_CPU_PLUGIN").is_none() {
        let options = OpenOptions {
            cache: Some(directory.path().into()),
            offline: true,
            ..OpenOptions::default()
        };
        match Accelerator::cpu().open_with(&options, &mut Quiet) {
            Err(error) => not_used(&Error::to_string(&error)),
            Ok(opened) => match opened.driver {
                Driver::Plugin { located, .. } => assert_eq!(located.source, Source::Python),
                Driver::Embedded => panic!("the CPU has a plugin"),
            },
        }
    }
}
