//! Packages of each client, and the cache directory.

use std::{fs, path::Path, process::Command};

use halite_fetch::{Cache, Check, Quiet, State};

use crate::install::support::{
    COWSAY, IS_NUMBER, Recorder, SIX, assert_nothing_partial, cache, child, reply_of,
};

#[test]
fn wheel_is_installed_once() {
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
fn npm_files_get_their_new_names() {
    let (_guard, cache) = cache();
    let installed = cache.ensure(&IS_NUMBER, &mut Quiet).unwrap();
    assert_eq!(
        fs::read(installed.path("licence.txt")).unwrap().len(),
        1_091
    );
    let mut names: Vec<_> = fs::read_dir(&installed.directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["halite.json", "index.js", "licence.txt"]);
    assert_nothing_partial(&cache);
}

#[test]
fn gzip_member_of_a_debian_package_is_decompressed() {
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
fn missing_package_lists_are_fetched_privately() {
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
    let reply = reply_of(&command.env("APT_CONFIG", &config).output().unwrap());
    assert!(reply.starts_with("installed "), "{reply}");
    assert_eq!(fs::read_dir(lists.join("partial")).unwrap().count(), 0);
    assert_nothing_partial(&cache);
}

#[test]
fn environment_chooses_the_cache_directory() {
    let place = |variables: &[(&str, &str)]| {
        let mut command = child(Path::new(""), "place");
        for name in ["HALITE_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"] {
            command.env_remove(name);
        }
        reply_of(&command.envs(variables.iter().copied()).output().unwrap())
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
fn settings_for_projects_do_not_reach_clients() {
    let (guard, cache) = cache();
    let write = |name: &str, text: &str| {
        let path = guard.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let other = write("constraints.txt", "six==1.0\n");
    let settings = format!(
        "[global]\nrequire-virtualenv = true\nrequire-hashes = true\nconstraint = {0}\n\
         [download]\nno-binary = :all:\nrequirement = {0}\n",
        other.display()
    );
    let pip = write("pip.conf", &settings);
    let elsewhere = guard.path().join("elsewhere");
    let npm = write("npmrc", "dry-run=true\njson=true\nglobal=true\n");
    for what in ["six", "is-number"] {
        let mut command = child(cache.root(), what);
        command
            .env("PIP_CONFIG_FILE", &pip)
            .env("PIP_PLATFORM", "win_amd64")
            .env("PIP_NO_BINARY", ":all:")
            .env("PIP_REQUIRE_VIRTUALENV", "true")
            .env("PIP_REQUIRE_HASHES", "1")
            .env("npm_config_userconfig", &npm)
            .env("npm_config_pack_destination", &elsewhere)
            .env("NPM_CONFIG_BEFORE", "2015-01-01");
        let reply = reply_of(&command.output().unwrap());
        assert!(reply.starts_with("installed "), "{what}: {reply}");
    }
}
