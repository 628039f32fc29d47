//! The processes of a job, as programs reach them: a lane between each device and the devices in its
//! place in other processes, and the custom calls that exchange buffers on them. Nothing here records
//! an operation.

use std::{
    fmt, ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use halite_core::{
    Collective, DType, Error, Exchange, Launches, MeshShape, ProcessGroup, ReduceOp, Result,
    custom_call::{self, Arguments, Attributes, InputBuffer, OutputBuffer},
};

/// Name of the axis of a mesh that the processes of a job are arranged along.
pub const PROCESS_AXIS: &str = "process";

/// Target of each operation. A process has few targets, so that the rest is in attributes.
pub(crate) mod target {
    pub(crate) const ALL_REDUCE: &str = "halite_process_all_reduce";
    pub(crate) const REDUCE_SCATTER: &str = "halite_process_reduce_scatter";
    pub(crate) const ALL_GATHER: &str = "halite_process_all_gather";
    pub(crate) const BROADCAST: &str = "halite_process_broadcast";
    pub(crate) const INDEX: &str = "halite_process_index";
}

/// Attribute with the number of the job.
pub(crate) const JOB: &str = "halite_job";
/// Attribute with the name of an exchange, for messages.
pub(crate) const NAME: &str = "name";
/// Attribute with the sender of a broadcast.
pub(crate) const ROOT: &str = "root";

/// Attribute with the name of a reduction.
pub(crate) const REDUCE: &str = "reduce";

/// A reduction between processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reduce {
    Sum,
    Product,
    Min,
    Max,
}

impl Reduce {
    /// Its name in attributes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "sum",
            Reduce::Product => "product",
            Reduce::Min => "min",
            Reduce::Max => "max",
        }
    }
}

/// The reduction that an attribute names.
fn reduction(attributes: &Attributes<'_>) -> Result<ReduceOp> {
    match attributes.str(REDUCE)? {
        "sum" => Ok(ReduceOp::Sum),
        "product" => Ok(ReduceOp::Product),
        "min" => Ok(ReduceOp::Min),
        "max" => Ok(ReduceOp::Max),
        other => Err(Error::invalid(
            "exchange",
            format!("no reduction `{other}`"),
        )),
    }
}

/// The processes of a job, each with the same mesh of local devices. Cheap to clone.
///
/// [`Trace::set_processes`](crate::Trace::set_processes) makes it the axis [`PROCESS_AXIS`] of a
/// traced function. The program is the same in every process: what differs, such as the rank, is
/// read when it runs.
#[derive(Clone)]
pub struct Processes(Arc<Job>);

struct Job {
    number: usize,
    /// The group, and launches of programs with communication.
    launches: Arc<Launches>,
    mesh: MeshShape,
    /// One for each device of the mesh.
    lanes: Vec<Arc<dyn Collective>>,
    /// Longest wait for the other processes in one collective.
    patience: Duration,
    /// Bytes and nanoseconds of the communication of programs.
    bytes_sent: AtomicU64,
    nanoseconds: AtomicU64,
    /// The lane of [`Processes::background`], once it was asked for.
    background: Mutex<Option<Arc<dyn Collective>>>,
}

/// Communication of programs with other processes so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Exchanged {
    /// Bytes that the programs of this process gave to collectives.
    pub bytes_sent: u64,
    /// Time in which a device communicated with other processes, or waited for them; the mean of
    /// several devices.
    pub time: Duration,
}

/// Every job of this process by its number. Programs of a job that is dropped fail.
static JOBS: Mutex<Vec<Weak<Job>>> = Mutex::new(Vec::new());

fn jobs() -> MutexGuard<'static, Vec<Weak<Job>>> {
    JOBS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Processes {
    /// The processes of `group`, of which each runs programs on devices arranged as `mesh`. An
    /// exchange that takes longer than `patience` is an error.
    ///
    /// Every process must call it in the same order, with the same arguments.
    ///
    /// # Errors
    /// If the group has no more lanes.
    pub fn new(
        group: &Arc<dyn ProcessGroup>,
        mesh: &MeshShape,
        patience: Duration,
    ) -> Result<Self> {
        register()?;
        let mut jobs = jobs();
        let is_same = |job: &Arc<Job>| {
            ptr::addr_eq(Arc::as_ptr(job.launches.group()), Arc::as_ptr(group))
                && (&job.mesh, job.patience) == (mesh, patience)
        };
        if let Some(job) = jobs.iter().filter_map(Weak::upgrade).find(is_same) {
            return Ok(Processes(job));
        }
        let lanes = (0..mesh.size()).map(|device| group.lane(&format!("device {device}")));
        let job = Arc::new(Job {
            number: jobs.len(),
            launches: Arc::new(Launches::new(group.clone())),
            mesh: mesh.clone(),
            lanes: lanes.collect::<Result<_>>()?,
            patience,
            bytes_sent: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            background: Mutex::default(),
        });
        jobs.push(Arc::downgrade(&job));
        Ok(Processes(job))
    }

    /// The group on the hosts, for communication outside of programs.
    pub fn group(&self) -> &Arc<dyn ProcessGroup> {
        self.0.launches.group()
    }

    /// Communicator for work beside the training loop, such as writing files. The first call is
    /// collective: every process must make it at the same point.
    ///
    /// # Errors
    /// If the group has no more lanes.
    pub fn background(&self) -> Result<Arc<dyn Collective>> {
        let background = self.0.background.lock();
        let mut background = background.unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = &*background {
            return Ok(lane.clone());
        }
        let lane = self.group().lane("background")?;
        Ok(background.insert(lane).clone())
    }

    /// Rank of this process, from 0.
    pub fn rank(&self) -> usize {
        self.group().rank()
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.group().size()
    }

    /// Longest wait for the other processes in one collective of a program.
    pub fn patience(&self) -> Duration {
        self.0.patience
    }

    /// The arrangement of the devices of one process.
    pub fn local_mesh(&self) -> &MeshShape {
        &self.0.mesh
    }

    /// Communication of programs so far, in all runs of this job on these devices.
    pub fn exchanged(&self) -> Exchanged {
        let nanoseconds = self.0.nanoseconds.load(Relaxed) / self.0.lanes.len() as u64;
        Exchanged {
            bytes_sent: self.0.bytes_sent.load(Relaxed),
            time: Duration::from_nanos(nanoseconds),
        }
    }

    /// Launches of programs with communication.
    pub(crate) fn launches(&self) -> &Arc<Launches> {
        &self.0.launches
    }

    /// Number of the job in this process.
    pub(crate) fn number(&self) -> usize {
        self.0.number
    }
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Processes({} of {})", self.rank(), self.size())
    }
}

/// Registers the custom calls, once.
fn register() -> Result<()> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !*done {
        custom_call::register(target::ALL_REDUCE, all_reduce)?;
        custom_call::register(target::REDUCE_SCATTER, reduce_scatter)?;
        custom_call::register(target::ALL_GATHER, all_gather)?;
        custom_call::register(target::BROADCAST, broadcast)?;
        custom_call::register(target::INDEX, index)?;
        *done = true;
    }
    Ok(())
}

/// The job that a call names.
fn job_of(attributes: Attributes<'_>) -> Result<Arc<Job>> {
    let number = attributes.int(JOB)?;
    let job = usize::try_from(number).ok();
    let job = job.and_then(|number| jobs().get(number).and_then(Weak::upgrade));
    job.ok_or_else(|| {
        let message = "the job of processes that this program was traced for has ended";
        Error::invalid("exchange", message)
    })
}

/// The buffers of a call: what is sent, with the number of the device, and the result.
type Buffers<'c, 'a> = (&'c InputBuffer<'a>, &'c mut OutputBuffer<'a>);

/// Runs an exchange on the lane of the device that calls it. The operands are the values, the token
/// of the exchange before, and the number of the device; the results are values and a token.
fn exchanged(
    call: &mut Arguments<'_>,
    exchange: impl FnOnce(&Attributes<'_>, Buffers<'_, '_>, &Exchanger<'_>) -> Result<()>,
) -> Result<()> {
    let attributes = call.attributes();
    let job = job_of(attributes)?;
    let name = attributes.str(NAME)?;
    let ([from, _, device], [into, token]) = call.buffers()?;
    token.bytes_mut().fill(0);
    let device = device.as_slice::<i32>()?.first().copied();
    let lane = device.and_then(|device| job.lanes.get(usize::try_from(device).ok()?));
    let lane = lane.ok_or_else(|| {
        let devices = job.lanes.len();
        Error::invalid("exchange", format!("device {device:?} of {devices}"))
    })?;
    let exchanger = Exchanger {
        lane: &**lane,
        name,
        job: &job,
    };
    exchange(&attributes, (from, into), &exchanger)
}

struct Exchanger<'a> {
    lane: &'a dyn Collective,
    name: &'a str,
    job: &'a Job,
}

impl Exchanger<'_> {
    fn run(&self, exchange: Exchange<'_>) -> Result<()> {
        let sent = match &exchange {
            Exchange::AllReduce { from, .. }
            | Exchange::ReduceScatter { from, .. }
            | Exchange::AllGather { from, .. } => from.len(),
            Exchange::Broadcast { root, bytes } if *root == self.lane.rank() => bytes.len(),
            Exchange::Broadcast { .. } => 0,
        };
        let started = Instant::now();
        (self.lane).exchange(self.name, exchange, self.job.patience)?;
        let nanoseconds = started.elapsed().as_nanos() as u64;
        self.job.bytes_sent.fetch_add(sent as u64, Relaxed);
        self.job.nanoseconds.fetch_add(nanoseconds, Relaxed);
        Ok(())
    }
}

fn all_reduce(call: &mut Arguments<'_>) -> Result<()> {
    exchanged(call, |attributes, (from, into), lane| {
        let dtype: DType = from.ty().dtype();
        lane.run(Exchange::AllReduce {
            op: reduction(attributes)?,
            dtype,
            from: from.bytes(),
            into: into.bytes_mut(),
        })
    })
}

fn reduce_scatter(call: &mut Arguments<'_>) -> Result<()> {
    exchanged(call, |_, (from, into), lane| {
        let dtype: DType = from.ty().dtype();
        lane.run(Exchange::ReduceScatter {
            op: ReduceOp::Sum,
            dtype,
            from: from.bytes(),
            into: into.bytes_mut(),
        })
    })
}

fn all_gather(call: &mut Arguments<'_>) -> Result<()> {
    exchanged(call, |_, (from, into), lane| {
        lane.run(Exchange::AllGather {
            from: from.bytes(),
            into: into.bytes_mut(),
        })
    })
}

fn broadcast(call: &mut Arguments<'_>) -> Result<()> {
    exchanged(call, |attributes, (from, into), lane| {
        let root = attributes.int(ROOT)? as usize;
        let bytes = into.bytes_mut();
        bytes.copy_from_slice(from.bytes());
        lane.run(Exchange::Broadcast { root, bytes })
    })
}

/// The rank of this process: `s32[]`.
fn index(call: &mut Arguments<'_>) -> Result<()> {
    let job = job_of(call.attributes())?;
    let ([], [rank]) = call.buffers()?;
    rank.as_mut_slice::<i32>()?
        .fill(job.launches.group().rank() as i32);
    Ok(())
}
