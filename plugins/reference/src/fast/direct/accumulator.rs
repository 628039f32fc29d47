//! Elements that updates are combined with.

use bytemuck::must_cast_slice_mut;
use halite_core::Result;
use halite_stablehlo::BinaryOp;

use crate::{
    fast::scalar::{Format, convert, decode, encode, load, maximum, minimum, store},
    oracle::collect,
    storage::Storage,
};

/// Elements that updates are combined with: in place, or in a copy that is rounded at the end.
pub(super) struct Accumulator<'a> {
    result: &'a mut Storage,
    size: usize,
    narrow: Format,
    wide: Format,
    /// All elements in the wide format, if that is another one.
    copy: Vec<u64>,
}

impl<'a> Accumulator<'a> {
    pub(super) fn new(
        result: &'a mut Storage,
        size: usize,
        narrow: Format,
        wide: Format,
    ) -> Result<Self> {
        let mut copy = Vec::new();
        if narrow != wide {
            let count = result.len() / size;
            copy = collect(count, std::iter::repeat_n(0, count))?;
            load(result, size, 0, 1, &mut copy);
            convert(&mut copy, narrow, wide);
        }
        Ok(Accumulator {
            result,
            size,
            narrow,
            wide,
            copy,
        })
    }

    pub(super) fn load(&self, at: usize, out: &mut [u64]) {
        if self.narrow == self.wide {
            load(self.result, self.size, at, 1, out);
        } else {
            out.copy_from_slice(&self.copy[at..][..out.len()]);
        }
    }

    /// Loads updates as what elements are combined with.
    pub(super) fn load_updates(&self, updates: &[u8], at: usize, out: &mut [u64]) {
        load(updates, self.size, at, 1, out);
        convert(out, self.narrow, self.wide);
    }

    pub(super) fn store(&mut self, at: usize, values: &[u64]) {
        if self.narrow == self.wide {
            store(values, self.result.bytes_mut(), self.size, at);
        } else {
            self.copy[at..][..values.len()].copy_from_slice(values);
        }
    }

    pub(super) fn finish(mut self) {
        if self.narrow != self.wide {
            convert(&mut self.copy, self.wide, self.narrow);
            store(&self.copy, self.result.bytes_mut(), self.size, 0);
        }
    }

    /// Combines runs of elements with updates by one operation. Returns false, and does nothing, if
    /// the operation has no loop.
    pub(super) fn update(&mut self, op: BinaryOp, updates: &Updates<'_>) -> bool {
        let (narrow, wide) = (self.narrow, self.wide);
        if narrow != wide {
            let sums = must_cast_slice_mut(&mut self.copy);
            return match narrow {
                Format::F16 => floats::<2, 8>(op, [Format::F16, Format::F64], updates, sums),
                Format::Bf16 => floats::<2, 8>(op, [Format::Bf16, Format::F64], updates, sums),
                Format::F32 => floats::<4, 8>(op, [Format::F32, Format::F64], updates, sums),
                _ => false,
            };
        }
        let sums = self.result.bytes_mut();
        match narrow {
            Format::F16 => floats::<2, 2>(op, [Format::F16; 2], updates, sums),
            Format::Bf16 => floats::<2, 2>(op, [Format::Bf16; 2], updates, sums),
            Format::F32 => floats::<4, 4>(op, [Format::F32; 2], updates, sums),
            Format::F64 => floats::<8, 8>(op, [Format::F64; 2], updates, sums),
            Format::Unsigned(1) => false,
            Format::Signed(bits) | Format::Unsigned(bits) => {
                let is_signed = matches!(narrow, Format::Signed(_));
                match bits {
                    8 => integers::<1>(op, is_signed, updates, sums),
                    16 => integers::<2>(op, is_signed, updates, sums),
                    32 => integers::<4>(op, is_signed, updates, sums),
                    _ => integers::<8>(op, is_signed, updates, sums),
                }
            }
        }
    }
}

/// Runs of updates.
pub(super) struct Updates<'u> {
    pub(super) elements: &'u [u8],
    /// Elements of a run.
    pub(super) run: usize,
    /// The first positions of runs, in the target and here.
    pub(super) pairs: &'u [[usize; 2]],
}

/// Combines floats in `M` bytes with updates in `N` bytes.
#[inline(always)]
fn floats<const N: usize, const M: usize>(
    op: BinaryOp,
    [narrow, wide]: [Format; 2],
    updates: &Updates<'_>,
    sums: &mut [u8],
) -> bool {
    let by = |f: fn(f64, f64) -> f64| {
        move |x: u64, y: u64| encode(f(decode(x, wide), decode(y, narrow)), wide)
    };
    match op {
        BinaryOp::Add => each::<N, M>(updates, sums, by(|x, y| x + y)),
        BinaryOp::Multiply => each::<N, M>(updates, sums, by(|x, y| x * y)),
        BinaryOp::Maximum => each::<N, M>(updates, sums, by(maximum)),
        BinaryOp::Minimum => each::<N, M>(updates, sums, by(minimum)),
        _ => return false,
    }
    true
}

/// Combines integers of `N` bytes.
fn integers<const N: usize>(
    op: BinaryOp,
    is_signed: bool,
    updates: &Updates<'_>,
    sums: &mut [u8],
) -> bool {
    let signed = |x: u64| (x << (64 - 8 * N)).cast_signed();
    match op {
        BinaryOp::Add => each::<N, N>(updates, sums, u64::wrapping_add),
        BinaryOp::Multiply => each::<N, N>(updates, sums, u64::wrapping_mul),
        BinaryOp::Maximum if is_signed => {
            each::<N, N>(
                updates,
                sums,
                |x, y| if signed(x) > signed(y) { x } else { y },
            );
        }
        BinaryOp::Minimum if is_signed => {
            each::<N, N>(
                updates,
                sums,
                |x, y| if signed(x) < signed(y) { x } else { y },
            );
        }
        BinaryOp::Maximum => each::<N, N>(updates, sums, u64::max),
        BinaryOp::Minimum => each::<N, N>(updates, sums, u64::min),
        _ => return false,
    }
    true
}

#[inline(always)]
fn each<const N: usize, const M: usize>(
    updates: &Updates<'_>,
    sums: &mut [u8],
    combine: impl Fn(u64, u64) -> u64,
) {
    let (sums, elements) = (
        sums.as_chunks_mut::<M>().0,
        updates.elements.as_chunks::<N>().0,
    );
    let combine = |sum: &mut [u8; M], update: &[u8; N]| {
        let bits = combine(word(*sum), word(*update));
        sum.copy_from_slice(&bits.to_le_bytes()[..M]);
    };
    for &[to, from] in updates.pairs {
        if updates.run == 1 {
            combine(&mut sums[to], &elements[from]);
            continue;
        }
        let sums = sums[to..][..updates.run].iter_mut();
        let pairs = sums.zip(&elements[from..][..updates.run]);
        pairs.for_each(|(sum, update)| combine(sum, update));
    }
}

/// The bits of an element.
#[inline(always)]
fn word<const N: usize>(element: [u8; N]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(&element);
    u64::from_le_bytes(bytes)
}
