//! Collectives of processes: of bytes through process 0, which knows who is missing, and of buffers
//! by MPI's collectives.

mod calls;
mod reduce;
mod store;

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use halite_core::{
    Collective, Error, ErrorKind, Exchange, KeyValueStore, ProcessGroup, Result, check_ranks,
};

use self::{
    calls::{Call, Outcome},
    store::Store,
};
use crate::{
    mpi::{Comm, Sending},
    presence::{Deadline, Presence},
};

/// Tag of messages to process 0.
const CALL: i32 = 1;
/// Tag of its answers.
const OUTCOME: i32 = 2;

/// Time beyond its own deadline that a process waits for the answer of process 0, which waits as
/// long.
const GRACE: Duration = Duration::from_secs(5);

/// All processes of a job.
#[derive(Debug)]
pub(crate) struct Processes {
    world: Comm,
    control: Lane,
    patience: Duration,
    /// Index of this process among those of its host, and their number.
    local: OnceLock<[usize; 2]>,
    /// Held while a lane is made: all processes must make them in one order.
    making: Mutex<()>,
}

impl Processes {
    /// # Errors
    /// If there can be no communicator for the control plane.
    pub(crate) fn new(world: Comm, presence: Arc<Presence>, patience: Duration) -> Result<Self> {
        let comm = world.duplicate(&mut Deadline::new(&presence, "start of the job", patience))?;
        let control = Lane::new(comm, presence, "control".to_owned());
        Ok(Processes {
            world,
            control,
            patience,
            local: OnceLock::new(),
            making: Mutex::new(()),
        })
    }

    /// Sets the index of this process among those of its host, and their number.
    pub(crate) fn set_local(&self, rank: usize, size: usize) {
        _ = self.local.set([rank, size]);
    }

    /// A communicator for messages of their own between the processes, which all ask for `what`.
    fn communicator(&self, what: &str) -> Result<Comm> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        // Names the processes that ask for another one, or for none.
        self.control.barrier(what, self.patience)?;
        let presence = &self.control.presence;
        let _open = presence.enter(what)?;
        (self.world).duplicate(&mut Deadline::new(presence, what, self.patience))
    }
}

impl Collective for Processes {
    fn rank(&self) -> usize {
        self.control.rank()
    }

    fn size(&self) -> usize {
        self.control.size()
    }

    fn all_gather(&self, name: &str, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        self.control.all_gather(name, mine, patience)
    }

    fn exchange(&self, name: &str, exchange: Exchange<'_>, patience: Duration) -> Result<()> {
        self.control.exchange(name, exchange, patience)
    }
}

impl ProcessGroup for Processes {
    fn local_rank(&self) -> usize {
        self.local.get().map_or(0, |local| local[0])
    }

    fn local_size(&self) -> usize {
        self.local.get().map_or(1, |local| local[1])
    }

    fn at_step(&self, step: u64) {
        self.control.presence.at_step(step);
    }

    fn has_saved(&self, checkpoint: &str) {
        self.control.presence.has_saved(checkpoint);
    }

    fn warn_others(&self, error: &Error) {
        let presence = &self.control.presence;
        presence.warn_others(&presence.described(error));
    }

    fn lane(&self, name: &str) -> Result<Arc<dyn Collective>> {
        let comm = self.communicator(&format!("lane `{name}`"))?;
        let presence = self.control.presence.clone();
        Ok(Arc::new(Lane::new(comm, presence, name.to_owned())))
    }

    fn subgroup(&self, name: &str, ranks: &[usize]) -> Result<Option<Arc<dyn Collective>>> {
        check_ranks(name, ranks, self.size())?;
        let comm = self.communicator(&format!("group `{name}` of {}", processes(ranks)))?;
        if !ranks.contains(&self.rank()) {
            return Ok(None);
        }
        let presence = self.control.presence.clone();
        let lane = Lane::of(ranks.to_vec(), comm, presence, name.to_owned());
        Ok(Some(Arc::new(lane)))
    }

    fn store(&self, name: &str) -> Result<Arc<dyn KeyValueStore>> {
        let comm = self.communicator(&format!("key-value store `{name}`"))?;
        let presence = self.control.presence.clone();
        Ok(Arc::new(Store::start(comm, presence, name)?))
    }
}

/// All processes or some of them, with messages of their own.
pub(crate) struct Lane {
    /// The processes in it, of which the first collects the calls.
    ranks: Vec<usize>,
    comm: Comm,
    presence: Arc<Presence>,
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Calls so far.
    round: u64,
    /// The first error: the processes do not agree on the number of calls after it.
    broken: Option<String>,
}

impl Lane {
    fn new(comm: Comm, presence: Arc<Presence>, name: String) -> Self {
        Self::of((0..presence.size).collect(), comm, presence, name)
    }

    fn of(ranks: Vec<usize>, comm: Comm, presence: Arc<Presence>, name: String) -> Self {
        Lane {
            ranks,
            comm,
            presence,
            name,
            state: Mutex::default(),
        }
    }

    /// Makes one call, the first error of which is the last.
    fn call<T>(&self, name: &str, make: impl FnOnce(u64) -> Result<T>) -> Result<T> {
        let _open = self.presence.enter(name)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broken) = &state.broken {
            let message = format!("an earlier call of `{}` failed: {broken}", self.name);
            return Err(Error::new(ErrorKind::Unavailable, name, message));
        }
        state.round += 1;
        make(state.round).inspect_err(|error| state.broken = Some(error.to_string()))
    }

    /// Name of a call, the same on all processes.
    fn what(&self, name: &str, round: u64) -> String {
        format!("`{name}` (call {round} of lane `{}`)", self.name)
    }

    /// Collects the calls of all processes, and sends them the outcome.
    fn lead(&self, mine: Call, mut deadline: Deadline<'_>) -> Result<Vec<Vec<u8>>> {
        let mut calls: Vec<Option<Call>> = vec![None; self.ranks.len()];
        let mut missing: Vec<usize> = (1..self.ranks.len()).collect();
        let (round, name) = (mine.round, mine.name.clone());
        calls[0] = Some(mine);
        while !missing.is_empty() && !deadline.is_over() {
            let before = missing.len();
            let mut failed = None;
            missing.retain(|&member| {
                let rank = self.ranks[member];
                match self.comm.receive(rank, CALL, &mut deadline) {
                    Ok(None) => true,
                    Ok(Some(bytes)) => {
                        calls[member] = Call::read(&bytes);
                        false
                    }
                    Err(error) => {
                        failed = Some(error);
                        true
                    }
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            if missing.len() == before {
                deadline.pause();
            }
        }
        let outcome = if missing.is_empty() {
            Outcome::of(round, &name, &self.ranks, calls)
        } else {
            let missing: Vec<usize> = missing.iter().map(|&member| self.ranks[member]).collect();
            let missed = deadline.missed(&self.presence.list(&missing));
            Outcome::Missing(missed.message().to_owned())
        };
        let bytes = outcome.write();
        let there = (1..self.ranks.len()).filter(|member| !missing.contains(member));
        let sent = there.map(|member| {
            let rank = self.ranks[member];
            self.comm.send(rank, OUTCOME, bytes.clone())
        });
        self.sent(sent.collect::<Result<_>>()?, &mut deadline)?;
        outcome.result(&name)
    }

    /// Tells the first process the call of this one, and waits for the outcome.
    fn follow(&self, mine: &Call, mut deadline: Deadline<'_>) -> Result<Vec<Vec<u8>>> {
        let first = self.ranks[0];
        let sending = self.comm.send(first, CALL, mine.write())?;
        loop {
            if let Some(bytes) = self.comm.receive(first, OUTCOME, &mut deadline)? {
                self.sent(vec![sending], &mut deadline)?;
                return Outcome::read(&bytes).result(&mine.name);
            }
            if deadline.is_over() {
                let awaited = format!(
                    "{}, which collects the calls of all",
                    self.presence.list(&[first])
                );
                return Err(deadline.missed(&awaited));
            }
            deadline.pause();
        }
    }

    /// Waits until messages are sent; a large one is sent while the sender waits.
    fn sent(&self, mut sending: Vec<Sending>, deadline: &mut Deadline<'_>) -> Result<()> {
        loop {
            let mut failed = Ok(());
            sending.retain_mut(|message| match message.is_done() {
                Ok(done) => !done,
                Err(error) => {
                    failed = Err(error);
                    true
                }
            });
            failed?;
            if sending.is_empty() || deadline.is_over() {
                return Ok(());
            }
            deadline.pause();
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("name", &self.name)
            .field("rank", &self.presence.rank)
            .finish_non_exhaustive()
    }
}

/// `process 3`, `processes 1, 2`.
fn processes(ranks: &[usize]) -> String {
    let list = ranks.iter().map(usize::to_string).collect::<Vec<_>>();
    let noun = if ranks.len() == 1 {
        "process"
    } else {
        "processes"
    };
    format!("{noun} {}", list.join(", "))
}

impl Collective for Lane {
    fn rank(&self) -> usize {
        let before = self
            .ranks
            .iter()
            .take_while(|&&rank| rank < self.presence.rank);
        before.count()
    }

    fn size(&self) -> usize {
        self.ranks.len()
    }

    fn all_gather(&self, name: &str, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        self.call(name, |round| {
            let mine = Call {
                round,
                name: name.to_owned(),
                payload: mine.to_vec(),
            };
            let what = self.what(name, round);
            if self.presence.rank == self.ranks[0] {
                return self.lead(mine, Deadline::new(&self.presence, what, patience));
            }
            let patience = patience.saturating_add(GRACE);
            self.follow(&mine, Deadline::new(&self.presence, what, patience))
        })
    }

    fn exchange(&self, name: &str, exchange: Exchange<'_>, patience: Duration) -> Result<()> {
        // The communicator is that of all processes.
        let is_part = self.ranks.len() < self.presence.size;
        if is_part || !reduce::has_reduction(&exchange) {
            return reduce::Gathering(self).exchange(name, exchange, patience);
        }
        self.call(name, |round| {
            let mut deadline = Deadline::new(&self.presence, self.what(name, round), patience);
            reduce::exchange(&self.comm, exchange, &mut deadline)
        })
    }
}
