//! Child processes with a deadline.

use std::{
    fs::File,
    io::{self, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The end of a command.
pub(crate) enum Outcome {
    Ended {
        status: ExitStatus,
        /// The last lines of stdout and stderr.
        output: String,
    },
    TimedOut {
        waited: Duration,
    },
}

/// Longest time that a command may run, in total and without progress.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) total: Duration,
    pub(crate) stall: Duration,
}

/// A file for output, with a limit in bytes; of longer output, one byte more is written, and then
/// the pipe of the command is closed.
pub(crate) struct Limited {
    pub(crate) file: File,
    pub(crate) most: u64,
}

/// Runs `command` to its end, with stdout written to a file if one is given. `progress` returns a
/// number that grows while there is progress.
///
/// # Errors
///
/// When the command cannot be started; `NotFound` when there is no such program.
pub(crate) fn run(
    command: &mut Command,
    stdout: Option<Limited>,
    deadline: Deadline,
    mut progress: impl FnMut() -> u64,
) -> io::Result<Outcome> {
    // In memory, not in a file: a full disk must not lose the message about it.
    let (reader, writer) = io::pipe()?;
    let (stdout, to_file) = match stdout {
        Some(limited) => {
            let (from, into) = io::pipe()?;
            (Stdio::from(into), Some((from, limited)))
        }
        None => (Stdio::from(writer.try_clone()?), None),
    };
    let spawned = command
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(writer)
        .spawn();
    // The command keeps the writing ends until then, and the pipe would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(spawned?);
    let tail = Tail::follow(reader)?;
    let copy = to_file.map(|(from, limited)| Copying::start(from, limited));
    let copy = copy.transpose()?;
    let start = Instant::now();
    let (mut seen, mut seen_at) = (0, start);
    let mut pause = Duration::from_millis(5);
    loop {
        if let Some(status) = running.0.try_wait()? {
            if let Some(copy) = copy
                && !copy.finish(start, deadline.total)?
            {
                return Ok(Outcome::TimedOut {
                    waited: start.elapsed(),
                });
            }
            return Ok(Outcome::Ended {
                status,
                output: tail.last_lines(),
            });
        }
        let (now, progress) = (Instant::now(), progress());
        if progress != seen {
            (seen, seen_at) = (progress, now);
        }
        if now - start >= deadline.total || now - seen_at >= deadline.stall {
            return Ok(Outcome::TimedOut {
                waited: now - start,
            });
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Returns the last 16 kB that a short command writes to stdout, or `None` if it fails.
///
/// # Errors
/// When the command cannot be started, and `TimedOut` when it has not ended at the deadline; it is
/// killed then.
pub fn stdout_of(command: &mut Command, deadline: Duration) -> io::Result<Option<String>> {
    let (reader, writer) = io::pipe()?;
    let spawned = command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::null())
        .spawn();
    // The command keeps the writing end until then, and the pipe would never end.
    command.stdout(Stdio::null());
    let mut running = Running(spawned?);
    let tail = Tail::follow(reader)?;
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = running.0.try_wait()? {
            return Ok(status.success().then(|| tail.text()));
        }
        if start.elapsed() >= deadline {
            let program = command.get_program().to_string_lossy();
            let message = format!(
                "`{program}` was stopped: it did not end within {} s",
                deadline.as_secs()
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// A child process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when the child has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A thread that copies a pipe to a file.
struct Copying(JoinHandle<io::Result<()>>);

impl Copying {
    fn start(from: io::PipeReader, Limited { mut file, most }: Limited) -> io::Result<Self> {
        let copy = move || io::copy(&mut from.take(most.saturating_add(1)), &mut file).map(|_| ());
        let thread = thread::Builder::new().name("halite-output".into());
        Ok(Copying(thread.spawn(copy)?))
    }

    /// Waits for the end of the pipe until `limit` after `start`, and returns whether it came. After
    /// the command ended only what is in the pipe is left, unless a grandchild holds it open.
    fn finish(self, start: Instant, limit: Duration) -> io::Result<bool> {
        while !self.0.is_finished() {
            if start.elapsed() >= limit {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(1));
        }
        let copied = self.0.join();
        copied.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(true)
    }
}

/// The last bytes that came through a pipe.
struct Tail {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Tail {
    const BYTES: usize = 16 << 10;

    fn follow(mut pipe: impl Read + Send + 'static) -> io::Result<Self> {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let read = move || {
            let mut piece = [0; 4096];
            while let Ok(count) = pipe.read(&mut piece) {
                if count == 0 {
                    break;
                }
                let mut bytes = shared.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&piece[..count]);
                let surplus = bytes.len().saturating_sub(Self::BYTES);
                bytes.drain(..surplus);
            }
        };
        let reader = thread::Builder::new()
            .name("halite-output".into())
            .spawn(read)
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("cannot create a thread to read its output: {error}"),
                )
            })?;
        Ok(Self { bytes, reader })
    }

    fn text(&self) -> String {
        // A grandchild may hold the pipe open after the end of the command; it is not awaited.
        let start = Instant::now();
        while !self.reader.is_finished() && start.elapsed() < Duration::from_secs(1) {
            thread::sleep(Duration::from_millis(2));
        }
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn last_lines(&self) -> String {
        const LINES: usize = 12;
        let text = self.text().replace('\r', "\n");
        // npm repeats its error in a stack trace and in single fields, pip each attempt.
        let is_noise = |line: &str| {
            let words = line.strip_prefix("npm error").unwrap_or(line).trim();
            words.is_empty()
                || words.starts_with("at ")
                || ["{", "}"].contains(&words)
                || words.starts_with("A complete log of")
        };
        let is_retry = |line: &&str| line.starts_with("WARNING: Retrying");
        let lines = text
            .lines()
            .map(str::trim_end)
            .filter(|line| !is_noise(line));
        let lines: Vec<_> = lines.collect();
        let last_retry = lines.iter().rposition(is_retry);
        let is_kept = |&(at, line): &(usize, &str)| !is_retry(&line) || Some(at) == last_retry;
        let lines = lines.into_iter().enumerate().filter(is_kept);
        let lines: Vec<_> = lines.map(|(_, line)| line).collect();
        match &lines[lines.len().saturating_sub(LINES)..] {
            [] => "  (nothing)".into(),
            last => last
                .iter()
                .map(|line| format!("  {line}"))
                .collect::<Vec<_>>()
                .join("\n"),
        }
    }
}
