//! Fault plugins, built with the C compiler: `fault_plugin.c` with one fault each.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use halite::{
    backends::{install, plugin},
    fetch::{Bar, Cache},
};
use halite_pjrt_sys::{LAYOUTS, SLOTS};

/// The real CPU plugin, installed if it is missing.
pub(crate) fn real() -> PathBuf {
    let cache = Cache::open(None).unwrap();
    install(plugin("cpu").unwrap(), &cache, &mut Bar::default())
        .unwrap()
        .path
}

/// A plugin with this fault, in `directory`. Its file is named after the fault: `create-sleep.so`.
pub(crate) fn faulty(directory: &Path, fault: &str) -> PathBuf {
    let path = directory.join(format!("{}.so", fault.replace(':', "-")));
    let header = directory.join("offsets.h");
    if !header.exists() {
        fs::write(&header, offsets()).unwrap();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/faults/fault_plugin.c");
    let define = |name: &str, text: &str| format!("-D{name}=\"{text}\"");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    // Unwind tables let an exception pass through the library.
    cc.args(["-shared", "-fPIC", "-fexceptions", "-w", "-I"])
        .arg(directory);
    cc.args([
        define("REAL", real().to_str().unwrap()),
        define("FAULT", fault),
    ]);
    let built = cc
        .arg("-o")
        .arg(&path)
        .arg(source)
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    path
}

/// The places of functions in the table and of fields in their arguments, as C macros.
fn offsets() -> String {
    let mut text = String::new();
    for slot in SLOTS {
        writeln!(text, "#define SLOT_{} {}", slot.name, slot.offset).unwrap();
    }
    for layout in LAYOUTS.iter().flat_map(|layouts| layouts.iter()) {
        writeln!(
            text,
            "#define SIZE_{} {}",
            layout.name,
            layout.end_at(u32::MAX)
        )
        .unwrap();
        for field in layout.fields {
            let name = field.name.trim_start_matches("r#");
            writeln!(text, "#define AT_{}_{name} {}", layout.name, field.offset).unwrap();
        }
    }
    text
}
