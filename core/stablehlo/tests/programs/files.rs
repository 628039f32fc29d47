//! Programs of a directory, by hand: what JAX emitted, or StableHLO's test data.

use std::{collections::BTreeMap, env, fs, path::Path};

use halite_stablehlo::Module;

/// Prints how many programs verify, and the errors of the others. Files that the reader refuses are
/// left out.
///
/// `HALITE_PROGRAMS=DIR cargo test -p halite-stablehlo --test stablehlo programs_of_a_directory -- --ignored --nocapture`
#[test]
#[ignore = "reads the files `*.mlir` in HALITE_PROGRAMS"]
fn programs_of_a_directory() {
    let directory = env::var("HALITE_PROGRAMS").expect("HALITE_PROGRAMS is set");
    let (mut read, mut valid, mut callable) = (0, 0, 0);
    let mut errors = BTreeMap::<String, Vec<String>>::new();
    visit(Path::new(&directory), &mut |path, text| {
        let Ok(module) = Module::parse(text) else {
            return;
        };
        read += 1;
        match module.verify() {
            Ok(()) => valid += 1,
            Err(error) => errors.entry(error.to_string()).or_default().push(path),
        }
        callable += usize::from(module.interface().is_ok());
    });
    println!("{read} were read, {valid} are valid, {callable} have types of clients");
    for (error, paths) in errors {
        println!("{} files, such as {}: {error}", paths.len(), paths[0]);
    }
}

/// Replaces digits of the programs: each result verifies, or is an error.
#[test]
#[ignore = "reads the files `*.mlir` in HALITE_PROGRAMS"]
fn mutated_programs_of_a_directory() {
    const REPLACEMENTS: &[u8] = b"0123456789-x";
    let directory = env::var("HALITE_PROGRAMS").expect("HALITE_PROGRAMS is set");
    // A linear congruential generator (Knuth, MMIX).
    let mut state = 1u64;
    let mut below = |count: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % count
    };
    let (mut mutated, mut read, mut valid) = (0, 0, 0);
    visit(Path::new(&directory), &mut |_, text| {
        for _ in 0..100 {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..1 + below(2) {
                let start = below(bytes.len());
                let digit = bytes[start..].iter_mut().find(|byte| byte.is_ascii_digit());
                if let Some(digit) = digit {
                    *digit = REPLACEMENTS[below(REPLACEMENTS.len())];
                }
            }
            mutated += 1;
            let Some(module) = str::from_utf8(&bytes)
                .ok()
                .and_then(|text| Module::parse(text).ok())
            else {
                continue;
            };
            read += 1;
            valid += usize::from(module.verify().is_ok());
            let _ = module.interface();
        }
    });
    println!("{mutated} mutations: {read} were read, {valid} are valid");
}

fn visit(directory: &Path, found: &mut dyn FnMut(String, &str)) {
    let entries = fs::read_dir(directory).expect("the directory is readable");
    for entry in entries {
        let path = entry.expect("the directory is readable").path();
        if path.is_dir() {
            visit(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "mlir")
            && let Ok(text) = fs::read_to_string(&path)
        {
            found(path.display().to_string(), &text);
        }
    }
}
