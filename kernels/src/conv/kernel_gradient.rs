//! The gradient of the kernel: sums over the positions of the result.

use super::{
    Convolution,
    pass::{Item, Product},
    right::Right,
};
use crate::{
    Element, Operand, Threads,
    gemm::{Panels, Rows},
};

/// Most parts of the positions that are summed on their own, for more threads and less rounding.
const PARTS: usize = 16;
/// Most elements of the sums of all parts: four megabytes.
const MOST_SUMS: usize = 1 << 20;

/// Sums of some rows of the gradient over the positions of some items.
struct Sums<'s> {
    items: &'s [(Item, usize)],
    first_row: usize,
    out: &'s mut [f32],
}

impl Convolution {
    /// Computes the gradient of the kernel in `f32`.
    pub(super) fn sum_kernel_gradient<T: Element>(
        &self,
        threads: &Threads,
        x: &[T],
        g: &[T],
        out: &mut [f32],
    ) {
        let [product] = &self.positions.products[..] else {
            return out.fill(0.0);
        };
        if g.is_empty() || out.is_empty() {
            return out.fill(0.0);
        }
        let mut position = 0;
        let items = self.positions.items().into_iter().map(|item| {
            let start = position;
            position += self.positions.target_len(item);
            (item, start)
        });
        let items: Vec<_> = items.collect();
        // The parts depend on nothing but the sizes: every number of threads adds in the same
        // order.
        let (length, outputs) = (out.len(), self.geometry.outputs);
        let parts = (MOST_SUMS / length).clamp(1, PARTS);
        let items_of_part = items.len().div_ceil(parts);
        let parts = items.len().div_ceil(items_of_part);
        let blocks = match threads.count() {
            1 => 1,
            count => (2 * count).div_ceil(parts),
        };
        let rows = product.terms.len().div_ceil(blocks).next_multiple_of(8);
        let serial = threads.serial();
        threads.with_scratch(length * (parts - 1), |others| {
            let others_of_parts = others.chunks_exact_mut(length);
            let all = std::iter::once(&mut *out).chain(others_of_parts);
            let all = all.zip(items.chunks(items_of_part));
            let sums = all.flat_map(|(out, items)| {
                let blocks = out.chunks_mut(rows * outputs).enumerate();
                blocks.map(move |(number, out)| Sums {
                    items,
                    first_row: number * rows,
                    out,
                })
            });
            threads.for_each(self.positions.nanoseconds(), sums, |sums| {
                self.sum_part(&serial, product, (x, g), sums);
            });
            for part in others.chunks_exact(length) {
                out.iter_mut().zip(part).for_each(|(out, sum)| *out += sum);
            }
        });
    }

    fn sum_part<T: Element>(
        &self,
        threads: &Threads,
        product: &Product,
        (x, g): (&[T], &[T]),
        sums: Sums<'_>,
    ) {
        let Sums {
            items,
            first_row,
            out,
        } = sums;
        for (number, &(item, start)) in items.iter().enumerate() {
            let g = &g[start..][..self.positions.target_len(item)];
            self.positions.with_source(threads, item, x, |x, first| {
                T::with_f32(threads, g, |g| {
                    let rows = Rows {
                        out: &mut *out,
                        length: self.geometry.outputs,
                        first: first_row,
                        accumulate: number > 0,
                    };
                    self.add_item(threads, product, (x, first), g, rows);
                });
            });
        }
    }

    /// Adds the sums over the positions of an item.
    fn add_item(
        &self,
        threads: &Threads,
        product: &Product,
        (x, first): (&[f32], usize),
        g: &[f32],
        rows: Rows<'_>,
    ) {
        let pass = &self.positions;
        let windows = g.len() / self.geometry.outputs;
        let panels = pass.panels(windows);
        let patches = Operand {
            data: x,
            offset: first + product.offset,
            rows: &product.terms,
            columns: &product.rows,
        };
        let g = Operand {
            data: g,
            offset: 0,
            rows: &self.result_rows,
            columns: &self.result_columns,
        };
        let packed_len = panels.iter().map(Panels::len).sum();
        threads.with_scratch(packed_len, |packed| {
            let (right, _) = Right::pack(threads, g, windows, panels, packed);
            right.multiply(threads, patches, pass.source_features / pass.groups, rows);
        });
    }
}
