//! The directory in which all processes of a job write their parts of checkpoints.

use std::{
    fs,
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use halite_core::{Error, Result};
use halite_nn::Processes;
use serde::{Deserialize, Serialize};

use super::{patience, patience_of_files};
use crate::{
    checkpoint::{CheckpointStore, Savers, TOKEN, this_host},
    files,
};

/// Time in which a file that another host wrote is seen: network file systems keep directories for
/// some seconds.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// What a process sees of the directory of process 0.
#[derive(Deserialize, Serialize)]
struct Sight {
    host: String,
    is_seen: bool,
}

/// The store of a job: `mine`, which process 0 has opened if the run has a directory, and in the
/// other processes the same one for reading.
///
/// # Errors
/// If a process does not see the directory of process 0, with the hosts.
pub(crate) fn shared_store(
    processes: &Processes,
    mine: Option<CheckpointStore>,
) -> Result<Option<CheckpointStore>> {
    let token = mine.as_ref().map(|store| Token::write(store.dir()));
    let token = token.transpose();
    let told: Result<Option<&Path>, String> = match &token {
        Ok(token) => Ok(token.as_ref().map(|token| &*token.0)),
        Err(error) => Err(error.message().to_string()),
    };
    let json = |error: serde_json::Error| {
        Error::invalid("processes", "the path of the run is not text").caused_by(error)
    };
    let told = serde_json::to_vec(&told).map_err(json)?;
    let (group, patience) = (processes.group(), patience(processes));
    let told = group.broadcast("directory of the run", 0, &told, patience)?;
    let _token = token?;
    let told: Result<Option<PathBuf>, String> = serde_json::from_slice(&told).map_err(json)?;
    let told = told.map_err(|error| Error::invalid("processes", format!("process 0: {error}")))?;
    let Some(path) = told else {
        return Ok(None);
    };
    let sight = Sight {
        host: this_host(),
        is_seen: is_seen(&path),
    };
    let sight = serde_json::to_vec(&sight).map_err(json)?;
    let all = group.all_gather("sight of the directory", &sight, patience)?;
    let all = all.iter().map(|sight| serde_json::from_slice(sight));
    let all: Vec<Sight> = all.collect::<Result<_, _>>().map_err(json)?;
    let dir = path.parent().unwrap_or(&path);
    check(dir, &all)?;
    let store = match mine {
        Some(store) => store,
        None => CheckpointStore::open_read_only(dir)?,
    };
    let to_write = patience_of_files(processes);
    let savers = Savers::new(processes.background()?, processes.patience(), to_write);
    Ok(Some(store.together(savers)))
}

/// Checks that all processes see the directory.
fn check(dir: &Path, all: &[Sight]) -> Result<()> {
    let blind = all.iter().enumerate().filter(|(_, sight)| !sight.is_seen);
    let blind: Vec<String> = blind
        .map(|(rank, sight)| format!("process {rank} on {}", sight.host))
        .collect();
    if blind.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} of process 0 on {} cannot be seen by {}: each process writes its part of a checkpoint \
         there; give an output directory on a file system that all hosts share (`out`, --out)",
        dir.display(),
        all.first().map_or("", |first| &*first.host),
        blind.join(", ")
    );
    Err(Error::invalid("processes", message))
}

/// Waits until a file is there.
fn is_seen(path: &Path) -> bool {
    let begun = Instant::now();
    loop {
        match path.is_file() {
            true => return true,
            false if begun.elapsed() >= SEEN_WITHIN => return false,
            false => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// A file that is there while the others look for it.
struct Token(PathBuf);

impl Token {
    fn write(dir: &Path) -> Result<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.map_or(0, |since| since.as_nanos());
        let name = format!("{TOKEN}{}-{since}", process::id());
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
        let path = dir.join(name);
        fs::write(&path, "").map_err(|error| files::failed("processes", "write", &path, &error))?;
        Ok(Token(path))
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // The next run removes a leftover.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_the_directory_are_named() {
        let sight = |host: &str, is_seen| Sight {
            host: host.into(),
            is_seen,
        };
        let dir = Path::new("/data/run/checkpoints");
        check(dir, &[sight("a", true), sight("b", true)]).unwrap();
        let error = check(dir, &[sight("a", true), sight("b", false)]).unwrap_err();
        let error = error.to_string();
        for part in [
            "/data/run/checkpoints of process 0 on a cannot be seen by process 1 on b",
            "--out",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn file_is_seen_while_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let token = Token::write(dir.path()).unwrap();
        let path = token.0.clone();
        assert!(is_seen(&path));
        drop(token);
        assert!(!path.exists());
    }
}
