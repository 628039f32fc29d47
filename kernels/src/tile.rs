//! Fused elementwise computations.
//!
//! A [`Program`] computes any number of results of one size in a single pass over its operands. It
//! runs on tiles of [`TILE`] elements, so that intermediate values stay in the first-level cache;
//! each instruction is a loop over one tile, which the compiler vectorizes.

mod operation;

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

pub use self::operation::{Binary, Unary};
use self::operation::{binary, unary};
use crate::{Threads, View};

/// Elements of a tile.
const TILE: usize = 1024;

/// Tiles of one item of work for a thread.
const TILES_PER_ITEM: usize = 16;

/// Number of a register, which holds a tile of 32-bit words: floats, integers, booleans as 0 and 1,
/// and narrow integers extended to 32 bits.
pub type Register = u16;

/// A fused elementwise computation.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Number of elements of all results.
    pub elements: usize,
    /// Number of registers.
    pub registers: usize,
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
    /// Writes a result, by its number.
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

impl Program {
    /// Computes all results.
    ///
    /// # Panics
    /// If a view or uniform register reads beyond its operand, an operand in place has no words, a
    /// register, view, operand or result does not exist, or a result has not
    /// [`elements`](Self::elements) elements.
    pub fn run(&self, threads: &Threads, sources: &[Source<'_>], targets: Vec<Target<'_>>) {
        let arch = Arch::new();
        // About a nanosecond for four words.
        let cost = (self.elements / 4).saturating_mul(self.code.len());
        let item = TILE * TILES_PER_ITEM;
        let mut rest = targets;
        let starts = (0..self.elements).step_by(item);
        let items = starts.map(|start| {
            let range = start..(start + item).min(self.elements);
            let parts = rest
                .iter_mut()
                .map(|target| target.take(range.len()))
                .collect();
            Item {
                program: self,
                sources,
                range,
                targets: parts,
            }
        });
        threads.for_each(cost, items, |item: Item<'_, '_>| arch.dispatch(item));
    }
}

/// A range of the elements.
struct Item<'p, 't> {
    program: &'p Program,
    sources: &'p [Source<'p>],
    range: Range<usize>,
    targets: Vec<Target<'t>>,
}

impl WithSimd for Item<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Item {
            program,
            sources,
            range,
            mut targets,
        } = self;
        let mut tiles = Tiles::new(program, sources, TILE.min(range.len()));
        for start in range.clone().step_by(TILE) {
            let tile = start..(start + TILE).min(range.end);
            for instruction in &program.code {
                match *instruction {
                    Instruction::Store { x, target } => {
                        let from = tile.start - range.start;
                        targets[target].write(from, tiles.get(x, tile.len()));
                    }
                    Instruction::Load { into, view } => {
                        tiles.load(into, view, &tile, &targets, range.start);
                    }
                    instruction => tiles.compute(instruction, tile.len()),
                }
            }
        }
    }
}

/// The registers.
struct Tiles<'p> {
    program: &'p Program,
    sources: &'p [Source<'p>],
    tiles: Vec<Vec<u32>>,
    /// Registers that are a part of an operand, which is not copied.
    borrowed: Vec<Option<&'p [u32]>>,
}

impl<'p> Tiles<'p> {
    #[inline(always)]
    fn new(program: &'p Program, sources: &'p [Source<'p>], size: usize) -> Self {
        let mut tiles: Vec<Vec<u32>> = (0..program.registers).map(|_| vec![0; size]).collect();
        for &(register, bits) in &program.constants {
            tiles[usize::from(register)].fill(bits);
        }
        for &(register, source, at) in &program.uniform {
            tiles[usize::from(register)].fill(sources[source].word(at));
        }
        let borrowed = vec![None; program.registers];
        Tiles {
            program,
            sources,
            tiles,
            borrowed,
        }
    }

    #[inline(always)]
    fn get(&self, register: Register, count: usize) -> &[u32] {
        let register = usize::from(register);
        self.borrowed[register].unwrap_or_else(|| &self.tiles[register][..count])
    }

    #[inline(always)]
    fn load(
        &mut self,
        into: Register,
        view: usize,
        tile: &Range<usize>,
        targets: &[Target<'_>],
        first_of_targets: usize,
    ) {
        let (source, view) = &self.program.views[view];
        let into = usize::from(into);
        let out = &mut self.tiles[into][..tile.len()];
        self.borrowed[into] = None;
        match self.sources[*source] {
            Source::Words(words) if view.is_line() => {
                let first = view.offset as usize + tile.start;
                self.borrowed[into] = Some(&words[first..][..tile.len()]);
            }
            Source::Words(words) => view.load(words, tile.clone(), out, |word| word),
            Source::Bytes(bytes) => view.load(bytes, tile.clone(), out, u32::from),
            Source::SignedBytes(bytes) => {
                view.load(bytes, tile.clone(), out, |byte| byte as i8 as u32);
            }
            Source::InPlace(target) => match &targets[target] {
                Target::Words(words) => {
                    out.copy_from_slice(&words[tile.start - first_of_targets..][..tile.len()]);
                }
                Target::Bytes(_) => panic!("a result that is computed in place has words"),
            },
        }
    }

    #[inline(always)]
    fn compute(&mut self, instruction: Instruction, count: usize) {
        // The register that is written is taken out, so that the others can be read meanwhile.
        let into = match instruction {
            Instruction::Unary { into, .. }
            | Instruction::Binary { into, .. }
            | Instruction::Select { into, .. } => usize::from(into),
            Instruction::Load { .. } | Instruction::Store { .. } => return,
        };
        self.borrowed[into] = None;
        let mut tile = std::mem::take(&mut self.tiles[into]);
        let out = &mut tile[..count];
        match instruction {
            Instruction::Unary { op, x, .. } => unary(op, out, self.get(x, count)),
            Instruction::Binary { op, x, y, .. } => {
                binary(op, out, self.get(x, count), self.get(y, count));
            }
            Instruction::Select {
                condition, x, y, ..
            } => {
                let [condition, x, y] = [condition, x, y].map(|register| self.get(register, count));
                for (((out, condition), x), y) in out.iter_mut().zip(condition).zip(x).zip(y) {
                    *out = if *condition != 0 { *x } else { *y };
                }
            }
            Instruction::Load { .. } | Instruction::Store { .. } => {}
        }
        self.tiles[into] = tile;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `relu(x + y[row]) * 2`, and whether `x` is positive.
    fn program(rows: usize, columns: usize) -> Program {
        let mut row = View::contiguous(&[rows, columns]);
        row.dims[0].stride = 1;
        row.dims[1].stride = 0;
        Program {
            elements: rows * columns,
            registers: 5,
            constants: vec![(3, 0), (4, 2f32.to_bits())],
            uniform: Vec::new(),
            views: vec![(0, View::contiguous(&[rows * columns])), (1, row)],
            code: vec![
                Instruction::Load { into: 0, view: 0 },
                Instruction::Load { into: 1, view: 1 },
                Instruction::Binary {
                    op: Binary::AddF,
                    into: 2,
                    x: 0,
                    y: 1,
                },
                Instruction::Binary {
                    op: Binary::MaximumF,
                    into: 1,
                    x: 2,
                    y: 3,
                },
                Instruction::Binary {
                    op: Binary::MultiplyF,
                    into: 2,
                    x: 1,
                    y: 4,
                },
                Instruction::Store { x: 2, target: 0 },
                Instruction::Binary {
                    op: Binary::LessF,
                    into: 2,
                    x: 3,
                    y: 0,
                },
                Instruction::Store { x: 2, target: 1 },
            ],
        }
    }

    fn run(threads: usize, rows: usize, columns: usize) -> (Vec<u32>, Vec<u8>) {
        let x: Vec<u32> = (0..rows * columns)
            .map(|at| (at as f32 * 0.37).sin().to_bits())
            .collect();
        let y: Vec<u32> = (0..rows).map(|at| (at as f32).cos().to_bits()).collect();
        let (mut out, mut positive) = (vec![0; x.len()], vec![0; x.len()]);
        program(rows, columns).run(
            &Threads::new(threads).expect("threads start"),
            &[Source::Words(&x), Source::Words(&y)],
            vec![Target::Words(&mut out), Target::Bytes(&mut positive)],
        );
        for (at, &value) in out.iter().enumerate() {
            let (x, y) = (f32::from_bits(x[at]), f32::from_bits(y[at / columns]));
            assert_eq!(f32::from_bits(value), (x + y).max(0.0) * 2.0);
            assert_eq!(positive[at], u8::from(x > 0.0));
        }
        (out, positive)
    }

    #[test]
    fn tiles_compute_each_element() {
        for (rows, columns) in [(1, 1), (3, 7), (0, 5), (5, 0), (2, 1024), (67, 1023)] {
            run(1, rows, columns);
        }
    }

    #[test]
    fn results_are_computed_in_place() {
        let (rows, columns) = (20, 1000);
        let (expected, _) = run(1, rows, columns);
        let mut out: Vec<u32> = (0..rows * columns)
            .map(|at| (at as f32 * 0.37).sin().to_bits())
            .collect();
        let y: Vec<u32> = (0..rows).map(|at| (at as f32).cos().to_bits()).collect();
        let mut positive = vec![0; out.len()];
        let program = program(rows, columns);
        // The operand is loaded before the result is stored, but also read after it.
        program.run(
            &Threads::new(2).expect("threads start"),
            &[Source::InPlace(0), Source::Words(&y)],
            vec![Target::Words(&mut out), Target::Bytes(&mut positive)],
        );
        assert_eq!(out, expected);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        assert_eq!(run(1, 300, 1001), run(3, 300, 1001));
    }
}
