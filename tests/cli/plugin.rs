//! A plugin that changes what a process has one of: the working directory, and stdout.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use halite::backends::plugin;

use crate::support::{assert_contains, cache, halite, succeeds};

/// The CPU's plugin in one that prints, and changes the directory, when it is loaded. C writes what
/// is printed to a pipe when the process ends.
fn intrusive(directory: &Path) -> PathBuf {
    let known = plugin("cpu").expect("there is a default for the CPU");
    let real = cache().directory(&known.package).join(known.library.name);
    let code = format!(
        r#"#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {{
    puts("printed by the plugin");
    if (chdir("/")) puts("cannot change the directory");
}}
const void *GetPjrtApi(void) {{
    void *real = dlopen("{}", RTLD_NOW | RTLD_LOCAL);
    return ((const void *(*)(void))dlsym(real, "GetPjrtApi"))();
}}"#,
        real.display()
    );
    let (source, library) = (directory.join("plugin.c"), directory.join("plugin.so"));
    fs::write(&source, code).unwrap();
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(cc)
        .args(["-shared", "-fPIC", "-w", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status();
    assert!(built.unwrap().success());
    library
}

#[test]
fn intrusive_plugin_leaves_paths_with_stdout() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = intrusive(dir.path());
    let mut command = halite("train digits --model mlp --epochs 1 --quiet --out run --accelerator");
    command
        .arg(format!("plugin:{}", plugin.display()))
        .current_dir(dir.path());
    let ended = succeeds(&mut command);
    assert!(dir.path().join("run/report.json").is_file(), "{ended:?}");
    assert!(!ended.stdout.contains("printed by the plugin"), "{ended:?}");
    assert_contains(
        &ended.stderr,
        &[
            "printed by the plugin",
            "plugin.so changed the working directory of the process to / while it was opened",
        ],
    );
}
