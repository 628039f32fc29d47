//! Groups of threads in one process.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::Collective;
use crate::{Error, ErrorKind, Result};

/// Member of a group of threads in one process. If it is dropped, for instance because its thread
/// fails, waits for it return an error at once instead of at their timeout.
///
/// An operation that fails leaves the group as if this member had not called it, so it can be called
/// again: a retry after [`DeadlineExceeded`](ErrorKind::DeadlineExceeded) meets members that are
/// late.
#[derive(Debug)]
pub struct ThreadMember {
    rank: usize,
    pub(super) group: Arc<Group>,
    /// Operations that this member has completed.
    round: Mutex<u64>,
}

#[derive(Debug)]
pub(super) struct Group {
    size: usize,
    pub(super) state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) rounds: HashMap<u64, Round>,
    /// By rank: true if the member was dropped.
    gone: Vec<bool>,
}

impl State {
    /// Withdraws the contribution of a member to a round that is not complete.
    fn withdraw(&mut self, number: u64, rank: usize) {
        let Some(round) = self.rounds.get_mut(&number) else {
            return;
        };
        round.brought[rank] = None;
        if round.brought.iter().all(Option::is_none) {
            // The next member to arrive names the round again.
            self.rounds.remove(&number);
        }
    }
}

#[derive(Debug)]
pub(super) struct Round {
    name: String,
    brought: Vec<Option<Vec<u8>>>,
    taken: usize,
}

impl ThreadMember {
    /// A group of `size` members; give each to a thread.
    pub fn group(size: usize) -> Vec<ThreadMember> {
        let state = State {
            rounds: HashMap::new(),
            gone: vec![false; size],
        };
        let group = Arc::new(Group {
            size,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        (0..size)
            .map(|rank| ThreadMember {
                rank,
                group: group.clone(),
                round: Mutex::new(0),
            })
            .collect()
    }
}

impl Drop for ThreadMember {
    fn drop(&mut self) {
        self.group
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .gone[self.rank] = true;
        self.group.changed.notify_all();
    }
}

impl Collective for ThreadMember {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.size
    }

    fn all_gather(&self, name: &str, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        // `None` means no timeout.
        let deadline = Instant::now().checked_add(patience);
        let mut my_round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *my_round;
        let size = self.group.size;
        let mut state = self
            .group
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let new = || Round {
            name: name.to_string(),
            brought: vec![None; size],
            taken: 0,
        };
        let round = state.rounds.entry(number).or_insert_with(new);
        if round.name != name {
            let message = format!(
                "member {} called `{name}`, other members called `{}`",
                self.rank, round.name
            );
            return Err(Error::invalid("all_gather", message));
        }
        round.brought[self.rank] = Some(mine.to_vec());
        self.group.changed.notify_all();
        loop {
            let State { rounds, gone } = &mut *state;
            let round = rounds
                .get_mut(&number)
                .expect("a round is removed after every member has read it");
            let late: Vec<usize> = (0..size)
                .filter(|&rank| round.brought[rank].is_none())
                .collect();
            if late.is_empty() {
                let all = round.brought.iter().flatten().cloned().collect();
                round.taken += 1;
                if round.taken == size {
                    rounds.remove(&number);
                }
                *my_round += 1;
                return Ok(all);
            }
            let failed: Vec<usize> = late.iter().copied().filter(|&rank| gone[rank]).collect();
            if !failed.is_empty() {
                state.withdraw(number, self.rank);
                let message = format!(
                    "members {failed:?} of {size} were dropped before this call; see their own errors"
                );
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("all_gather `{name}`"),
                    message,
                ));
            }
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                state.withdraw(number, self.rank);
                let message = format!("waited {patience:?} for members {late:?} of {size}");
                return Err(Error::new(
                    ErrorKind::DeadlineExceeded,
                    format!("all_gather `{name}`"),
                    message,
                ));
            }
            state = self
                .group
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}
