//! The compile cache between processes: what one compiled, the next loads, to the same numbers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{Ended, Running, arrays, fails, halite, report, succeeds};

/// Ten steps, with momenta that are donated, and a validation.
const RUN: &str = "train mnist --model mlp --limit 640 --batch-size 64 --epochs 1 --quiet";

/// A directory with a compile cache and runs in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn programs(&self) -> PathBuf {
        self.0.path().join("programs")
    }

    fn run(&self, name: &str, more: &str) -> Command {
        let mut command = halite(&format!("{RUN} {more}"));
        command
            .env("HALITE_COMPILE_CACHE", self.programs())
            .arg("--out")
            .arg(self.out(name));
        command
    }

    fn out(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles and cache hits of a run.
    fn counts(&self, name: &str) -> (u64, u64) {
        let report = report(&self.out(name));
        let number = |name: &str| report[name].as_u64().unwrap();
        (number("compiles"), number("cache_hits"))
    }

    fn cached(&self) -> Vec<PathBuf> {
        let mut cached: Vec<_> = fs::read_dir(self.programs())
            .into_iter()
            .flatten()
            .map(|file| file.unwrap().path())
            .collect();
        cached.sort();
        cached
    }
}

#[test]
fn second_process_compiles_nothing() {
    for devices in ["", "--accelerator cpu:4"] {
        let place = Place::new();
        succeeds(&mut place.run("first", devices));
        assert_eq!(place.counts("first"), (3, 0), "init, step, evaluate");
        let second = succeeds(&mut place.run("second", devices));
        assert_eq!(place.counts("second"), (0, 3));
        assert!(
            second
                .stdout
                .contains("compiles              0, cache hits 3, which saved "),
            "{second:?}"
        );
        assert!(
            report(&place.out("second"))["compile_seconds_saved"]
                .as_f64()
                .unwrap()
                > 0.0
        );
        assert_eq!(
            second.stderr.lines().find(|line| line.contains("loader")),
            None,
            "output of the plugin"
        );
        assert!(
            arrays(&place.out("first")) == arrays(&place.out("second")),
            "other weights"
        );
        for metric in ["metrics", "train_metrics"] {
            assert_eq!(
                report(&place.out("first"))[metric],
                report(&place.out("second"))[metric]
            );
        }
    }
}

#[test]
fn other_learning_rates_share_the_program() {
    let place = Place::new();
    succeeds(&mut place.run("first", ""));
    for (name, change) in [
        ("rate", ["--quiet", "--quiet --learning-rate 5e-2"]),
        ("longer", ["--epochs 1", "--epochs 2"]),
    ] {
        let run = |name: &str, programs: &Path| {
            let mut command = halite(&RUN.replace(change[0], change[1]));
            succeeds(
                command
                    .env("HALITE_COMPILE_CACHE", programs)
                    .arg("--out")
                    .arg(place.out(name)),
            );
        };
        run(name, &place.programs());
        assert_eq!(place.counts(name), (0, 3), "{name}");
        assert!(
            arrays(&place.out("first")) != arrays(&place.out(name)),
            "{name}: the same weights"
        );
        let alone = format!("{name} alone");
        run(&alone, Path::new("off"));
        assert!(
            arrays(&place.out(name)) == arrays(&place.out(&alone)),
            "{name}: other weights than of a fresh compile"
        );
    }
}

#[test]
fn four_processes_share_the_compile_cache() {
    let place = Place::new();
    let running: Vec<Running> = (0..4)
        .map(|i| Running::start(&mut place.run(&i.to_string(), "")))
        .collect();
    let ended: Vec<Ended> = running.into_iter().map(Running::end).collect();
    assert!(
        ended.iter().all(|ended| ended.status.success()),
        "{ended:?}"
    );
    for i in 0..4 {
        let (compiles, hits) = place.counts(&i.to_string());
        assert_eq!(compiles + hits, 3);
        assert!(
            arrays(&place.out("0")) == arrays(&place.out(&i.to_string())),
            "other weights in {i}"
        );
    }
    // Those of the run, and the one that predicts the samples of its report.
    assert_eq!(place.cached().len(), 4, "{:?}", place.cached());
    succeeds(&mut place.run("later", ""));
    assert_eq!(place.counts("later"), (0, 3));
}

#[test]
fn damaged_programs_are_compiled_again() {
    let place = Place::new();
    succeeds(&mut place.run("first", ""));
    let cached = place.cached();
    let whole: Vec<Vec<u8>> = cached.iter().map(|path| fs::read(path).unwrap()).collect();
    let mut flipped = whole[0].clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 4;
    fs::write(&cached[0], flipped).unwrap();
    fs::write(&cached[1], &whole[1][..whole[1].len() / 3]).unwrap();
    // One that is whole, under the names of others.
    fs::write(&cached[2], &whole[0]).unwrap();
    fs::write(&cached[3], &whole[0]).unwrap();
    let again = succeeds(&mut place.run("again", ""));
    assert_eq!(place.counts("again"), (3, 0), "{again:?}");
    assert!(
        arrays(&place.out("first")) == arrays(&place.out("again")),
        "other weights"
    );
    succeeds(&mut place.run("last", ""));
    assert_eq!(place.counts("last"), (0, 3));
}

#[test]
fn read_only_cache_is_not_modified() {
    let place = Place::new();
    succeeds(&mut place.run("first", ""));
    let state = || {
        let describe = |path: PathBuf| {
            let metadata = fs::metadata(&path).unwrap();
            (path, metadata.len(), metadata.modified().unwrap())
        };
        place.cached().into_iter().map(describe).collect::<Vec<_>>()
    };
    let before = state();
    let read_only = format!("readonly:{}", place.programs().display());
    succeeds(
        place
            .run("second", "")
            .env("HALITE_COMPILE_CACHE", &read_only),
    );
    assert_eq!(place.counts("second"), (0, 3));
    // Other programs are compiled, and not cached.
    succeeds(
        place
            .run("third", "--accelerator cpu:2")
            .env("HALITE_COMPILE_CACHE", &read_only),
    );
    assert_eq!(place.counts("third"), (3, 0), "for other devices");
    assert_eq!(state(), before);
    succeeds(place.run("fourth", "").env("HALITE_COMPILE_CACHE", "off"));
    assert_eq!(place.counts("fourth"), (3, 0));
    assert_eq!(state(), before);
}

#[test]
fn unwritable_compile_cache_is_one_warning() {
    let place = Place::new();
    fs::write(place.programs(), "a file").unwrap();
    let ended = succeeds(
        place
            .run("first", "")
            .env("HALITE_COMPILE_CACHE", place.programs().join("below")),
    );
    assert_eq!(place.counts("first"), (3, 0));
    assert_eq!(
        ended
            .stderr
            .matches("compiled programs are not cached")
            .count(),
        1,
        "{ended:?}"
    );
    assert!(
        ended.stderr.contains("HALITE_COMPILE_CACHE to another"),
        "{ended:?}"
    );
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    let place = Place::new();
    for (variable, value, part) in [
        (
            "HALITE_COMPILE_CACHE",
            "yes",
            "expected on, off, readonly, PATH or readonly:PATH",
        ),
        (
            "HALITE_COMPILE_CACHE",
            "readonly:/nonexistent",
            "/nonexistent is not a directory",
        ),
        ("HALITE_COMPILE_CACHE_LIMIT", "much", "such as 500M or 8G"),
    ] {
        let error = fails(place.run("none", "").env(variable, value));
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn cached_programs_can_be_listed() {
    let place = Place::new();
    succeeds(&mut place.run("first", ""));
    let cache = |arguments: &str| {
        let mut command = halite(&format!("cache {arguments}"));
        command.env("HALITE_COMPILE_CACHE", place.programs());
        command
    };
    let listed = succeeds(&mut cache("list")).stdout;
    for part in [
        "init",
        "train step",
        "evaluate",
        "4 programs, ",
        "of at most 2.1 GB",
        " s ago",
    ] {
        assert!(listed.contains(part), "`{part}` is not in {listed}");
    }
    let listed: serde_json::Value =
        serde_json::from_str(&succeeds(&mut cache("list --json")).stdout).unwrap();
    assert_eq!(listed["programs"].as_array().unwrap().len(), 4);
    assert_eq!(
        Path::new(listed["directory"].as_str().unwrap()),
        place.programs()
    );

    let read_only = format!("readonly:{}", place.programs().display());
    assert!(fails(cache("clear").env("HALITE_COMPILE_CACHE", read_only)).contains("is read-only"));
    assert!(
        succeeds(&mut cache("clear"))
            .stdout
            .starts_with("4 programs removed, ")
    );
    assert!(
        succeeds(&mut cache("list")).stdout.starts_with("platform") && place.cached().is_empty()
    );
}
