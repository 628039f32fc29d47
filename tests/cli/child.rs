//! The command as a child process.

use std::{ffi::OsStr, path::Path, process::Command, sync::OnceLock, time::Duration};

use halite_tests::process;

use super::support::{Ended, cache};

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

/// Runs it to its end.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ended {
    Running::start(command).end()
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
