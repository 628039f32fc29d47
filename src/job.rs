//! Devices of a job.

use halite_backends::Accelerator;
use halite_cluster::Job;
use halite_core::{Client, Result};

/// Opens the devices of a [`Job`]'s processes.
pub trait OpenDevices {
    /// Opens the devices of this process: of a CPU its own client, and of GPUs and TPUs one client
    /// with the devices of all processes, which address their own. Those that share a host divide
    /// its GPUs. All processes call this at the same time.
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
