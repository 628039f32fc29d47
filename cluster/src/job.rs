//! A job, as one of its processes sees it.

mod host;
mod member_thread;

use std::{
    fmt,
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use halite_core::{Error, ErrorKind, ProcessGroup, Result, SingleProcess};
use halite_fetch::Bar;

use self::member_thread::MemberThread;
use crate::{
    deadline::Member,
    engine::Engine,
    environment::{Recognized, Source},
    group::Processes,
    mpi::Mpi,
    record::{Record, tell_launcher},
};

/// Deadlines of a job, and where its library is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobOptions {
    /// Time in which all processes have to join.
    pub start: Duration,
    /// Time in which all processes have to come to a call of the job itself, such as
    /// [`finish`](Job::finish).
    pub collective: Duration,
    /// Cache directory for the MPI package; `None` is the default one.
    pub cache: Option<PathBuf>,
}

impl Default for JobOptions {
    fn default() -> Self {
        JobOptions {
            start: Duration::from_secs(300),
            collective: Duration::from_secs(60),
            cache: None,
        }
    }
}

/// A job of one or more processes, which this process is a part of.
///
/// Call [`finish`](Self::finish) at the end. A job that is dropped before is aborted, because the
/// others would wait for this process.
pub struct Job {
    member: Member,
    source: Source,
    local_rank: usize,
    group: Arc<dyn ProcessGroup>,
    options: JobOptions,
    /// `None` in a job of one process that nothing launched.
    mpi: Option<(&'static Mpi, MemberThread)>,
}

/// True once a process has joined a job: MPI can be initialized once.
static JOINED: AtomicBool = AtomicBool::new(false);

impl Job {
    /// Recognizes the job from the environment, and joins it with the default options.
    ///
    /// # Errors
    /// As [`with_options`](Self::with_options).
    pub fn from_env() -> Result<Self> {
        Self::with_options(JobOptions::default())
    }

    /// Recognizes the job from the environment, and joins it. Without a launcher the job is this
    /// process, and no MPI library is loaded.
    ///
    /// # Errors
    /// If variables are malformed; if there is no MPI library; if other processes do not join within
    /// the deadline; if this process has joined a job before.
    pub fn with_options(options: JobOptions) -> Result<Self> {
        let recognized = Recognized::from_env()?;
        let host = host::name();
        let mut member = Member {
            rank: recognized.rank,
            size: recognized.size,
            host,
        };
        if recognized.source == Source::Alone {
            return Ok(Job {
                member,
                source: recognized.source,
                local_rank: 0,
                group: Arc::new(SingleProcess),
                options,
                mpi: None,
            });
        }
        if JOINED.swap(true, SeqCst) {
            let message = "this process has joined a job already; it can join one only";
            return Err(Error::invalid("job", message));
        }
        let (host, pid) = (member.host.clone(), process::id());
        Record::Joined { host, pid }.send();
        let engine = Engine::find(options.cache.as_deref(), &mut Bar::default())?;
        let mpi = Mpi::load(&engine.library)?;
        let thread = MemberThread::start(mpi)?;
        let world = thread.joined(&member, options.start)?;
        let found = (world.rank()?, world.size()?);
        if found != (member.rank, member.size) {
            let message = format!(
                "the environment says process {} of {}, {} process {} of {}: it was started by the \
                 launcher of another MPI; start the job by `halite launch`, or set HALITE_MPI to \
                 the library of that MPI",
                member.rank,
                member.size,
                mpi.version(),
                found.0,
                found.1
            );
            return Err(Error::new(ErrorKind::Unavailable, "job", message));
        }
        (member.rank, member.size) = found;
        let group = Arc::new(Processes::new(world, member.clone(), options.start)?);
        let local_rank = host::local_rank(&*group, options.start)?;
        Ok(Job {
            member,
            source: recognized.source,
            local_rank,
            group,
            options,
            mpi: Some((mpi, thread)),
        })
    }

    /// Index of this process, from 0.
    pub fn rank(&self) -> usize {
        self.member.rank
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.member.size
    }

    /// Index of this process among those of its host, from 0.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// Name of this host.
    pub fn host(&self) -> &str {
        &self.member.host
    }

    /// What the job was recognized from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns whether this is process 0, which prints and writes what one process has to.
    pub fn is_coordinator(&self) -> bool {
        self.member.rank == 0
    }

    /// The processes, as collectives see them.
    pub fn group(&self) -> Arc<dyn ProcessGroup> {
        self.group.clone()
    }

    /// Waits for all processes, and leaves the job.
    ///
    /// # Errors
    /// If processes do not come within the deadline; MPI's. The process should end then.
    pub fn finish(mut self) -> Result<()> {
        let patience = self.options.start;
        self.group.barrier("finish", patience)?;
        if let Some((_, thread)) = self.mpi.take() {
            thread.leave(&self.member, patience)?;
        }
        Record::Finished.send();
        Ok(())
    }
}

impl Job {
    /// Ends the job as `result` says: [finishes](Self::finish) it, or leaves it with an error, after
    /// which this process should end; the others then fail too.
    ///
    /// # Errors
    /// That of `result`; as [`finish`](Self::finish).
    pub fn finish_with<T>(mut self, result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => self.finish().map(|()| value),
            Err(error) => {
                if self.mpi.take().is_some() {
                    tell_launcher(&error);
                }
                Err(error)
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let Some((mpi, _)) = self.mpi.take() else {
            return;
        };
        let Member { rank, size, host } = &self.member;
        let (why, code) = match std::thread::panicking() {
            true => ("it panicked", 101),
            false => ("it ended without finishing the job (`Job::finish`)", 1),
        };
        let text = format!("process {rank} of {size} on {host}: {why}");
        eprintln!("error: {text}; all processes are ended");
        Record::Failed(text).send();
        mpi.abort(code);
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("member", &self.member)
            .field("local_rank", &self.local_rank)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
