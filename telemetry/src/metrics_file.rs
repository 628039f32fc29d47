//! The file of `HALITE_METRICS_FILE`: a line of JSON per second, of bounded size.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Largest size of the file in bytes: some hours of a run.
const LIMIT: u64 = 16 << 20;

/// A file that grows by a line of metrics.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    path: PathBuf,
    /// The second in which a line was last added.
    last: AtomicU64,
    /// True if the last line could not be added.
    failed: AtomicBool,
}

impl MetricsFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        MetricsFile {
            path,
            last: AtomicU64::new(u64::MAX),
            failed: AtomicBool::new(false),
        }
    }

    /// Returns whether no line was added in this second.
    pub(crate) fn is_due(&self, elapsed: Duration) -> bool {
        let now = elapsed.as_secs();
        self.last.swap(now, Relaxed) != now
    }

    /// Adds a line. Warns once about an error.
    pub(crate) fn append(&self, line: &str) {
        match append_bounded(&self.path, &format!("{line}\n"), LIMIT) {
            Ok(()) => self.failed.store(false, Relaxed),
            Err(error) if !self.failed.swap(true, Relaxed) => {
                halite_core::warning!(
                    "metrics cannot be added to {}: {error}; tried again with each line",
                    self.path.display()
                );
            }
            Err(_) => {}
        }
    }
}

/// Adds a line to a file. One that would grow beyond `limit` bytes is first renamed to `PATH.1`,
/// replacing the previous one, so that both together take at most twice `limit`.
fn append_bounded(path: &Path, line: &str, limit: u64) -> io::Result<()> {
    let mut file = open_for_append(path)?;
    let metadata = file.metadata()?;
    // Another process may be renaming it: this line is then in the old file.
    if metadata.is_file()
        && metadata.len() + line.len() as u64 > limit
        && file.try_lock().is_ok()
        && is_at(&metadata, path)
    {
        let mut older = path.as_os_str().to_owned();
        older.push(".1");
        fs::rename(path, older)?;
        file = open_for_append(path)?;
    }
    // One write, so that the lines of several processes do not mix.
    file.write_all(line.as_bytes())
}

fn open_for_append(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.create(true).append(true);
    // Opening a pipe that nobody reads is then an error instead of a wait.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits() as i32,
    );
    options.open(path)
}

/// Returns whether `path` is still the name of an open file.
fn is_at(open: &fs::Metadata, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino()))
    }
    #[cfg(not(unix))]
    {
        _ = (open, path);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn metrics_file_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let (path, older) = (
            directory.path().join("m.jsonl"),
            directory.path().join("m.jsonl.1"),
        );
        for number in 0..25 {
            append_bounded(&path, &format!("line {number:04}\n"), 100).unwrap();
        }
        assert_eq!(text(&path).lines().next(), Some("line 0020"));
        assert_eq!(
            (text(&older).lines().count(), text(&older).lines().next()),
            (10, Some("line 0010"))
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn file_locked_by_another_process_is_not_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.jsonl");
        fs::write(&path, "0123456789").unwrap();
        let other = fs::File::open(&path).unwrap();
        other.lock().unwrap();
        append_bounded(&path, "line\n", 10).unwrap();
        assert_eq!(text(&path), "0123456789line\n");
        assert!(!directory.path().join("m.jsonl.1").exists());
    }

    #[cfg(unix)]
    #[test]
    fn pipe_without_a_reader_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.jsonl");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let (send, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send(append_bounded(&path, "line\n", 100)));
        done.recv_timeout(Duration::from_secs(60))
            .expect("it hangs")
            .unwrap_err();
    }
}
