//! The compile cache as files: what is found again, what is refused, what makes room, and processes
//! that are killed.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, SystemTime},
};

use halite_backends::{Access, CompileCache, CompileCacheOptions, Located, Source};
use halite_core::{Compiled, Error, ErrorKind, ProgramCache, ProgramKey};

/// Compile time of every program.
const LONG: Duration = Duration::from_secs(2);

fn options(directory: &Path) -> CompileCacheOptions {
    CompileCacheOptions {
        directory: Some(directory.to_path_buf()),
        ..Default::default()
    }
}

fn open(directory: &Path) -> CompileCache {
    CompileCache::open(&options(directory), None)
        .unwrap()
        .unwrap()
}

fn key(number: u8) -> ProgramKey {
    ProgramKey([number; 32])
}

fn keep(cache: &CompileCache, number: u8, payload: &[u8]) {
    let compiled = Compiled {
        name: "step",
        platform: "cpu",
        compile_time: LONG,
    };
    cache.insert(&key(number), &compiled, &|| Ok(payload.to_vec()));
}

fn found(cache: &CompileCache, number: u8) -> Option<Vec<u8>> {
    cache.find(&key(number)).map(|kept| kept.serialized)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn one_process_compiles_and_the_others_load() {
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path().join("not yet/there");
    let [first, second] = [(); 2].map(|()| open(&programs));
    assert!(!first.begin(&key(1)));
    thread::scope(|scope| {
        let waits = scope.spawn(|| second.begin(&key(1)));
        thread::sleep(Duration::from_millis(100));
        assert!(!waits.is_finished());
        keep(&first, 1, b"machine code");
        assert!(waits.join().unwrap(), "it looks again");
    });
    assert_eq!(found(&second, 1).unwrap(), b"machine code");
    second.loaded(&key(1));
    // One that cannot be compiled is compiled by each, as is another program.
    assert!(!first.begin(&key(2)));
    assert!(!second.begin(&key(3)));
    first.failed(&key(2));
    assert!(!second.begin(&key(2)));
    second.failed(&key(2));
    second.failed(&key(3));
    assert_eq!(names(&programs), [format!("{}.program", key(1))]);
}

#[test]
fn cache_is_shared_between_instances() {
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path().join("not yet/there");
    let cache = open(&programs);
    assert_eq!(found(&cache, 1), None);
    assert!(!programs.exists(), "looking writes nothing");
    keep(&cache, 1, b"machine code");
    assert_eq!(names(&programs), [format!("{}.program", key(1))]);

    let other = open(&programs);
    let kept = other.find(&key(1)).unwrap();
    assert_eq!(
        (kept.serialized, kept.compile_time),
        (b"machine code".to_vec(), LONG)
    );
    other.loaded(&key(1));
    assert_eq!(found(&other, 2), None);
    let [entry] = &other.entries().unwrap()[..] else {
        panic!()
    };
    assert_eq!(
        (&*entry.name, &*entry.platform, entry.key),
        ("step", "cpu", key(1))
    );
    assert_eq!(other.clear().unwrap(), (1, entry.bytes));
    assert_eq!(found(&cache, 1), None);
}

#[cfg(unix)]
#[test]
fn directory_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path().join("programs");
    keep(&open(&programs), 1, b"code");
    assert_eq!(
        fs::metadata(&programs).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let file = programs.join(format!("{}.program", key(1)));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o022, 0);

    // What others may have written is not loaded, but out of a directory that the user vouches for.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(found(&open(&programs), 1), None);
    let trusted = CompileCacheOptions {
        access: Access::ReadOnly,
        ..options(&programs)
    };
    assert!(found(&CompileCache::open(&trusted, None).unwrap().unwrap(), 1).is_some());
    // And it is replaced by the next that compiles it.
    keep(&open(&programs), 1, b"ours");
    assert_eq!(found(&open(&programs), 1), Some(b"ours".to_vec()));
}

#[test]
fn damaged_program_is_a_miss() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    let payload: Vec<u8> = (0..5000).map(|i| i as u8).collect();
    keep(&cache, 1, &payload);
    let file = directory.path().join(format!("{}.program", key(1)));
    let whole = fs::read(&file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut damaged = vec![
        Vec::new(),
        b"something else".to_vec(),
        [&whole[..], b"more"].concat(),
    ];
    damaged
        .extend([7, 60, whole.len() / 2, whole.len() - 1].map(|length| whole[..length].to_vec()));
    damaged.extend([0, 9, 20, 50, 70, whole.len() / 2, whole.len() - 1].map(flipped));
    for bytes in damaged {
        fs::write(&file, &bytes).unwrap();
        assert_eq!(found(&cache, 1), None, "{} bytes", bytes.len());
        assert!(!file.exists(), "it is not looked at twice");
        keep(&cache, 1, &payload);
        assert_eq!(found(&cache, 1).as_ref(), Some(&payload));
    }

    // A whole file, but of another program.
    keep(&cache, 2, b"another");
    fs::copy(directory.path().join(format!("{}.program", key(2))), &file).unwrap();
    assert_eq!(found(&cache, 1), None);
    // No file at all.
    fs::create_dir(&file).unwrap();
    assert_eq!(found(&cache, 1), None);
    keep(&cache, 1, &payload);
    assert_eq!(found(&cache, 2), Some(b"another".to_vec()));
}

#[test]
fn rejected_program_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    keep(&cache, 1, b"code");
    cache.rejected(&key(1), &Error::invalid("load", "of another plugin"));
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn read_only_cache_never_writes() {
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path().join("programs");
    keep(&open(&programs), 1, b"code");
    let file = programs.join(format!("{}.program", key(1)));
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    fs::File::options()
        .append(true)
        .open(&file)
        .unwrap()
        .set_modified(old)
        .unwrap();

    let read_only = CompileCacheOptions {
        access: Access::ReadOnly,
        ..options(&programs)
    };
    let cache = CompileCache::open(&read_only, None).unwrap().unwrap();
    assert_eq!(found(&cache, 1), Some(b"code".to_vec()));
    keep(&cache, 2, b"not kept");
    assert_eq!(names(&programs).len(), 1);
    assert_eq!(
        fs::metadata(&file).unwrap().modified().unwrap(),
        old,
        "not even when it was used"
    );
    fs::write(&file, b"damaged").unwrap();
    assert_eq!(found(&cache, 1), None);
    assert_eq!(fs::read(&file).unwrap(), b"damaged");

    let missing = CompileCacheOptions {
        directory: Some(directory.path().join("missing")),
        ..read_only
    };
    let error = CompileCache::open(&missing, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.message().contains("missing is not a directory"),
        "{error}"
    );
    let off = CompileCacheOptions {
        access: Access::Off,
        ..options(&programs)
    };
    assert!(CompileCache::open(&off, None).unwrap().is_none());
}

#[test]
fn least_recently_used_program_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let limit = 10_500;
    let cache = CompileCache::open(
        &CompileCacheOptions {
            limit,
            ..options(directory.path())
        },
        None,
    )
    .unwrap()
    .unwrap();
    let age = |number: u8, seconds: u64| {
        let file = fs::File::options()
            .append(true)
            .open(directory.path().join(format!("{}.program", key(number))))
            .unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
            .unwrap();
    };
    for number in 1..=5 {
        keep(&cache, number, &[number; 2000]);
        age(number, 100 - u64::from(number));
    }
    assert_eq!(cache.entries().unwrap().len(), 4, "five are too much");
    assert!(
        found(&cache, 1).is_none() && found(&cache, 2).is_some(),
        "and the second was used now"
    );
    keep(&cache, 6, &[6; 2000]);
    let kept: Vec<_> = (1..=6)
        .filter(|number| found(&cache, *number).is_some())
        .collect();
    assert_eq!(kept, [2, 4, 5, 6]);
    let total: u64 = fs::read_dir(directory.path())
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(total <= limit, "{total}");

    keep(&cache, 7, &[7; 20_000]);
    assert_eq!(
        cache.entries().unwrap().len(),
        4,
        "what is more than the limit pushes nothing out"
    );
}

#[test]
fn only_abandoned_files_are_removed() {
    let partial = |number: u8| format!("{}.{number}-2-3.partial", key(number));
    let (abandoned, fresh) = (partial(1), partial(2));
    let directory = tempfile::tempdir().unwrap();
    let old = SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    for (name, is_old) in [
        (&*abandoned, true),
        (&*fresh, false),
        ("notes.txt", true),
        ("c.program.bak", true),
    ] {
        let file = fs::File::create(directory.path().join(name)).unwrap();
        if is_old {
            file.set_modified(old).unwrap();
        }
    }
    keep(&open(directory.path()), 1, b"code");
    let program = format!("{}.program", key(1));
    assert_eq!(
        names(directory.path()),
        [&*program, &*fresh, "c.program.bak", "notes.txt"]
    );
}

#[test]
fn every_serializable_program_is_cached() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    let compiled = Compiled {
        name: "step",
        platform: "cpu",
        compile_time: Duration::ZERO,
    };
    cache.insert(&key(1), &compiled, &|| {
        Err(Error::new(
            ErrorKind::Unsupported,
            "serialize",
            "this plugin cannot",
        ))
    });
    cache.insert(&key(2), &compiled, &|| Ok(b"code".to_vec()));
    assert_eq!(
        (found(&cache, 1), found(&cache, 2)),
        (None, Some(b"code".to_vec()))
    );
}

#[test]
fn unwritable_directory_is_not_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    let cache = open(&file.join("below a file"));
    keep(&cache, 1, b"code");
    assert_eq!((found(&cache, 1), cache.stored_bytes()), (None, 0));
    assert_eq!(cache.entries().map(|entries| entries.len()).unwrap_or(0), 0);
}

#[test]
fn library_digest_is_part_of_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let (programs, library) = (
        directory.path().join("programs"),
        directory.path().join("plugin.so"),
    );
    let of_library = || {
        let located = Located {
            path: library.clone(),
            source: Source::Given,
            plugin: None,
        };
        open(&programs).for_plugin(&located)
    };
    fs::write(&library, b"one build").unwrap();
    keep(&of_library(), 1, b"code of one build");
    assert_eq!(found(&of_library(), 1), Some(b"code of one build".to_vec()));
    let remembered = names(&programs)
        .into_iter()
        .find(|name| name.ends_with(".digest"))
        .expect("it is remembered");
    // Right after that, with the same times if the file system's clock is coarse.
    fs::write(&library, b"two build").unwrap();
    assert_eq!(found(&of_library(), 1), None, "same size, same place");
    keep(&of_library(), 1, b"code of another");
    fs::write(directory.path().join("copy.so"), b"one build").unwrap();
    fs::rename(directory.path().join("copy.so"), &library).unwrap();
    assert_eq!(
        found(&of_library(), 1),
        Some(b"code of one build".to_vec()),
        "the first is still there"
    );
    // What was noted long after the library was changed last is believed.
    let note = programs.join(remembered);
    let text = fs::read_to_string(&note).unwrap();
    let (identity, _) = text.trim_end().rsplit_once('\n').unwrap();
    fs::write(&note, format!("{identity}\n{}\n", "0".repeat(64))).unwrap();
    assert!(found(&of_library(), 1).is_some(), "it was noted too soon");
    fs::write(&note, format!("{identity}\n{}\n", "0".repeat(64))).unwrap();
    fs::File::options()
        .append(true)
        .open(&note)
        .unwrap()
        .set_modified(SystemTime::now() + Duration::from_secs(10))
        .unwrap();
    assert!(found(&of_library(), 1).is_none(), "it was not asked for");
}

const WRITER: &str = "HALITE_TEST_WRITES_PROGRAMS_TO";
const SIZE: usize = 4 << 20;

/// Not a test by itself: the process that
/// [`partial_file_of_a_killed_process_is_ignored`] kills.
#[test]
fn writer() {
    let Some(directory) = std::env::var_os(WRITER) else {
        return;
    };
    let cache = open(Path::new(&directory));
    for number in (0..8).cycle() {
        keep(&cache, number, &vec![number; SIZE]);
    }
}

#[test]
fn partial_file_of_a_killed_process_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    let mut partial = 0;
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "compile_cache::writer"])
            .env(WRITER, directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let any = |names: &[String], suffix: &str| names.iter().any(|name| name.ends_with(suffix));
        // It is at work.
        while !any(
            &names(directory.path()),
            if round == 0 { ".program" } else { ".partial" },
        ) {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let left: Vec<_> = names(directory.path())
            .into_iter()
            .filter(|name| name.ends_with(".partial"))
            .collect();
        partial += left.len();
        for number in 0..8 {
            if let Some(payload) = found(&cache, number) {
                assert_eq!(payload, vec![number; SIZE]);
            }
        }
        left.iter()
            .for_each(|name| fs::remove_file(directory.path().join(name)).unwrap());
    }
    assert!(partial > 0, "none was killed in the midst of a file");
    assert!(!cache.entries().unwrap().is_empty());
}
