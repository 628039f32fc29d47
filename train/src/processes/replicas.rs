//! Comparison of the arrays that every process has a copy of.

use std::hash::{DefaultHasher, Hasher};

use halite_core::{Array, Error, ErrorKind, Result};
use halite_nn::Processes;

use super::{patience, short};

/// Checks that the copies of each array, by path, have the same bits in all processes. Reads them, one
/// after the other.
///
/// # Errors
/// The first arrays that differ, and the processes; an array that cannot be read.
pub(crate) fn check_replicas(processes: &Processes, arrays: &[(String, &Array)]) -> Result<()> {
    let mut mine = Vec::new();
    for (_, array) in arrays {
        let mut hasher = DefaultHasher::new();
        hasher.write(array.fetch()?.wait()?.bytes());
        mine.extend(hasher.finish().to_le_bytes());
    }
    let all = (processes.group()).all_gather("replicas", &mine, patience(processes))?;
    if all.iter().any(|theirs| theirs.len() != mine.len()) {
        return Err(short());
    }
    let differing = arrays.iter().enumerate().filter_map(|(index, (path, _))| {
        let digest = |rank: usize| &all[rank][8 * index..8 * (index + 1)];
        let others = (1..all.len()).filter(|&rank| digest(rank) != digest(0));
        let others: Vec<String> = others.map(|rank| rank.to_string()).collect();
        (!others.is_empty()).then(|| format!("\n  `{path}` in process {}", others.join(", ")))
    });
    let differing: Vec<String> = differing.collect();
    if differing.is_empty() {
        return Ok(());
    }
    let more = match differing.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    let shown = &differing[..differing.len().min(SHOWN)];
    let message = format!(
        "copies of the state differ from those of process 0:{}{more}\nsomething that a step depends \
         on differs between processes, such as a callback that acts in one of them",
        shown.concat()
    );
    Err(Error::new(ErrorKind::Diverged, "check_replicas", message))
}

/// Most arrays that an error names.
const SHOWN: usize = 5;
