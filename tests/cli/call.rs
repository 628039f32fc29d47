//! The command as a function call: [`run`] calls it in this process, on a thread of its own.
//!
//! The process loads each plugin once, and several commands run in it at the same time. What a
//! process has one of is the same for all of them: variables of the environment, the directory,
//! signals, and the standard streams that the library writes its progress to.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::ExitStatusExt,
    },
    panic,
    path::Path,
    process::{Command, ExitCode, ExitStatus},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use super::support::{Ended, cache};
use crate::cli::{self, Terminal};

/// A limit that no command reaches unless it hangs, not even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(180);

/// The stack of the main thread of a process, on most systems.
const STACK: usize = 8 << 20;

/// The command with these arguments, separated by spaces. The cache has the plugin and the data.
pub(crate) fn halite(arguments: &str) -> Command {
    cache();
    halite_alone(arguments)
}

/// The command with these arguments, which needs no plugin and no data. Only [`run`] runs it: it is
/// a list of arguments, and not a program.
pub(crate) fn halite_alone(arguments: &str) -> Command {
    let mut command = Command::new("halite");
    command.args(arguments.split_whitespace());
    command
}

/// Runs it to its end. Warnings of its thread are logged to its stderr.
///
/// A path `./NAME` in its arguments is below its directory, and paths in its output are relative to
/// the directory, as if the process were there.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ended {
    let set = command.get_envs().next();
    assert!(set.is_none(), "{set:?} is set in a child process alone");
    let directory = command.get_current_dir().map(Path::to_owned);
    let directory = directory.as_deref();
    let words = command.get_args().map(|word| below(directory, word));
    let words: Vec<OsString> = [OsString::from("halite")]
        .into_iter()
        .chain(words)
        .collect();
    let profile = words.iter().find(|word| *word == "--profile");
    assert!(profile.is_none(), "a profile is of a process of its own");
    let [stdout, stderr] = [Buffer::default(), Buffer::default()];
    let (terminal, log) = (
        Terminal::new(stdout.clone(), stderr.clone()),
        stderr.clone(),
    );
    let (ends, ended) = mpsc::channel::<()>();
    let call = move || {
        let _ends = ends;
        let log = tracing_subscriber::fmt()
            .with_env_filter("warn")
            .with_ansi(false)
            .with_writer(move || log.clone())
            .without_time()
            .with_target(false)
            .finish();
        tracing::subscriber::with_default(log, || {
            cli::run(words, terminal, |cli| cli.execute(false))
        })
    };
    let thread = thread::Builder::new().stack_size(STACK);
    let thread = thread.spawn(call).expect("a thread starts");
    let timeout = Err(mpsc::RecvTimeoutError::Timeout);
    let timed_out = ended.recv_timeout(DEADLINE) == timeout;
    assert!(!timed_out, "it hangs: {command:?}: {}", stderr.text(None));
    let code = thread
        .join()
        .unwrap_or_else(|panic| panic::resume_unwind(panic));
    Ended {
        status: status(code),
        timed_out,
        stdout: stdout.text(directory),
        stderr: stderr.text(directory),
    }
}

/// The status of a process that ends with this code.
fn status(code: ExitCode) -> ExitStatus {
    let number = (0..=u8::MAX).find(|number| ExitCode::from(*number) == code);
    ExitStatus::from_raw(i32::from(number.expect("codes have 8 bits")) << 8)
}

/// The argument with `./` at its start, or after `=` or `:`, replaced by the directory.
fn below(directory: Option<&Path>, word: &OsStr) -> OsString {
    let bytes = word.as_bytes();
    let starts = |at: usize| at == 0 || matches!(bytes[at - 1], b'=' | b':');
    let ends = |at: usize| matches!(bytes.get(at + 1), None | Some(b'/'));
    let at = (0..bytes.len()).find(|&at| bytes[at] == b'.' && starts(at) && ends(at));
    let (Some(directory), Some(at)) = (directory, at) else {
        return word.to_owned();
    };
    let path = [
        &bytes[..at],
        directory.as_os_str().as_bytes(),
        &bytes[at + 1..],
    ];
    OsString::from_vec(path.concat())
}

/// An output stream in memory.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    /// What was written, with paths relative to the directory.
    fn text(&self, directory: Option<&Path>) -> String {
        let text = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
        let Some(directory) = directory else {
            return text;
        };
        let directory = directory.display().to_string();
        text.replace(&format!("{directory}/"), "")
            .replace(&directory, ".")
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
