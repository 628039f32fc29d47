//! Plugins in Python environments, and what is said where there is no Python.

use std::fs;

use super::{child, installed_library, link_or_copy, reply_of};

#[test]
fn plugin_of_python_is_taken_by_its_digest() {
    let directory = tempfile::tempdir().unwrap();
    let module = directory.path().join("python").join("lammps_jax_pjrt_cpu");
    let library = module.join("pjrt_c_api_cpu_plugin.so");
    fs::create_dir_all(&module).unwrap();
    fs::write(module.join("__init__.py"), "raise Exception('imported')").unwrap();
    link_or_copy(&installed_library(), &library);
    let find = || {
        let mut command = child(&directory.path().join("empty"), "find");
        reply_of(command.env("PYTHONPATH", directory.path().join("python")))
    };
    let reply = find();
    assert!(
        reply.contains("found Python") && reply.contains(module.to_str().unwrap()),
        "{reply}"
    );
    fs::remove_file(&library).unwrap();
    fs::write(&library, "another version").unwrap();
    let reply = find();
    assert!(
        reply.contains("no working plugin") && reply.contains("has SHA-256"),
        "{reply}"
    );
}

#[test]
fn error_without_python_is_one_paragraph() {
    let directory = tempfile::tempdir().unwrap();
    let reply = reply_of(child(directory.path(), "find").env("PATH", directory.path()));
    for place in [
        "HALITE_CPU_PLUGIN is not set",
        "not installed in",
        "no Python environment to look in (no python3, no python)",
    ] {
        assert!(reply.contains(place), "every place is named: {reply}");
    }
    assert!(
        reply.contains("no working plugin: ") && reply.contains("halite plugins install cpu"),
        "{reply}"
    );
    let reply = reply_of(child(directory.path(), "ensure").env("PATH", directory.path()));
    assert!(
        reply.contains("python3 was not found") && reply.contains("install Python 3 with pip"),
        "{reply}"
    );
    assert!(!reply.contains("\\n"), "{reply}");
}

/// The packages of all vendors share the module `jax_plugins`.
#[test]
fn vendor_plugin_of_python_needs_trust() {
    let directory = tempfile::tempdir().unwrap();
    let python = directory.path().join("python");
    for name in [
        "xla_rocm7/xla_rocm_plugin.so",
        "xla_oneapi/xla_oneapi_plugin.so",
    ] {
        let library = python.join("jax_plugins").join(name);
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        fs::write(library, "another version").unwrap();
    }
    let find = |platform: &str, trust: &str| {
        let mut command = child(&directory.path().join("empty"), platform);
        command.env("HALITE_TRUST_PYTHON", trust);
        reply_of(command.env("PYTHONPATH", &python))
    };
    for (platform, name, package) in [
        (
            "rocm",
            "xla_rocm7/xla_rocm_plugin.so",
            "jax-rocm7-pjrt 0.12.0",
        ),
        (
            "oneapi",
            "xla_oneapi/xla_oneapi_plugin.so",
            "jax-oneapi-pjrt 0.11.2",
        ),
    ] {
        let refused = find(platform, "0");
        for part in [
            name,
            package,
            "has SHA-256",
            "--trust-python",
            "halite plugins install",
        ] {
            assert!(refused.contains(part), "`{part}` is not in: {refused}");
        }
        let taken = find(platform, "1");
        assert!(
            taken.contains("found Python") && taken.contains(name),
            "{taken}"
        );
    }
    let absent = find("tt", "1");
    assert!(
        absent.contains("not installed as a Python package (jax-tt-plugin)"),
        "{absent}"
    );
}

#[test]
fn failing_python_is_skipped() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("python3");
    fs::write(&script, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let reply = reply_of(child(directory.path(), "find").env("PATH", directory.path()));
    assert!(reply.contains("python3 failed, no python"), "{reply}");
}
