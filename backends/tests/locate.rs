//! Finding and installing the CPU plugin: the real package, through the real client.
//!
//! The plugin is installed in the user's cache unless it is there; what is always downloaded is a
//! small package. Tests that need another environment run this test binary again as a child:
//! [`child_looks_for_the_plugin`].

mod python;

use std::{
    env::consts,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use halite_backends::{KnownPlugin, PLUGINS, Search, Source, install, plugin};
use halite_core::ErrorKind;
use halite_fetch::{Cache, Client, FileSpec, Package, Quiet, Transform, sha256_of_file};

/// A small file in place of a library, for tests of the installation.
const SIX: FileSpec = FileSpec {
    inside: "six.py",
    name: "six.py",
    size: 34_549,
    sha256: "4ce39f422ee71467ccac8bed76beb05f8c321c7f0ceda9279ae2dfa3670106b3",
    transform: Transform::None,
};

/// Installs the plugin in the user's cache, unless it is there.
fn installed_library() -> PathBuf {
    let cache = Cache::open(None).unwrap();
    install(&PLUGINS[0], &cache, &mut Quiet).unwrap().path
}

#[test]
fn installed_plugin_is_found_in_the_cache() {
    let path = installed_library();
    assert_eq!(sha256_of_file(&path).unwrap().0, PLUGINS[0].library.sha256);
    assert!(
        path.with_file_name("THIRD_PARTY_NOTICES").exists(),
        "licences come with the library"
    );
    let cache = Cache::open(None).unwrap();
    let search = Search {
        variable: "HALITE_NOT_SET",
        ..Search::cpu(&cache)
    };
    for located in [
        search.find(),
        search.ensure(&mut Quiet),
        install(&PLUGINS[0], &cache, &mut Quiet),
    ] {
        let located = located.unwrap();
        assert_eq!((located.source, &located.path), (Source::Cache, &path));
        assert!(
            located
                .to_string()
                .contains("lammps-jax-pjrt-cpu 0.11.2, from the cache"),
            "{located}"
        );
    }
}

#[test]
fn changed_library_in_the_cache_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::at(directory.path().join("changed"));
    let folder = cache.directory(&PLUGINS[0].package);
    fs::create_dir_all(&folder).unwrap();
    let installed = installed_library();
    for entry in fs::read_dir(installed.parent().unwrap()).unwrap().flatten() {
        link_or_copy(&entry.path(), &folder.join(entry.file_name()));
    }
    // Without Python, the library cannot be replaced either.
    let without_python =
        |what: &str| reply_of(child(cache.root(), what).env("PATH", directory.path()));
    let reply = without_python("find");
    assert!(reply.contains("found Cache"), "{reply}");
    let library = folder.join(PLUGINS[0].library.name);
    fs::remove_file(&library).unwrap();
    fs::write(&library, vec![0; 1_000_000]).unwrap();
    let reply = without_python("find");
    assert!(
        reply.contains("is damaged and not used: ") && reply.contains("halite plugins install cpu"),
        "{reply}"
    );
    let reply = without_python("ensure");
    assert!(reply.contains("python3 was not found"), "{reply}");
}

#[test]
fn changed_library_is_installed_again() {
    const PACKAGE: Package = Package {
        client: Client::Pip,
        name: "six",
        version: "1.16.0",
        archive_size: 11_053,
        archive_sha256: Some("8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254"),
        files: &[SIX],
        parts: &[],
    };
    let target = (consts::OS, consts::ARCH);
    let small: &KnownPlugin = Box::leak(Box::new(KnownPlugin {
        package: PACKAGE,
        library: SIX,
        target,
        ..PLUGINS[0]
    }));
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::at(directory.path());
    let located = install(small, &cache, &mut Quiet).unwrap();
    assert_eq!(located.source, Source::Installed);
    assert!(
        located.to_string().contains("six 1.16.0, installed now"),
        "{located}"
    );
    assert_eq!(
        install(small, &cache, &mut Quiet).unwrap().source,
        Source::Cache
    );
    fs::write(&located.path, "changed").unwrap();
    assert_eq!(
        install(small, &cache, &mut Quiet).unwrap().source,
        Source::Installed
    );
    assert_eq!(sha256_of_file(&located.path).unwrap().0, SIX.sha256);
}

#[test]
fn given_path_is_the_only_candidate() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::at(directory.path());
    let library = directory.path().join("my_plugin.so");
    let given = Search {
        given: Some(&library),
        ..Search::cpu(&cache)
    };
    let error = given.ensure(&mut Quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error.to_string().contains("my_plugin.so")
            && error.to_string().contains("expected the path"),
        "{error}"
    );
    assert!(
        Search {
            given: Some(directory.path()),
            ..given
        }
        .find()
        .unwrap_err()
        .to_string()
        .contains("not a file")
    );
    fs::write(&library, "").unwrap();
    assert_eq!(given.ensure(&mut Quiet).unwrap().source, Source::Given);

    let reply = reply_of(child(directory.path(), "ensure").env("HALITE_CPU_PLUGIN", &library));
    assert!(
        reply.contains("found Environment(\"HALITE_CPU_PLUGIN\")"),
        "{reply}"
    );
    let reply = reply_of(child(directory.path(), "ensure").env("HALITE_CPU_PLUGIN", "/no/such.so"));
    assert!(
        reply.contains("HALITE_CPU_PLUGIN is /no/such.so: No such file"),
        "{reply}"
    );
}

#[test]
fn plugin_for_another_system_is_not_installed() {
    let elsewhere = Box::leak(Box::new(PLUGINS[0]));
    elsewhere.target = ("plan9", "mips");
    let directory = tempfile::tempdir().unwrap();
    let error = install(elsewhere, &Cache::at(directory.path()), &mut Quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error
            .to_string()
            .contains("plugin `cpu` has a package for plan9 mips and none for "),
        "{error}"
    );
}

#[test]
fn plugin_for_another_host_is_not_taken_from_the_cache() {
    installed_library();
    let cache = Cache::open(None).unwrap();
    let search = Search {
        variable: "HALITE_NOT_SET",
        host: ("macos", "aarch64"),
        ..Search::cpu(&cache)
    };
    for found in [search.find(), search.ensure(&mut Quiet)] {
        let error = found.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            error
                .to_string()
                .contains("no package of the cpu plugin for macos aarch64, only for linux x86_64"),
            "{error}"
        );
    }
}

#[test]
fn table_of_plugins_is_consistent() {
    for known in PLUGINS {
        assert_eq!(plugin(known.name).unwrap().library, known.library);
        assert!(
            known.package.files.contains(&known.library),
            "{}",
            known.name
        );
        assert!(known.package.archive_sha256.is_some(), "{}", known.name);
        assert!(
            known.package.archive_size < known.library.size,
            "{}",
            known.name
        );
        assert!(known.needs.iter().all(|need| !need.names.is_empty()));
        let cache = Cache::at("/nowhere");
        assert!(
            Search::platform(known.platform, &cache).is_some(),
            "{}",
            known.name
        );
        assert_eq!(
            PLUGINS
                .iter()
                .filter(|other| other.name == known.name)
                .count(),
            1
        );
    }
    let error = plugin("gpu").unwrap_err().to_string();
    assert!(
        error.contains("no plugin `gpu`; there are cpu, cpu-alternative"),
        "{error}"
    );
}

/// The child process of other tests. Without the variable that they set it does nothing.
#[test]
fn child_looks_for_the_plugin() {
    let Ok(what) = std::env::var("HALITE_BACKENDS_TEST") else {
        return;
    };
    let cache = Cache::open(None).unwrap();
    let found = match &*what {
        "find" => Search::cpu(&cache).find(),
        "ensure" => Search::cpu(&cache).ensure(&mut Quiet),
        platform => Search::platform(platform, &cache).unwrap().find(),
    };
    match found {
        Ok(located) => println!("\nreply: found {:?} {located}", located.source),
        Err(error) => println!("\nreply: {}", error.to_string().replace('\n', "\\n")),
    }
}

/// Links a file, or copies it where links are not possible: libraries are large.
fn link_or_copy(from: &Path, to: &Path) {
    fs::hard_link(from, to)
        .or_else(|_| fs::copy(from, to).map(drop))
        .unwrap();
}

fn child(cache: &Path, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "locate::child_looks_for_the_plugin",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("HALITE_BACKENDS_TEST", what)
        .env("HALITE_CACHE_DIR", cache)
        .env_remove("HALITE_CPU_PLUGIN");
    command
}

fn reply_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
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
