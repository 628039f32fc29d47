//! Exchanges of buffers between members, as programs make them.

use std::time::Duration;

use super::{Collective, ReduceOp, reduce::reduce};
use crate::{DType, Error, HostArray, Result, TensorType};

/// What members exchange: buffers, the lengths of which are the same on every member.
#[derive(Debug)]
pub enum Exchange<'a> {
    /// `into` becomes the reduction of every member's `from`; both have one length.
    AllReduce {
        /// The reduction.
        op: ReduceOp,
        /// Type of the elements.
        dtype: DType,
        /// What this member gives.
        from: &'a [u8],
        /// The result.
        into: &'a mut [u8],
    },
    /// `into` becomes this member's part, by rank, of the reduction of every member's `from`.
    ReduceScatter {
        /// The reduction.
        op: ReduceOp,
        /// Type of the elements.
        dtype: DType,
        /// What this member gives, as long as the parts of all members.
        from: &'a [u8],
        /// The part.
        into: &'a mut [u8],
    },
    /// `into` becomes every member's `from`, by rank.
    AllGather {
        /// What this member gives.
        from: &'a [u8],
        /// The result, as long as the parts of all members.
        into: &'a mut [u8],
    },
    /// `bytes` become those of member `root`.
    Broadcast {
        /// Rank of the member whose bytes are sent.
        root: usize,
        /// What is sent or replaced.
        bytes: &'a mut [u8],
    },
}

impl Exchange<'_> {
    /// Exchanges by [`Collective::all_gather`], for groups that have nothing faster.
    pub(super) fn by_gathering<C: Collective + ?Sized>(
        self,
        group: &C,
        name: &str,
        patience: Duration,
    ) -> Result<()> {
        match self {
            Exchange::AllReduce {
                op,
                dtype,
                from,
                into,
            } => {
                let all = group.all_gather_arrays(name, &vector(name, dtype, from)?, patience)?;
                copy(name, reduce(&all, op)?.bytes(), into)
            }
            Exchange::ReduceScatter {
                op,
                dtype,
                from,
                into,
            } => {
                let mine = vector(name, dtype, from)?;
                let part = group.reduce_scatter(name, &mine, op, patience)?;
                copy(name, part.bytes(), into)
            }
            Exchange::AllGather { from, into } => copy(
                name,
                &group.all_gather(name, from, patience)?.concat(),
                into,
            ),
            Exchange::Broadcast { root, bytes } => {
                copy(name, &group.broadcast(name, root, bytes, patience)?, bytes)
            }
        }
    }
}

/// The elements of a buffer.
fn vector(name: &str, dtype: DType, bytes: &[u8]) -> Result<HostArray> {
    let size = TensorType::new(dtype, [1]).bytes();
    if !bytes.len().is_multiple_of(size) {
        let message = format!("{} bytes are not elements of {dtype}", bytes.len());
        return Err(Error::invalid(format!("exchange `{name}`"), message));
    }
    HostArray::from_bytes(bytes, TensorType::new(dtype, [bytes.len() / size]))
}

fn copy(name: &str, from: &[u8], into: &mut [u8]) -> Result<()> {
    if from.len() != into.len() {
        let message = format!(
            "the result has {} bytes, and the buffer for it {}",
            from.len(),
            into.len()
        );
        return Err(Error::invalid(format!("exchange `{name}`"), message));
    }
    into.copy_from_slice(from);
    Ok(())
}
