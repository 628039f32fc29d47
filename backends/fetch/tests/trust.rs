//! Files of a cache that are used, and waits that the cache refuses. Nothing is downloaded:
//! the tests write the files of packages.
#![cfg(unix)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use halite_fetch::{
    Cache, Check, Client, Error, FileSpec, Package, Progress, Quiet, State, Step, StoredKind,
    Transform,
};

/// SHA-256 of `library`, and of `terms`.
const PACKAGE: Package = Package {
    client: Client::Npm,
    name: "is-number",
    version: "7.0.0",
    archive_size: 1000,
    archive_sha256: Some(LIBRARY),
    files: &[
        FileSpec {
            inside: "package/library.so",
            name: "library.so",
            size: 7,
            sha256: LIBRARY,
            transform: Transform::None,
        },
        FileSpec {
            inside: "package/LICENSE",
            name: "LICENSE",
            size: 5,
            sha256: TERMS,
            transform: Transform::None,
        },
    ],
    parts: &[],
};
const LIBRARY: &str = "b718f1354f7247312eca086d9a024afe5fa717ddea5adeddd6f12bcf945b2e8c";
const TERMS: &str = "51d2361f4faea3bc8f9facdbc7d99abb555596a2e51f7b25fd3b41c93587e616";

/// A package with the same bytes and without a library or program.
const DATA: Package = Package {
    name: "is-odd",
    files: &[FileSpec {
        inside: "package/table",
        name: "table",
        size: 7,
        sha256: LIBRARY,
        transform: Transform::None,
    }],
    ..PACKAGE
};

/// A cache that has the package, as an installation leaves it.
fn installed() -> (tempfile::TempDir, Cache, PathBuf) {
    installed_of(&PACKAGE)
}

fn installed_of(package: &Package) -> (tempfile::TempDir, Cache, PathBuf) {
    let guard = tempfile::tempdir().unwrap();
    let cache = Cache::at(guard.path().join("cache"));
    let directory = cache.directory(package);
    fs::create_dir_all(&directory).unwrap();
    for file in package.files {
        let text = if file.sha256 == TERMS {
            "terms"
        } else {
            "library"
        };
        fs::write(directory.join(file.name), text).unwrap();
        chmod(&directory.join(file.name), 0o644);
    }
    mark(&directory, package);
    chmod(cache.root(), 0o755);
    chmod(&directory, 0o755);
    chmod(&directory.join("halite.json"), 0o644);
    (guard, cache, directory)
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Gives a file to another user, which only root may do: `false` if this user may not.
fn give_away(path: &Path) -> bool {
    let given = std::os::unix::fs::chown(path, Some(65534), None).is_ok();
    if !given {
        println!("skipped: only root may give files away");
    }
    given
}

/// Writes the marker for the files as they are.
fn mark(directory: &Path, package: &Package) {
    let entry = |file: &FileSpec| {
        let metadata = fs::metadata(directory.join(file.name));
        let modified = metadata
            .and_then(|metadata| metadata.modified())
            .unwrap_or(std::time::UNIX_EPOCH);
        let modified = modified
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos();
        let FileSpec {
            name, size, sha256, ..
        } = file;
        format!(
            r#"{{"name": "{name}", "size": {size}, "sha256": "{sha256}", "modified": {modified}}}"#
        )
    };
    let files: Vec<_> = package.files.iter().map(entry).collect();
    let marker = format!(
        r#"{{"format": 1, "package": "{package}", "archive_sha256": "{LIBRARY}", "files": [{}]}}"#,
        files.join(",")
    );
    fs::write(directory.join("halite.json"), marker).unwrap();
}

/// Other bytes of the same size and with the same time of change.
fn replace_in_secret(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    fs::write(path, "planted").unwrap();
    fs::File::options()
        .append(true)
        .open(path)
        .unwrap()
        .set_modified(modified)
        .unwrap();
}

fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn within_a_minute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, done) = mpsc::channel();
    thread::spawn(move || send.send(work()));
    done.recv_timeout(Duration::from_secs(60))
        .expect("the call hangs")
}

#[test]
fn private_package_is_found() {
    let (_guard, cache, directory) = installed();
    for check in [Check::Quick, Check::Full] {
        let State::Installed(found) = cache.state(&PACKAGE, check).unwrap() else {
            panic!("{check:?}")
        };
        assert_eq!(found.directory, directory);
    }
}

#[test]
fn data_writable_by_others_is_digested() {
    let ways: [fn(&Path, &Path); 4] = [
        |_, directory| chmod(&directory.join("table"), 0o666),
        |_, directory| chmod(&directory.join("halite.json"), 0o666),
        |_, directory| chmod(directory, 0o777),
        |root, _| chmod(root, 0o777),
    ];
    for (way, open) in ways.into_iter().enumerate() {
        let (_guard, cache, directory) = installed_of(&DATA);
        // Times of the marker are trusted from here on.
        assert!(is_installed(&cache, &DATA));
        replace_in_secret(&directory.join("table"));
        open(cache.root(), &directory);
        let state = cache.state(&DATA, Check::Quick).unwrap();
        let State::Damaged(reason) = state else {
            panic!("way {way}: planted bytes are used")
        };
        assert!(reason.contains("table has SHA-256"), "{reason}");
        // The right bytes are used all the same.
        fs::write(directory.join("table"), "library").unwrap();
        assert!(is_installed(&cache, &DATA), "way {way}");
    }
}

#[test]
fn data_of_another_user_is_digested() {
    let (_guard, cache, directory) = installed_of(&DATA);
    if give_away(&directory.join("table")) {
        replace_in_secret(&directory.join("table"));
        assert!(matches!(
            cache.state(&DATA, Check::Quick).unwrap(),
            State::Damaged(_)
        ));
    }
}

fn is_installed(cache: &Cache, package: &Package) -> bool {
    matches!(
        cache.state(package, Check::Quick).unwrap(),
        State::Installed(_)
    )
}

/// Checks that a package is used neither found, nor verified, nor installed anew, because of `path`.
fn is_refused(cache: &Cache, path: &Path, expected: &str) {
    for check in [Check::Quick, Check::Full] {
        for error in [
            cache.state(&PACKAGE, check).unwrap_err(),
            cache
                .ensure_checked(&PACKAGE, check, &mut Quiet)
                .unwrap_err(),
        ] {
            assert!(matches!(error, Error::Replaceable { .. }), "{error:?}");
            let error = error.to_string();
            for part in [&*path.display().to_string(), expected, "HALITE_CACHE_DIR"] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
    }
}

/// Between the digest and the load, another user could replace what has the name.
#[test]
fn code_writable_by_others_is_refused() {
    type Way = fn(&Path, &Path) -> PathBuf;
    let ways: [(u32, Way); 7] = [
        (0o666, |_, directory| directory.join("library.so")),
        (0o664, |_, directory| directory.join("library.so")),
        (0o666, |_, directory| directory.join("halite.json")),
        (0o777, |_, directory| directory.into()),
        // Files may be added, which a library finds beside it.
        (0o1777, |_, directory| directory.into()),
        (0o777, |root, _| root.into()),
        (0o777, |root, _| root.parent().unwrap().into()),
    ];
    for (mode, place) in ways {
        let (_guard, cache, directory) = installed();
        let path = place(cache.root(), &directory);
        if mode == 0o664 && std::os::unix::fs::chown(&path, None, Some(65534)).is_err() {
            println!("skipped: only root may give files to a foreign group");
            continue;
        }
        chmod(&path, mode);
        is_refused(&cache, &path, "chmod go-w");
        chmod(&path, 0o755);
        assert!(is_installed(&cache, &PACKAGE), "{}", path.display());
    }
}

/// A sticky directory protects entries of this user; others may create theirs.
#[test]
fn sticky_cache_is_used_for_own_packages() {
    let (_guard, cache, directory) = installed();
    chmod(cache.root(), 0o1777);
    assert!(is_installed(&cache, &PACKAGE));
    if give_away(&directory) {
        is_refused(&cache, &directory, "belongs to user 65534");
        chmod(cache.root(), 0o755);
        is_refused(&cache, &directory, "belongs to user 65534");
    }
}

#[test]
fn cache_of_another_user_in_a_sticky_directory_is_refused() {
    let (guard, cache, directory) = installed();
    if !give_away(cache.root()) {
        return;
    }
    // An administrator's cache, which the user named.
    assert!(is_installed(&cache, &PACKAGE));
    for path in [&directory, &directory.join("library.so")] {
        assert!(give_away(path));
    }
    assert!(is_installed(&cache, &PACKAGE));
    chmod(guard.path(), 0o1777);
    is_refused(&cache, cache.root(), "belongs to user 65534");
}

#[test]
fn code_of_another_user_is_refused() {
    let (_guard, cache, directory) = installed();
    let library = directory.join("library.so");
    if give_away(&library) {
        is_refused(&cache, &library, "belongs to user 65534");
    }
}

/// An installation into a directory that another user has prepared is refused before the download.
#[test]
fn installation_into_a_prepared_directory_is_refused() {
    let (_guard, cache, directory) = installed();
    fs::remove_dir_all(&directory).unwrap();
    let partial = cache.root().join(".partial");
    fs::create_dir(&partial).unwrap();
    for (mode, given) in [(0o777, false), (0o755, true)] {
        chmod(&partial, mode);
        if given && !give_away(&partial) {
            break;
        }
        let error = cache.ensure(&PACKAGE, &mut Quiet).unwrap_err().to_string();
        assert!(error.contains(&*partial.display().to_string()), "{error}");
        assert!(error.contains("another user could replace"), "{error}");
    }
}

#[test]
fn links_to_directories_of_others_are_followed_and_refused() {
    let (guard, cache, directory) = installed();
    let moved = guard.path().join("moved");
    fs::rename(&directory, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &directory).unwrap();
    assert!(is_installed(&cache, &PACKAGE));
    chmod(&moved, 0o777);
    is_refused(&cache, &moved, "chmod go-w");
}

#[test]
fn package_without_its_licence_is_used() {
    let (_guard, cache, directory) = installed();
    fs::remove_file(directory.join("LICENSE")).unwrap();
    let installed = cache.ensure(&PACKAGE, &mut Quiet).unwrap();
    assert!(!installed.fresh);
    let State::Damaged(reason) = cache.state(&PACKAGE, Check::Full).unwrap() else {
        panic!("not told")
    };
    assert!(reason.contains("LICENSE is missing"), "{reason}");
}

#[test]
fn pipes_in_a_cache_are_refused_at_once() {
    let (_guard, cache, directory) = installed();
    fs::remove_file(directory.join("halite.json")).unwrap();
    mkfifo(&directory.join("halite.json"));
    let looking = cache.clone();
    let state = within_a_minute(move || looking.state(&PACKAGE, Check::Quick)).unwrap();
    let State::Damaged(reason) = state else {
        panic!("{state:?}")
    };
    assert!(
        reason.contains("halite.json") && reason.contains("not a regular file"),
        "{reason}"
    );

    fs::remove_dir_all(&directory).unwrap();
    fs::create_dir_all(cache.root().join(".locks")).unwrap();
    mkfifo(
        &cache
            .root()
            .join(".locks")
            .join(directory.file_name().unwrap()),
    );
    let error = within_a_minute(move || cache.ensure(&PACKAGE, &mut Quiet))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("not a regular file") && error.contains(".locks"),
        "{error}"
    );
}

/// A cache that cannot install anything: `PATH` is not changed, but the package's digest is not the
/// registry's.
fn fails_to_install(cache: &Cache, check: Check) -> Error {
    let error = cache
        .ensure_checked(&PACKAGE, check, &mut Quiet)
        .unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
    error
}

/// Reads the marker, which a check rewrites with all times of the files.
fn marker(cache: &Cache, directory: &Path) -> String {
    cache.state(&PACKAGE, Check::Quick).unwrap();
    fs::read_to_string(directory.join("halite.json")).unwrap()
}

#[test]
fn unchanged_files_are_digested_once() {
    let (_guard, cache, directory) = installed();
    let first = marker(&cache, &directory);
    assert!(first.contains("\"inode\""), "{first}");
    // Another file with the same bytes.
    let library = directory.join("library.so");
    fs::remove_file(&library).unwrap();
    fs::write(&library, "library").unwrap();
    let second = marker(&cache, &directory);
    assert_ne!(first, second);
    let written = || fs::metadata(directory.join("halite.json")).unwrap();
    let before = written().modified().unwrap();
    assert_eq!(marker(&cache, &directory), second);
    assert_eq!(written().modified().unwrap(), before);
}

#[test]
fn change_that_keeps_the_time_is_found() {
    let (_guard, cache, directory) = installed();
    marker(&cache, &directory);
    replace_in_secret(&directory.join("library.so"));
    for check in [Check::Quick, Check::Full, Check::Files(&["library.so"])] {
        assert!(matches!(
            cache.state(&PACKAGE, check).unwrap(),
            State::Damaged(_)
        ));
        let error = fails_to_install(&cache, check).to_string();
        assert!(
            error.contains("library.so has SHA-256") && error.contains("fetching it again failed"),
            "{error}"
        );
    }
}

#[test]
fn stored_packages_are_listed_verified_removed() {
    let (_guard, cache, directory) = installed();
    let partial = cache.root().join(".partial");
    let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
    for other in [
        ".partial/pip-x-1-0123456789abcdef.1-2-3",
        ".partial/thesis",
        "thesis",
        "pip-my-own-0123456789abcdef",
    ] {
        fs::create_dir_all(cache.root().join(other)).unwrap();
        fs::write(cache.root().join(other).join("file"), "12345").unwrap();
    }
    let stored = cache.stored().unwrap();
    let listed: Vec<_> = stored
        .iter()
        .map(|stored| (&*stored.name, &stored.kind))
        .collect();
    let package = StoredKind::Package(PACKAGE.to_string());
    let left = StoredKind::Partial { in_use: false };
    assert_eq!(
        listed,
        [
            (&*name, &package),
            ("pip-x-1-0123456789abcdef.1-2-3", &left)
        ]
    );
    assert_eq!(stored[1].bytes, 5);

    assert_eq!(stored[0].verify().unwrap(), None);
    replace_in_secret(&directory.join("library.so"));
    assert!(
        stored[0]
            .verify()
            .unwrap()
            .unwrap()
            .contains("library.so has 7 bytes with SHA-256")
    );

    // What another process installs is left alone.
    let lock = cache.root().join(".locks").join("pip-x-1-0123456789abcdef");
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    let lock = fs::File::create(lock).unwrap();
    lock.lock().unwrap();
    assert!(!cache.remove(&stored[1]).unwrap());
    assert_eq!(
        cache.stored().unwrap()[1].kind,
        StoredKind::Partial { in_use: true }
    );
    drop(lock);
    assert!(stored.iter().all(|stored| cache.remove(stored).unwrap()));
    assert_eq!(cache.stored().unwrap().len(), 0);
    for other in ["thesis/file", "pip-my-own-0123456789abcdef/file"] {
        assert!(cache.root().join(other).exists());
    }
    assert!(partial.join("thesis/file").exists());
}

#[test]
fn leftovers_of_other_packages_are_collected() {
    let (_guard, cache, _) = installed();
    let partial = cache.root().join(".partial");
    let [left, used, foreign] = [
        "pip-x-1-0123456789abcdef.1-2-3",
        "pip-y-1-0123456789abcdef.1-2-3",
        "thesis.1-2-3",
    ]
    .map(|name| partial.join(name));
    for directory in [&left, &used, &foreign] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::create_dir_all(cache.root().join(".locks")).unwrap();
    let lock = fs::File::create(cache.root().join(".locks/pip-y-1-0123456789abcdef")).unwrap();
    lock.lock().unwrap();
    fs::remove_file(cache.directory(&PACKAGE).join("library.so")).unwrap();
    fails_to_install(&cache, Check::Quick);
    assert!(!left.exists() && used.exists() && foreign.exists());
}

struct Holders(mpsc::Sender<String>);

impl Progress for Holders {
    fn step(&mut self, step: Step<'_>) {
        if let Step::Waiting { holder, .. } = step {
            _ = self.0.send(holder.to_owned());
        }
    }
}

#[test]
fn wait_names_the_installing_process() {
    let (_guard, cache, directory) = installed();
    fs::remove_dir_all(&directory).unwrap();
    // As the process writes that holds it.
    fs::create_dir_all(cache.root().join(".locks")).unwrap();
    let path = cache
        .root()
        .join(".locks")
        .join(directory.file_name().unwrap());
    fs::write(&path, "4711 0 far.example\n").unwrap();
    let lock = fs::File::open(&path).unwrap();
    lock.lock().unwrap();
    let (send, said) = mpsc::channel();
    let waiting = cache.clone();
    let waits = thread::spawn(move || waiting.ensure(&PACKAGE, &mut Holders(send)));
    let holder = said
        .recv_timeout(Duration::from_secs(60))
        .expect("nothing is said at once");
    assert!(
        holder.starts_with("process 4711 on far.example, for "),
        "{holder}"
    );
    drop(lock);
    waits.join().unwrap().unwrap_err();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "",
        "nobody holds it any more"
    );
}
