//! Rules of the sources that no type holds.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The sources below a folder, without their tests and comments.
fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = code
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            let code = lines.collect::<Vec<_>>().join("\n");
            found.push((path, code));
        }
    }
}

fn all() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut found,
    );
    assert!(found.len() > 50);
    found
}

/// `halite_core::files` opens what users name: a pipe is waited for, and a device has no end.
#[test]
fn files_are_opened_in_one_place() {
    for (path, code) in all() {
        // An opened file, by its own path.
        if path.ends_with("positioned.rs") {
            continue;
        }
        for call in [
            " File::open(",
            "(File::open(",
            ":File::open(",
            "fs::read(",
            "fs::read_to_string(",
            "read_to_string(path",
        ] {
            assert!(!code.contains(call), "{}: {call}", path.display());
        }
    }
}

/// Decoders of other crates panic on some files.
#[test]
fn decoders_of_other_crates_are_guarded() {
    let decoders = [
        "zune_jpeg",
        "jpeg_decoder",
        "png::{ColorType",
        "bufread::",
        "csv::",
        "tokenizers::",
    ];
    for (path, code) in all() {
        let is_user = decoders.iter().any(|name| code.contains(name));
        // `images.rs` calls its formats.
        let is_format = ["images/png.rs", "images/jpeg.rs"]
            .iter()
            .any(|end| path.ends_with(end));
        let is_guarded = is_format || code.contains("guard::call(");
        assert!(
            !is_user || is_guarded,
            "{}: not behind `guard::call`",
            path.display()
        );
    }
}
