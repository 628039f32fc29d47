//! Fused elementwise computations.
//!
//! A [`Program`] computes any number of results in a single pass over its operands. It runs on
//! tiles of some hundred elements, so that intermediate values stay in the first-level cache; each
//! instruction is a loop over one tile, which the compiler vectorizes.
//!
//! Elements are in rows, and tiles have whole rows, so that a program can reduce rows and use the
//! results in the same pass: a softmax or a layer norm is one program. Reductions of columns are
//! results only.

mod format;
mod operation;
mod run;
mod tiles;

pub use self::{
    format::Format,
    operation::{Binary, Compare, Convert, Odd, OddBinary, Shorten, Unary, Widen},
};
use crate::{Accumulate, View};

/// Number of a register, which holds words for a tile: floats, integers, booleans as 0 and 1. Words
/// have 32 bits, or 64 in wide registers. Integers of 8 and 16 bits are extended by their own sign,
/// and floats of 16 bits are those of 32 bits with the same value: after an operation whose result
/// the narrow type may not have, a program has to round it, by a [`Convert`].
pub type Register = u32;

/// A register.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Kind {
    /// Number of its words.
    pub extent: Extent,
    /// Whether its words have 64 bits.
    pub is_wide: bool,
}

impl Kind {
    /// A register with a word of 32 bits for each element.
    pub const ELEMENTS: Self = Kind {
        extent: Extent::Elements,
        is_wide: false,
    };
}

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
        /// The first operand.
        initial: u64,
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
    pub registers: Vec<Kind>,
    /// The results.
    pub outputs: Vec<Output>,
    /// Registers that have the same word in all elements.
    pub constants: Vec<(Register, u64)>,
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
pub enum Instruction {
    /// Reads a view.
    Load {
        /// The register that is written.
        into: Register,
        /// Number of the view.
        view: usize,
    },
    /// Computes a register.
    Apply {
        /// What it computes.
        op: Operation,
        /// The register that is written.
        into: Register,
        /// The operands, of which operations read as many as they need.
        operands: [Register; 3],
    },
    /// Writes a result, or combines elements with a result of columns.
    Store {
        /// The register that is read.
        x: Register,
        /// Number of the result.
        target: usize,
    },
}

/// What an instruction computes of its operands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// On words of one width.
    Unary(Unary),
    /// On words of one width.
    Binary(Binary),
    /// On words of one width, with a result of 32 bits.
    Compare(Compare),
    /// On floats of 32 bits, rounded to odd.
    Odd(Odd),
    /// On floats of 32 bits, rounded to odd.
    OddBinary(OddBinary),
    /// From 32 bits to 32 bits.
    Convert(Convert),
    /// From 32 bits to 64 bits.
    Widen(Widen),
    /// From 64 bits to 32 bits.
    Shorten(Shorten),
    /// The second operand where the first is not 0, else the third.
    Select,
    /// The word of each row, for its elements.
    Broadcast,
    /// The elements of each row combined, and with `initial`.
    Reduce {
        /// How elements are combined.
        op: Accumulate,
        /// The first operand.
        initial: u64,
    },
}

/// Elements of an operand.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Bytes, which are aligned for elements of the format.
    Memory(Format, &'a [u8]),
    /// What a result, given by its number, has before, as elements of a format of the same size: a
    /// result that is computed in place. Each element has to be loaded, by a view of all elements
    /// in order, before it is stored.
    InPlace(Format, usize),
}

impl Source<'_> {
    fn word(&self, at: usize) -> u64 {
        match self {
            Source::Memory(format, bytes) => format.word(&bytes[at * format.size()..]),
            Source::InPlace(..) => panic!("a uniform register is not a result computed in place"),
        }
    }
}

/// Elements of a result.
#[derive(Debug)]
pub struct Target<'a> {
    /// How they are stored.
    pub format: Format,
    /// The bytes, aligned for elements of the format.
    pub bytes: &'a mut [u8],
}

impl<'a> Target<'a> {
    /// Cuts off the first `count` elements.
    fn take(&mut self, count: usize) -> Target<'a> {
        let bytes = std::mem::take(&mut self.bytes);
        let (first, rest) = bytes.split_at_mut(count * self.format.size());
        self.bytes = rest;
        Target {
            format: self.format,
            bytes: first,
        }
    }
}

#[cfg(test)]
mod tests;
