//! Exchanges of buffers by MPI's collectives.

use std::time::Duration;

use half::{bf16, f16};
use halite_core::{Collective, DType, Error, Exchange, ReduceOp, Result};

use crate::mpi::{Comm, Patience, Reduction};

/// How MPI reduces elements of a type.
#[derive(Clone, Copy)]
enum Way {
    /// As they are.
    Direct(Reduction),
    /// As f32.
    AsF32(Reduction, Half),
}

/// A 16-bit float.
#[derive(Clone, Copy)]
enum Half {
    F16,
    Bf16,
}

impl Way {
    /// `None` if MPI has no such reduction. Depends on nothing but type and operation, so that all
    /// processes take the same way.
    fn of(op: ReduceOp, dtype: DType) -> Option<Way> {
        let op = match op {
            ReduceOp::Mean
                if matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64) =>
            {
                ReduceOp::Sum
            }
            other => other,
        };
        let half = match dtype {
            DType::F16 => Half::F16,
            DType::Bf16 => Half::Bf16,
            _ => return Reduction::new(op, dtype).map(Way::Direct),
        };
        Reduction::new(op, DType::F32).map(|kind| Way::AsF32(kind, half))
    }
}

/// Returns whether MPI has this exchange.
pub(super) fn has_reduction(exchange: &Exchange<'_>) -> bool {
    match exchange {
        Exchange::AllReduce { op, dtype, .. } | Exchange::ReduceScatter { op, dtype, .. } => {
            Way::of(*op, *dtype).is_some()
        }
        Exchange::AllGather { .. } | Exchange::Broadcast { .. } => true,
    }
}

/// Makes an exchange that [`has_reduction`].
///
/// # Errors
/// MPI's; if lengths do not fit.
pub(super) fn exchange(
    comm: &Comm,
    exchange: Exchange<'_>,
    patience: &mut dyn Patience,
) -> Result<()> {
    match exchange {
        Exchange::AllReduce {
            op,
            dtype,
            from,
            into,
        } => reduce(comm, op, dtype, (from, into), patience, Comm::all_reduce),
        Exchange::ReduceScatter {
            op,
            dtype,
            from,
            into,
        } => reduce(
            comm,
            op,
            dtype,
            (from, into),
            patience,
            Comm::reduce_scatter,
        ),
        Exchange::AllGather { from, into } => comm.all_gather(from, into, patience),
        Exchange::Broadcast { root, bytes } => {
            if root >= comm.size()? {
                let message = format!("root {root} is out of range: there are {}", comm.size()?);
                return Err(Error::invalid("broadcast", message));
            }
            comm.broadcast(root, bytes, patience)
        }
    }
}

type Call = fn(&Comm, Reduction, &[u8], &mut [u8], &mut dyn Patience) -> Result<()>;

fn reduce(
    comm: &Comm,
    op: ReduceOp,
    dtype: DType,
    buffers: (&[u8], &mut [u8]),
    patience: &mut dyn Patience,
    call: Call,
) -> Result<()> {
    let (from, into) = buffers;
    let way = Way::of(op, dtype).expect("the caller knows that there is a way");
    match way {
        Way::Direct(kind) if is_aligned(from) && is_aligned(into) => {
            call(comm, kind, from, into, patience)?;
        }
        Way::Direct(kind) => {
            let mut result = aligned(&vec![0; into.len()]);
            let room = &mut bytemuck::cast_slice_mut(&mut result)[..into.len()];
            let copy = aligned(from);
            call(
                comm,
                kind,
                &bytemuck::cast_slice(&copy)[..from.len()],
                room,
                patience,
            )?;
            into.copy_from_slice(room);
        }
        Way::AsF32(kind, half) => {
            if !from.len().is_multiple_of(2) || !into.len().is_multiple_of(2) {
                let message = format!("{} bytes are not elements of {dtype}", from.len());
                return Err(Error::invalid("MPI reduction", message));
            }
            let wide = half.widen(from);
            let mut result = vec![0f32; into.len() / 2];
            let room = bytemuck::cast_slice_mut(&mut result);
            call(comm, kind, bytemuck::cast_slice(&wide), room, patience)?;
            if op == ReduceOp::Mean {
                let size = comm.size()? as f32;
                result.iter_mut().for_each(|value| *value /= size);
            }
            half.narrow(&result, into);
            return Ok(());
        }
    }
    if op == ReduceOp::Mean {
        divide(dtype, comm.size()?, into);
    }
    Ok(())
}

impl Half {
    fn widen(self, bytes: &[u8]) -> Vec<f32> {
        let bits = bytes
            .as_chunks()
            .0
            .iter()
            .map(|&pair| u16::from_ne_bytes(pair));
        match self {
            Half::F16 => bits.map(|bits| f16::from_bits(bits).to_f32()).collect(),
            Half::Bf16 => bits.map(|bits| bf16::from_bits(bits).to_f32()).collect(),
        }
    }

    fn narrow(self, values: &[f32], into: &mut [u8]) {
        for (&value, pair) in values.iter().zip(into.as_chunks_mut().0) {
            *pair = match self {
                Half::F16 => f16::from_f32(value).to_bits().to_ne_bytes(),
                Half::Bf16 => bf16::from_f32(value).to_bits().to_ne_bytes(),
            };
        }
    }
}

/// Divides sums by the number of processes.
fn divide(dtype: DType, size: usize, bytes: &mut [u8]) {
    match dtype {
        DType::F32 => (bytes.as_chunks_mut().0.iter_mut())
            .for_each(|x| *x = (f32::from_ne_bytes(*x) / size as f32).to_ne_bytes()),
        _ => (bytes.as_chunks_mut().0.iter_mut())
            .for_each(|x| *x = (f64::from_ne_bytes(*x) / size as f64).to_ne_bytes()),
    }
}

fn is_aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(8)
}

/// The bytes in memory that is aligned for every type.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    words
}

/// A group that exchanges by gathering.
#[derive(Debug)]
pub(super) struct Gathering<'a>(pub(super) &'a super::Lane);

impl Collective for Gathering<'_> {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn all_gather(&self, name: &str, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        self.0.all_gather(name, mine, patience)
    }
}
