//! Packages and caches that are refused.

use std::fs;

use halite_fetch::{Cache, Check, Error, FileSpec, Package, Quiet, State};

use crate::install::support::{IS_NUMBER, SIX, SIX_FILE, ZEROS, assert_nothing_partial, cache};

#[test]
fn wrong_archive_digest_is_refused_with_both_digests() {
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
fn wrong_file_digest_or_size_is_refused_with_both() {
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
fn error_of_a_missing_file_lists_the_archive() {
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
fn unknown_version_is_an_error_with_the_clients_output() {
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
fn cache_below_a_file_is_an_error_with_the_variable() {
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
#[should_panic(expected = "is not a plain file name")]
fn file_name_outside_the_cache_panics() {
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
