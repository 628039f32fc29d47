//! Recognition of a job from environment variables: what started this process, its rank, and where
//! the processes meet. Reads variables, and nothing else.

mod sources;
#[cfg(test)]
mod tests;

use std::{env, fmt};

use halite_core::{Error, Result};

pub(crate) use self::sources::MOST;

/// What started this process as a part of a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// Nothing: the job is this process.
    Alone,
    /// `HALITE_PROCESS_ID`, `HALITE_NUM_PROCESSES` and `HALITE_COORDINATOR_ADDRESS`.
    Explicit,
    /// A launcher that speaks PMI: `halite launch`, `mpiexec`, `srun --mpi=pmi2`.
    Mpi,
    /// SLURM without PMI.
    Slurm,
    /// `mpirun` of OpenMPI.
    OpenMpi,
    /// `torchrun`, or a launcher that sets its variables.
    Torchrun,
    /// An indexed job of Kubernetes, such as those of a JobSet.
    Kubernetes,
    /// The hosts of a Cloud TPU slice, or of several slices.
    Tpu,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Alone => "one process",
            Source::Explicit => "HALITE_PROCESS_ID",
            Source::Mpi => "MPI",
            Source::Slurm => "SLURM",
            Source::OpenMpi => "OpenMPI",
            Source::Torchrun => "torchrun",
            Source::Kubernetes => "Kubernetes",
            Source::Tpu => "Cloud TPU",
        })
    }
}

/// A job as variables describe it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Recognized {
    /// What started it.
    pub source: Source,
    /// Index of this process.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// Address at which the processes meet, `host:port`; `None` if they have met.
    pub coordinator: Option<String>,
    /// The variables that say so, with their values.
    pub variables: Vec<(&'static str, String)>,
    /// What the launcher calls the job, the same in all of its processes.
    pub(crate) identity: Vec<String>,
}

impl Recognized {
    /// The job of this process.
    ///
    /// # Errors
    /// If variables are malformed, incomplete or contradict each other.
    pub fn from_env() -> Result<Self> {
        Self::from(|name| env::var(name).ok())
    }

    /// The job that these variables describe.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let found = sources::all(&variable)?;
        // A scheduler that started one process, in which another one starts the job.
        let mut jobs = found
            .into_iter()
            .filter(|job| job.size > 1 || job.source == Source::Mpi);
        let Some(mut first) = jobs.next() else {
            return Ok(Recognized {
                source: Source::Alone,
                rank: 0,
                size: 1,
                coordinator: None,
                variables: Vec::new(),
                identity: Vec::new(),
            });
        };
        for job in jobs {
            let is_inner = matches!(job.source, Source::Torchrun | Source::OpenMpi)
                && first.source == Source::Slurm
                && job.size % first.size == 0
                && job.rank / (job.size / first.size) == first.rank;
            if is_inner {
                first = job;
            } else if (job.rank, job.size) != (first.rank, first.size) {
                return Err(contradiction(&first, &job));
            } else if first.source == Source::Mpi && first.coordinator.is_none() {
                // What started the processes, which have met by PMI since.
                let coordinator = None;
                first = Recognized { coordinator, ..job };
            }
        }
        let has_met = variable("PMI_FD").is_some() || variable("PMI_PORT").is_some();
        if first.size > 1 && first.coordinator.is_none() && !has_met {
            let message = format!(
                "this is {}, and no variable has the address where the processes meet; set \
                 HALITE_PROCESS_ID, HALITE_NUM_PROCESSES and HALITE_COORDINATOR_ADDRESS",
                first.description()
            );
            return Err(Error::invalid("job", message));
        }
        Ok(first)
    }

    /// `process 1 of 4 by MPI (PMI_RANK=1 PMI_SIZE=4)`.
    pub(crate) fn description(&self) -> String {
        let Recognized {
            rank, size, source, ..
        } = self;
        format!(
            "process {rank} of {size} by {source} ({})",
            self.variables()
        )
    }

    /// `PMI_RANK=1 PMI_SIZE=4`.
    pub fn variables(&self) -> String {
        let pairs = self
            .variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join(" ")
    }
}

/// What variables say of processes besides this one, which is alone: a scheduler that was asked for
/// several, and has not started this one as one of them.
pub(crate) fn unused(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let number = |name: &str| variable(name)?.parse::<usize>().ok();
    if let (Some(index), None) = (
        variable("JOB_COMPLETION_INDEX"),
        variable("HALITE_NUM_PROCESSES"),
    ) {
        return Some(format!(
            "JOB_COMPLETION_INDEX={index} without HALITE_NUM_PROCESSES: this process is alone; set it \
             to the number of pods that are one job, or to 1"
        ));
    }
    let tasks = number("SLURM_NTASKS").filter(|&tasks| tasks > 1)?;
    let is_step = variable("SLURM_STEP_ID").is_some();
    (!is_step).then(|| {
        format!(
            "SLURM_NTASKS={tasks} and no step: this process is alone; srun starts {tasks} of them"
        )
    })
}

fn contradiction(first: &Recognized, other: &Recognized) -> Error {
    let message = format!(
        "this is {}, but {}; unset the variables of the one that did not start it, or set \
         HALITE_PROCESS_ID, HALITE_NUM_PROCESSES and HALITE_COORDINATOR_ADDRESS",
        first.description(),
        other.description()
    );
    Error::invalid("job", message)
}
