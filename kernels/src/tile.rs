//! Fused elementwise computations.
//!
//! A [`Program`] computes any number of results in a single pass over its operands. It runs on
//! tiles of some hundred elements, so that intermediate values stay in the first-level cache; each
//! instruction is a loop over one tile, which the compiler vectorizes.
//!
//! Elements are in rows, and tiles have whole rows, so that a program can reduce rows and use the
//! results in the same pass: a softmax or a layer norm is one program. Reductions of columns are
//! results only.

mod operation;
mod run;

pub use self::operation::{Binary, Unary};
use crate::{Accumulate, View};

/// Number of a register, which holds 32-bit words for a tile: floats, integers, booleans as 0 and
/// 1, and narrow integers extended to 32 bits.
pub type Register = u32;

/// Words of a register.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Extent {
    /// One for each element.
    Elements,
    /// One for each row.
    Rows,
}

/// Words of a result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Output {
    /// One for each element, or for each row.
    Of(Extent),
    /// One for each column: the elements of the column combined, and with `initial`.
    Columns {
        /// How elements are combined.
        op: Accumulate,
        /// The first operand, as bits.
        initial: u32,
    },
}

/// A fused elementwise computation on a matrix.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Number of rows.
    pub rows: usize,
    /// Number of elements of a row: 1 if no instruction and no result needs rows.
    pub columns: usize,
    /// The registers.
    pub registers: Vec<Extent>,
    /// The results.
    pub outputs: Vec<Output>,
    /// Registers that have the same value, given as bits, in all elements.
    pub constants: Vec<(Register, u32)>,
    /// Registers that have one element of an operand in all elements: the number of the operand,
    /// and the position in it.
    pub uniform: Vec<(Register, usize, usize)>,
    /// Views of operands, which [`Instruction::Load`] names.
    pub views: Vec<(usize, View)>,
    /// The instructions, in order.
    pub code: Vec<Instruction>,
}

/// One step of a [`Program`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(
    missing_docs,
    reason = "the fields are registers, in the order of the operation"
)]
pub enum Instruction {
    /// Reads a view, by its number.
    Load { into: Register, view: usize },
    /// `into = op(x)`.
    Unary {
        op: Unary,
        into: Register,
        x: Register,
    },
    /// `into = op(x, y)`.
    Binary {
        op: Binary,
        into: Register,
        x: Register,
        y: Register,
    },
    /// `into = if condition { x } else { y }`.
    Select {
        into: Register,
        condition: Register,
        x: Register,
        y: Register,
    },
    /// Copies the word of each row to its elements.
    Broadcast { into: Register, x: Register },
    /// Combines the elements of each row, and with `initial`.
    Reduce {
        op: Accumulate,
        initial: u32,
        into: Register,
        x: Register,
    },
    /// Writes a result, by its number, or combines elements with a result of columns.
    Store { x: Register, target: usize },
}

/// Elements of an operand.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Words.
    Words(&'a [u32]),
    /// Bytes, as unsigned integers or booleans.
    Bytes(&'a [u8]),
    /// Bytes, as signed integers.
    SignedBytes(&'a [u8]),
    /// What a result, given by its number, has before: a result that is computed in place. Each
    /// element has to be loaded, by a view of all words in order, before it is stored.
    InPlace(usize),
}

impl Source<'_> {
    fn word(&self, at: usize) -> u32 {
        match self {
            Source::Words(words) => words[at],
            Source::Bytes(bytes) => bytes[at].into(),
            Source::SignedBytes(bytes) => bytes[at] as i8 as u32,
            Source::InPlace(_) => panic!("a uniform register is not a result computed in place"),
        }
    }
}

/// Elements of a result.
#[derive(Debug)]
pub enum Target<'a> {
    /// Words.
    Words(&'a mut [u32]),
    /// The low byte of each word.
    Bytes(&'a mut [u8]),
}

impl<'a> Target<'a> {
    #[inline(always)]
    fn write(&mut self, from: usize, x: &[u32]) {
        match self {
            Target::Words(out) => out[from..from + x.len()].copy_from_slice(x),
            Target::Bytes(out) => {
                let out = &mut out[from..from + x.len()];
                out.iter_mut()
                    .zip(x)
                    .for_each(|(out, &word)| *out = word as u8);
            }
        }
    }

    /// Cuts off the first `count` elements.
    fn take(&mut self, count: usize) -> Target<'a> {
        match self {
            Target::Words(words) => {
                let (first, rest) = std::mem::take(words).split_at_mut(count);
                *words = rest;
                Target::Words(first)
            }
            Target::Bytes(bytes) => {
                let (first, rest) = std::mem::take(bytes).split_at_mut(count);
                *bytes = rest;
                Target::Bytes(first)
            }
        }
    }
}

#[cfg(test)]
mod tests;
