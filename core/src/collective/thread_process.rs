//! A job whose processes are threads of this process.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Collective, ProcessGroup, ThreadMember, check_ranks};
use crate::{Error, KeyValueStore, LocalStore, Result};

/// One process of a job, as a thread with a client of its own plays it: a [`ProcessGroup`] of
/// [`ThreadMember`]s, with a group of threads for each lane.
///
/// ```
/// use halite_core::{Collective, ProcessGroup, ThreadProcess};
/// use std::time::Duration;
///
/// let ranks = std::thread::scope(|scope| {
///     let run = |process: ThreadProcess| {
///         let lane = process.lane("device 0")?;
///         lane.all_gather("ranks", &[process.rank() as u8], Duration::from_secs(9))
///     };
///     let all: Vec<_> = ThreadProcess::group(2).into_iter().map(|process| scope.spawn(move || run(process))).collect();
///     all.into_iter().map(|one| one.join().unwrap()).collect::<halite_core::Result<Vec<_>>>()
/// });
/// assert_eq!(ranks?, [[[0], [1]], [[0], [1]]]);
/// # halite_core::Result::<()>::Ok(())
/// ```
#[derive(Debug)]
pub struct ThreadProcess {
    member: ThreadMember,
    job: Arc<Mutex<Job>>,
}

/// What the processes of a job share.
#[derive(Debug)]
struct Job {
    lanes: Vec<Lane>,
    /// Lanes that each process has asked for; `None` once it is dropped.
    asked: Vec<Option<usize>>,
    /// Key-value stores, with their names.
    stores: Vec<(String, Arc<LocalStore>)>,
    /// Stores that each process has asked for.
    stores_asked: Vec<usize>,
}

/// A lane, and its members that are not taken yet.
#[derive(Debug)]
struct Lane {
    name: String,
    members: Vec<Option<ThreadMember>>,
}

impl ThreadProcess {
    /// A job of `size` processes; give each to a thread.
    pub fn group(size: usize) -> Vec<ThreadProcess> {
        let job = Arc::new(Mutex::new(Job {
            lanes: Vec::new(),
            asked: vec![Some(0); size],
            stores: Vec::new(),
            stores_asked: vec![0; size],
        }));
        let members = ThreadMember::group(size).into_iter();
        members
            .map(|member| ThreadProcess {
                member,
                job: job.clone(),
            })
            .collect()
    }

    fn job(&self) -> MutexGuard<'_, Job> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process in the next lane, which has the processes of these ranks.
    fn member_of(&self, name: &str, ranks: &[usize]) -> Result<Option<ThreadMember>> {
        let (rank, mut job) = (self.rank(), self.job());
        let Job { lanes, asked, .. } = &mut *job;
        let index = asked[rank].expect("a process that asks is not dropped");
        if index == lanes.len() {
            let mut members: Vec<Option<ThreadMember>> = asked.iter().map(|_| None).collect();
            for (&rank, member) in ranks.iter().zip(ThreadMember::group(ranks.len())) {
                members[rank] = asked[rank].map(|_| member);
            }
            lanes.push(Lane {
                name: name.to_string(),
                members,
            });
        }
        let lane = &mut lanes[index];
        if lane.name != name {
            let message = format!(
                "process {rank} asks for the lane `{name}`, another process for `{}`",
                lane.name
            );
            return Err(Error::invalid("lane", message));
        }
        asked[rank] = Some(index + 1);
        Ok(lane.members[rank].take())
    }
}

impl Drop for ThreadProcess {
    fn drop(&mut self) {
        let (rank, mut job) = (self.member.rank(), self.job());
        job.asked[rank] = None;
        // Waits for the lanes that it never asked for end, too.
        job.lanes
            .iter_mut()
            .for_each(|lane| lane.members[rank] = None);
    }
}

impl Collective for ThreadProcess {
    fn rank(&self) -> usize {
        self.member.rank()
    }

    fn size(&self) -> usize {
        self.member.size()
    }

    fn all_gather(&self, name: &str, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        self.member.all_gather(name, mine, patience)
    }
}

impl ProcessGroup for ThreadProcess {
    fn lane(&self, name: &str) -> Result<Arc<dyn Collective>> {
        let all: Vec<usize> = (0..self.size()).collect();
        let member = self.member_of(name, &all)?;
        Ok(Arc::new(
            member.expect("each process takes its member of a lane once"),
        ))
    }

    fn subgroup(&self, name: &str, ranks: &[usize]) -> Result<Option<Arc<dyn Collective>>> {
        check_ranks(name, ranks, self.size())?;
        let member = self.member_of(&format!("{name} of {ranks:?}"), ranks)?;
        Ok(member.map(|member| Arc::new(member) as _))
    }

    fn store(&self, name: &str) -> Result<Arc<dyn KeyValueStore>> {
        let (rank, mut job) = (self.rank(), self.job());
        let index = job.stores_asked[rank];
        if index == job.stores.len() {
            job.stores.push((name.to_owned(), Arc::default()));
        }
        job.stores_asked[rank] += 1;
        let (known, store) = &job.stores[index];
        if known != name {
            let message = format!(
                "process {rank} asks for the key-value store `{name}`, another process for `{known}`"
            );
            return Err(Error::invalid("key-value store", message));
        }
        Ok(store.clone())
    }
}
