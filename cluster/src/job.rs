//! A job, as one of its processes sees it.

mod host;
mod member_thread;

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use halite_core::{Error, ErrorKind, ProcessGroup, Result, SingleProcess};
use halite_fetch::Bar;

use self::member_thread::MemberThread;
use crate::{
    engine::Engine,
    environment::{self, Recognized, Source},
    group::Processes,
    join,
    mpi::{Comm, Mpi},
    presence::{Deadline, Presence},
    record::Record,
    shared_memory,
};

/// Deadlines of a job, and where its library is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobOptions {
    /// Time in which all processes have to join, and at the end to [finish](Job::finish).
    pub start: Duration,
    /// Time after which a process of which no heartbeat comes is gone.
    pub lost: Duration,
    /// Interval of heartbeats, at most a quarter of `lost`.
    pub heartbeat: Duration,
    /// Cache directory for the MPI package; `None` is the default one.
    pub cache: Option<PathBuf>,
}

impl Default for JobOptions {
    fn default() -> Self {
        JobOptions {
            start: Duration::from_secs(300),
            lost: Duration::from_secs(60),
            heartbeat: Duration::from_secs(2),
            cache: None,
        }
    }
}

impl JobOptions {
    /// The defaults, with deadlines in seconds from `HALITE_JOB_START`, `HALITE_JOB_LOST` and
    /// `HALITE_JOB_HEARTBEAT`, which `halite launch` sets.
    ///
    /// # Errors
    /// If a value is not a positive number of seconds.
    pub fn from_env() -> Result<Self> {
        let mut options = JobOptions::default();
        let fields = [
            ("HALITE_JOB_START", &mut options.start),
            ("HALITE_JOB_LOST", &mut options.lost),
            ("HALITE_JOB_HEARTBEAT", &mut options.heartbeat),
        ];
        for (name, field) in fields {
            let Some(text) = env::var(name).ok().filter(|text| !text.is_empty()) else {
                continue;
            };
            let seconds = text.parse().ok().filter(|&seconds: &f64| seconds > 0.0);
            let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            *field = time.ok_or_else(|| {
                let message = format!("{name} is `{text}`; expected a positive number of seconds");
                Error::invalid("job", message)
            })?;
        }
        Ok(options)
    }

    /// Interval of heartbeats, of which several may be late before a process is gone.
    fn interval(&self) -> Duration {
        self.heartbeat.min(self.lost / 4)
    }
}

/// A job of one or more processes, which this process is a part of.
///
/// Call [`finish`](Self::finish) at the end. A job that is dropped before is aborted, because the
/// others would wait for this process.
pub struct Job {
    presence: Arc<Presence>,
    source: Source,
    local_rank: usize,
    /// Rank of the first process of this host.
    first_of_host: usize,
    group: Arc<dyn ProcessGroup>,
    options: JobOptions,
    /// `None` in a job of one process that nothing launched.
    mpi: Option<(&'static Mpi, MemberThread)>,
}

/// True once a process has joined a job: MPI can be initialized once.
static JOINED: AtomicBool = AtomicBool::new(false);

impl Job {
    /// Recognizes the job from the environment, and joins it with the options of the environment.
    ///
    /// # Errors
    /// As [`JobOptions::from_env`] and [`with_options`](Self::with_options).
    pub fn from_env() -> Result<Self> {
        Self::with_options(JobOptions::from_env()?)
    }

    /// Recognizes the job from the environment, and joins it. Without a launcher the job is this
    /// process, and no MPI library is loaded.
    ///
    /// Call it at the beginning of `main`: where the launcher does not speak PMI (SLURM, `torchrun`,
    /// OpenMPI, Kubernetes, Cloud TPU, `halite launch --hosts`), this executable is started again as
    /// the process of the job, and this process waits for it and exits as it does.
    ///
    /// # Errors
    /// If variables are malformed; if there is no MPI library; if other processes do not join within
    /// the deadline; if this process has joined a job before.
    pub fn with_options(options: JobOptions) -> Result<Self> {
        let recognized = Recognized::from_env()?;
        let presence = Presence::new(recognized.rank, recognized.size, host::name());
        let presence = Arc::new(presence);
        if recognized.size == 1 && recognized.source != Source::Mpi {
            if let Some(note) = environment::unused(|name| env::var(name).ok()) {
                eprintln!("halite: {note}");
            }
            return Ok(Job {
                presence,
                source: recognized.source,
                local_rank: 0,
                first_of_host: 0,
                group: Arc::new(SingleProcess),
                options,
                mpi: None,
            });
        }
        if JOINED.swap(true, SeqCst) {
            let message = "this process has joined a job already; it can join one only";
            return Err(Error::invalid("job", message));
        }
        check_socket(&recognized)?;
        let engine = Engine::find(options.cache.as_deref(), &mut Bar::default())?;
        if let Some(coordinator) = &recognized.coordinator {
            join::rerun(&recognized, coordinator, &engine, options.start)?;
        }
        shared_memory::check(shared_memory::at_most(recognized.size))?;
        let (host, pid) = (presence.host.clone(), process::id());
        Record::Joined { host, pid }.send();
        let mpi = Mpi::load(&engine.library)?;
        let thread = MemberThread::start(mpi, presence.clone(), &options)?;
        let world = thread.joined(&presence, options.start)?;
        agree(&presence, mpi, &world)?;
        let group = Processes::new(world, presence.clone(), options.start)?;
        let processes = host::Processes::meet(&group, options.start)?;
        let local_rank = processes.local_rank(presence.rank);
        group.set_local(local_rank, processes.local_size(presence.rank));
        let first_of_host = processes.first_of_host(presence.rank);
        let mut deadline = Deadline::new(&presence, "start of the job", options.start);
        let beats = world.duplicate(&mut deadline)?;
        drop(deadline);
        presence.connect(beats, &processes.hosts());
        Ok(Job {
            presence,
            source: recognized.source,
            local_rank,
            first_of_host,
            group: Arc::new(group),
            options,
            mpi: Some((mpi, thread)),
        })
    }

    /// Index of this process, from 0.
    pub fn rank(&self) -> usize {
        self.presence.rank
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.presence.size
    }

    /// Index of this process among those of its host, from 0.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// Number of processes of this host.
    pub fn local_size(&self) -> usize {
        self.group.local_size()
    }

    /// Description of the MPI library: `MPICH Version: 5.0.2`; `None` in a job of one process.
    pub fn library(&self) -> Option<String> {
        self.mpi.as_ref().map(|(mpi, _)| mpi.version())
    }

    /// Name of this host.
    pub fn host(&self) -> &str {
        &self.presence.host
    }

    /// What the job was recognized from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns whether this is process 0, which prints and writes what one process has to.
    pub fn is_coordinator(&self) -> bool {
        self.presence.rank == 0
    }

    /// Prints a line on stdout, in process 0 alone.
    pub fn print_once(&self, line: impl fmt::Display) {
        if self.is_coordinator() {
            println!("{line}");
        }
    }

    /// Calls `work` in one process of each host first, and then in the others: the first one installs,
    /// compiles or fills a cache, and the others find it. Every process must call this, and has
    /// `patience` for the first ones.
    ///
    /// # Errors
    /// That of `work`; if `work` fails in the first process of this host; as a barrier.
    pub fn coordinator_first<T>(
        &self,
        name: &str,
        patience: Duration,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (mut work, mut result) = (Some(work), None);
        if self.local_rank == 0
            && let Some(work) = work.take()
        {
            result = Some(work());
        }
        let failed = matches!(&result, Some(Err(_)));
        let mine = [u8::from(failed)];
        let all = self.group.all_gather(name, &mine, patience);
        if let Some(result) = result {
            // Its own error says more than that of the group.
            return result.and_then(|value| all.map(|_| value));
        }
        if all?[self.first_of_host] == [1] {
            let message = format!(
                "process {} failed, the first of this host",
                self.first_of_host
            );
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("`{name}`"),
                message,
            ));
        }
        work.take().expect("taken by the first process alone")()
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
        let mpi = self.mpi.take();
        self.leave(mpi)
            .inspect_err(|error| self.presence.report_quietly(error))
    }

    fn leave(&self, mpi: Option<(&Mpi, MemberThread)>) -> Result<()> {
        let patience = self.options.start;
        self.group.barrier("finish", patience)?;
        // No heartbeat is sent after this, and all that were sent before it can be received.
        self.presence.leave();
        self.group.barrier("leave", patience)?;
        if let Some((_, thread)) = mpi {
            self.presence.close(patience)?;
            thread.leave(&self.presence, patience)?;
        }
        Record::Finished.send();
        Ok(())
    }

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
                    self.presence.report_quietly(&error);
                }
                Err(error)
            }
        }
    }
}

/// Time that the other processes have to report what they do, before a job is aborted.
const BEFORE_ABORT: Duration = Duration::from_secs(1);

impl Drop for Job {
    fn drop(&mut self) {
        let Some((mpi, _)) = self.mpi.take() else {
            return;
        };
        let (why, code) = if thread::panicking() {
            ("it panicked", 101)
        } else {
            (
                "it dropped the job before it had finished it (`Job::finish`)",
                1,
            )
        };
        self.presence
            .report(&Error::new(ErrorKind::Cancelled, "job", why));
        thread::sleep(BEFORE_ABORT);
        mpi.abort(code);
    }
}

/// Checks that the socket of the launcher is open in this process, where the variables say so.
///
/// # Errors
/// If it is not: the variables are those of another process, which started this one.
fn check_socket(recognized: &Recognized) -> Result<()> {
    let Some(number) = env::var("PMI_FD")
        .ok()
        .filter(|_| recognized.coordinator.is_none())
    else {
        return Ok(());
    };
    let folder = Path::new("/proc/self/fd");
    let is_socket = fs::read_link(folder.join(&number))
        .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
    if is_socket || !folder.is_dir() {
        return Ok(());
    }
    let message = format!(
        "PMI_FD is {number}, which is no socket of this process: {} are variables of a job that this \
         process was not started for; unset them, PMI_FD first",
        recognized.variables()
    );
    Err(Error::invalid("job", message))
}

/// Compares what the environment says with what MPI says.
fn agree(presence: &Presence, mpi: &Mpi, world: &Comm) -> Result<()> {
    let found = (world.rank()?, world.size()?);
    if found == (presence.rank, presence.size) {
        return Ok(());
    }
    let message = format!(
        "the environment says process {} of {}, {} process {} of {}: it was started by the launcher \
         of another MPI; start the job by `halite launch`, or set HALITE_MPI to the library of that \
         MPI",
        presence.rank,
        presence.size,
        mpi.version(),
        found.0,
        found.1
    );
    Err(Error::new(ErrorKind::Unavailable, "job", message))
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("rank", &self.presence.rank)
            .field("size", &self.presence.size)
            .field("local_rank", &self.local_rank)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_are_more_frequent_than_the_deadline() {
        let mut options = JobOptions::default();
        assert_eq!(options.interval(), Duration::from_secs(2));
        options.lost = Duration::from_secs(1);
        assert_eq!(options.interval(), Duration::from_millis(250));
    }
}
