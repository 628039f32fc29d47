//! Recognition of a job from environment variables.

use std::{env, fmt};

use halite_core::{Error, Result};

/// What started this process as a part of a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// Nothing: the job is this process.
    Alone,
    /// A launcher that speaks PMI: `mpiexec`, `halite launch`, `srun --mpi=pmi2`.
    Mpi,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Alone => "one process",
            Source::Mpi => "MPI",
        })
    }
}

/// A job as variables describe it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recognized {
    pub(crate) source: Source,
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

impl Recognized {
    /// The job of this process.
    ///
    /// # Errors
    /// If variables are malformed or contradict each other.
    pub(crate) fn from_env() -> Result<Self> {
        Self::from(&|name| env::var(name).ok())
    }

    fn from(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let number = |name: &str| -> Result<Option<usize>> {
            let Some(text) = variable(name).filter(|text| !text.is_empty()) else {
                return Ok(None);
            };
            let message = || format!("{name} is `{text}`; expected a number");
            (text.parse().map(Some)).map_err(|_| Error::invalid("job", message()))
        };
        let (rank, size) = match (number("PMI_RANK")?, number("PMI_SIZE")?) {
            (Some(rank), Some(size)) => (rank, size),
            _ => {
                return Ok(Recognized {
                    source: Source::Alone,
                    rank: 0,
                    size: 1,
                });
            }
        };
        if rank >= size {
            let message = format!("PMI_RANK is {rank}, PMI_SIZE {size}: ranks count from 0");
            return Err(Error::invalid("job", message));
        }
        Ok(Recognized {
            source: Source::Mpi,
            rank,
            size,
        })
    }
}
