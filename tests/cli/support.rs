//! The command as a child process, and the files that it leaves. [`halite_tests`] has the parts
//! that the harnesses share; here, anything unexpected fails the test.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use halite::fetch::Cache;
use halite_tests::{process, runs};

pub(crate) use halite_tests::{process::Ended, runs::newest_step};

/// A limit that no child reaches unless it hangs, not even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(180);

/// The command with these arguments, separated by spaces. It finds the plugin and the data in the
/// cache.
pub(crate) fn halite(arguments: &str) -> Command {
    let mut command = halite_alone(arguments);
    command.env("HALITE_CACHE_DIR", cache().root());
    command
}

/// The command as on a machine without a cache, a plugin, or any variable that halite reads.
pub(crate) fn halite_alone(arguments: &str) -> Command {
    process::command(Path::new(env!("CARGO_BIN_EXE_halite")), arguments)
}

/// The cache, with the CPU plugin and the digits in it.
pub(crate) fn cache() -> &'static Cache {
    static CACHE: OnceLock<Cache> = OnceLock::new();
    CACHE.get_or_init(|| process::cache().unwrap_or_else(|error| panic!("{error}")).0)
}

/// Runs it to its end.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ended {
    Running::start(command).end()
}

/// As [`run`], for a command that must succeed.
#[track_caller]
pub(crate) fn succeeds(command: &mut Command) -> Ended {
    let ended = run(command);
    assert!(ended.succeeded(), "{ended:?}");
    ended
}

/// As [`run`], for a command that must fail with exit code 1. Returns its [error](Ended::error).
#[track_caller]
pub(crate) fn fails(command: &mut Command) -> String {
    let ended = run(command);
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    ended.error()
}

/// Asserts that `text` contains each of `parts`.
#[track_caller]
pub(crate) fn assert_contains(text: &str, parts: &[&str]) {
    assert!(!parts.is_empty(), "no parts given");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// Returns a command that passes the program and the arguments of `inner` to `wrapper`, with its
/// environment and directory.
pub(crate) fn wrapped(wrapper: &[&str], inner: &Command) -> Command {
    let mut words = (wrapper.iter().map(OsStr::new))
        .chain([inner.get_program()])
        .chain(inner.get_args());
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words);
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(directory) = inner.get_current_dir() {
        command.current_dir(directory);
    }
    command
}

/// Returns coreutils' `env` with the option that resets signals. A child inherits signals that its
/// parent ignores, as a background job of a shell ignores SIGINT; `None` where `env` has no such
/// option, and the tests need a parent that ignores none.
fn env_with_default_signals() -> Option<[&'static str; 2]> {
    static WORKS: OnceLock<bool> = OnceLock::new();
    let env = ["/usr/bin/env", "--default-signal=INT,HUP,TERM"];
    let works = WORKS.get_or_init(|| {
        let mut probe = wrapped(&env, &Command::new("true"));
        probe.output().is_ok_and(|output| output.status.success())
    });
    works.then_some(env)
}

/// A running child, which is killed when this is dropped, as in a test that fails.
pub(crate) struct Running(process::Running);

impl Running {
    /// Starts the child with the default actions of the signals that tests send.
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut command = match env_with_default_signals() {
            Some(env) => wrapped(&env, command),
            None => wrapped(&[], command),
        };
        Running(process::Running::start(&mut command).unwrap())
    }

    /// Waits until `condition` holds; fails the test if the child ends before.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        let mut held = false;
        self.0.wait_until(DEADLINE, || {
            held = condition();
            held
        });
        assert!(held, "it ended or hung before {what}");
    }

    /// Sends `INT`, `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        self.0.signal(name);
    }

    /// SIGKILL: it gets no chance to do anything.
    pub(crate) fn kill(self) {
        drop(self.0);
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(self) -> Ended {
        let ended = self.0.end(DEADLINE);
        assert!(!ended.timed_out, "it hangs: {ended:?}");
        ended
    }
}

/// The numbers in a run's report.
pub(crate) fn report(out: &Path) -> serde_json::Value {
    let path = out.join("report.json");
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

/// Folders of a run's checkpoints, by step.
pub(crate) fn checkpoints(out: &Path) -> Vec<PathBuf> {
    let checkpoints = runs::checkpoints(out).into_iter();
    checkpoints.map(|(_, path)| path).collect()
}

/// All [arrays](runs::arrays) of a run's newest checkpoint.
pub(crate) fn arrays(out: &Path) -> Vec<u8> {
    let (_, newest) =
        runs::newest(out).unwrap_or_else(|| panic!("no checkpoint in {}", out.display()));
    runs::arrays(&newest).unwrap()
}

/// Rows of `metrics.csv` without the column of seconds.
#[track_caller]
pub(crate) fn table(out: &Path) -> Vec<Vec<String>> {
    let rows = runs::table(&out.join("metrics.csv"));
    assert!(!rows.is_empty(), "no metrics.csv in {}", out.display());
    let cells = |row: &String| row.split(',').map(str::to_owned).collect();
    rows.iter().map(cells).collect()
}

/// The last part of a path.
pub(crate) fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
