//! Clients that are missing or fail, and a full disk.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::install::support::{assert_nothing_partial, cache, child, reply_of};

#[test]
fn error_without_a_client_tells_what_to_install() {
    let (guard, cache) = cache();
    let empty = guard.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (what, names) in [
        ("six", ["python3", "pip"]),
        ("is-number", ["npm", "Node.js"]),
        ("cowsay", ["apt-get", "Debian"]),
    ] {
        let reply = reply_of(
            &child(cache.root(), what)
                .env("PATH", &empty)
                .output()
                .unwrap(),
        );
        assert!(
            reply.starts_with("failed ClientMissing")
                && names.iter().all(|name| reply.contains(name)),
            "{reply}"
        );
    }
    assert_nothing_partial(&cache);
}

#[test]
fn python_without_pip_is_skipped() {
    let (guard, cache) = cache();
    // A real interpreter that cannot see any installed module.
    let bin = script(
        guard.path(),
        "python3",
        &format!("exec {} -I -S -m pip", python()),
    );
    let reply = reply_of(
        &child(cache.root(), "six")
            .env("PATH", &bin)
            .output()
            .unwrap(),
    );
    assert!(
        reply.contains("python3 has no pip, python was not found"),
        "{reply}"
    );
}

#[test]
fn unreachable_registry_is_an_error_with_clients_output() {
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
        let reply = reply_of(&command.output().unwrap());
        assert!(
            reply.starts_with("failed ClientFailed") && reply.contains(words),
            "{reply}"
        );
        assert!(reply.contains("Look at the network"), "{reply}");
    }
    assert_nothing_partial(&cache);
}

#[test]
fn words_of_a_client_lead_the_advice() {
    let (guard, cache) = cache();
    let refusal = "echo 'ERROR: refused by the policy of this site' >&2; exit 1";
    script(guard.path(), "npm", refusal);
    let bin = script(guard.path(), "python3", refusal);
    for what in ["six", "is-number"] {
        let mut command = child(cache.root(), what);
        command
            .env("PATH", path_with(&bin))
            .env_remove("PIP_NO_INDEX");
        let reply = reply_of(&command.output().unwrap());
        for part in [
            "Its own words say why",
            "refused by the policy of this site",
        ] {
            assert!(reply.contains(part), "`{part}` is not in: {reply}");
        }
        assert!(!reply.contains("Look at the network"), "{reply}");
    }
    let mut command = child(cache.root(), "six");
    command
        .env("PATH", path_with(&bin))
        .env("PIP_NO_INDEX", "1");
    let reply = reply_of(&command.output().unwrap());
    assert!(reply.contains("PIP_NO_INDEX is set"), "{reply}");
}

#[test]
fn hanging_client_is_stopped_at_the_deadline() {
    let (guard, cache) = cache();
    let bin = script(guard.path(), "python3", "exec sleep 600");
    let start = Instant::now();
    let mut command = child(cache.root(), "six");
    command
        .env("PATH", path_with(&bin))
        .env("HALITE_FETCH_TEST_STALL_MS", "500");
    let reply = reply_of(&command.output().unwrap());
    assert!(
        reply.starts_with("failed Timeout") && reply.contains("downloading six 1.16.0 (pip)"),
        "{reply}"
    );
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_nothing_partial(&cache);
}

#[test]
fn truncated_download_is_refused_with_both_sizes() {
    let (guard, cache) = cache();
    // The real client, whose result loses its tail before we see it.
    let cut = format!(
        "{} \"$@\" && for last; do :; done && for f in \"$PWD\"/../download/*.whl; do head -c 7000 \"$f\" >cut && mv cut \"$f\"; done",
        python()
    );
    let bin = script(guard.path(), "python3", &cut);
    let reply = reply_of(
        &child(cache.root(), "six")
            .env("PATH", path_with(&bin))
            .output()
            .unwrap(),
    );
    assert!(reply.starts_with("failed ArchiveDigest"), "{reply}");
    assert!(
        reply.contains("11053 bytes")
            && reply.contains("7000 bytes")
            && reply.contains("cut short"),
        "{reply}"
    );
    // The same where no digest of the archive is known: the reader of the archive has to notice.
    let reply = reply_of(
        &child(cache.root(), "six unpinned")
            .env("PATH", path_with(&bin))
            .output()
            .unwrap(),
    );
    assert!(reply.starts_with("failed ArchiveBroken"), "{reply}");
    assert_nothing_partial(&cache);
}

#[test]
fn archive_that_unpacks_without_end_is_refused() {
    if Command::new("apt-get").arg("--version").output().is_err() {
        println!("skipped: there is no apt-get here");
        return;
    }
    let (guard, cache) = cache();
    let bin = script(guard.path(), "dpkg-deb", "exec head -c 80000000 /dev/zero");
    let reply = reply_of(
        &child(cache.root(), "cowsay")
            .env("PATH", path_with(&bin))
            .output()
            .unwrap(),
    );
    assert!(
        reply.starts_with("failed ArchiveBroken") && reply.contains("unpacks to more than"),
        "{reply}"
    );
    assert_nothing_partial(&cache);
}

#[test]
fn full_disk_is_an_error_that_leaves_no_files() {
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
        let reply = reply_of(&output);
        assert!(
            reply.starts_with("failed DiskFull") && reply.contains("HALITE_CACHE_DIR"),
            "{kilobytes} kB: {reply}"
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("left: 0"), "{kilobytes} kB: {text}");
    }
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
