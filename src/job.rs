//! Devices of a job.

use halite_backends::Accelerator;
use halite_cluster::Job;
use halite_core::{Client, Result};

/// Opens the devices of a [`Job`]'s processes.
pub trait OpenDevices {
    /// Opens the devices of this process. On CPUs each process has a client of its own; on GPUs and
    /// TPUs one client has the devices of all processes, of which each process addresses its own.
    /// Processes on one host divide its GPUs. Collective: all processes must call it.
    ///
    /// ```
    /// use halite::{cluster::Job, prelude::*};
    ///
    /// let job = Job::from_env()?;
    /// let client = job.open(&Accelerator::cpu())?;
    /// let trainer = Trainer::builder(&client).processes(job.group()).build()?;
    /// job.finish()?;
    /// # Ok::<(), halite::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Accelerator::open_in`].
    fn open(&self, accelerator: &Accelerator) -> Result<Client>;
}

impl OpenDevices for Job {
    fn open(&self, accelerator: &Accelerator) -> Result<Client> {
        accelerator.open_in(&self.group())
    }
}
