//! `halite plugins`, as a user runs it: on the real CPU plugin, and on builds of it that end their
//! process; and `halite plan` on such builds.
#![cfg(target_os = "linux")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use halite_backends::{PLUGINS, install, plugin};
use halite_fetch::{Bar, Cache};
use serde_json::Value;

/// The real CPU plugin, installed if it is missing.
fn real() -> PathBuf {
    let cache = Cache::open(None).unwrap();
    install(plugin("cpu").unwrap(), &cache, &mut Bar::default())
        .unwrap()
        .path
}

fn halite(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halite"));
    let output = command
        .arg("plugins")
        .args(arguments)
        .env_remove("HALITE_CPU_PLUGIN")
        .output()
        .unwrap();
    println!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn list_shows_installed_plugins() {
    let empty = tempfile::tempdir().unwrap();
    let cache = empty.path().join("cache");
    let cache = cache.to_str().unwrap();
    let listed = text(&halite(&["list", "--cache-dir", cache]).stdout);
    for plugin in PLUGINS {
        for word in [
            plugin.name,
            plugin.package.name,
            plugin.package.version,
            plugin.about,
            plugin.licence,
        ] {
            assert!(listed.contains(word), "`{word}` is not in the list");
        }
    }
    assert!(listed.contains("halite plugins install NAME"));
    let value = json(&halite(&["list", "--json", "--cache-dir", cache]));
    assert_eq!(value["plugins"].as_array().unwrap().len(), PLUGINS.len());
    assert_eq!(value["plugins"][0]["path"], Value::Null);
    assert_eq!(value["plugins"][0]["sha256"], PLUGINS[0].library.sha256);
    assert!(!Path::new(cache).exists(), "a list creates nothing");
}

#[test]
fn unknown_plugin_error_lists_the_known_ones() {
    for arguments in [&["install", "abacus"][..], &["check", "abacus"]] {
        let output = halite(arguments);
        assert_eq!(output.status.code(), Some(1));
        let words = text(&output.stderr);
        assert!(
            words.contains("`abacus`") && words.contains("cpu, cpu-alternative"),
            "{words}"
        );
    }
}

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
    // The names of files of Intel's plugin, in versions that nobody has.
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

/// The real plugin with another function in one place of its table. `body` may call
/// `replaced(arguments)`.
fn with(real: &Path, directory: &Path, function: &str, body: &str) -> PathBuf {
    let slot = halite_pjrt_sys::SLOTS
        .iter()
        .find(|slot| slot.name == function)
        .expect("a function of the API");
    let code = format!(
        r#"#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char table[1 << 16];
static void *(*replaced)(void *);
static void *instead(void *arguments) {{ {body} return 0; }}
void *GetPjrtApi(void) {{
    void *real = dlopen("{real}", RTLD_NOW | RTLD_LOCAL);
    void *(*get)(void) = dlsym(real, "GetPjrtApi");
    void *original = get();
    memcpy(table, original, *(unsigned long *)original);
    memcpy(&replaced, table + {offset}, sizeof replaced);
    void *function = (void *)instead;
    memcpy(table + {offset}, &function, sizeof function);
    return table;
}}"#,
        real = real.display(),
        offset = slot.offset,
    );
    let source = directory.join(format!("{function}.c"));
    fs::write(&source, code).unwrap();
    let path = source.with_extension("so");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .args([&path, &source])
        .arg("-ldl")
        .status();
    assert!(
        status
            .expect("a C compiler, which Rust links with as well")
            .success()
    );
    path
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

/// `halite plan` of a small model for virtual CPUs, with this plugin as the compiler.
fn plan(plugin: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halite"));
    command
        .args("plan mnist-mlp --batch-size 64 --offline".split(' '))
        .args(arguments.split(' '));
    command
        .env("HALITE_CPU_PLUGIN", plugin)
        .env_remove("HALITE_LOG")
        .env_remove("HALITE_PROFILE");
    command
}

#[test]
fn compiler_abort_is_an_error_of_the_plan() {
    let directory = tempfile::tempdir().unwrap();
    let body = r#"fprintf(stderr, "chatter\nF1121 21:14:03.5 7 compiler.cc:7] Check failed: axis <= 16\n@ 0x1\n"); abort();"#;
    let plugin = with(&real(), directory.path(), "PJRT_Compile", body);
    let output = plan(&plugin, "--target cpu:8 --strategy fsdp")
        .output()
        .unwrap();
    let words = text(&output.stderr);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(1), String::new()),
        "{words}"
    );
    assert_eq!(words.trim().lines().count(), 1, "one paragraph: {words}");
    for word in [
        "error: plan for cpu:8: fsdp on data=8: the compiler, ",
        "PJRT_Compile.so, ended its process (signal: 6",
        "its last output: F1121 21:14:03.5 7 compiler.cc:7] Check failed: axis <= 16; ",
        "another sharding",
    ] {
        assert!(words.contains(word), "`{word}` is not in: {words}");
    }
    let output = plan(&plugin, "--target cpu:8 --strategy fsdp --verbose")
        .output()
        .unwrap();
    assert!(
        text(&output.stderr).starts_with("chatter\n"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn search_continues_after_a_compiler_abort() {
    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("marker");
    let body = format!(
        r#"FILE *first = fopen("{}", "wx"); if (first) abort(); fprintf(stderr, "chatter\n"); return replaced(arguments);"#,
        marker.display()
    );
    let plugin = with(&real(), directory.path(), "PJRT_Compile", &body);
    let output = plan(&plugin, "--target cpu:2 --search").output().unwrap();
    let (words, log) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), &*log), (Some(0), ""), "{words}");
    let rows: Vec<&str> = words.lines().skip(1).take(2).collect();
    assert!(
        rows[0].starts_with("fsdp       fsdp=2 ") && rows[0].contains(" yes "),
        "{words}"
    );
    assert!(
        rows[1].starts_with("dp         data=2 ") && rows[1].ends_with("failed, see below"),
        "{words}"
    );
    assert!(
        words.contains("\nfailed: plan for cpu:2: dp on data=2: the compiler, "),
        "{words}"
    );
    fs::remove_file(marker).unwrap();
    let value = json(
        &plan(&plugin, "--target cpu:2 --search --json")
            .output()
            .unwrap(),
    );
    assert_eq!(value[0]["fit"]["verdict"], "fits");
    assert!(
        value[1]["error"].as_str().unwrap().contains("signal: 6"),
        "{value}"
    );
}

#[test]
fn hanging_compiler_ends_at_the_deadline_or_with_its_parent() {
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    let body = format!(
        r#"FILE *file = fopen("{0}.new", "w"); fprintf(file, "%d", getpid()); fclose(file); rename("{0}.new", "{0}"); for (;;) pause();"#,
        pid.display()
    );
    let plugin = with(&real(), directory.path(), "PJRT_Compile", &body);
    let output = plan(&plugin, "--target cpu:2 --deadline 1")
        .output()
        .unwrap();
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(
        words.contains("took more than 1 s and was stopped; raise --deadline"),
        "{words}"
    );

    // It may have been ended before it came to the compiler, or not.
    let _ = fs::remove_file(&pid);
    let patience = Instant::now() + Duration::from_secs(120);
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < patience, "it was never {what}");
            thread::sleep(Duration::from_millis(5));
        }
    };
    let mut parent = plan(&plugin, "--target cpu:2")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("compiled", &|| pid.exists());
    let child = Path::new("/proc").join(fs::read_to_string(&pid).unwrap());
    assert!(
        child.exists() && !child.ends_with(parent.id().to_string()),
        "{}",
        child.display()
    );
    // Nothing that the parent could do something at.
    parent.kill().unwrap();
    parent.wait().unwrap();
    // Nobody may be there to wait for it: then it is a zombie.
    let is_gone =
        || fs::read_to_string(child.join("stat")).map_or(true, |stat| stat.contains(") Z "));
    until("ended", &is_gone);
}
