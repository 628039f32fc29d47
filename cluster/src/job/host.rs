//! Hosts and executables of processes, compared when a job starts.

use std::{env, fs, time::Duration};

use halite_core::{Collective, Error, Result};
use halite_fetch::sha256_of_file;

/// The name that the system has for this host.
pub(super) fn name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// A process, as the others need to know it.
struct Process {
    /// Two machines may have one name, but not one name and one boot.
    host: (String, String),
    /// The executable's file, where `host` is the same.
    file: String,
}

/// The processes of a job, by rank.
pub(super) struct Processes(Vec<Process>);

impl Processes {
    /// # Errors
    /// If a process does not answer within the deadline; if one runs another executable.
    pub(super) fn meet(group: &dyn Collective, patience: Duration) -> Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mine = [&*name(), boot.trim(), &file()].join("\n");
        let all = group.all_gather("hosts", mine.as_bytes(), patience)?;
        let read = |bytes: Vec<u8>| {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let mut lines = text.lines().map(str::to_owned);
            let mut line = || lines.next().unwrap_or_default();
            Process {
                host: (line(), line()),
                file: line(),
            }
        };
        let processes = Processes(all.into_iter().map(read).collect());
        let first = &processes.0[0];
        let is_first = |other: &Process| (&other.host, &other.file) == (&first.host, &first.file);
        if !processes.0.iter().all(is_first) {
            processes.compare_digests(group, patience)?;
        }
        Ok(processes)
    }

    fn compare_digests(&self, group: &dyn Collective, patience: Duration) -> Result<()> {
        let digest = env::current_exe().and_then(|path| sha256_of_file(&path));
        let digest = digest.map_or_else(|error| error.to_string(), |(digest, _)| digest);
        let all = group.all_gather("executables", digest.as_bytes(), patience)?;
        let Some(other) = all.iter().position(|digest| *digest != all[0]) else {
            return Ok(());
        };
        let one = |rank: usize| {
            let digest = String::from_utf8_lossy(&all[rank]);
            let path = self.0[rank].file.split('\t').next().unwrap_or_default();
            format!(
                "process {rank} on {} runs {path} ({digest})",
                self.0[rank].host.0
            )
        };
        let message = format!(
            "{}, but {}: all processes must run one program",
            one(0),
            one(other)
        );
        Err(Error::invalid("job", message))
    }

    /// Index of process `rank` among those of its host.
    pub(super) fn local_rank(&self, rank: usize) -> usize {
        let before = self.0.iter().take(rank);
        before
            .filter(|process| process.host == self.0[rank].host)
            .count()
    }

    /// Number of processes of the host of process `rank`.
    pub(super) fn local_size(&self, rank: usize) -> usize {
        let of_host = |process: &&Process| process.host == self.0[rank].host;
        self.0.iter().filter(of_host).count()
    }

    /// The first process of the host of process `rank`.
    pub(super) fn first_of_host(&self, rank: usize) -> usize {
        let is_there = |process: &Process| process.host == self.0[rank].host;
        self.0.iter().position(is_there).unwrap_or(rank)
    }

    pub(super) fn hosts(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|process| process.host.0.clone())
            .collect()
    }
}

/// Path, size and time of this executable.
fn file() -> String {
    let Ok(path) = env::current_exe() else {
        return "unknown".to_owned();
    };
    let metadata = fs::metadata(&path);
    let (size, time) = metadata.map_or((0, None), |file| (file.len(), file.modified().ok()));
    format!("{}\t{size}\t{time:?}", path.display()).replace('\n', " ")
}
