//! Agreement of the processes of a job on a program that communicates with all of them, before its
//! first launch. Later launches only count.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use halite_core::{Code, Error, Launches, Result};

/// Least limit of the wait for processes that still compile the program.
const COMPILING: Duration = Duration::from_secs(300);

/// A program that every process of a job launches.
pub(crate) struct SharedProgram {
    launches: Arc<Launches>,
    /// Longest wait for the other processes.
    patience: Duration,
    /// Digest of its text, without source locations. It is compared between processes of one
    /// executable only.
    digest: u64,
    agreed: Mutex<bool>,
}

impl SharedProgram {
    /// The program with this code, which does not have the number of the job. Processes wait for
    /// each other for `patience`, and at least for as long as compiling may take.
    pub(crate) fn new(launches: &Arc<Launches>, patience: Duration, code: &Code) -> Self {
        let mut hasher = DefaultHasher::new();
        code.without_locations(|piece| hasher.write(piece));
        SharedProgram {
            launches: launches.clone(),
            patience: patience.max(COMPILING),
            digest: hasher.finish(),
            agreed: Mutex::new(false),
        }
    }

    /// Counts a launch. Before the first one, waits for the same launch of all other processes.
    ///
    /// # Errors
    /// If a process launches another program, or has launched more or fewer programs before, with
    /// what `describe` says of both; if one does not come.
    pub(crate) fn before_launch(&self, describe: impl FnOnce() -> String) -> Result<()> {
        let number = self.launches.next();
        let mut agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*agreed {
            let mine = Launch {
                number,
                digest: self.digest,
                program: describe(),
            };
            let group = self.launches.group();
            let all = group.all_gather("first launch of a program", &mine.write(), self.patience);
            let all = all.map_err(|error| {
                let (rank, program) = (group.rank(), &mine.program);
                error.with_note(&format!(
                    "process {rank} launches {program} as number {number}, and all processes must \
                     launch the same programs in the same order"
                ))
            })?;
            let all = all.iter().map(|bytes| Launch::read(bytes));
            check(&all.collect::<Vec<_>>())?;
            *agreed = true;
        }
        Ok(())
    }
}

/// A launch of one process.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Launch {
    /// Number of the launch, among those of programs with exchanges.
    number: u64,
    digest: u64,
    /// Name and lines.
    program: String,
}

impl Launch {
    fn write(&self) -> Vec<u8> {
        let mut bytes = self.number.to_le_bytes().to_vec();
        bytes.extend(self.digest.to_le_bytes());
        bytes.extend(self.program.as_bytes());
        bytes
    }

    /// A launch as it was written; another text is a launch of nothing.
    fn read(bytes: &[u8]) -> Self {
        let mut rest = bytes;
        let mut word = || {
            let (word, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u64::from_le_bytes(*word))
        };
        let words = word().zip(word());
        let (number, digest) = words.unwrap_or_default();
        let program = String::from_utf8_lossy(rest).into_owned();
        Launch {
            number,
            digest,
            program,
        }
    }
}

/// Checks that the launches of all processes, by rank, are the same.
fn check(all: &[Launch]) -> Result<()> {
    let mut ranks = BTreeMap::<(u64, u64), Vec<usize>>::new();
    for (rank, launch) in all.iter().enumerate() {
        let same = ranks.entry((launch.number, launch.digest)).or_default();
        same.push(rank);
    }
    if ranks.len() <= 1 {
        return Ok(());
    }
    let described = ranks.into_iter().map(|((number, digest), ranks)| {
        let program = &all[ranks[0]].program;
        let (noun, verb) = match ranks.len() {
            1 => ("process", "launches"),
            _ => ("processes", "launch"),
        };
        let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
        let ranks = ranks.join(", ");
        format!("\n  {noun} {ranks} {verb} {program} as number {number} (digest {digest:016x})")
    });
    let message = format!(
        "processes launch different programs that exchange values, which would wait for each other \
         for ever:{}\nall processes must launch the same programs in the same order",
        described.collect::<String>()
    );
    Err(Error::invalid("launch", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(number: u64, digest: u64, program: &str) -> Launch {
        let program = program.to_owned();
        Launch {
            number,
            digest,
            program,
        }
    }

    #[test]
    fn launches_are_read_as_they_were_written() {
        let launch = launch(3, u64::MAX, "`step` of src/main.rs:7:3");
        assert_eq!(Launch::read(&launch.write()), launch);
        assert_eq!(Launch::read(&[1, 2]).number, 0);
    }

    #[test]
    fn differing_launches_are_named_with_their_processes() {
        let step = launch(4, 17, "`step` of src/main.rs:7:3");
        assert!(check(&[step.clone(), step.clone()]).is_ok());
        let other = launch(5, 17, "`step` of src/main.rs:9:3");
        let error = check(&[other, step.clone(), step]).unwrap_err().to_string();
        for expected in [
            "processes 1, 2 launch `step` of src/main.rs:7:3 as number 4 (digest 0000000000000011)",
            "process 0 launches `step` of src/main.rs:9:3 as number 5",
        ] {
            assert!(error.contains(expected), "{error}");
        }
    }
}
