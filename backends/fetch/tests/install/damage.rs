//! Installed files that were changed.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use halite_fetch::{Check, Quiet, State};

use crate::install::support::{Recorder, SIX, assert_nothing_partial, cache};

#[test]
fn damaged_file_is_replaced() {
    type Damage = (&'static str, fn(&Path));
    let damage: [Damage; 6] = [
        ("has 3 bytes", |file| fs::write(file, "cut").unwrap()),
        ("SHA-256", |file| {
            fs::write(file, vec![b'x'; 34_549]).unwrap()
        }),
        ("is missing", |file| fs::remove_file(file).unwrap()),
        ("halite.json", |file| {
            fs::write(file.with_file_name("halite.json"), "{\"format\": 1").unwrap()
        }),
        ("halite.json", |file| {
            fs::remove_file(file.with_file_name("halite.json")).unwrap()
        }),
        ("is not a file", |file| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }),
    ];
    let (_guard, cache) = cache();
    for (reason, break_it) in damage {
        let installed = cache.ensure(&SIX, &mut Quiet).unwrap();
        break_it(&installed.path("six.py"));
        if reason == "SHA-256" {
            give_another_time(&installed.path("six.py"));
        }
        let State::Damaged(found) = cache.state(&SIX, Check::Quick).unwrap() else {
            panic!("{reason} went unnoticed")
        };
        assert!(found.contains(reason), "{found}");
        assert_eq!(cache.find(&SIX).unwrap(), None);
        let mut steps = Recorder::default();
        assert!(cache.ensure(&SIX, &mut steps).unwrap().fresh);
        // Another test that starts a process holds the lock for a moment.
        steps.0.retain(|step| step != "waiting");
        assert!(steps.0[0].contains(reason), "{:?}", steps.0);
        assert!(matches!(
            cache.state(&SIX, Check::Full).unwrap(),
            State::Installed(_)
        ));
        assert_nothing_partial(&cache);
    }
}

/// A change within the resolution of the file system's clock would keep the time of the file.
fn give_another_time(file: &Path) {
    let file = fs::File::options().append(true).open(file).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(60))
        .unwrap();
}

#[test]
fn file_with_another_time_is_verified_by_digest() {
    let (_guard, cache) = cache();
    let installed = cache.ensure(&SIX, &mut Quiet).unwrap();
    let marker = fs::read(installed.path("halite.json")).unwrap();
    let bytes = fs::read(installed.path("six.py")).unwrap();
    fs::write(installed.path("six.py"), bytes).unwrap();
    give_another_time(&installed.path("six.py"));
    assert!(!cache.ensure(&SIX, &mut Quiet).unwrap().fresh);
    assert_ne!(fs::read(installed.path("halite.json")).unwrap(), marker);
}
