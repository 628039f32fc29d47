//! Processes of one launch, and the exchange of values by which they communicate.
//!
//! A process is one replica's run of one partition. Each runs on a thread of its own. All of their
//! communication is [`World::exchange`]: each member of a group contributes values and receives
//! those of all members. A wait has a name, a limit and a cancellation, and ends as soon as a
//! process that it needs has failed or ended.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use halite_core::{
    Error, Interpreted, Result,
    wait::{default_limit, wait_until},
};

use super::tensor::Value;
use crate::failure::{Failure, cancelled};

/// The processes of one launch.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) replicas: usize,
    pub(super) partitions: usize,
    /// Number of the launch, of which random numbers depend.
    launch: u64,
    cancelled: Arc<AtomicBool>,
    state: Mutex<State>,
    changed: Condvar,
    /// The operation of a plan that is interpreted now.
    interpreted: Mutex<Option<Interpreted>>,
}

/// One run of the launch's program or of a manual computation: the processes that run it.
#[derive(Debug)]
pub(crate) struct Scope<'s> {
    /// The manual computation and those around it, numbered by [`World::enter`]; 0 for the launch.
    path: usize,
    /// Number of the run on each of its processes, from 1.
    run: u64,
    /// `None` for the launch.
    outer: Option<&'s Scope<'s>>,
    /// The partitions that run it, with the partition of `outer` that started each.
    partitions: BTreeMap<usize, usize>,
}

/// The launch. In each replica, partition 0 runs the program.
pub(crate) static LAUNCH: Scope<'static> = Scope {
    path: 0,
    run: 1,
    outer: None,
    partitions: BTreeMap::new(),
};

impl Scope<'_> {
    /// A manual computation without exchanges, which these partitions run.
    pub(super) fn of_shards(partitions: &[usize]) -> Self {
        Scope {
            path: usize::MAX,
            run: 1,
            outer: Some(&LAUNCH),
            partitions: partitions.iter().map(|&it| (it, it)).collect(),
        }
    }

    /// Returns true for a run of a manual computation.
    pub(super) fn is_manual(&self) -> bool {
        self.outer.is_some()
    }

    /// The partitions that run it.
    pub(super) fn partitions(&self) -> Vec<usize> {
        match self.outer {
            None => vec![0],
            Some(_) => self.partitions.keys().copied().collect(),
        }
    }
}

/// An exchange, as all of its members identify it: the operation, and how often each of them has
/// run it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Key {
    path: usize,
    run: u64,
    operation: usize,
    members: Vec<usize>,
    round: u64,
}

#[derive(Debug, Default)]
struct State {
    exchanges: HashMap<Key, Exchange>,
    /// Numbers of paths of manual computations, by the outer path and the operation.
    paths: HashMap<(usize, usize), usize>,
    /// Number of runs started by path and process.
    runs: HashMap<(usize, usize), u64>,
    /// Number of exchanges in the current run, by path, operation and process.
    rounds: HashMap<(usize, usize, usize), Round>,
    /// Number of runs ended by path and process.
    ended: HashMap<(usize, usize), u64>,
    /// Number of draws of random numbers by process.
    draws: HashMap<usize, u64>,
    failure: Option<Failure>,
}

#[derive(Debug, Default)]
struct Round {
    run: u64,
    round: u64,
}

#[derive(Debug, Default)]
struct Exchange {
    contributions: HashMap<usize, Vec<Value>>,
    received: usize,
}

impl World {
    /// Processes of launch number `launch` that stop when `cancelled` is set.
    pub(crate) fn new(
        replicas: usize,
        partitions: usize,
        launch: u64,
        cancelled: Arc<AtomicBool>,
    ) -> Self {
        World {
            replicas,
            partitions,
            launch,
            cancelled,
            state: Mutex::default(),
            changed: Condvar::new(),
            interpreted: Mutex::default(),
        }
    }

    /// Sets the operation of a plan that is interpreted now, for warnings about long waits.
    pub(crate) fn interpret(&self, operation: Option<Interpreted>) {
        *(self.interpreted.lock()).unwrap_or_else(PoisonError::into_inner) = operation;
    }

    /// The operation of a plan that is interpreted now.
    pub(crate) fn interpreted(&self) -> Option<Interpreted> {
        let interpreted = self.interpreted.lock();
        interpreted.unwrap_or_else(PoisonError::into_inner).clone()
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

    /// Starts a run of the manual computation `operation` inside of `outer`, by process `number`
    /// of it. `partitions` are those of [`Scope`].
    pub(super) fn enter<'s>(
        &self,
        outer: &'s Scope<'s>,
        operation: usize,
        number: usize,
        partitions: BTreeMap<usize, usize>,
    ) -> Scope<'s> {
        let mut state = self.lock();
        let next = state.paths.len() + 1;
        let path = *state.paths.entry((outer.path, operation)).or_insert(next);
        let run = state.runs.entry((path, number)).or_default();
        *run += 1;
        Scope {
            path,
            run: *run,
            outer: Some(outer),
            partitions,
        }
    }

    /// Marks the run of process `number` as ended. Exchanges that wait for it return an error, that
    /// of the process if it failed.
    pub(crate) fn end(&self, scope: &Scope<'_>, number: usize, result: Result<(), Failure>) {
        let mut state = self.lock();
        state.ended.insert((scope.path, number), scope.run);
        if let Err(failure) = result {
            state.failure.get_or_insert(failure);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A seed for random numbers, another one for each call in this launch.
    pub(super) fn draw(&self, number: usize) -> [u64; 2] {
        let mut state = self.lock();
        let draws = state.draws.entry(number).or_default();
        *draws += 1;
        [self.launch << 32 | number as u64, *draws]
    }

    /// Contributes `values` to the exchange of `operation` between `members`, and returns those of
    /// all members, in their order. `number` is that of the process in `scope`.
    pub(super) fn exchange(
        &self,
        name: &str,
        operation: usize,
        members: &[usize],
        scope: &Scope<'_>,
        number: usize,
        values: Vec<Value>,
    ) -> Result<Vec<Vec<Value>>> {
        let mut state = self.lock();
        let rounds = state
            .rounds
            .entry((scope.path, operation, number))
            .or_default();
        if rounds.run != scope.run {
            *rounds = Round {
                run: scope.run,
                round: 0,
            };
        }
        rounds.round += 1;
        let key = Key {
            path: scope.path,
            run: scope.run,
            operation,
            members: members.to_vec(),
            round: rounds.round,
        };
        let exchange = state.exchanges.entry(key.clone()).or_default();
        exchange.contributions.insert(number, values);
        drop(state);
        self.changed.notify_all();
        let describe = || format!("`{name}` of process {number} with processes {members:?}");
        let poll = |slice| {
            let state = self.lock();
            let waits = |state: &mut State| self.outcome(state, scope, &key, name).is_none();
            let waited = self.changed.wait_timeout_while(state, slice, waits);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let result = self.outcome(&state, scope, &key, name);
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

    /// The contributions to an exchange if they are complete, or the reason why they never will be.
    fn outcome(
        &self,
        state: &State,
        scope: &Scope<'_>,
        key: &Key,
        name: &str,
    ) -> Option<Result<Vec<Vec<Value>>>> {
        let exchange = state.exchanges.get(key)?;
        let of = |member| exchange.contributions.get(member).cloned();
        if let Some(all) = key.members.iter().map(of).collect() {
            return Some(Ok(all));
        }
        if let Some(failure) = &state.failure {
            return Some(Err(failure.error()));
        }
        let ended = key.members.iter().find(|&&number| {
            !exchange.contributions.contains_key(&number) && self.has_ended(state, scope, number)
        })?;
        let message = format!(
            "process {ended} ended without its `{name}`, for which processes {:?} wait; every \
             process of a group must run the same collectives",
            key.members
        );
        Some(Err(Error::invalid("run", message)))
    }

    /// Returns true if a process, or one that would start it, has ended its run of `scope`.
    fn has_ended(&self, state: &State, scope: &Scope<'_>, number: usize) -> bool {
        if (state.ended.get(&(scope.path, number))).is_some_and(|&run| run >= scope.run) {
            return true;
        }
        let (Some(outer), partition) = (scope.outer, number % self.partitions) else {
            return false;
        };
        let starter = scope.partitions.get(&partition).unwrap_or(&partition);
        self.has_ended(state, outer, number - partition + starter)
    }
}
