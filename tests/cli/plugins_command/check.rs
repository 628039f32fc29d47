//! `halite plugins check`: what it prints of a plugin that works, and of those that do not.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{halite, json, real, text, with};

/// A library that needs others of these names, which are nowhere.
fn needing(directory: &Path, name: &str, needs: &[&str]) -> PathBuf {
    let build = |name: &str, needs: &[&str]| {
        fs::write(directory.join("code.c"), "int nothing(void) { return 0; }").unwrap();
        let mut cc = Command::new("cc");
        cc.current_dir(directory);
        cc.args([
            "-shared",
            "-fPIC",
            "-Wl,--no-as-needed",
            "-o",
            name,
            "code.c",
        ]);
        cc.arg(format!("-Wl,-soname,{name}")).args(needs);
        assert!(cc.status().expect("a C compiler").success());
    };
    needs.iter().for_each(|name| build(name, &[]));
    build(name, needs);
    needs
        .iter()
        .for_each(|name| fs::remove_file(directory.join(name)).unwrap());
    directory.join(name)
}

#[test]
fn check_names_all_missing_libraries() {
    let directory = tempfile::tempdir().unwrap();
    // The names of files of Intel's plugin, in versions that do not exist.
    let needs = ["libmpi.so.999", "libze_loader.so.999", "libmkl_core.so.999"];
    let plugin = needing(directory.path(), "xla_oneapi_plugin.so", &needs);
    let output = halite(&["check", plugin.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "xla_oneapi_plugin.so is not loaded: 3 libraries that it needs are missing: \
                    libmpi.so.999, libze_loader.so.999, libmkl_core.so.999; install them with \
                    `python3 -m pip install impi-rt==2021.15.0 mkl==2025.1.0` and Level Zero's \
                    loader 1.20 or newer (`apt-get install libze1` on Debian 13), or add their directories to LD_LIBRARY_PATH\n";
    let words = text(&output.stderr);
    assert!(words.ends_with(expected), "{words}");
}

#[test]
fn check_prints_versions_then_each_case() {
    let real = real();
    let output = halite(&[
        "check",
        real.to_str().unwrap(),
        "--devices",
        "2",
        "--only",
        "donation",
    ]);
    assert_eq!(output.status.code(), Some(0));
    let words = text(&output.stdout);
    for word in [
        "platform     cpu (",
        "PJRT API     0.",
        "StableHLO    ",
        "extensions   ",
        "device 1     cpu; memory: Device",
        "donation: state donated every step is correct ... ok (",
        "7 passed, 0 failed, 0 skipped in ",
    ] {
        assert!(words.contains(word), "`{word}` is not in: {words}");
    }
    assert!(
        !words.contains("transfers: "),
        "a case that was not selected ran"
    );

    let output = halite(&[
        "check",
        real.to_str().unwrap(),
        "--devices",
        "1",
        "--only",
        "copies",
        "--json",
    ]);
    let value = json(&output);
    assert_eq!(value["plugin"]["devices"].as_array().unwrap().len(), 1);
    assert_eq!(
        value["cases"][0]["case"],
        "transfers::copies_reach_every_device"
    );
    assert_eq!(value["cases"][0]["message"], "needs 2 devices, has 1");
    assert_eq!(value["summary"]["skipped"], 1);

    let output = halite(&["check", real.to_str().unwrap(), "--only", "no such case"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no case name contains"));
}

#[test]
fn check_continues_after_a_case_that_ends_its_process() {
    let real = real();
    let directory = tempfile::tempdir().unwrap();
    let body = r#"fprintf(stderr, "F0000 serialize.cc:7] Check failed: nobody asked\n"); abort();"#;
    let plugin = with(&real, directory.path(), "PJRT_Executable_Serialize", body);
    let output = halite(&["check", plugin.to_str().unwrap(), "--only", "programs::"]);
    assert_eq!(output.status.code(), Some(1));
    let words = text(&output.stdout);
    let failed = "programs: executable survives serialization ... FAILED: the plugin ended the process (signal: 6";
    assert!(words.contains(failed), "the case is not named");
    assert!(
        words.contains("F0000 serialize.cc:7] Check failed: nobody asked"),
        "its last output is missing"
    );
    assert!(
        words.contains("programs: planned memory matches the types ... ok"),
        "what comes after it did not run"
    );
    assert!(words.contains(" passed, 3 failed, "));
    assert!(words.contains("failed: programs::invalid_serialized_executable_is_rejected"));
}

#[test]
fn plugin_that_exits_while_opening_is_one_error() {
    let real = real();
    let directory = tempfile::tempdir().unwrap();
    let plugin = with(
        &real,
        directory.path(),
        "PJRT_Client_Create",
        "*(volatile int *)8 = 1;",
    );
    let output = halite(&["check", plugin.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let words = text(&output.stderr);
    assert!(
        words.contains("while it was loaded, the plugin ended the process (signal: 11"),
        "{words}"
    );
    assert_eq!(words.trim().lines().count(), 1, "{words}");
}

#[test]
fn library_full_of_holes_is_an_error() {
    let real = real();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("holes.so");
    // The headers are there and the size is right; what is between is zero.
    fs::copy(&real, &path).unwrap();
    let (length, table) = (fs::metadata(&real).unwrap().len(), 1 << 20);
    let bytes = fs::read(&real).unwrap();
    let mut holes = vec![0; bytes.len()];
    holes[..4096].copy_from_slice(&bytes[..4096]);
    holes[bytes.len() - table..].copy_from_slice(&bytes[bytes.len() - table..]);
    fs::write(&path, holes).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
    let output = halite(&["check", path.to_str().unwrap()]);
    assert_eq!(
        output.status.code(),
        Some(1),
        "neither a success nor a signal"
    );
    let words = text(&output.stderr);
    assert!(words.starts_with("error: plugins check: "), "{words}");
}
