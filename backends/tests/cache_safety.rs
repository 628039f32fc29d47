//! Faults that the compile cache must survive: files of others, pipes, loads that kill the process, and
//! limits on the size of files.
#![cfg(unix)]

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, SystemTime},
};

use halite_backends::{CompileCache, CompileCacheOptions, Located, Source};
use halite_core::{Compiled, Error, ProgramCache, ProgramKey};

fn open(directory: &Path) -> CompileCache {
    let options = CompileCacheOptions {
        directory: Some(directory.into()),
        ..Default::default()
    };
    CompileCache::open(&options, None).unwrap().unwrap()
}

fn key(number: u8) -> ProgramKey {
    ProgramKey([number; 32])
}

fn keep(cache: &CompileCache, number: u8, payload: &[u8]) {
    let compile_time = Duration::from_secs(2);
    let compiled = Compiled {
        name: "step",
        platform: "cpu",
        compile_time,
    };
    cache.insert(&key(number), &compiled, &|| Ok(payload.to_vec()));
}

fn found(cache: &CompileCache, number: u8) -> Option<Vec<u8>> {
    cache.find(&key(number)).map(|kept| kept.serialized)
}

fn names(directory: &Path) -> Vec<String> {
    let name = |file: std::io::Result<fs::DirEntry>| file.unwrap().file_name().into_string();
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|file| name(file).unwrap())
        .collect();
    names.sort();
    names
}

fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// The result of `work`, or a panic if it has not ended within a minute.
fn within_a_minute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, done) = mpsc::channel();
    thread::spawn(move || send.send(work()));
    done.recv_timeout(Duration::from_secs(60))
        .expect("the call hangs")
}

const FOREIGN: [&str; 7] = [
    "concert.program",
    "notes.txt",
    "release-1.0.digest",
    "thesis.partial",
    "thesis.1-2-3.partial",
    // One digit short, and upper case.
    "0707070707070707070707070707070707070707070707070707070707070.program",
    "ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB.program",
];

#[test]
fn clear_leaves_files_of_other_names() {
    let directory = tempfile::tempdir().unwrap();
    let old = SystemTime::now() - Duration::from_secs(3 * 60 * 60);
    for name in FOREIGN {
        let file = fs::File::create(directory.path().join(name)).unwrap();
        file.set_modified(old).unwrap();
    }
    let cache = open(directory.path());
    keep(&cache, 1, b"code");
    for name in FOREIGN {
        assert!(
            directory.path().join(name).exists(),
            "{name} was removed by a write"
        );
    }
    cache.clear().unwrap();
    let mut foreign = FOREIGN.map(String::from);
    foreign.sort();
    assert_eq!(names(directory.path()), foreign);
}

#[test]
fn eviction_leaves_programs_of_other_names() {
    let directory = tempfile::tempdir().unwrap();
    let concert = directory.path().join("concert.program");
    fs::write(&concert, vec![0; 5000]).unwrap();
    fs::File::options()
        .append(true)
        .open(&concert)
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    let options = CompileCacheOptions {
        directory: Some(directory.path().into()),
        limit: 4000,
        ..Default::default()
    };
    let cache = CompileCache::open(&options, None).unwrap().unwrap();
    keep(&cache, 1, &[1; 1000]);
    assert!(concert.exists());
    assert_eq!(found(&cache, 1), Some(vec![1; 1000]));
}

#[test]
fn pipe_in_place_of_a_program_is_a_miss() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(format!("{}.program", key(1)));
    mkfifo(&path);
    let cache = open(directory.path());
    within_a_minute(move || {
        assert_eq!(found(&cache, 1), None);
        assert_eq!(cache.entries().unwrap().len(), 0);
        keep(&cache, 1, b"code");
        assert_eq!(found(&cache, 1), Some(b"code".to_vec()));
    });
    assert!(
        fs::metadata(&path).unwrap().is_file(),
        "the pipe is replaced"
    );
}

const CHILD: &str = "HALITE_TEST_CACHE_CHILD";
const PLACE: &str = "HALITE_TEST_CACHE_PLACE";

/// Not a test by itself: what the tests below run in a process of its own.
#[test]
fn child() {
    let Some(what) = std::env::var_os(CHILD) else {
        return;
    };
    let cache = open(Path::new(&std::env::var_os(PLACE).unwrap()));
    match what.to_str().unwrap() {
        "load and die" => {
            cache.find(&key(1)).expect("the program is there");
            std::process::abort();
        }
        "keep much" => {
            keep(&cache, 1, &[1; 1 << 20]);
            keep(&cache, 2, &[2; 1000]);
        }
        other => panic!("no child `{other}`"),
    }
}

fn run(what: &str, directory: &Path, shell: &str) -> std::process::ExitStatus {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{shell} exec \"$0\" \"$@\"")]);
    command.arg(std::env::current_exe().unwrap()).args([
        "--exact",
        "cache_safety::child",
        "--nocapture",
    ]);
    command.env(CHILD, what).env(PLACE, directory);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap()
}

#[test]
fn program_whose_load_kills_is_not_loaded_again() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    keep(&cache, 1, b"deadly");
    keep(&cache, 2, b"harmless");
    assert_eq!(run("load and die", directory.path(), "").signal(), Some(6));
    // By the next process, and by one that is under way.
    for cache in [open(directory.path()), cache] {
        assert_eq!(found(&cache, 1), None);
        assert_eq!(found(&cache, 2), Some(b"harmless".to_vec()));
    }
}

#[test]
fn program_that_kills_twice_is_not_cached_again() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let cache = open(directory.path());
        keep(&cache, 1, b"deadly");
        assert_eq!(run("load and die", directory.path(), "").signal(), Some(6));
        assert_eq!(found(&cache, 1), None);
    }
    let cache = open(directory.path());
    keep(&cache, 1, b"deadly");
    assert_eq!(found(&cache, 1), None);
    // The user can have it all forgotten.
    cache.clear().unwrap();
    assert_eq!(names(directory.path()), [""; 0]);
    keep(&cache, 1, b"mended");
    assert_eq!(found(&cache, 1), Some(b"mended".to_vec()));
}

#[test]
fn successful_load_leaves_no_marker() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    keep(&cache, 1, b"code");
    let program = format!("{}.program", key(1));
    assert!(found(&cache, 1).is_some());
    assert_eq!(
        names(directory.path()),
        [format!("{}.loading", key(1)), program.clone()]
    );
    // Loads of another process.
    assert!(found(&open(directory.path()), 1).is_some());
    cache.loaded(&key(1));
    assert_eq!(names(directory.path()), [program]);
    assert!(found(&cache, 1).is_some());
    cache.rejected(&key(1), &Error::invalid("load", "of another plugin"));
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn marker_stays_until_the_last_load_ends() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    keep(&cache, 1, b"code");
    let marker = directory.path().join(format!("{}.loading", key(1)));
    for _thread in 0..2 {
        assert!(found(&cache, 1).is_some());
    }
    cache.loaded(&key(1));
    assert!(marker.exists(), "the other thread may still be killed");
    cache.loaded(&key(1));
    assert!(!marker.exists());
}

#[test]
fn successful_load_resets_the_deaths() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    keep(&cache, 1, b"code");
    run("load and die", directory.path(), "");
    assert_eq!(found(&cache, 1), None);
    assert_eq!(names(directory.path()), [format!("{}.aside", key(1))]);
    keep(&cache, 1, b"code");
    assert!(found(&cache, 1).is_some());
    cache.loaded(&key(1));
    assert_eq!(names(directory.path()), [format!("{}.program", key(1))]);
}

#[test]
fn damaged_files_are_named_by_verify() {
    let directory = tempfile::tempdir().unwrap();
    let (programs, library) = (
        directory.path().join("programs"),
        directory.path().join("a plugin.so"),
    );
    fs::write(&library, "build").unwrap();
    let located = Located {
        path: library.clone(),
        source: Source::Given,
        plugin: None,
    };
    let cache = open(&programs).for_plugin(&located);
    (1..=3).for_each(|number| keep(&cache, number, b"code"));
    let verified = cache.verify().unwrap();
    assert_eq!(
        (verified.files, verified.damaged),
        (4, Vec::new()),
        "three programs, and the digest"
    );

    let named = |suffix: &str| {
        names(&programs)
            .into_iter()
            .find(|name| name.ends_with(suffix))
            .unwrap()
    };
    let (program, digest) = (
        programs.join(named(".program")),
        programs.join(named(".digest")),
    );
    let mut bytes = fs::read(&program).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&program, bytes).unwrap();
    let noted = fs::read_to_string(&digest).unwrap();
    let (identity, _) = noted.trim_end().rsplit_once('\n').unwrap();
    fs::write(&digest, format!("{identity}\n{}\n", "0".repeat(64))).unwrap();
    let verified = cache.verify().unwrap();
    let mut wrong: Vec<_> = verified.damaged.into_iter().map(|file| file.path).collect();
    wrong.sort();
    let mut want = [program, digest];
    want.sort();
    assert_eq!((verified.files, wrong), (4, want.to_vec()));
}

#[test]
fn file_size_limit_does_not_kill_a_write() {
    let directory = tempfile::tempdir().unwrap();
    // Blocks of 512 bytes.
    let status = run("keep much", directory.path(), "ulimit -f 64;");
    assert!(status.success(), "{status}");
    let cache = open(directory.path());
    assert_eq!(found(&cache, 1), None);
    assert!(
        names(directory.path())
            .iter()
            .all(|name| !name.ends_with(".partial"))
    );
}
