//! Right matrices of products, packed into panels.

use std::ops::Range;

use pulp::Arch;

use super::{
    DEPTH, Operand,
    block::{Block, PanelWidth, pack_panel, packed_rows},
};
use crate::{Element, Threads};

/// Arrangement of some rows and columns of a right matrix in panels: blocks of rows, outermost, of
/// panels of columns. All blocks but the last have `depth` rows.
#[derive(Clone, Debug)]
pub(crate) struct Panels {
    pub(crate) terms: Range<usize>,
    pub(crate) columns: Range<usize>,
    pub(crate) depth: usize,
}

/// Rows of a result of [`Panels::multiply`].
pub(crate) struct Rows<'o> {
    pub(crate) out: &'o mut [f32],
    /// Elements of a row; the product has the columns of the panels.
    pub(crate) length: usize,
    /// Index of the first in the left matrix.
    pub(crate) first: usize,
    /// Whether the product is added to what is there.
    pub(crate) accumulate: bool,
}

impl<'o> Rows<'o> {
    /// All rows of a result that is not read.
    pub(crate) fn all(out: &'o mut [f32], length: usize) -> Self {
        Rows {
            out,
            length,
            first: 0,
            accumulate: false,
        }
    }
}

/// Depth of the blocks of some terms: equal, because a block of few terms would update the whole
/// result for little work.
pub(crate) fn block_depth(terms: usize) -> usize {
    terms.div_ceil(terms.div_ceil(DEPTH).max(1))
}

impl Panels {
    /// All terms, in blocks of equal depth.
    pub(crate) fn new(terms: usize, columns: Range<usize>) -> Self {
        Panels {
            terms: 0..terms,
            columns,
            depth: block_depth(terms),
        }
    }

    /// Number of elements of all panels.
    pub(crate) fn len(&self) -> usize {
        self.packed_columns() * self.terms.len()
    }

    /// Columns of a panel.
    fn width(&self) -> usize {
        Arch::new().dispatch(PanelWidth(self.columns.len()))
    }

    /// Columns of all panels, some of the last of which may be unused.
    fn packed_columns(&self) -> usize {
        self.columns.len().next_multiple_of(self.width())
    }

    /// Ranges of terms of the blocks.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (end, depth) = (self.terms.end, self.depth.max(1));
        let starts = self.terms.clone().step_by(depth);
        starts.map(move |start| start..(start + depth).min(end))
    }

    /// Packs the columns of a matrix.
    pub(crate) fn pack<T: Element>(
        &self,
        threads: &Threads,
        b: Operand<'_, T>,
        packed: &mut [f32],
    ) {
        let (cost, width, packed_columns) = (packed.len() / 2, self.width(), self.packed_columns());
        let mut rest = packed;
        let panels = self.blocks().flat_map(|terms| {
            let size = packed_columns * terms.len();
            let (block, next) = std::mem::take(&mut rest).split_at_mut(size);
            rest = next;
            let panels = block.chunks_exact_mut(width * terms.len());
            let first_columns = self.columns.clone().step_by(width);
            panels
                .zip(first_columns)
                .map(move |(panel, first)| (panel, first, terms.clone()))
        });
        threads.for_each(cost, panels, |(panel, first, terms)| {
            let columns = first..(first + width).min(self.columns.end);
            pack_panel(b, terms, columns, width, panel);
        });
    }

    /// Computes rows of the product of a matrix and the packed one, on the calling thread.
    pub(crate) fn multiply(
        &self,
        threads: &Threads,
        a: Operand<'_>,
        packed: &[f32],
        rows: Rows<'_>,
    ) {
        self.multiply_first(threads, a, packed, rows, [self.terms.end, self.columns.end]);
    }

    /// Computes rows of the product of the terms and columns before these ends.
    pub(crate) fn multiply_first(
        &self,
        threads: &Threads,
        a: Operand<'_>,
        packed: &[f32],
        rows: Rows<'_>,
        last: [usize; 2],
    ) {
        let [last_term, last_column] = last;
        let (arch, packed_columns) = (Arch::new(), self.packed_columns());
        let columns = self.columns.start..self.columns.end.min(last_column);
        let Rows {
            out,
            length,
            first,
            accumulate,
        } = rows;
        threads.with_scratch(packed_rows(a, out.len() / length, self.depth), |groups| {
            let mut rest = packed;
            for depth in self.blocks() {
                let (packed, next) = rest.split_at(packed_columns * depth.len());
                rest = next;
                let packed_depth = depth.len();
                let depth = depth.start..depth.end.min(last_term);
                if depth.is_empty() {
                    break;
                }
                arch.dispatch(Block {
                    a,
                    first_row: first,
                    columns: columns.clone(),
                    panel_columns: self.width(),
                    is_first: depth.start == self.terms.start && !accumulate,
                    packed_depth,
                    depth,
                    packed,
                    groups: &mut *groups,
                    out: &mut *out,
                    row_length: length,
                });
            }
        });
    }
}
