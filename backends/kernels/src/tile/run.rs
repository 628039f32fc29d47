//! Runs of programs: items of work for threads.

use std::ops::Range;

use bytemuck::{cast_slice_mut, must_cast_slice, must_cast_slice_mut};
use pulp::Arch;

use super::{
    Extent, Kind, Output, Program, Source, Target,
    tiles::{Item, Tiles},
};
use crate::{Accumulate, Threads, Word, reduce::combine_rows};

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
    /// If a view or uniform register reads beyond its operand, an operand or result is not aligned
    /// for its format, a register, view, operand or result does not exist, a register has not the
    /// width of its operation, view or result, or a result has not the length of its [`Output`].
    pub fn run(&self, threads: &Threads, sources: &[Source<'_>], targets: Vec<Target<'_>>) {
        let tile_rows = self.tile_rows();
        let tiles = ITEM.div_ceil(tile_rows * self.columns.max(1));
        let item_rows = tile_rows * tiles;
        let has_columns = (self.outputs.iter()).any(|it| matches!(it, Output::Columns { .. }));
        if (1..=item_rows).contains(&self.rows) && !has_columns {
            let rows = 0..self.rows;
            let item = Item {
                program: self,
                sources,
                targets,
                rows,
            };
            return self.run_item(threads, tile_rows, item);
        }
        // For each result of columns, a row of each item.
        let length = self.rows.div_ceil(item_rows) * self.columns;
        let words = |(target, output): (&Target<'_>, &Output)| match output {
            Output::Columns { .. } => (length * target.format.size()).div_ceil(size_of::<u64>()),
            Output::Of(_) => 0,
        };
        let scratch: usize = targets.iter().zip(&self.outputs).map(words).sum();
        threads.with_words(scratch, |scratch| {
            let mut rest = &mut *scratch;
            let mut columns = Vec::new();
            let mut parts = Vec::with_capacity(targets.len());
            for (target, output) in targets.into_iter().zip(&self.outputs) {
                let Output::Columns { op, initial } = *output else {
                    parts.push(target);
                    continue;
                };
                let format = target.format;
                let count = words((&target, output));
                let (sums, next) = std::mem::take(&mut rest).split_at_mut(count);
                rest = next;
                columns.push((op, initial, target, count));
                let bytes = &mut must_cast_slice_mut(sums)[..length * format.size()];
                if format.is_wide() {
                    fill::<u64>(op, bytes);
                } else {
                    fill::<u32>(op, bytes);
                }
                parts.push(Target { format, bytes });
            }
            self.run_items(threads, item_rows, sources, parts);
            let mut rest = &*scratch;
            for (op, initial, Target { format, bytes }, count) in columns {
                let (sums, next) = rest.split_at(count);
                rest = next;
                if format.is_wide() {
                    combine_rows(op, initial, &sums[..length], cast_slice_mut(bytes));
                } else {
                    let sums = &must_cast_slice::<_, u32>(sums)[..length];
                    combine_rows(op, initial as u32, sums, cast_slice_mut(bytes));
                }
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
        let tile_rows = self.tile_rows();
        threads.for_each(cost, items, |item: Item<'_, '_>| {
            self.run_item(threads, tile_rows, item);
        });
    }

    fn run_item(&self, threads: &Threads, tile_rows: usize, item: Item<'_, '_>) {
        let rows = tile_rows.min(self.rows);
        let sizes = |kind: &Kind| {
            let words = match kind.extent {
                Extent::Elements => rows * self.columns,
                Extent::Rows => rows,
            };
            if kind.is_wide {
                words
            } else {
                words.div_ceil(2)
            }
        };
        let words = self.registers.iter().map(sizes).sum();
        threads.with_words(words, |mut rest| {
            let registers = self.registers.iter().map(|kind| {
                let (register, next) = std::mem::take(&mut rest).split_at_mut(sizes(kind));
                rest = next;
                register
            });
            Arch::new().dispatch(Tiles::new(item, registers.collect()));
        });
    }

    pub(super) fn tile_rows(&self) -> usize {
        let wide = self.registers.iter().filter(|kind| kind.is_wide).count();
        let tile = REGISTERS / (self.registers.len() + wide).max(1);
        let tile = tile.clamp(TILE.start, TILE.end) / UNROLLED * UNROLLED;
        (tile / self.columns.max(1)).max(1)
    }
}

/// Writes the word that changes no other.
fn fill<W: Word>(op: Accumulate, bytes: &mut [u8]) {
    cast_slice_mut(bytes).fill(W::identity(op));
}
