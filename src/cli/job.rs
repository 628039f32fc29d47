//! `halite job`: shows the job that this process is a part of.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use halite::{
    Client, Result,
    backends::{Accelerator, OpenOptions},
    cluster::{self, Recognized},
    fetch,
};

/// Show the job that a launcher started, and every process
///
/// Shows what the job is recognized from, and hosts and devices of the processes. Without a launcher
/// the job is this process.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  halite job                              what the variables of this shell say
  halite launch -n 2 -- halite job        two processes of this machine
  srun -n 4 halite job                    the processes of a step of SLURM
A job is recognized from, in this order: HALITE_PROCESS_ID, HALITE_NUM_PROCESSES and
HALITE_COORDINATOR_ADDRESS; PMI (mpiexec, srun --mpi=pmi2); OpenMPI; SLURM; torchrun; an indexed job
of Kubernetes; Cloud TPU. Set the same HALITE_JOB_SECRET in all processes: nobody else can join then.")]
pub(crate) struct Job {
    /// Accelerator whose devices are shown
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

impl Job {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let recognized = Recognized::from_env()?;
        let job = cluster::Job::from_env()?;
        let result = self.show(&recognized, &job);
        job.finish_with(result)
    }

    fn show(&self, recognized: &Recognized, job: &cluster::Job) -> Result<ExitCode> {
        let options = OpenOptions {
            processes: Some(job.group()),
            ..super::open_options(self.cache_dir.clone())
        };
        let opened = self
            .accelerator
            .open_with(&options, &mut fetch::Bar::default())?;
        let platform = opened.client.platform();
        let mine = format!(
            "{:<5} {:<20} {:<6} {:<12} {:<10} {} {} ({})",
            job.rank(),
            job.host(),
            job.local_rank(),
            std::process::id(),
            env!("CARGO_PKG_VERSION"),
            described(&opened.client),
            platform.name,
            platform.version,
        );
        let patience = Duration::from_secs(300);
        let all = job
            .group()
            .all_gather("processes", mine.as_bytes(), patience)?;
        if job.is_coordinator() {
            let variables = match recognized.variables() {
                none if none.is_empty() => "no variable of a launcher".to_owned(),
                variables => variables,
            };
            say!("recognized  {} ({variables})", recognized.source);
            say!("processes   {}", job.size());
            if let Some(library) = job.library() {
                say!("library     {library}");
            }
            say!(
                "\n{:<5} {:<20} {:<6} {:<12} {:<10} devices",
                "rank",
                "host",
                "local",
                "pid",
                "halite"
            );
            for process in &all {
                say!("{}", String::from_utf8_lossy(process));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// `2 x KIND`; `2 of 8 x KIND` where the client has the devices of all processes.
fn described(client: &Client) -> String {
    let (local, all) = (client.local_devices().len(), client.devices());
    let kind = all.iter().find(|device| device.is_local());
    let kind = kind.map_or("", |device| device.kind());
    if all.len() == local {
        format!("{local} x {kind},")
    } else {
        format!("{local} of {} x {kind},", all.len())
    }
}
