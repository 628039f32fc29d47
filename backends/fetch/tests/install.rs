//! Real packages through the real clients, and real failures: no client, no network, no space,
//! killed processes.
//!
//! Needs Python 3 with pip, npm, and a registry for each. Tests that change a process's
//! environment, or kill it, run this same test binary again as a child (see
//! `a_child_installs_what_its_parent_test_asks_for`).

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use halite_fetch::{
    Cache, Check, Client, Error, FileSpec, Limits, Package, Progress, Quiet, State, Step, Transform,
};

const SIX: Package = Package {
    client: Client::Pip,
    name: "six",
    version: "1.16.0",
    archive_size: 11_053,
    archive_sha256: Some("8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254"),
    files: &[SIX_FILE],
    parts: &[],
};
const SIX_FILE: FileSpec = FileSpec {
    inside: "six.py",
    name: "six.py",
    size: 34_549,
    sha256: "4ce39f422ee71467ccac8bed76beb05f8c321c7f0ceda9279ae2dfa3670106b3",
    transform: Transform::None,
};
const IS_NUMBER: Package = Package {
    client: Client::Npm,
    name: "is-number",
    version: "7.0.0",
    archive_size: 3_730,
    archive_sha256: Some("7b75c1057198cf97696909a9bee176c9c5e9bcb5b03bf3ecef2f484defadd51e"),
    files: &[
        FileSpec {
            inside: "package/index.js",
            name: "index.js",
            size: 411,
            sha256: "04255e482e181687823a95b207802ddd32e746c65dce4c95a5176fc192735960",
            transform: Transform::None,
        },
        FileSpec {
            inside: "package/LICENSE",
            name: "licence.txt",
            size: 1_091,
            sha256: "35bdd8a44339719441900fb50fbefc5e2dca1ca662cbaed7a687de842c8b70f2",
            transform: Transform::None,
        },
    ],
    parts: &[],
};
/// A small Debian package that is the same on all architectures and in many releases. Distributions
/// build it anew, so no digest of the archive is given.
const COWSAY: Package = Package {
    client: Client::Apt,
    name: "cowsay",
    version: "3.03+dfsg2-8",
    archive_size: 21_372,
    archive_sha256: None,
    files: &[FileSpec {
        inside: "usr/share/man/man6/cowsay.6.gz",
        name: "cowsay.6",
        size: 4_694,
        sha256: "eadad73410d3ea56a442ab1534a3b3ec93882dd769cf88aec8680c77219c2d52",
        transform: Transform::Gunzip,
    }],
    parts: &[],
};
const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

#[test]
fn a_wheel_is_installed_once_and_found_afterwards() {
    let (_guard, cache) = cache();
    assert_eq!(cache.state(&SIX, Check::Full).unwrap(), State::Absent);
    let mut steps = Recorder::default();
    let first = cache.ensure(&SIX, &mut steps).unwrap();
    assert!(first.fresh);
    assert_eq!(fs::read(first.path("six.py")).unwrap().len(), 34_549);
    assert!(
        steps.0.iter().any(|step| step == "downloading") && steps.0.last().unwrap() == "installed"
    );

    let mut steps = Recorder::default();
    let second = cache.ensure(&SIX, &mut steps).unwrap();
    assert!(
        !second.fresh && steps.0.is_empty(),
        "the second call downloads nothing: {:?}",
        steps.0
    );
    assert_eq!(first.directory, second.directory);
    assert!(matches!(
        cache.state(&SIX, Check::Full).unwrap(),
        State::Installed(_)
    ));
    assert_nothing_partial(&cache);
}

#[test]
fn an_npm_package_gives_the_wanted_files_under_their_new_names() {
    let (_guard, cache) = cache();
    let installed = cache.ensure(&IS_NUMBER, &mut Quiet).unwrap();
    assert_eq!(
        fs::read(installed.path("licence.txt")).unwrap().len(),
        1_091
    );
    let mut names: Vec<_> = fs::read_dir(&installed.directory)
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["halite.json", "index.js", "licence.txt"]);
    assert_nothing_partial(&cache);
}

#[test]
fn a_debian_package_is_opened_and_its_gzip_member_decompressed() {
    if Command::new("apt-get").arg("--version").output().is_err() {
        println!("skipped: there is no apt-get here");
        return;
    }
    let (_guard, cache) = cache();
    let installed = cache.ensure(&COWSAY, &mut Quiet).unwrap();
    let manual = fs::read_to_string(installed.path("cowsay.6")).unwrap();
    assert!(manual.contains(".TH COWSAY 6"), "{manual}");
}

#[test]
fn empty_package_lists_as_in_container_images_are_fetched_privately() {
    if Command::new("apt-get").arg("--version").output().is_err() {
        println!("skipped: there is no apt-get here");
        return;
    }
    let (guard, cache) = cache();
    let lists = guard.path().join("lists");
    fs::create_dir_all(lists.join("partial")).unwrap();
    let config = guard.path().join("apt.conf");
    fs::write(&config, format!("Dir::State::lists {lists:?};")).unwrap();
    let mut command = child(cache.root(), "cowsay");
    let said = answer(&command.env("APT_CONFIG", &config).output().unwrap());
    assert!(said.starts_with("installed "), "{said}");
    assert_eq!(fs::read_dir(lists.join("partial")).unwrap().count(), 0);
    assert_nothing_partial(&cache);
}

#[test]
fn a_damaged_file_is_noticed_and_replaced() {
    type Damage = (&'static str, fn(&Path));
    let damage: [Damage; 6] = [
        ("has 3 bytes", |file| fs::write(file, "cut").unwrap()),
        ("SHA-256", |file| {
            fs::write(file, vec![b'x'; 34_549]).unwrap()
        }),
        ("is missing", |file| fs::remove_file(file).unwrap()),
        ("halite.json", |file| {
            fs::write(file.with_file_name("halite.json"), "{\"format\": 1").unwrap()
        }),
        ("halite.json", |file| {
            fs::remove_file(file.with_file_name("halite.json")).unwrap()
        }),
        ("is not a file", |file| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }),
    ];
    let (_guard, cache) = cache();
    for (reason, break_it) in damage {
        let installed = cache.ensure(&SIX, &mut Quiet).unwrap();
        break_it(&installed.path("six.py"));
        if reason == "SHA-256" {
            give_another_time(&installed.path("six.py"));
        }
        let State::Damaged(found) = cache.state(&SIX, Check::Quick).unwrap() else {
            panic!("{reason} went unnoticed")
        };
        assert!(found.contains(reason), "{found}");
        assert_eq!(cache.find(&SIX).unwrap(), None);
        let mut steps = Recorder::default();
        assert!(cache.ensure(&SIX, &mut steps).unwrap().fresh);
        assert!(steps.0[0].contains(reason), "{:?}", steps.0);
        assert!(matches!(
            cache.state(&SIX, Check::Full).unwrap(),
            State::Installed(_)
        ));
        assert_nothing_partial(&cache);
    }
}

/// A change within the resolution of the file system's clock would keep the time of the file.
fn give_another_time(file: &Path) {
    let file = fs::File::options().append(true).open(file).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(60))
        .unwrap();
}

#[test]
fn a_copied_file_with_another_time_is_verified_by_digest_and_its_time_noted() {
    let (_guard, cache) = cache();
    let installed = cache.ensure(&SIX, &mut Quiet).unwrap();
    let marker = fs::read(installed.path("halite.json")).unwrap();
    let bytes = fs::read(installed.path("six.py")).unwrap();
    fs::write(installed.path("six.py"), bytes).unwrap();
    give_another_time(&installed.path("six.py"));
    assert!(!cache.ensure(&SIX, &mut Quiet).unwrap().fresh);
    assert_ne!(fs::read(installed.path("halite.json")).unwrap(), marker);
}

#[test]
fn a_wrong_digest_of_the_archive_is_refused_with_both_digests() {
    let message = refused(
        &Package {
            archive_sha256: Some(ZEROS),
            ..SIX
        },
        |error| matches!(error, Error::ArchiveDigest { .. }),
    );
    assert!(
        message.contains(ZEROS) && message.contains(SIX.archive_sha256.unwrap()),
        "{message}"
    );
}

#[test]
fn a_wrong_digest_or_size_of_a_file_inside_is_refused_with_both() {
    const WRONG_DIGEST: FileSpec = FileSpec {
        sha256: ZEROS,
        ..SIX_FILE
    };
    const TOO_LONG: FileSpec = FileSpec {
        size: 34_548,
        ..SIX_FILE
    };
    const TOO_SHORT: FileSpec = FileSpec {
        size: 34_550,
        ..SIX_FILE
    };
    let is_digest = |error: &Error| matches!(error, Error::FileDigest { .. });
    let message = refused(
        &Package {
            files: &[WRONG_DIGEST],
            ..SIX
        },
        is_digest,
    );
    assert!(
        message.contains(ZEROS) && message.contains(SIX_FILE.sha256),
        "{message}"
    );
    let message = refused(
        &Package {
            files: &[TOO_LONG],
            ..SIX
        },
        is_digest,
    );
    assert!(
        message.contains("(34548 bytes)") && message.contains("more than 34548 bytes"),
        "{message}"
    );
    let message = refused(
        &Package {
            files: &[TOO_SHORT],
            ..SIX
        },
        is_digest,
    );
    assert!(
        message.contains("(34550 bytes)") && message.contains("(34549 bytes)"),
        "{message}"
    );
}

#[test]
fn a_file_that_is_not_inside_is_named_with_what_is() {
    const SEVEN: FileSpec = FileSpec {
        inside: "seven.py",
        ..SIX_FILE
    };
    let is_missing = |error: &Error| matches!(error, Error::FileMissing { .. });
    let message = refused(
        &Package {
            files: &[SEVEN],
            ..SIX
        },
        is_missing,
    );
    assert!(
        message.contains("seven.py") && message.contains("six.py"),
        "{message}"
    );
    let message = refused(
        &Package {
            files: &[SEVEN],
            ..IS_NUMBER
        },
        is_missing,
    );
    assert!(
        message.contains("seven.py") && message.contains("package/index.js"),
        "{message}"
    );
}

#[test]
fn a_package_or_version_that_the_registry_lacks_is_an_error_with_the_clients_words() {
    let is_failure = |error: &Error| matches!(error, Error::ClientFailed { .. });
    let message = refused(
        &Package {
            version: "0.0.999",
            ..SIX
        },
        is_failure,
    );
    assert!(
        message.contains("0.0.999") && message.contains("No matching distribution"),
        "{message}"
    );
    let message = refused(
        &Package {
            version: "0.0.999",
            ..IS_NUMBER
        },
        is_failure,
    );
    assert!(
        message.contains("0.0.999") && message.contains("No matching version"),
        "{message}"
    );
}

#[test]
fn a_cache_below_a_file_is_refused_and_names_the_variable() {
    // Not a matter of permissions, so that it holds for root too.
    let (guard, _) = cache();
    let file = guard.path().join("file");
    fs::write(&file, "").unwrap();
    for root in [file.clone(), file.join("cache")] {
        let error = Cache::at(&root).ensure(&SIX, &mut Quiet).unwrap_err();
        assert!(matches!(error, Error::NotWritable { .. }), "{error}");
        assert!(error.to_string().contains("HALITE_CACHE_DIR"), "{error}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"");
}

#[test]
fn four_processes_at_once_install_once_and_agree() {
    let (guard, cache) = cache();
    let children: Vec<_> = (0..4)
        .map(|_| {
            child(cache.root(), "six")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let said: Vec<_> = children
        .into_iter()
        .map(|child| answer(&child.wait_with_output().unwrap()))
        .collect();
    assert_eq!(
        said.iter()
            .filter(|line| line.starts_with("installed "))
            .count(),
        1,
        "{said:?}"
    );
    assert_eq!(
        said.iter()
            .filter(|line| line.starts_with("found "))
            .count(),
        3,
        "{said:?}"
    );
    assert!(matches!(
        cache.state(&SIX, Check::Full).unwrap(),
        State::Installed(_)
    ));
    assert_nothing_partial(&cache);
    drop(guard);
}

#[test]
fn a_process_killed_at_any_moment_leaves_nothing_that_is_used() {
    let (_guard, cache) = cache();
    let mut outcomes = [0, 0];
    let mut delay = Duration::ZERO;
    // Until an installation was faster than its killer.
    while outcomes[1] == 0 {
        assert!(
            delay < Duration::from_secs(60),
            "no installation finished in {delay:?}"
        );
        let child = start_in_group(child(cache.root(), "six"));
        thread::sleep(delay);
        kill_group(child);
        match cache.state(&SIX, Check::Full).unwrap() {
            State::Absent => outcomes[0] += 1,
            State::Installed(_) => outcomes[1] += 1,
            State::Damaged(reason) => panic!("killed after {delay:?}: {reason}"),
        }
        // Ever longer steps, so that a slow machine or network does not make hundreds of them.
        delay += Duration::from_millis(100).max(delay / 8);
    }
    assert!(outcomes[0] > 0);
    assert!(!cache.ensure(&SIX, &mut Quiet).unwrap().fresh);
}

#[test]
fn what_a_killed_process_left_is_removed_and_its_lock_is_free() {
    let (_guard, cache) = cache();
    let partial = cache.root().join(".partial");
    let child = start_in_group(child(cache.root(), "six"));
    let start = Instant::now();
    while fs::read_dir(&partial).map_or(0, Iterator::count) == 0 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the child never began"
        );
        thread::sleep(Duration::from_millis(2));
    }
    kill_group(child);
    assert_eq!(fs::read_dir(&partial).unwrap().count(), 1);
    // Killed right before the rename: all files and the marker are there, under the wrong name.
    let (_other_guard, other) = self::cache();
    let complete = other.ensure(&SIX, &mut Quiet).unwrap().directory;
    let leftover = fs::read_dir(&partial)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::create_dir_all(leftover.join("install")).unwrap();
    for name in ["six.py", "halite.json"] {
        fs::copy(complete.join(name), leftover.join("install").join(name)).unwrap();
    }
    assert_eq!(cache.state(&SIX, Check::Full).unwrap(), State::Absent);
    assert!(cache.ensure(&SIX, &mut Quiet).unwrap().fresh);
    assert_nothing_partial(&cache);
}

#[test]
fn waiting_for_another_process_ends_at_the_deadline() {
    let (_guard, cache) = cache();
    cache.ensure(&SIX, &mut Quiet).unwrap();
    let lock = fs::read_dir(cache.root().join(".locks"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::remove_dir_all(cache.directory(&SIX)).unwrap();
    let held = fs::File::open(lock).unwrap();
    held.lock().unwrap();
    let limits = Limits {
        lock: Some(Duration::from_millis(300)),
        ..Limits::default()
    };
    let mut steps = Recorder::default();
    let error = cache
        .clone()
        .with_limits(limits)
        .ensure(&SIX, &mut steps)
        .unwrap_err();
    assert!(
        matches!(error, Error::Timeout { .. }) && error.to_string().contains("six 1.16.0"),
        "{error}"
    );
    assert!(steps.0.iter().any(|step| step == "waiting"));
    drop(held);
    assert!(cache.ensure(&SIX, &mut Quiet).unwrap().fresh);
}

#[test]
fn without_any_client_the_error_says_what_to_install() {
    let (guard, cache) = cache();
    let empty = guard.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (what, names) in [
        ("six", ["python3", "pip"]),
        ("is-number", ["npm", "Node.js"]),
        ("cowsay", ["apt-get", "Debian"]),
    ] {
        let said = answer(
            &child(cache.root(), what)
                .env("PATH", &empty)
                .output()
                .unwrap(),
        );
        assert!(
            said.starts_with("failed ClientMissing")
                && names.iter().all(|name| said.contains(name)),
            "{said}"
        );
    }
    assert_nothing_partial(&cache);
}

#[test]
fn a_python_without_pip_is_passed_over_and_named() {
    let (guard, cache) = cache();
    // A real interpreter that cannot see any installed module.
    let bin = script(
        guard.path(),
        "python3",
        &format!("exec {} -I -S -m pip", python()),
    );
    let said = answer(
        &child(cache.root(), "six")
            .env("PATH", &bin)
            .output()
            .unwrap(),
    );
    assert!(
        said.contains("python3 has no pip, python was not found"),
        "{said}"
    );
}

#[test]
fn a_registry_that_cannot_be_reached_is_an_error_with_the_clients_last_words() {
    let (_guard, cache) = cache();
    // The discard port: nothing listens there.
    let nowhere = "http://127.0.0.1:9/";
    let mut pip = child(cache.root(), "six");
    pip.env("PIP_INDEX_URL", nowhere)
        .env("PIP_RETRIES", "0")
        .env("PIP_CONFIG_FILE", "/dev/null");
    let mut npm = child(cache.root(), "is-number");
    npm.env("npm_config_registry", nowhere)
        .env("npm_config_userconfig", "/dev/null");
    for (mut command, words) in [(pip, "Connection refused"), (npm, "ECONNREFUSED")] {
        // What the user set up to reach a registry: other registries, files of packages, proxies.
        for (name, _) in std::env::vars_os() {
            let lower = name.to_string_lossy().to_lowercase();
            let leads_elsewhere = [
                "pip_extra_index_url",
                "pip_find_links",
                "pip_no_index",
                "npm_config_offline",
            ];
            if lower.ends_with("proxy") || leads_elsewhere.contains(&&*lower) {
                command.env_remove(name);
            }
        }
        let said = answer(&command.output().unwrap());
        assert!(
            said.starts_with("failed ClientFailed") && said.contains(words),
            "{said}"
        );
        assert!(said.contains("Look at the network"), "{said}");
    }
    assert_nothing_partial(&cache);
}

#[test]
fn a_client_that_hangs_is_stopped_at_the_deadline() {
    let (guard, cache) = cache();
    let bin = script(guard.path(), "python3", "exec sleep 600");
    let start = Instant::now();
    let mut command = child(cache.root(), "six");
    command
        .env("PATH", path_with(&bin))
        .env("HALITE_FETCH_TEST_STALL_MS", "500");
    let said = answer(&command.output().unwrap());
    assert!(
        said.starts_with("failed Timeout") && said.contains("downloading six 1.16.0 (pip)"),
        "{said}"
    );
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_nothing_partial(&cache);
}

#[test]
fn a_download_that_was_cut_short_is_refused_with_both_sizes() {
    let (guard, cache) = cache();
    // The real client, whose result loses its tail before we see it.
    let cut = format!(
        "{} \"$@\" && for last; do :; done && for f in \"$PWD\"/../download/*.whl; do head -c 7000 \"$f\" >cut && mv cut \"$f\"; done",
        python()
    );
    let bin = script(guard.path(), "python3", &cut);
    let said = answer(
        &child(cache.root(), "six")
            .env("PATH", path_with(&bin))
            .output()
            .unwrap(),
    );
    assert!(said.starts_with("failed ArchiveDigest"), "{said}");
    assert!(
        said.contains("11053 bytes") && said.contains("7000 bytes") && said.contains("cut short"),
        "{said}"
    );
    // The same where no digest of the archive is known: the reader of the archive has to notice.
    let said = answer(
        &child(cache.root(), "six unpinned")
            .env("PATH", path_with(&bin))
            .output()
            .unwrap(),
    );
    assert!(said.starts_with("failed ArchiveBroken"), "{said}");
    assert_nothing_partial(&cache);
}

#[test]
fn an_archive_that_unpacks_without_end_is_refused() {
    if Command::new("apt-get").arg("--version").output().is_err() {
        println!("skipped: there is no apt-get here");
        return;
    }
    let (guard, cache) = cache();
    let bin = script(guard.path(), "dpkg-deb", "exec head -c 80000000 /dev/zero");
    let said = answer(
        &child(cache.root(), "cowsay")
            .env("PATH", path_with(&bin))
            .output()
            .unwrap(),
    );
    assert!(
        said.starts_with("failed ArchiveBroken") && said.contains("unpacks to more than"),
        "{said}"
    );
    assert_nothing_partial(&cache);
}

#[test]
fn the_parts_of_a_package_stand_in_one_directory_or_none_does() {
    /// Of one wheel of several; this one is for every Python.
    const BOTH: Package = Package {
        client: Client::Wheel {
            python: "3.11",
            platform: "manylinux2014_x86_64",
        },
        parts: &[TOOL],
        ..SIX
    };
    const TOOL: Package = Package {
        files: &[TOOL_FILE],
        ..IS_NUMBER
    };
    const TOOL_FILE: FileSpec = FileSpec {
        name: "tools/bin/is-number",
        transform: Transform::Executable,
        ..IS_NUMBER.files[0]
    };
    let (_guard, cache) = cache();
    assert_eq!(
        (BOTH.download_size(), BOTH.installed_size()),
        (11_053 + 3_730, 34_549 + 411)
    );
    let installed = cache.ensure(&BOTH, &mut Quiet).unwrap();
    assert!(installed.fresh && installed.path("six.py").is_file());
    let tool = installed.path("tools/bin/is-number");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            tool.metadata().unwrap().permissions().mode() & 0o100,
            0o100,
            "it may be run"
        );
        assert_eq!(
            installed
                .path("six.py")
                .metadata()
                .unwrap()
                .permissions()
                .mode()
                & 0o111,
            0
        );
    }
    assert!(!cache.ensure(&BOTH, &mut Quiet).unwrap().fresh);
    assert!(matches!(
        cache.state(&BOTH, Check::Full).unwrap(),
        State::Installed(_)
    ));

    // A part that is damaged damages the whole, and is fetched again with it.
    fs::write(&tool, "exit 1").unwrap();
    let State::Damaged(reason) = cache.state(&BOTH, Check::Quick).unwrap() else {
        panic!("it is taken")
    };
    assert!(
        reason.starts_with("tools/bin/is-number has 6 bytes instead of 411"),
        "{reason}"
    );
    assert!(cache.ensure(&BOTH, &mut Quiet).unwrap().fresh);

    // Nor is anything left of the first where the second is not what it should be.
    const WRONG: Package = Package {
        archive_sha256: Some(ZEROS),
        ..TOOL
    };
    let wrong = Package {
        parts: &[WRONG],
        ..BOTH
    };
    assert!(matches!(
        cache.ensure(&wrong, &mut Quiet),
        Err(Error::ArchiveDigest { .. })
    ));
    assert_eq!(cache.state(&wrong, Check::Quick).unwrap(), State::Absent);
    assert_nothing_partial(&cache);
}

#[test]
fn a_full_disk_is_said_to_be_full_and_left_empty() {
    let (guard, _) = cache();
    let disk = guard.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // A file system of a few pages: too small for the client's copies of the archive, for
    // the unpacked file, or for all of it.
    for kilobytes in [12, 28, 44] {
        let mount = format!("mount -t tmpfs -o size={kilobytes}k tmpfs {0:?}", disk);
        let usable = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
            .output()
            .is_ok_and(|output| output.status.success());
        if !usable {
            println!(
                "skipped: this user may not mount a small file system in a namespace of its own"
            );
            return;
        }
        let script = format!(
            "{mount} && \"$0\" \"$@\"; echo; echo left: $(find {0:?} -type f -size +0 | wc -l)",
            disk
        );
        let inner = child(&disk, "six");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
        command.arg(inner.get_program()).args(inner.get_args());
        command.envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let output = command.output().unwrap();
        let said = answer(&output);
        assert!(
            said.starts_with("failed DiskFull") && said.contains("HALITE_CACHE_DIR"),
            "{kilobytes} kB: {said}"
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("left: 0"), "{kilobytes} kB: {text}");
    }
}

#[test]
fn the_environment_decides_where_the_cache_is() {
    let place = |variables: &[(&str, &str)]| {
        let mut command = child(Path::new(""), "place");
        for name in ["HALITE_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"] {
            command.env_remove(name);
        }
        answer(&command.envs(variables.iter().copied()).output().unwrap())
    };
    assert_eq!(place(&[("HALITE_CACHE_DIR", "/a"), ("HOME", "/b")]), "/a");
    let none = place(&[("HALITE_CACHE_DIR", "")]);
    assert!(
        none.contains("no cache directory") && none.contains("set HALITE_CACHE_DIR"),
        "{none}"
    );
    if cfg!(target_os = "linux") {
        assert_eq!(
            place(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/b")]),
            "/x/halite"
        );
        assert_eq!(
            place(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/b")]),
            "/b/.cache/halite"
        );
        assert_eq!(place(&[("HOME", "/b")]), "/b/.cache/halite");
    }
    assert_eq!(
        Cache::open(Some(Path::new("/explicit"))).unwrap().root(),
        Path::new("/explicit")
    );
}

#[test]
#[should_panic(expected = "is not a plain file name")]
fn a_table_that_would_write_outside_the_cache_is_a_broken_invariant() {
    const OUTSIDE: FileSpec = FileSpec {
        name: "../six.py",
        ..SIX_FILE
    };
    let (_guard, cache) = cache();
    let _ = cache.ensure(
        &Package {
            files: &[OUTSIDE],
            ..SIX
        },
        &mut Quiet,
    );
}

/// Not a test of its own: the tests above run it in a process that they may kill or starve.
#[test]
fn a_child_installs_what_its_parent_test_asks_for() {
    let Ok(what) = std::env::var("HALITE_FETCH_TEST_INSTALL") else {
        return;
    };
    let say = |line: String| {
        println!("\nsaid: {}", line.replace('\n', "\\n"));
        std::io::stdout().flush().unwrap();
    };
    let mut cache = match Cache::open(None) {
        Ok(cache) => cache,
        Err(error) => return say(error.to_string()),
    };
    if let Some(milliseconds) = std::env::var("HALITE_FETCH_TEST_STALL_MS")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        cache = cache.with_limits(Limits {
            stall: Duration::from_millis(milliseconds),
            ..Limits::default()
        });
    }
    let package = match what.as_str() {
        "place" => return say(cache.root().display().to_string()),
        "six" => SIX,
        "six unpinned" => Package {
            archive_sha256: None,
            ..SIX
        },
        "is-number" => IS_NUMBER,
        "cowsay" => COWSAY,
        other => panic!("no package {other}"),
    };
    match cache.ensure(&package, &mut Quiet) {
        Ok(it) => say(format!(
            "{} {}",
            if it.fresh { "installed" } else { "found" },
            it.directory.display()
        )),
        Err(error) => {
            let debug = format!("{error:?}");
            say(format!(
                "failed {} {error}",
                debug.split([' ', '(']).next().unwrap()
            ));
        }
    }
}

fn child(cache: &Path, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "a_child_installs_what_its_parent_test_asks_for",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("HALITE_FETCH_TEST_INSTALL", what)
        .env("HALITE_CACHE_DIR", cache);
    command
}

/// Starts it as the first of a process group, which has the clients that it starts too.
fn start_in_group(mut command: Command) -> Child {
    use std::os::unix::process::CommandExt;
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap()
}

/// SIGKILL to the group: no client stays behind when the test is over.
fn kill_group(mut child: Child) {
    let kill = format!("kill -KILL -{}", child.id());
    let killed = Command::new("sh").args(["-c", &kill]).status().unwrap();
    assert!(killed.success(), "{kill}: {killed}");
    child.wait().unwrap();
}

fn answer(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let line = stdout.lines().find_map(|line| line.strip_prefix("said: "));
    line.unwrap_or_else(|| {
        panic!(
            "the child said nothing: {stdout}{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
    .into()
}

fn cache() -> (tempfile::TempDir, Cache) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::at(directory.path().join("cache"));
    (directory, cache)
}

/// Checks that `package` cannot be installed, with an error of the right kind, and that nothing is
/// left; returns the text.
fn refused(package: &Package, is_right: impl Fn(&Error) -> bool) -> String {
    let (_guard, cache) = cache();
    let error = cache.ensure(package, &mut Quiet).unwrap_err();
    assert!(is_right(&error), "{error:?}");
    assert_eq!(cache.state(package, Check::Full).unwrap(), State::Absent);
    assert_nothing_partial(&cache);
    error.to_string()
}

fn assert_nothing_partial(cache: &Cache) {
    let left: Vec<_> = fs::read_dir(cache.root().join(".partial"))
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// A directory with an executable of the given name, for the front of PATH.
fn script(parent: &Path, name: &str, body: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let bin = parent.join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join(name), format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    bin
}

fn path_with(first: &Path) -> std::ffi::OsString {
    let rest = std::env::var_os("PATH").unwrap();
    std::env::join_paths(std::iter::once(first.to_path_buf()).chain(std::env::split_paths(&rest)))
        .unwrap()
}

/// The interpreter itself: `python3` on PATH may be a script that needs more of PATH.
fn python() -> String {
    let output = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().into()
}

#[derive(Default)]
struct Recorder(Vec<String>);

impl Progress for Recorder {
    fn step(&mut self, step: Step<'_>) {
        self.0.push(match step {
            Step::Damaged { reason, .. } => format!("damaged: {reason}"),
            Step::Starting { .. } => "starting".into(),
            Step::Waiting { .. } => "waiting".into(),
            Step::Downloading { done, total, .. } => {
                assert!(done <= total);
                "downloading".into()
            }
            Step::Unpacking { .. } => "unpacking".into(),
            Step::Installed { .. } => "installed".into(),
            _ => "other".into(),
        });
    }
}
