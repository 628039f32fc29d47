//! Concurrent processes, and processes that are killed.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use halite_fetch::{Check, Error, Limits, Quiet, State};

use crate::install::support::{Recorder, SIX, assert_nothing_partial, cache, child, reply_of};

#[test]
fn four_concurrent_processes_install_once() {
    let (guard, cache) = cache();
    let children: Vec<_> = (0..4)
        .map(|_| {
            child(cache.root(), "six")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let reply: Vec<_> = children
        .into_iter()
        .map(|child| reply_of(&child.wait_with_output().unwrap()))
        .collect();
    assert_eq!(
        reply
            .iter()
            .filter(|line| line.starts_with("installed "))
            .count(),
        1,
        "{reply:?}"
    );
    assert_eq!(
        reply
            .iter()
            .filter(|line| line.starts_with("found "))
            .count(),
        3,
        "{reply:?}"
    );
    assert!(matches!(
        cache.state(&SIX, Check::Full).unwrap(),
        State::Installed(_)
    ));
    assert_nothing_partial(&cache);
    drop(guard);
}

#[test]
fn files_of_a_killed_process_are_never_used() {
    let (_guard, cache) = cache();
    let mut outcomes = [0, 0];
    let mut delay = Duration::ZERO;
    // Until an installation was faster than its killer.
    while outcomes[1] == 0 {
        assert!(
            delay < Duration::from_secs(60),
            "no installation finished in {delay:?}"
        );
        let child = start_in_group(child(cache.root(), "six"));
        thread::sleep(delay);
        kill_group(child);
        match cache.state(&SIX, Check::Full).unwrap() {
            State::Absent => outcomes[0] += 1,
            State::Installed(_) => outcomes[1] += 1,
            State::Damaged(reason) => panic!("killed after {delay:?}: {reason}"),
        }
        // Ever longer steps, so that a slow machine or network does not make hundreds of them.
        delay += Duration::from_millis(100).max(delay / 8);
    }
    assert!(outcomes[0] > 0);
    assert!(!cache.ensure(&SIX, &mut Quiet).unwrap().fresh);
}

#[test]
fn leftovers_of_a_killed_process_are_removed() {
    let (_guard, cache) = cache();
    let partial = cache.root().join(".partial");
    let child = start_in_group(child(cache.root(), "six"));
    let start = Instant::now();
    while fs::read_dir(&partial).map_or(0, Iterator::count) == 0 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the child never began"
        );
        thread::sleep(Duration::from_millis(2));
    }
    kill_group(child);
    assert_eq!(fs::read_dir(&partial).unwrap().count(), 1);
    // Killed right before the rename: all files and the marker are there, under the wrong name.
    let (_other_guard, other) = crate::install::support::cache();
    let complete = other.ensure(&SIX, &mut Quiet).unwrap().directory;
    let leftover = fs::read_dir(&partial)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::create_dir_all(leftover.join("install")).unwrap();
    for name in ["six.py", "halite.json"] {
        fs::copy(complete.join(name), leftover.join("install").join(name)).unwrap();
    }
    assert_eq!(cache.state(&SIX, Check::Full).unwrap(), State::Absent);
    assert!(cache.ensure(&SIX, &mut Quiet).unwrap().fresh);
    assert_nothing_partial(&cache);
}

#[test]
fn waiting_for_another_process_ends_at_the_deadline() {
    let (_guard, cache) = cache();
    cache.ensure(&SIX, &mut Quiet).unwrap();
    let lock = fs::read_dir(cache.root().join(".locks"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::remove_dir_all(cache.directory(&SIX)).unwrap();
    let held = fs::File::open(lock).unwrap();
    held.lock().unwrap();
    let limits = Limits {
        lock: Some(Duration::from_millis(300)),
        ..Limits::default()
    };
    let mut steps = Recorder::default();
    let error = cache
        .clone()
        .with_limits(limits)
        .ensure(&SIX, &mut steps)
        .unwrap_err();
    assert!(
        matches!(error, Error::Timeout { .. }) && error.to_string().contains("six 1.16.0"),
        "{error}"
    );
    assert!(steps.0.iter().any(|step| step == "waiting"));
    drop(held);
    assert!(cache.ensure(&SIX, &mut Quiet).unwrap().fresh);
}

/// Starts it as the first of a process group, which has the clients that it starts too.
fn start_in_group(mut command: Command) -> Child {
    use std::os::unix::process::CommandExt;
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap()
}

/// SIGKILL to the group: no client stays behind when the test is over.
fn kill_group(mut child: Child) {
    let kill = format!("kill -KILL -{}", child.id());
    let killed = Command::new("sh").args(["-c", &kill]).status().unwrap();
    assert!(killed.success(), "{kill}: {killed}");
    child.wait().unwrap();
}
