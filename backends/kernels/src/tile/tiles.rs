//! Tiles of an item of work, and the registers of each.

use std::{hint::select_unpredictable, ops::Range};

use bytemuck::{cast_slice, cast_slice_mut, must_cast_slice_mut};
use pulp::{Simd, WithSimd};

use super::{
    Extent, Format, Instruction, Operation, Output, Program, Register, Source, Target,
    operation::{
        binary, binary_wide, compare, compare_wide, convert, odd, odd_binary, shorten, unary,
        unary_wide, widen,
    },
};
use crate::{Accumulate, Word, reduce::reduce_row};

/// A range of the rows.
pub(super) struct Item<'p, 't> {
    pub(super) program: &'p Program,
    pub(super) sources: &'p [Source<'p>],
    pub(super) rows: Range<usize>,
    pub(super) targets: Vec<Target<'t>>,
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
pub(super) struct Tiles<'p, 't> {
    item: Item<'p, 't>,
    registers: Vec<&'t mut [u64]>,
    /// Registers that are a part of an operand, which is not copied.
    borrowed: Vec<Option<&'p [u8]>>,
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
                    Instruction::Apply { op, into, operands } => {
                        self.apply(op, into as usize, operands, &tile);
                    }
                }
            }
        }
    }
}

impl<'p, 't> Tiles<'p, 't> {
    pub(super) fn new(item: Item<'p, 't>, mut registers: Vec<&'t mut [u64]>) -> Self {
        let uniform = item.program.uniform.iter();
        let uniform =
            uniform.map(|&(register, source, at)| (register, item.sources[source].word(at)));
        for (register, word) in item.program.constants.iter().copied().chain(uniform) {
            let register = register as usize;
            if item.program.registers[register].is_wide {
                registers[register].fill(word);
            } else {
                must_cast_slice_mut(registers[register]).fill(word as u32);
            }
        }
        let borrowed = vec![None; registers.len()];
        Tiles {
            item,
            registers,
            borrowed,
        }
    }

    /// The first words of a register.
    #[inline(always)]
    fn get<W: Word>(&self, register: Register, count: usize) -> &[W] {
        let register = register as usize;
        match self.borrowed[register] {
            Some(bytes) => cast_slice(bytes),
            None => &cast_slice(self.registers[register])[..count],
        }
    }

    #[inline(always)]
    fn store(&mut self, x: Register, target: usize, tile: &Tile) {
        let output = self.item.program.outputs[target];
        let format = self.item.targets[target].format;
        let mut bytes = std::mem::take(&mut self.item.targets[target].bytes);
        match output {
            Output::Of(extent) => {
                let count = tile.len(extent);
                let out = &mut bytes[tile.offset(extent) * format.size()..];
                let out = &mut out[..count * format.size()];
                if format.is_wide() {
                    format.store(cast_slice(self.get::<u64>(x, count)), out);
                } else {
                    format.store(cast_slice(self.get::<u32>(x, count)), out);
                }
            }
            Output::Columns { op, .. } if format.is_wide() => {
                self.accumulate::<u64>(op, x, cast_slice_mut(bytes), tile);
            }
            Output::Columns { op, .. } => {
                self.accumulate::<u32>(op, x, cast_slice_mut(bytes), tile);
            }
        }
        std::mem::swap(&mut self.item.targets[target].bytes, &mut bytes);
    }

    #[inline(always)]
    fn accumulate<W: Word>(&self, op: Accumulate, x: Register, sums: &mut [W], tile: &Tile) {
        let words = self.get::<W>(x, tile.len(Extent::Elements));
        for row in words.chunks_exact(tile.columns.max(1)) {
            W::accumulate(op, sums, row);
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
        let extent = program.registers[into].extent;
        let range = tile.range(extent);
        self.borrowed[into] = None;
        let out = &mut *self.registers[into];
        match sources[*source] {
            Source::Memory(format, bytes) if view.is_line() => {
                let size = format.size();
                let first = (view.offset as usize + range.start) * size;
                let bytes = &bytes[first..][..range.len() * size];
                if matches!(format, Format::Word | Format::Wide) {
                    self.borrowed[into] = Some(bytes);
                } else {
                    format.load_line(bytes, out);
                }
            }
            Source::Memory(format, bytes) => format.load(view, bytes, range, out),
            Source::InPlace(format, target) => {
                let size = format.size();
                let first = tile.offset(extent) * size;
                format.load_line(&targets[target].bytes[first..][..range.len() * size], out);
            }
        }
    }

    #[inline(always)]
    fn apply(&mut self, op: Operation, into: usize, operands: [Register; 3], tile: &Tile) {
        // The register that is written is taken out, so that the others can be read meanwhile.
        self.borrowed[into] = None;
        let kind = self.item.program.registers[into];
        let count = tile.len(kind.extent);
        let words = std::mem::take(&mut self.registers[into]);
        if kind.is_wide {
            self.apply_wide(op, &mut words[..count], operands, tile);
        } else {
            let out = &mut must_cast_slice_mut(words)[..count];
            self.apply_word(op, out, operands, tile);
        }
        self.registers[into] = words;
    }

    #[inline(always)]
    fn apply_word(&self, op: Operation, out: &mut [u32], registers: [Register; 3], tile: &Tile) {
        let [x, y, z] = registers;
        let count = out.len();
        match op {
            Operation::Unary(op) => unary(op, out, self.get(x, count)),
            Operation::Binary(op) => binary(op, out, self.get(x, count), self.get(y, count)),
            Operation::Odd(op) => odd(op, out, self.get(x, count)),
            Operation::OddBinary(op) => {
                odd_binary(op, out, self.get(x, count), self.get(y, count));
            }
            Operation::Convert(op) => convert(op, out, self.get(x, count)),
            Operation::Shorten(op) => shorten(op, out, self.get(x, count)),
            Operation::Compare(op) => {
                if self.item.program.registers[x as usize].is_wide {
                    compare_wide(op, out, self.get(x, count), self.get(y, count));
                } else {
                    compare(op, out, self.get(x, count), self.get(y, count));
                }
            }
            Operation::Widen(_) => panic!("widened words have a wide register"),
            op => self.arrange(op, out, [x, y, z], tile),
        }
    }

    #[inline(always)]
    fn apply_wide(&self, op: Operation, out: &mut [u64], registers: [Register; 3], tile: &Tile) {
        let [x, y, z] = registers;
        let count = out.len();
        match op {
            Operation::Unary(op) => unary_wide(op, out, self.get(x, count)),
            Operation::Binary(op) => binary_wide(op, out, self.get(x, count), self.get(y, count)),
            Operation::Widen(op) => widen(op, out, self.get(x, count)),
            Operation::Odd(_)
            | Operation::OddBinary(_)
            | Operation::Convert(_)
            | Operation::Shorten(_)
            | Operation::Compare(_) => panic!("{op:?} has no wide register"),
            op => self.arrange(op, out, [x, y, z], tile),
        }
    }

    /// Operations of both widths that are the same for all types.
    #[inline(always)]
    fn arrange<W: Word>(
        &self,
        op: Operation,
        out: &mut [W],
        registers: [Register; 3],
        tile: &Tile,
    ) {
        let [x, y, z] = registers;
        let count = out.len();
        match op {
            Operation::Select => {
                let condition = self.get::<u32>(x, count);
                let [x, y] = [y, z].map(|register| self.get::<W>(register, count));
                // An `if` is compiled to a selection of addresses, from which elements are gathered.
                for (((out, condition), &x), &y) in out.iter_mut().zip(condition).zip(x).zip(y) {
                    *out = select_unpredictable(*condition != 0, x, y);
                }
            }
            Operation::Broadcast => {
                let x = self.get::<W>(x, tile.len(Extent::Rows));
                let rows = out.chunks_exact_mut(tile.columns.max(1));
                rows.zip(x).for_each(|(out, &word)| out.fill(word));
            }
            Operation::Reduce { op, initial } => {
                let x = self.get::<W>(x, tile.len(Extent::Elements));
                let initial = W::from_word(initial);
                for (row, out) in out.iter_mut().enumerate() {
                    *out = reduce_row(op, initial, &x[row * tile.columns..][..tile.columns]);
                }
            }
            _ => {}
        }
    }
}
