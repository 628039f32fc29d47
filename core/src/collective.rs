//! Collectives between threads of a process, or between processes, on host data, outside of
//! programs. Within a program, devices communicate by shardings.

mod exchange;
mod reduce;
#[cfg(test)]
mod tests;
mod thread_process;
mod threads;

use std::{sync::Arc, time::Duration};

use self::reduce::reduce;
pub use self::{exchange::Exchange, thread_process::ThreadProcess, threads::ThreadMember};
use crate::{Error, ErrorKind, HostArray, KeyValueStore, LocalStore, Result};

/// The members of a group, as one of them sees it.
///
/// Every member must call the same operations with the same names in the same order. Every wait has
/// a name and a timeout, and its error lists the members that are late.
///
/// Implementations here are [`SingleProcess`], a group of one, [`ThreadMember`], threads of one
/// process, and [`ThreadProcess`], threads in the place of processes. `halite-cluster` connects
/// processes.
///
/// ```
/// use halite_core::{Collective, SingleProcess};
/// use std::time::Duration;
///
/// let alone = SingleProcess;
/// alone.barrier("epoch 3", Duration::from_secs(1)).unwrap();
/// assert_eq!(alone.all_gather("hosts", b"me", Duration::from_secs(1)).unwrap(), [b"me"]);
/// ```
pub trait Collective: std::fmt::Debug + Send + Sync {
    /// Rank of this member, from 0.
    fn rank(&self) -> usize;

    /// Number of members.
    fn size(&self) -> usize;

    /// Gathers the bytes of every member, by rank, on every member.
    ///
    /// # Errors
    /// [`ErrorKind::DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) with the members that
    /// are late.
    fn all_gather(&self, name: &str, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>>;

    /// Waits until every member has called it.
    ///
    /// # Errors
    /// [`ErrorKind::DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) with the members that
    /// are late.
    fn barrier(&self, name: &str, patience: Duration) -> Result<()> {
        self.all_gather(name, &[], patience).map(drop)
    }

    /// Sends the bytes of member `root` to every member.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); if `root` is not the rank of a member.
    fn broadcast(
        &self,
        name: &str,
        root: usize,
        mine: &[u8],
        patience: Duration,
    ) -> Result<Vec<u8>> {
        if root >= self.size() {
            return Err(Error::invalid(
                format!("broadcast `{name}`"),
                format!(
                    "root {root} is out of range: the group has {} members",
                    self.size()
                ),
            ));
        }
        let mine = if self.rank() == root { mine } else { &[] };
        Ok(self.all_gather(name, mine, patience)?.swap_remove(root))
    }

    /// Reduces arrays of one type over all members; every member gets the result.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); if the types of members differ; if `op` is not defined
    /// for the type.
    fn all_reduce(
        &self,
        name: &str,
        mine: &HostArray,
        op: ReduceOp,
        patience: Duration,
    ) -> Result<HostArray> {
        reduce(&self.all_gather_arrays(name, mine, patience)?, op)
    }

    /// Gathers the arrays of all members, of one type, by rank, on every member.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); if the types of members differ.
    fn all_gather_arrays(
        &self,
        name: &str,
        mine: &HostArray,
        patience: Duration,
    ) -> Result<Vec<HostArray>> {
        let ty = mine.ty().to_string();
        let mut message = (ty.len() as u32).to_le_bytes().to_vec();
        message.extend(ty.as_bytes());
        message.extend(mine.bytes());
        let all = self.all_gather(name, &message, patience)?;
        let header = 4 + ty.len();
        let mut arrays = Vec::with_capacity(all.len());
        for (rank, bytes) in all.iter().enumerate() {
            if bytes.get(..header) != Some(&message[..header]) {
                let what = format!(
                    "the type of member {rank} differs from {ty}, the type of member {}",
                    self.rank()
                );
                return Err(Error::invalid(format!("all_gather `{name}`"), what));
            }
            arrays.push(HostArray::from_bytes(&bytes[header..], mine.ty().clone())?);
        }
        Ok(arrays)
    }

    /// Reduces as [`all_reduce`](Self::all_reduce); every member gets its part of the first
    /// dimension of the result.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); if the first dimension is not a multiple of the number
    /// of members.
    fn reduce_scatter(
        &self,
        name: &str,
        mine: &HostArray,
        op: ReduceOp,
        patience: Duration,
    ) -> Result<HostArray> {
        let rows = mine.ty().dims().first().copied();
        let Some(rows) = rows.filter(|rows| rows.is_multiple_of(self.size())) else {
            let message = format!(
                "the first dimension of {} is not a multiple of {} members",
                mine.ty(),
                self.size()
            );
            return Err(Error::invalid(format!("reduce_scatter `{name}`"), message));
        };
        let whole = self.all_reduce(name, mine, op, patience)?;
        let mut dims = mine.ty().dims().to_vec();
        dims[0] = rows / self.size();
        let part = whole.bytes().len() / self.size();
        HostArray::from_bytes(
            &whole.bytes()[self.rank() * part..][..part],
            mine.ty().with_dims(dims),
        )
    }

    /// Sends the `j`th message of each member to member `j`; returns those received, by rank.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); if a member does not have one message for each member.
    fn all_to_all(
        &self,
        name: &str,
        messages: &[Vec<u8>],
        patience: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        let mut mine = Vec::new();
        for message in messages {
            mine.extend((message.len() as u64).to_le_bytes());
            mine.extend(message);
        }
        let all = self.all_gather(name, &mine, patience)?;
        let take = |mut bytes: &[u8]| {
            let mut parts = Vec::new();
            while let Some((length, rest)) = bytes.split_first_chunk::<8>() {
                let (part, rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
                parts.push(part);
                bytes = rest;
            }
            (parts.len() == self.size()).then(|| parts[self.rank()].to_vec())
        };
        all.iter()
            .enumerate()
            .map(|(rank, bytes)| {
                take(bytes).ok_or_else(|| {
                    let message = format!(
                        "member {rank} does not have one message for each of {} members",
                        self.size()
                    );
                    Error::invalid(format!("all_to_all `{name}`"), message)
                })
            })
            .collect()
    }

    /// Exchanges buffers of one length, for programs: into memory that is there, and without copies
    /// where the group can do so. Only the first error of a member may be relied on: other members
    /// may be waiting, and a group of processes is aborted.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); if lengths of buffers do not fit each other; if a
    /// reduction is not defined for the type.
    fn exchange(&self, name: &str, exchange: Exchange<'_>, patience: Duration) -> Result<()> {
        exchange.by_gathering(self, name, patience)
    }
}

/// A group that makes further groups of the same members: a job of processes, whose devices
/// communicate independently of each other.
pub trait ProcessGroup: Collective {
    /// Index of this process among those of its host, from 0.
    fn local_rank(&self) -> usize {
        0
    }

    /// Number of processes of this host.
    fn local_size(&self) -> usize {
        1
    }

    /// A group of the same members with messages of its own: what is called on one lane may overlap
    /// what is called on another. Every member must ask for the same lanes in the same order.
    ///
    /// # Errors
    /// If the group can have no more lanes.
    fn lane(&self, name: &str) -> Result<Arc<dyn Collective>>;

    /// A group of the members of these ranks, which increase, with messages of its own; `None` for
    /// the others. The ranks in it count from 0. Every member, also one of the others, must ask for
    /// the same groups and lanes in the same order.
    ///
    /// # Errors
    /// If `ranks` are none, do not increase, or are not of members; as [`lane`](Self::lane);
    /// [`Unsupported`](crate::ErrorKind::Unsupported), the default, where there are no such groups.
    fn subgroup(&self, name: &str, ranks: &[usize]) -> Result<Option<Arc<dyn Collective>>> {
        check_ranks(name, ranks, self.size())?;
        let op = format!("group `{name}`");
        Err(Error::new(
            ErrorKind::Unsupported,
            op,
            "this group makes none",
        ))
    }

    /// A key-value store of the same members, with keys of its own. Every member must ask for the
    /// same stores and lanes in the same order.
    ///
    /// # Errors
    /// If the group can have no more stores; [`Unsupported`](crate::ErrorKind::Unsupported), the
    /// default, where it has none.
    fn store(&self, name: &str) -> Result<Arc<dyn KeyValueStore>> {
        let op = format!("key-value store `{name}`");
        Err(Error::new(
            ErrorKind::Unsupported,
            op,
            "this group has none",
        ))
    }

    /// Tells the other members, for their errors, that this one is at a step.
    fn at_step(&self, step: u64) {
        _ = step;
    }

    /// Records the newest checkpoint, which later errors of this member, and of the launcher, name.
    fn has_saved(&self, checkpoint: &str) {
        _ = checkpoint;
    }

    /// Tells the other members that this one fails, and why, before its process ends: they fail
    /// too, and do not wait for it.
    fn warn_others(&self, error: &Error) {
        _ = error;
    }
}

/// Checks the ranks of a [subgroup](ProcessGroup::subgroup) of a group of `size` members.
#[doc(hidden)]
pub fn check_ranks(name: &str, ranks: &[usize], size: usize) -> Result<()> {
    let increases = ranks.is_sorted_by(|one, next| one < next);
    if increases && ranks.last().is_some_and(|&last| last < size) {
        return Ok(());
    }
    let message = format!("the ranks are {ranks:?}; expected increasing ones below {size}");
    Err(Error::invalid(format!("group `{name}`"), message))
}

/// Methods of every [`Collective`] that take a closure.
pub trait CollectiveExt: Collective {
    /// Gathers the arrays of all members, and calls `reduce` with them, by rank, on every member.
    /// `reduce` must be deterministic, so that all members get the same result.
    ///
    /// ```
    /// use halite_core::{CollectiveExt, HostArray, SingleProcess};
    /// use std::time::Duration;
    ///
    /// // The accuracy over all members, from what each counted: (correct, seen).
    /// let counted = HostArray::from_slice(&[97u64, 100], [2]).unwrap();
    /// let accuracy = SingleProcess.mesh_reduce("accuracy", &counted, Duration::from_secs(9), |all| {
    ///     let sum = |i: usize| all.iter().map(|counts| Ok(counts.as_slice::<u64>()?[i])).sum::<halite_core::Result<u64>>();
    ///     Ok(sum(0)? as f64 / sum(1)? as f64)
    /// });
    /// assert_eq!(accuracy.unwrap(), 0.97);
    /// ```
    ///
    /// # Errors
    /// As [`all_gather_arrays`](Collective::all_gather_arrays); the error of `reduce`.
    fn mesh_reduce<R>(
        &self,
        name: &str,
        mine: &HostArray,
        patience: Duration,
        reduce: impl FnOnce(Vec<HostArray>) -> Result<R>,
    ) -> Result<R> {
        reduce(self.all_gather_arrays(name, mine, patience)?)
    }

    /// Gathers the arrays of all members, by rank, in one array on every member, as JAX's
    /// `multihost_utils.process_allgather`: stacked along a new first dimension, or if they are
    /// `tiled` concatenated along their first one.
    ///
    /// ```
    /// use halite_core::{CollectiveExt, HostArray, SingleProcess};
    /// use std::time::Duration;
    ///
    /// let mine = HostArray::from_slice(&[1f32, 2.0], [2]).unwrap();
    /// let gather = |tiled| SingleProcess.process_allgather("rows", &mine, tiled, Duration::from_secs(9));
    /// assert_eq!(gather(false).unwrap().ty().dims(), [1, 2]);
    /// assert_eq!(gather(true).unwrap().ty().dims(), [2]);
    /// ```
    ///
    /// # Errors
    /// As [`all_gather_arrays`](Collective::all_gather_arrays); if they are scalars and `tiled`.
    fn process_allgather(
        &self,
        name: &str,
        mine: &HostArray,
        tiled: bool,
        patience: Duration,
    ) -> Result<HostArray> {
        let mut dims = mine.ty().dims().to_vec();
        match (tiled, dims.first_mut()) {
            (true, Some(first)) => *first *= self.size(),
            (true, None) => {
                let message = format!(
                    "{} has no dimension to concatenate along; leave out `tiled`",
                    mine.ty()
                );
                return Err(Error::invalid(
                    format!("process_allgather `{name}`"),
                    message,
                ));
            }
            (false, _) => dims.insert(0, self.size()),
        }
        let mut all = HostArray::try_zeros(mine.ty().with_dims(dims))?;
        let each = mine.bytes().len();
        for (rank, array) in (self.all_gather_arrays(name, mine, patience)?.iter()).enumerate() {
            all.bytes_mut()[rank * each..][..each].copy_from_slice(array.bytes());
        }
        Ok(all)
    }
}

impl<C: Collective + ?Sized> CollectiveExt for C {}

/// Reduction of the arrays of several members or devices.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum ReduceOp {
    Sum,
    Mean,
    Product,
    Min,
    Max,
    And,
    Or,
}

/// A group of one member.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleProcess;

impl Collective for SingleProcess {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        1
    }
    fn all_gather(&self, _: &str, mine: &[u8], _: Duration) -> Result<Vec<Vec<u8>>> {
        Ok(vec![mine.to_vec()])
    }
}

impl ProcessGroup for SingleProcess {
    fn subgroup(&self, name: &str, ranks: &[usize]) -> Result<Option<Arc<dyn Collective>>> {
        check_ranks(name, ranks, 1)?;
        Ok(Some(Arc::new(SingleProcess)))
    }

    fn lane(&self, _: &str) -> Result<Arc<dyn Collective>> {
        Ok(Arc::new(SingleProcess))
    }

    fn store(&self, _: &str) -> Result<Arc<dyn KeyValueStore>> {
        Ok(Arc::new(LocalStore::default()))
    }
}
