//! Agreement between processes, outside of programs. Inside a program, shardings say it all.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{Element, Error, ErrorKind, HostArray, Result};

/// The processes of one job, as one of them sees it.
///
/// Every member calls the same operations with the same names in the same order. Every wait has a
/// name and a deadline, and its error says who is late.
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
    /// Which member this is, from 0.
    fn rank(&self) -> usize;

    /// How many members there are.
    fn size(&self) -> usize;

    /// Gives each member what every member brought, by rank.
    ///
    /// # Errors
    /// [`ErrorKind::DeadlineExceeded`], naming who is late.
    fn all_gather(&self, name: &str, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>>;

    /// Returns when every member has called it.
    ///
    /// # Errors
    /// [`ErrorKind::DeadlineExceeded`], naming who is late.
    fn barrier(&self, name: &str, patience: Duration) -> Result<()> {
        self.all_gather(name, &[], patience).map(drop)
    }

    /// Gives each member what member `root` brought.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather), and if there is no such member.
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
                format!("root {root} of {} members", self.size()),
            ));
        }
        let mine = if self.rank() == root { mine } else { &[] };
        Ok(self.all_gather(name, mine, patience)?.swap_remove(root))
    }

    /// Reduces equal-typed arrays over all members, and gives each the result.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); if the members bring different types; if `op` has no
    /// meaning for the type.
    fn all_reduce(
        &self,
        name: &str,
        mine: &HostArray,
        op: ReduceOp,
        patience: Duration,
    ) -> Result<HostArray> {
        reduce(&self.all_gather_arrays(name, mine, patience)?, op)
    }

    /// Gives each member the equal-typed arrays that all members brought, by rank.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather), and if the members bring different types.
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
                    "member {rank} brings another type than {ty}, which member {} brings",
                    self.rank()
                );
                return Err(Error::invalid(format!("all_gather `{name}`"), what));
            }
            arrays.push(HostArray::from_bytes(&bytes[header..], mine.ty().clone())?);
        }
        Ok(arrays)
    }

    /// Reduces as [`all_reduce`](Self::all_reduce), and gives each member its part of the first
    /// dimension.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and if the first dimension does not divide by the
    /// number of members.
    fn reduce_scatter(
        &self,
        name: &str,
        mine: &HostArray,
        op: ReduceOp,
        patience: Duration,
    ) -> Result<HostArray> {
        let rows = mine.ty().dims().first().copied().unwrap_or(0);
        if rows == 0 || rows % self.size() != 0 {
            let message = format!(
                "the first dimension of {} does not divide by {} members",
                mine.ty(),
                self.size()
            );
            return Err(Error::invalid(format!("reduce_scatter `{name}`"), message));
        }
        let whole = self.all_reduce(name, mine, op, patience)?;
        let mut dims = mine.ty().dims().to_vec();
        dims[0] = rows / self.size();
        let part = whole.bytes().len() / self.size();
        HostArray::from_bytes(
            &whole.bytes()[self.rank() * part..][..part],
            mine.ty().with_dims(dims),
        )
    }

    /// Gives member `j` the `j`th message of each member, by rank.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather), and if a member brings another number of messages than
    /// there are members.
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
                        "member {rank} did not bring one message for each of {} members",
                        self.size()
                    );
                    Error::invalid(format!("all_to_all `{name}`"), message)
                })
            })
            .collect()
    }
}

/// What takes a closure, for every [`Collective`].
pub trait CollectiveExt: Collective {
    /// Gives each member what `reduce` makes of the equal-typed arrays that all members brought, by
    /// rank. `reduce` runs on every member, so it is to give the same everywhere.
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
    /// As [`all_gather_arrays`](Collective::all_gather_arrays), and that of `reduce`.
    fn mesh_reduce<R>(
        &self,
        name: &str,
        mine: &HostArray,
        patience: Duration,
        reduce: impl FnOnce(Vec<HostArray>) -> Result<R>,
    ) -> Result<R> {
        reduce(self.all_gather_arrays(name, mine, patience)?)
    }
}

impl<C: Collective + ?Sized> CollectiveExt for C {}

/// How arrays of several members become one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "each name says it")]
pub enum ReduceOp {
    Sum,
    Mean,
    Product,
    Min,
    Max,
    And,
    Or,
}

/// A job of one process.
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

/// One member of a group of threads in one process. If it is dropped, as when its thread fails, the
/// others are told in their next wait for it, and do not wait until its end.
///
/// An operation that fails leaves the group as if this member had not called it, so it can be
/// called again: a retry after a [`DeadlineExceeded`](ErrorKind::DeadlineExceeded) meets the
/// members that come late.
#[derive(Debug)]
pub struct ThreadMember {
    rank: usize,
    group: Arc<Group>,
    /// Operations that this member has completed.
    round: Mutex<u64>,
}

#[derive(Debug)]
struct Group {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    rounds: HashMap<u64, Round>,
    /// By rank: dropped, so that nothing more is to be waited for.
    gone: Vec<bool>,
}

impl State {
    /// Takes back what a member brought to a round that is not complete: nobody has taken from it.
    fn withdraw(&mut self, number: u64, rank: usize) {
        let Some(round) = self.rounds.get_mut(&number) else {
            return;
        };
        round.brought[rank] = None;
        if round.brought.iter().all(Option::is_none) {
            // The next to come names it anew.
            self.rounds.remove(&number);
        }
    }
}

#[derive(Debug)]
struct Round {
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
        // None is never.
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
                "member {} is at `{name}`, others are at `{}`",
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
                .expect("a round stays until every member has taken from it");
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
                    "members {failed:?} of {size} are gone, and did not come; their own errors say why"
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

fn reduce(arrays: &[HostArray], op: ReduceOp) -> Result<HostArray> {
    use crate::DType::*;
    macro_rules! by_type {
        ($($dtype:ident => $rust:ty);* $(;)?) => {
            match arrays[0].ty().dtype() {
                $($dtype => reduce_as::<$rust>(arrays, op),)*
                Bool => reduce_bool(arrays, op),
                F16 => reduce_half::<half::f16>(arrays, op, half::f16::to_f64, half::f16::from_f64),
                Bf16 => reduce_half::<half::bf16>(arrays, op, half::bf16::to_f64, half::bf16::from_f64),
            }
        };
    }
    by_type! {
        S8 => i8; S16 => i16; S32 => i32; S64 => i64;
        U8 => u8; U16 => u16; U32 => u32; U64 => u64;
        F32 => f32; F64 => f64;
    }
}

/// What a reduction needs of a number.
trait Number: Element + PartialOrd {
    fn is_nan(self) -> bool;
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Of at least one; integers are rounded towards 0.
    fn mean(values: impl ExactSizeIterator<Item = Self>) -> Self;
}

macro_rules! numbers {
    ($($int:ty)*; $($float:ty)*) => {
        $(impl Number for $int {
            fn is_nan(self) -> bool { false }
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn mean(values: impl ExactSizeIterator<Item = Self>) -> Self {
                let count = values.len() as i128;
                (values.map(i128::from).sum::<i128>() / count) as $int
            }
        })*
        $(impl Number for $float {
            fn is_nan(self) -> bool { <$float>::is_nan(self) }
            fn add(self, other: Self) -> Self { self + other }
            fn mul(self, other: Self) -> Self { self * other }
            fn mean(values: impl ExactSizeIterator<Item = Self>) -> Self {
                let count = values.len() as $float;
                values.sum::<$float>() / count
            }
        })*
    };
}
numbers!(i8 i16 i32 i64 u8 u16 u32 u64; f32 f64);

fn fold<T: Number>(a: T, b: T, op: ReduceOp) -> Option<T> {
    Some(match op {
        ReduceOp::Sum => a.add(b),
        ReduceOp::Product => a.mul(b),
        ReduceOp::Min => {
            if b < a || b.is_nan() {
                b
            } else {
                a
            }
        }
        ReduceOp::Max => {
            if b > a || b.is_nan() {
                b
            } else {
                a
            }
        }
        ReduceOp::Mean | ReduceOp::And | ReduceOp::Or => return None,
    })
}

fn reduce_as<T: Number>(arrays: &[HostArray], op: ReduceOp) -> Result<HostArray> {
    let mut total = arrays[0].as_slice::<T>()?.to_vec();
    if op == ReduceOp::Mean {
        let all: Vec<&[T]> = arrays
            .iter()
            .map(HostArray::as_slice)
            .collect::<Result<_>>()?;
        let mean = |index: usize| T::mean(all.iter().map(|values| values[index]));
        let means: Vec<T> = (0..total.len()).map(mean).collect();
        return HostArray::from_slice(&means, arrays[0].ty().dims());
    }
    for array in &arrays[1..] {
        for (total, &value) in total.iter_mut().zip(array.as_slice::<T>()?) {
            *total = fold(*total, value, op).ok_or_else(|| meaningless(op, &arrays[0]))?;
        }
    }
    if matches!(op, ReduceOp::And | ReduceOp::Or) {
        return Err(meaningless(op, &arrays[0]));
    }
    HostArray::from_slice(&total, arrays[0].ty().dims())
}

/// 16-bit floats are reduced in f64 and rounded once.
fn reduce_half<T: Element>(
    arrays: &[HostArray],
    op: ReduceOp,
    widen: fn(T) -> f64,
    narrow: fn(f64) -> T,
) -> Result<HostArray> {
    let wide = |array: &HostArray| {
        let values: Vec<f64> = array
            .as_slice::<T>()?
            .iter()
            .map(|&value| widen(value))
            .collect();
        HostArray::from_slice(&values, array.ty().dims())
    };
    let arrays: Vec<HostArray> = arrays.iter().map(wide).collect::<Result<_>>()?;
    let total = reduce_as::<f64>(&arrays, op)?;
    let values: Vec<T> = total
        .as_slice::<f64>()?
        .iter()
        .map(|&value| narrow(value))
        .collect();
    HostArray::from_slice(&values, total.ty().dims())
}

fn reduce_bool(arrays: &[HostArray], op: ReduceOp) -> Result<HostArray> {
    let mut total = arrays[0].as_slice::<bool>()?.to_vec();
    for array in &arrays[1..] {
        for (total, &value) in total.iter_mut().zip(array.as_slice::<bool>()?) {
            *total = match op {
                ReduceOp::And | ReduceOp::Min | ReduceOp::Product => *total && value,
                ReduceOp::Or | ReduceOp::Max => *total || value,
                ReduceOp::Sum | ReduceOp::Mean => return Err(meaningless(op, &arrays[0])),
            };
        }
    }
    HostArray::from_slice(&total, arrays[0].ty().dims())
}

fn meaningless(op: ReduceOp, array: &HostArray) -> Error {
    Error::invalid(
        "all_reduce",
        format!("{op:?} has no meaning for {}", array.ty()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn together<T: Send>(size: usize, work: impl Fn(&ThreadMember) -> T + Sync) -> Vec<T> {
        let members = ThreadMember::group(size);
        std::thread::scope(|scope| {
            let threads: Vec<_> = members
                .iter()
                .map(|member| scope.spawn(|| work(member)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        })
    }

    #[test]
    fn every_member_gets_what_all_brought_by_rank() {
        for all in together(3, |me| {
            me.all_gather("ranks", &[me.rank() as u8], SOON).unwrap()
        }) {
            assert_eq!(all, [[0], [1], [2]]);
        }
        for got in together(3, |me| {
            me.broadcast("root", 2, &[me.rank() as u8], SOON).unwrap()
        }) {
            assert_eq!(got, [2]);
        }
        let sent = |me: &ThreadMember| {
            (0..3)
                .map(|to| vec![me.rank() as u8, to])
                .collect::<Vec<_>>()
        };
        for (rank, got) in together(3, |me| me.all_to_all("swap", &sent(me), SOON).unwrap())
            .into_iter()
            .enumerate()
        {
            assert_eq!(got, [[0, rank as u8], [1, rank as u8], [2, rank as u8]]);
        }
    }

    #[test]
    fn arrays_are_reduced_over_members() {
        let mine =
            |me: &ThreadMember| HostArray::from_slice(&[me.rank() as f32, 2.0], [2]).unwrap();
        let check = |op, want: [f32; 2]| {
            for got in together(4, |me| me.all_reduce("x", &mine(me), op, SOON).unwrap()) {
                assert_eq!(got.as_slice::<f32>().unwrap(), want, "{op:?}");
            }
        };
        check(ReduceOp::Sum, [6.0, 8.0]);
        check(ReduceOp::Mean, [1.5, 2.0]);
        check(ReduceOp::Max, [3.0, 2.0]);
        check(ReduceOp::Min, [0.0, 2.0]);
        check(ReduceOp::Product, [0.0, 16.0]);
        let parts = together(2, |me| {
            me.reduce_scatter("x", &mine(me), ReduceOp::Sum, SOON)
                .unwrap()
        });
        assert_eq!(parts[1].as_slice::<f32>().unwrap(), [4.0]);
    }

    #[test]
    fn the_mean_of_integers_does_not_wrap() {
        let mean = |values: [u8; 2]| {
            let mine = |me: &ThreadMember| HostArray::scalar(values[me.rank()]);
            together(2, |me| {
                me.all_reduce("x", &mine(me), ReduceOp::Mean, SOON)
                    .unwrap()
                    .as_slice::<u8>()
                    .unwrap()[0]
            })
        };
        assert_eq!(mean([200, 101]), [150, 150]);
        let lowest = together(3, |me| {
            me.all_reduce("x", &HostArray::scalar(i64::MIN), ReduceOp::Mean, SOON)
                .unwrap()
        });
        assert_eq!(lowest[2].as_slice::<i64>().unwrap(), [i64::MIN]);
    }

    #[test]
    fn patience_without_end_is_no_panic() {
        let all = together(2, |me| {
            me.all_gather("x", &[me.rank() as u8], Duration::MAX)
                .unwrap()
        });
        assert_eq!(all, [[[0], [1]], [[0], [1]]]);
    }

    #[test]
    fn a_wait_names_itself_and_who_is_late() {
        let members = ThreadMember::group(3);
        let error = members[1]
            .barrier("epoch 2", Duration::from_millis(10))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert!(
            error.to_string().contains("`epoch 2`") && error.to_string().contains("[0, 2] of 3"),
            "{error}"
        );
    }

    #[test]
    fn a_retry_after_a_deadline_meets_the_late_members() {
        let members = ThreadMember::group(2);
        for _ in 0..3 {
            let error = members[1]
                .all_gather("step 1", b"early", Duration::from_millis(5))
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        }
        std::thread::scope(|scope| {
            let late = scope.spawn(|| members[0].all_gather("step 1", b"late", SOON));
            let retried = members[1].all_gather("step 1", b"again", SOON).unwrap();
            assert_eq!(retried, [&b"late"[..], b"again"]);
            assert_eq!(late.join().unwrap().unwrap(), retried);
            // The group is in step for what follows.
            let other = scope.spawn(|| members[0].all_gather("step 2", b"a", SOON));
            assert_eq!(
                members[1].all_gather("step 2", b"b", SOON).unwrap(),
                [b"a", b"b"]
            );
            other.join().unwrap().unwrap();
        });
        assert!(
            members[0].group.state.lock().unwrap().rounds.is_empty(),
            "no round is kept"
        );
    }

    #[test]
    fn a_member_that_gave_up_may_go_to_another_operation() {
        let members = ThreadMember::group(2);
        members[0]
            .barrier("epoch 1", Duration::from_millis(5))
            .unwrap_err();
        std::thread::scope(|scope| {
            scope.spawn(|| members[0].barrier("save", SOON).unwrap());
            members[1].barrier("save", SOON).unwrap();
        });
    }

    #[test]
    fn a_wrong_name_does_not_put_a_member_out_of_step() {
        let members = ThreadMember::group(2);
        std::thread::scope(|scope| {
            // Whoever comes first names the round, and this member insists on its name.
            let save = || loop {
                match members[0].barrier("save", SOON) {
                    Err(error) if error.kind() == ErrorKind::InvalidArgument => {}
                    other => break other,
                }
            };
            let first = scope.spawn(save);
            // Until the other is there.
            let error = loop {
                match members[1].barrier("epoch 1", Duration::from_millis(1)) {
                    Err(error) if error.kind() == ErrorKind::InvalidArgument => break error,
                    other => assert_eq!(other.unwrap_err().kind(), ErrorKind::DeadlineExceeded),
                }
            };
            assert!(
                error
                    .to_string()
                    .contains("member 1 is at `epoch 1`, others are at `save`"),
                "{error}"
            );
            members[1].barrier("save", SOON).unwrap();
            first.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_member_that_failed_is_named_at_once() {
        let mut members = ThreadMember::group(3);
        let last = members.pop().unwrap();
        let started = Instant::now();
        std::thread::scope(|scope| {
            let waiting: Vec<_> = members
                .iter()
                .map(|member| scope.spawn(|| member.barrier("epoch 2", SOON).unwrap_err()))
                .collect();
            scope.spawn(move || drop(last)); // What happens to a member whose thread fails.
            for error in waiting {
                let error = error.join().unwrap();
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                assert!(
                    error
                        .to_string()
                        .contains("`epoch 2`: members [2] of 3 are gone"),
                    "{error}"
                );
            }
        });
        assert!(started.elapsed() < SOON);
    }

    #[test]
    fn what_a_member_brought_before_it_left_counts() {
        let mut members = ThreadMember::group(2);
        let last = members.pop().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || last.barrier("end", SOON).unwrap());
            members[0].barrier("end", SOON).unwrap();
        });
    }

    #[test]
    fn host_values_are_reduced_as_the_caller_says() {
        let median = |me: &ThreadMember| {
            let mine = HostArray::scalar([5i64, 1, 3][me.rank()]);
            me.mesh_reduce("median", &mine, SOON, |all| {
                let mut values: Vec<i64> = all
                    .iter()
                    .map(|array| array.as_slice::<i64>().unwrap()[0])
                    .collect();
                values.sort_unstable();
                Ok(values[1])
            })
        };
        assert_eq!(together(3, |me| median(me).unwrap()), [3, 3, 3]);
        let anyone: &dyn Collective = &SingleProcess;
        assert_eq!(
            anyone
                .mesh_reduce("count", &HostArray::scalar(1u8), SOON, |all| Ok(all.len()))
                .unwrap(),
            1
        );
    }

    #[test]
    fn members_that_disagree_on_names_or_types_get_errors() {
        let results = together(2, |me| {
            me.barrier(
                if me.rank() == 0 { "a" } else { "b" },
                Duration::from_millis(200),
            )
        });
        assert!(results.iter().all(Result::is_err));
        let results = together(2, |me| {
            let mine = HostArray::from_slice(&vec![1i32; 1 + me.rank()], [1 + me.rank()]).unwrap();
            me.all_reduce("x", &mine, ReduceOp::Sum, SOON)
        });
        assert!(results.iter().any(|result| {
            result
                .as_ref()
                .unwrap_err()
                .to_string()
                .contains("another type")
        }));
        let alone = SingleProcess.all_reduce("x", &HostArray::scalar(1.0f32), ReduceOp::And, SOON);
        assert!(
            alone
                .unwrap_err()
                .to_string()
                .contains("And has no meaning for f32[]")
        );
    }
}
