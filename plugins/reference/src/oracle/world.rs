//! Processes of one launch, and the exchange of values by which they communicate.
//!
//! A process is one replica's run of one partition. Each runs on a thread of its own. All of their
//! communication is [`World::exchange`]: each member of a group contributes values and receives
//! those of all members. A wait has a name, a limit and a cancellation, and ends as soon as a
//! process that it needs has failed or ended.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use halite_core::{
    Error, Result,
    wait::{default_limit, wait_until},
};

use super::tensor::Value;
use crate::failure::{Failure, cancelled};

/// The processes of one launch.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) replicas: usize,
    pub(super) partitions: usize,
    cancelled: Arc<AtomicBool>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Identity of a process.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct ProcessId {
    /// The manual computation that runs it, by its address; 0 for the processes of the launch.
    pub(crate) scope: usize,
    /// Its number: `replica * partitions + partition`.
    pub(crate) number: usize,
}

impl ProcessId {
    /// A process of the launch.
    pub(crate) fn new(number: usize) -> Self {
        ProcessId { scope: 0, number }
    }
}

/// An exchange, as all of its members identify it: the operation, and how often each of them has
/// run it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Key {
    scope: usize,
    operation: usize,
    members: Vec<usize>,
    round: u64,
}

#[derive(Debug, Default)]
struct State {
    exchanges: HashMap<Key, Exchange>,
    /// Number of exchanges by operation and process.
    rounds: HashMap<(usize, usize), u64>,
    ended: HashSet<ProcessId>,
    failure: Option<Failure>,
}

#[derive(Debug, Default)]
struct Exchange {
    contributions: HashMap<usize, Vec<Value>>,
    received: usize,
}

impl World {
    /// Processes that stop when `cancelled` is set.
    pub(crate) fn new(replicas: usize, partitions: usize, cancelled: Arc<AtomicBool>) -> Self {
        World {
            replicas,
            partitions,
            cancelled,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an error if the launch was cancelled.
    pub(crate) fn check(&self) -> Result<()> {
        if self.cancelled.load(Relaxed) {
            Err(cancelled())
        } else {
            Ok(())
        }
    }

    /// Marks a process as running again, after it ended.
    pub(super) fn start(&self, process: ProcessId) {
        self.lock().ended.remove(&process);
    }

    /// Marks a process as ended. Exchanges that wait for it return an error, that of the process
    /// if it failed.
    pub(crate) fn end(&self, process: ProcessId, result: Result<(), Failure>) {
        let mut state = self.lock();
        state.ended.insert(process);
        if let Err(failure) = result {
            state.failure.get_or_insert(failure);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Contributes `values` to the exchange of `operation` between `members`, and returns those of
    /// all members, in their order.
    pub(crate) fn exchange(
        &self,
        name: &str,
        operation: usize,
        members: &[usize],
        process: ProcessId,
        values: Vec<Value>,
    ) -> Result<Vec<Vec<Value>>> {
        let mut state = self.lock();
        let round = state.rounds.entry((operation, process.number)).or_default();
        *round += 1;
        let key = Key {
            scope: process.scope,
            operation,
            members: members.to_vec(),
            round: *round,
        };
        let exchange = state.exchanges.entry(key.clone()).or_default();
        exchange.contributions.insert(process.number, values);
        drop(state);
        self.changed.notify_all();
        let describe = || {
            format!(
                "`{name}` of process {} with processes {members:?}",
                process.number
            )
        };
        let poll = |slice| {
            let state = self.lock();
            let waits = |state: &mut State| outcome(state, &key, name).is_none();
            let waited = self.changed.wait_timeout_while(state, slice, waits);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let result = outcome(&state, &key, name);
            if matches!(result, Some(Ok(_)))
                && let Some(exchange) = state.exchanges.get_mut(&key)
            {
                exchange.received += 1;
                if exchange.received == members.len() {
                    state.exchanges.remove(&key);
                }
            }
            result
        };
        let is_cancelled = || self.cancelled.load(Relaxed);
        wait_until(describe, default_limit(), is_cancelled, poll)?
            .unwrap_or_else(|| Err(cancelled()))
    }
}

/// The contributions to an exchange if they are complete, or the reason why they never will be.
fn outcome(state: &State, key: &Key, name: &str) -> Option<Result<Vec<Vec<Value>>>> {
    let exchange = state.exchanges.get(key)?;
    let of = |member| exchange.contributions.get(member).cloned();
    if let Some(all) = key.members.iter().map(of).collect() {
        return Some(Ok(all));
    }
    if let Some(failure) = &state.failure {
        return Some(Err(failure.error()));
    }
    let ended = key.members.iter().find(|&&number| {
        let process = ProcessId {
            scope: key.scope,
            number,
        };
        !exchange.contributions.contains_key(&number) && state.ended.contains(&process)
    })?;
    let message = format!(
        "process {ended} ended without its `{name}`, for which processes {:?} wait; every \
         process of a group must run the same collectives",
        key.members
    );
    Some(Err(Error::invalid("run", message)))
}
