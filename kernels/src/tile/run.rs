//! Runs of programs: items of work for threads, and the tiles of each.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::{
    Extent, Instruction, Output, Program, Register, Source, Target,
    operation::{binary, unary},
};
use crate::{
    Threads,
    reduce::{accumulate, combine_rows, reduce_row},
};

/// Words of all registers together, which the first-level cache has: 24 of its 32 kilobytes or
/// more.
const REGISTERS: usize = 6 << 10;

/// Least and most elements of a tile, unless a row has more.
const TILE: Range<usize> = 256..2048;

/// Elements of an iteration of a vectorized loop, of which tiles are a multiple: what remains would
/// be computed one by one.
const UNROLLED: usize = 64;

/// Elements of one item of work for a thread.
const ITEM: usize = 1 << 14;

impl Program {
    /// Computes all results.
    ///
    /// # Panics
    /// If a view or uniform register reads beyond its operand, an operand in place has no words, a
    /// register, view, operand or result does not exist, or a result has not the length of its
    /// [`Output`].
    pub fn run(&self, threads: &Threads, sources: &[Source<'_>], targets: Vec<Target<'_>>) {
        let tile_rows = self.tile_rows();
        let tiles = ITEM.div_ceil(tile_rows * self.columns.max(1));
        let item_rows = tile_rows * tiles;
        let is_column = |output: &&Output| matches!(output, Output::Columns { .. });
        let sums = self.outputs.iter().filter(is_column).count();
        // For each result of columns, a row of each item.
        let length = self.rows.div_ceil(item_rows) * self.columns;
        threads.with_scratch(sums * length, |scratch| {
            let scratch: &mut [u32] = bytemuck::must_cast_slice_mut(scratch);
            let mut partial = scratch.chunks_exact_mut(length.max(1));
            let mut columns = Vec::new();
            let part = |(target, output): (_, &Output)| match (target, output) {
                (Target::Words(out), &Output::Columns { op, initial }) => {
                    columns.push((op, initial, out));
                    let partial = partial.next().unwrap_or_default();
                    partial.fill(op.identity());
                    Target::Words(partial)
                }
                (Target::Bytes(_), Output::Columns { .. }) => {
                    panic!("a result of columns has words")
                }
                (target, Output::Of(_)) => target,
            };
            let targets = targets.into_iter().zip(&self.outputs).map(part).collect();
            self.run_items(threads, item_rows, sources, targets);
            let mut partial = scratch.chunks_exact(length.max(1));
            for (op, initial, out) in columns {
                combine_rows(op, initial, partial.next().unwrap_or_default(), out);
            }
        });
    }

    fn run_items(
        &self,
        threads: &Threads,
        item_rows: usize,
        sources: &[Source<'_>],
        mut rest: Vec<Target<'_>>,
    ) {
        let arch = Arch::new();
        // About a nanosecond for four words.
        let elements = self.rows.saturating_mul(self.columns);
        let cost = (elements / 4).saturating_mul(self.code.len());
        let items = (0..self.rows).step_by(item_rows).map(|start| {
            let rows = start..(start + item_rows).min(self.rows);
            let words = |output: &Output| match output {
                Output::Of(Extent::Elements) => rows.len() * self.columns,
                Output::Of(Extent::Rows) => rows.len(),
                Output::Columns { .. } => self.columns,
            };
            let parts = rest.iter_mut().zip(&self.outputs);
            let targets = parts.map(|(target, output)| target.take(words(output)));
            Item {
                program: self,
                sources,
                targets: targets.collect(),
                rows,
            }
        });
        let sizes = |extent: &Extent| match extent {
            Extent::Elements => self.tile_rows().min(self.rows) * self.columns,
            Extent::Rows => self.tile_rows().min(self.rows),
        };
        let words = self.registers.iter().map(sizes).sum();
        threads.for_each(cost, items, |item: Item<'_, '_>| {
            threads.with_scratch(words, |scratch| {
                let mut rest: &mut [u32] = bytemuck::must_cast_slice_mut(scratch);
                let registers = self.registers.iter().map(|extent| {
                    let (register, next) = std::mem::take(&mut rest).split_at_mut(sizes(extent));
                    rest = next;
                    register
                });
                arch.dispatch(Tiles::new(item, registers.collect()));
            });
        });
    }

    fn tile_rows(&self) -> usize {
        let tile = REGISTERS / self.registers.len().max(1);
        let tile = tile.clamp(TILE.start, TILE.end) / UNROLLED * UNROLLED;
        (tile / self.columns.max(1)).max(1)
    }
}

/// A range of the rows.
struct Item<'p, 't> {
    program: &'p Program,
    sources: &'p [Source<'p>],
    rows: Range<usize>,
    targets: Vec<Target<'t>>,
}

/// A few rows.
struct Tile {
    rows: Range<usize>,
    /// The first row of the item, at which its results start.
    first: usize,
    columns: usize,
}

impl Tile {
    /// Positions of the words of an extent, in all of them.
    #[inline(always)]
    fn range(&self, extent: Extent) -> Range<usize> {
        match extent {
            Extent::Elements => self.rows.start * self.columns..self.rows.end * self.columns,
            Extent::Rows => self.rows.clone(),
        }
    }

    /// Number of words of an extent.
    #[inline(always)]
    fn len(&self, extent: Extent) -> usize {
        self.range(extent).len()
    }

    /// Position of the first word of an extent in the results of the item.
    #[inline(always)]
    fn offset(&self, extent: Extent) -> usize {
        let row = self.rows.start - self.first;
        match extent {
            Extent::Elements => row * self.columns,
            Extent::Rows => row,
        }
    }
}

/// An item, with its registers.
struct Tiles<'p, 't> {
    item: Item<'p, 't>,
    registers: Vec<&'t mut [u32]>,
    /// Registers that are a part of an operand, which is not copied.
    borrowed: Vec<Option<&'p [u32]>>,
}

impl WithSimd for Tiles<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        let Item {
            program, ref rows, ..
        } = self.item;
        let (rows, tile_rows) = (rows.clone(), program.tile_rows());
        for start in rows.clone().step_by(tile_rows) {
            let tile = Tile {
                rows: start..(start + tile_rows).min(rows.end),
                first: rows.start,
                columns: program.columns,
            };
            for instruction in &program.code {
                match *instruction {
                    Instruction::Store { x, target } => self.store(x, target, &tile),
                    Instruction::Load { into, view } => self.load(into, view, &tile),
                    instruction => self.compute(instruction, &tile),
                }
            }
        }
    }
}

impl<'p, 't> Tiles<'p, 't> {
    fn new(item: Item<'p, 't>, mut registers: Vec<&'t mut [u32]>) -> Self {
        for &(register, bits) in &item.program.constants {
            registers[register as usize].fill(bits);
        }
        for &(register, source, at) in &item.program.uniform {
            registers[register as usize].fill(item.sources[source].word(at));
        }
        let borrowed = vec![None; registers.len()];
        Tiles {
            item,
            registers,
            borrowed,
        }
    }

    #[inline(always)]
    fn get(&self, register: Register, count: usize) -> &[u32] {
        let register = register as usize;
        self.borrowed[register].unwrap_or_else(|| &self.registers[register][..count])
    }

    #[inline(always)]
    fn store(&mut self, x: Register, target: usize, tile: &Tile) {
        let output = self.item.program.outputs[target];
        let extent = match output {
            Output::Of(extent) => extent,
            Output::Columns { .. } => Extent::Elements,
        };
        let (register, count) = (x as usize, tile.len(extent));
        let words = self.borrowed[register].unwrap_or_else(|| &self.registers[register][..count]);
        match (output, &mut self.item.targets[target]) {
            (Output::Of(_), target) => target.write(tile.offset(extent), words),
            (Output::Columns { op, .. }, Target::Words(sums)) => {
                for row in words.chunks_exact(tile.columns.max(1)) {
                    accumulate(op, sums, row);
                }
            }
            (Output::Columns { .. }, Target::Bytes(_)) => {}
        }
    }

    #[inline(always)]
    fn load(&mut self, into: Register, view: usize, tile: &Tile) {
        let Item {
            program,
            sources,
            ref targets,
            ..
        } = self.item;
        let (source, view) = &program.views[view];
        let into = into as usize;
        let extent = program.registers[into];
        let range = tile.range(extent);
        let out = &mut self.registers[into][..range.len()];
        self.borrowed[into] = None;
        match sources[*source] {
            Source::Words(words) if view.is_line() => {
                let first = view.offset as usize + range.start;
                self.borrowed[into] = Some(&words[first..][..range.len()]);
            }
            Source::Words(words) => view.load(words, range, out, |word| word),
            Source::Bytes(bytes) => view.load(bytes, range, out, u32::from),
            Source::SignedBytes(bytes) => {
                view.load(bytes, range, out, |byte| byte as i8 as u32);
            }
            Source::InPlace(target) => match &targets[target] {
                Target::Words(words) => {
                    out.copy_from_slice(&words[tile.offset(extent)..][..range.len()]);
                }
                Target::Bytes(_) => panic!("a result that is computed in place has words"),
            },
        }
    }

    #[inline(always)]
    fn compute(&mut self, instruction: Instruction, tile: &Tile) {
        // The register that is written is taken out, so that the others can be read meanwhile.
        let into = match instruction {
            Instruction::Unary { into, .. }
            | Instruction::Binary { into, .. }
            | Instruction::Select { into, .. }
            | Instruction::Broadcast { into, .. }
            | Instruction::Reduce { into, .. } => into as usize,
            Instruction::Load { .. } | Instruction::Store { .. } => return,
        };
        self.borrowed[into] = None;
        let count = tile.len(self.item.program.registers[into]);
        let words = std::mem::take(&mut self.registers[into]);
        let out = &mut words[..count];
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
            Instruction::Broadcast { x, .. } => {
                let x = self.get(x, tile.len(Extent::Rows));
                let rows = out.chunks_exact_mut(tile.columns.max(1));
                rows.zip(x).for_each(|(out, &word)| out.fill(word));
            }
            Instruction::Reduce { op, initial, x, .. } => {
                let x = self.get(x, tile.len(Extent::Elements));
                for (row, out) in out.iter_mut().enumerate() {
                    *out = reduce_row(op, initial, &x[row * tile.columns..][..tile.columns]);
                }
            }
            Instruction::Load { .. } | Instruction::Store { .. } => {}
        }
        self.registers[into] = words;
    }
}
