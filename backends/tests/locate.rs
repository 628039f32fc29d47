//! Finding and installing the CPU plugin: the real package, through the real client.
//!
//! The plugin is installed in the cache where it is missing, once for all tests; what has to be
//! downloaded here in any case is a small package. Tests that need another environment run this
//! same test binary again as a child (see `a_child_looks_for_the_plugin_as_its_parent_test_asks`).

use std::{env::consts, fs, path::Path, process::Command};

use halite_backends::{KnownPlugin, PLUGINS, Search, Source, install, plugin};
use halite_core::ErrorKind;
use halite_fetch::{Cache, Client, FileSpec, Package, Quiet, Transform, sha256_of_file};

/// What stands for a library where only its being installed matters.
const SIX: FileSpec = FileSpec {
    inside: "six.py",
    name: "six.py",
    size: 34_549,
    sha256: "4ce39f422ee71467ccac8bed76beb05f8c321c7f0ceda9279ae2dfa3670106b3",
    transform: Transform::None,
};

#[test]
fn the_plugin_is_found_refused_when_it_was_changed_and_taken_from_python_by_its_digest() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(None).unwrap();
    let search = Search {
        variable: "HALITE_NOT_SET",
        ..Search::cpu(&cache)
    };

    // Whether or not it was there before, it is now.
    let path = install(&PLUGINS[0], &cache, &mut Quiet).unwrap().path;
    assert_eq!(sha256_of_file(&path).unwrap().0, PLUGINS[0].library.sha256);
    assert!(
        path.with_file_name("THIRD_PARTY_NOTICES").exists(),
        "licences come with the library"
    );
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

    // A Python environment that has the module, with the right library and with another.
    let module = directory.path().join("python").join("lammps_jax_pjrt_cpu");
    fs::create_dir_all(&module).unwrap();
    fs::write(module.join("__init__.py"), "raise Exception('imported')").unwrap();
    link_or_copy(&path, &module.join("pjrt_c_api_cpu_plugin.so"));
    let empty = directory.path().join("empty");
    let in_python = |find: &str| {
        let mut command = child(&empty, find);
        answer(command.env("PYTHONPATH", directory.path().join("python")))
    };
    let said = in_python("find");
    assert!(
        said.contains("found Python") && said.contains(module.to_str().unwrap()),
        "{said}"
    );
    fs::remove_file(module.join("pjrt_c_api_cpu_plugin.so")).unwrap();
    fs::write(module.join("pjrt_c_api_cpu_plugin.so"), "another version").unwrap();
    let said = in_python("find");
    assert!(
        said.contains("no working plugin") && said.contains("has SHA-256"),
        "{said}"
    );

    // A library that is not what was installed is never taken. (Without Python, it cannot be
    // replaced either.)
    let changed = Cache::at(directory.path().join("changed"));
    let folder = changed.directory(&PLUGINS[0].package);
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(path.parent().unwrap()).unwrap().flatten() {
        link_or_copy(&entry.path(), &folder.join(entry.file_name()));
    }
    let without_python =
        |what: &str| answer(child(changed.root(), what).env("PATH", directory.path()));
    let said = without_python("find");
    assert!(said.contains("found Cache"), "{said}");
    let library = folder.join(PLUGINS[0].library.name);
    fs::remove_file(&library).unwrap();
    fs::write(&library, vec![0; 1_000_000]).unwrap();
    let said = without_python("find");
    assert!(
        said.contains("is damaged and not used: ") && said.contains("halite plugins install cpu"),
        "{said}"
    );
    let said = without_python("ensure");
    assert!(said.contains("python3 was not found"), "{said}");
}

#[test]
fn a_plugin_is_installed_once_and_again_when_its_library_was_changed() {
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
fn the_users_path_is_taken_as_it_is_and_nothing_else_is_tried() {
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

    let said = answer(child(directory.path(), "ensure").env("HALITE_CPU_PLUGIN", &library));
    assert!(
        said.contains("found Environment(\"HALITE_CPU_PLUGIN\")"),
        "{said}"
    );
    let said = answer(child(directory.path(), "ensure").env("HALITE_CPU_PLUGIN", "/no/such.so"));
    assert!(
        said.contains("HALITE_CPU_PLUGIN is /no/such.so: No such file"),
        "{said}"
    );
}

#[test]
fn without_python_the_error_says_so_in_one_paragraph() {
    let directory = tempfile::tempdir().unwrap();
    let said = answer(child(directory.path(), "find").env("PATH", directory.path()));
    for place in [
        "HALITE_CPU_PLUGIN is not set",
        "not installed in",
        "no Python environment to look in (no python3, no python)",
    ] {
        assert!(said.contains(place), "every place is named: {said}");
    }
    assert!(
        said.contains("no working plugin: ") && said.contains("halite plugins install cpu"),
        "{said}"
    );
    let said = answer(child(directory.path(), "ensure").env("PATH", directory.path()));
    assert!(
        said.contains("python3 was not found") && said.contains("install Python 3 with pip"),
        "{said}"
    );
    assert!(!said.contains("\\n"), "{said}");
}

#[test]
fn a_python_that_fails_is_passed_over() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("python3");
    fs::write(&script, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let said = answer(child(directory.path(), "find").env("PATH", directory.path()));
    assert!(said.contains("python3 failed, no python"), "{said}");
}

#[test]
fn a_plugin_for_another_system_is_not_installed() {
    let elsewhere = Box::leak(Box::new(PLUGINS[0]));
    elsewhere.target = ("plan9", "mips");
    let directory = tempfile::tempdir().unwrap();
    let error = install(elsewhere, &Cache::at(directory.path()), &mut Quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("built for plan9 on mips"),
        "{error}"
    );
}

#[test]
fn the_table_is_consistent() {
    for known in PLUGINS {
        assert_eq!(plugin(known.name).unwrap().library, known.library);
        assert!(
            known.package.files.contains(&known.library),
            "{}",
            known.name
        );
        assert!(known.package.archive_sha256.is_some(), "{}", known.name);
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

/// Not a test of its own: the tests above run it in a process with another environment.
#[test]
fn a_child_looks_for_the_plugin_as_its_parent_test_asks() {
    let Ok(what) = std::env::var("HALITE_BACKENDS_TEST") else {
        return;
    };
    let cache = Cache::open(None).unwrap();
    let search = Search::cpu(&cache);
    let found = if what == "find" {
        search.find()
    } else {
        search.ensure(&mut Quiet)
    };
    match found {
        Ok(located) => println!("\nsaid: found {:?} {located}", located.source),
        Err(error) => println!("\nsaid: {}", error.to_string().replace('\n', "\\n")),
    }
}

/// A link where it can be one: libraries are large.
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
            "a_child_looks_for_the_plugin_as_its_parent_test_asks",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("HALITE_BACKENDS_TEST", what)
        .env("HALITE_CACHE_DIR", cache)
        .env_remove("HALITE_CPU_PLUGIN");
    command
}

fn answer(command: &mut Command) -> String {
    let output = command.output().unwrap();
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
