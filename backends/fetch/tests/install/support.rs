//! Small real packages, the child process, and checks.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use halite_fetch::{Cache, Client, FileSpec, Package, Progress, Step, Transform};

pub(crate) const SIX: Package = Package {
    client: Client::Pip,
    name: "six",
    version: "1.16.0",
    archive_size: 11_053,
    archive_sha256: Some("8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254"),
    files: &[SIX_FILE],
    parts: &[],
};

pub(crate) const SIX_FILE: FileSpec = FileSpec {
    inside: "six.py",
    name: "six.py",
    size: 34_549,
    sha256: "4ce39f422ee71467ccac8bed76beb05f8c321c7f0ceda9279ae2dfa3670106b3",
    transform: Transform::None,
};

pub(crate) const IS_NUMBER: Package = Package {
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
pub(crate) const COWSAY: Package = Package {
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

pub(crate) const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

pub(crate) fn child(cache: &Path, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "install::child_installs_a_package",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("HALITE_FETCH_TEST_INSTALL", what)
        .env("HALITE_CACHE_DIR", cache);
    command
}

pub(crate) fn reply_of(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let line = stdout.lines().find_map(|line| line.strip_prefix("reply: "));
    line.unwrap_or_else(|| {
        panic!(
            "the child wrote no reply: {stdout}{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
    .into()
}

pub(crate) fn cache() -> (tempfile::TempDir, Cache) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::at(directory.path().join("cache"));
    (directory, cache)
}

pub(crate) fn assert_nothing_partial(cache: &Cache) {
    let left: Vec<_> = fs::read_dir(cache.root().join(".partial"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[derive(Default)]
pub(crate) struct Recorder(pub(crate) Vec<String>);

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
