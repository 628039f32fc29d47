//! Jobs of many processes: which process this is, how all of them agree, and how they exchange
//! data.
//!
//! A [`Job`] is recognised from the environment. Its processes communicate by MPI, through the
//! standard binary interface of MPI 5.0, which is loaded at run time: the pinned package [`MPICH`],
//! or the library that `HALITE_MPI` names. Nothing here knows a device, a model or a program; those
//! use [`Collective`](halite_core::Collective) and [`ProcessGroup`](halite_core::ProcessGroup) of
//! `halite-core`. There is no transport or consensus of halite's own. Processes find each other by PMI,
//! which halite serves.
//!
//! ```
//! use halite_cluster::Job;
//! use halite_core::{Collective, HostArray, ReduceOp};
//! use std::time::Duration;
//!
//! let job = Job::from_env()?; // a job of one, unless a launcher says otherwise
//! let one = HostArray::scalar(1u32);
//! let count = job.group().all_reduce("count", &one, ReduceOp::Sum, Duration::from_secs(60))?;
//! assert_eq!(count.as_slice::<u32>()?, [job.size() as u32]);
//! job.finish()?;
//! # Ok::<(), halite_core::Error>(())
//! ```

mod engine;
mod environment;
mod gate;
mod group;
mod job;
mod join;
mod key;
pub mod launch;
mod mpi;
mod pmi;
mod presence;
mod processes;
mod record;
mod shared_memory;
mod signals;
mod spawn;

pub use engine::MPICH;
pub use environment::{Recognized, Source};
pub use job::{Job, JobOptions};
pub use record::{tell_launcher, tell_stopped};
pub use spawn::{spawn, spawn_with};
