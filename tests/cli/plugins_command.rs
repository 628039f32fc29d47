//! `halite plugins`, as a user runs it: on the real CPU plugin, and on builds of it that end their
//! process; and `halite plan` on such builds.
#![cfg(target_os = "linux")]

mod check;
mod plan;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
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
