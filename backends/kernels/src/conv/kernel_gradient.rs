//! The gradient of the kernel: sums over the positions of the result.

use pulp::Arch;

use super::{
    narrow,
    pass::{Item, Pass, Product},
    right::{Packing, Right},
};
use crate::{
    Element, Operand, Threads,
    gemm::{Panels, Rows},
};

/// Most parts of the positions that are summed on their own, for more threads and less rounding.
const PARTS: usize = 16;
/// Most elements of the sums of all parts: four megabytes.
const MOST_SUMS: usize = 1 << 20;

/// Sums over the positions of some items, or some of their rows.
pub(super) struct Part<'s> {
    /// Items, and the positions of their first elements in the gradient of the result.
    pub(super) items: &'s [(Item, usize)],
    pub(super) first_row: usize,
    pub(super) out: &'s mut [f32],
}

/// Calls `work` with parts of the sums over the items of a pass, and adds these. A part has at most
/// a number of rows of as many elements as the target has features; each can be computed in
/// `blocks` of rows.
pub(super) fn in_parts(
    pass: &Pass,
    threads: &Threads,
    out: &mut [f32],
    rows: Option<usize>,
    work: impl Fn(&Threads, Part<'_>) + Send + Sync,
) {
    let items = pass.items();
    if pass.products.is_empty() || items.is_empty() || out.is_empty() {
        return out.fill(0.0);
    }
    let mut position = 0;
    let items = items.into_iter().map(|item| {
        let start = position;
        position += pass.target_len(item);
        (item, start)
    });
    let items: Vec<_> = items.collect();
    // The parts depend on nothing but the sizes: every number of threads adds in the same order.
    let length = out.len();
    let parts = (MOST_SUMS / length).clamp(1, PARTS);
    let items_of_part = items.len().div_ceil(parts);
    let parts = items.len().div_ceil(items_of_part);
    let blocks = match threads.count() {
        1 => 1,
        count => (2 * count).div_ceil(parts),
    };
    let rows = rows.map(|rows| rows.div_ceil(blocks).next_multiple_of(8));
    let block = rows.map_or(length, |rows| rows * pass.target_features);
    let serial = threads.serial();
    threads.with_scratch(length * (parts - 1), |others| {
        let others_of_parts = others.chunks_exact_mut(length);
        let all = std::iter::once(&mut *out).chain(others_of_parts);
        let all = all.zip(items.chunks(items_of_part));
        let parts = all.flat_map(|(out, items)| {
            let blocks = out.chunks_mut(block).enumerate();
            blocks.map(move |(number, out)| Part {
                items,
                first_row: number * rows.unwrap_or(0),
                out,
            })
        });
        threads.for_each(pass.nanoseconds(), parts, |part| work(&serial, part));
        for part in others.chunks_exact(length) {
            out.iter_mut().zip(part).for_each(|(out, sum)| *out += sum);
        }
    });
}

impl Pass {
    /// Computes the gradient of the kernel in `f32`, of a pass of the result.
    pub(super) fn kernel_gradient<T: Element>(
        &self,
        threads: &Threads,
        x: &[T],
        g: &[T],
        out: &mut [f32],
    ) {
        let length = self.target_features;
        let rows = out.len() / length.max(1);
        // A narrow product has all rows of a part.
        let blocks = |rows: usize| (!self.is_narrow()).then_some(rows);
        if let [product] = &self.products[..]
            && product.terms.len() == rows
        {
            return in_parts(self, threads, out, blocks(rows), |serial, part| {
                self.sum_part(serial, product, (x, g), part);
            });
        }
        // Each product has some taps of a dilated input.
        out.fill(0.0);
        for product in &self.products {
            threads.with_scratch(product.terms.len() * length, |sums| {
                let rows = product.terms.len();
                in_parts(self, threads, sums, blocks(rows), |serial, part| {
                    self.sum_part(serial, product, (x, g), part);
                });
                for (term, sums) in sums.chunks_exact(length.max(1)).enumerate() {
                    out[product.kernel_terms.at(term)..][..length].copy_from_slice(sums);
                }
            });
        }
    }

    fn sum_part<T: Element>(
        &self,
        threads: &Threads,
        product: &Product,
        operands: (&[T], &[T]),
        part: Part<'_>,
    ) {
        let (x, g) = operands;
        let mut is_first = true;
        for &(item, start) in part.items {
            let g = &g[start..][..self.target_len(item)];
            if product.rows_of(item) == 0 {
                continue;
            }
            self.with_source(threads, item, x, |x, first| {
                T::with_f32(threads, g, |g| {
                    let rows = Rows {
                        out: &mut *part.out,
                        length: self.target_features,
                        first: part.first_row,
                        accumulate: !is_first,
                    };
                    self.add_item(threads, product, product.rows_of(item), (x, first), g, rows);
                });
            });
            is_first = false;
        }
        if is_first {
            part.out.fill(0.0);
        }
    }

    /// Adds the sums over the positions of an item.
    fn add_item(
        &self,
        threads: &Threads,
        product: &Product,
        windows: usize,
        from: (&[f32], usize),
        g: &[f32],
        rows: Rows<'_>,
    ) {
        let (x, first) = from;
        let patches = Operand {
            data: x,
            offset: first + product.offset,
            rows: &product.terms,
            columns: &product.rows,
        };
        if self.is_narrow() {
            return Arch::new().dispatch(narrow::Transposed {
                patches,
                windows,
                features: self.source_features,
                g,
                g_rows: &product.target_rows,
                columns: self.target_features,
                rows,
            });
        }
        let panels = self.panels(windows);
        let g = Operand {
            data: g,
            offset: 0,
            rows: &product.target_rows,
            columns: &self.target_columns,
        };
        let packed_len = panels.iter().map(Panels::len).sum();
        threads.with_scratch(packed_len, |packed| {
            let (right, _) = Right::pack(threads, g, Packing::Panels(panels), packed);
            right.multiply(threads, patches, self.source_features / self.groups, rows);
        });
    }
}
