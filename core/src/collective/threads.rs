//! Groups of threads in one process.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::Collective;
use crate::{Error, ErrorKind, Result};

/// Member of a group of threads in one process. If it is dropped, for instance because its thread
/// fails, waits for it return an error at once instead of at their timeout.
///
/// An operation that fails leaves the group as if this member had not called it, so it can be
/// called again: a retry after [`DeadlineExceeded`](ErrorKind::DeadlineExceeded) meets members that
/// are late.
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
    /// True if the member of this rank was dropped.
    dropped: Vec<bool>,
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds the contribution of a member to a round, whose first member names it.
    ///
    /// # Errors
    /// If the round has another name.
    fn bring(
        &mut self,
        number: u64,
        rank: usize,
        size: usize,
        name: &str,
        mine: &[u8],
    ) -> Result<()> {
        let round = self.rounds.entry(number).or_insert_with(|| Round {
            name: name.to_string(),
            brought: vec![None; size],
            taken: 0,
        });
        if round.name != name {
            let message = format!(
                "member {rank} called `{name}`, other members called `{}`",
                round.name
            );
            return Err(Error::invalid("all_gather", message));
        }
        round.brought[rank] = Some(mine.to_vec());
        Ok(())
    }

    /// The contributions of all members to a round, or the ranks of those that are missing. The
    /// last member to take them ends the round.
    fn take(&mut self, number: u64) -> Result<Vec<Vec<u8>>, Vec<usize>> {
        let round = (self.rounds.get_mut(&number))
            .expect("a round is removed after every member has read it");
        let brought = round.brought.iter().enumerate();
        let missing: Vec<usize> = brought
            .filter_map(|(rank, brought)| brought.is_none().then_some(rank))
            .collect();
        if !missing.is_empty() {
            return Err(missing);
        }
        let all = round.brought.iter().flatten().cloned().collect();
        round.taken += 1;
        if round.taken == round.brought.len() {
            self.rounds.remove(&number);
        }
        Ok(all)
    }

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
            dropped: vec![false; size],
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
        self.group.lock().dropped[self.rank] = true;
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
        let (number, size) = (*my_round, self.group.size);
        let mut state = self.group.lock();
        state.bring(number, self.rank, size, name, mine)?;
        self.group.changed.notify_all();
        loop {
            let missing = match state.take(number) {
                Ok(all) => {
                    *my_round += 1;
                    return Ok(all);
                }
                Err(missing) => missing,
            };
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let dropped: Vec<usize> = (missing.iter().copied())
                .filter(|&rank| state.dropped[rank])
                .collect();
            let (kind, message) = if !dropped.is_empty() {
                let message = format!(
                    "members {dropped:?} of {size} were dropped before this call; see their own \
                     errors"
                );
                (ErrorKind::Unavailable, message)
            } else if left.is_zero() {
                let message = format!("waited {patience:?} for members {missing:?} of {size}");
                (ErrorKind::DeadlineExceeded, message)
            } else {
                let changed = &self.group.changed;
                let woken = changed.wait_timeout(state, left);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            state.withdraw(number, self.rank);
            return Err(Error::new(kind, format!("all_gather `{name}`"), message));
        }
    }
}
