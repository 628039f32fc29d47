//! Attention and its gradient, in blocks of queries and source positions.
//!
//! No more scores are held than those of a block: the forward pass keeps the largest score and the
//! sum of exponentials of each query (Milakov and Gimelshein, "Online normalizer calculation for
//! softmax", 2018), the backward pass recomputes the weights (Dao, "FlashAttention-2", 2023).
//! Blocks that a causal mask excludes are skipped, and so are the positions after the last one that
//! a block of queries attends to.
//!
//! Other masked positions have weight 0. As in other implementations, a NaN or infinity there is
//! multiplied by it, and may make results of its block NaN.

mod backward;
mod forward;
mod geometry;
mod rows;

pub use self::{
    backward::AttentionBackward,
    geometry::{AttentionError, AttentionGeometry},
};
use crate::{
    Axis, Operand, Threads,
    gemm::{Panels, Rows},
};

/// Most queries of a block: a multiple of the rows of the innermost kernels.
const QUERIES: usize = 96;
/// Most source positions of a block.
const POSITIONS: usize = 256;

/// Attention of one geometry, with the positions that its products read.
///
/// ```
/// use halite_kernels::{Attention, AttentionGeometry, Threads};
///
/// let attention = Attention::new(AttentionGeometry {
///     batch: 1,
///     time: 2,
///     source: 2,
///     heads: 1,
///     kv_heads: 1,
///     width: 1,
///     value_width: 1,
///     causal: true,
/// })?;
/// let (q, k, v) = ([0.0, 0.0], [1.0, 2.0], [3.0, 5.0]);
/// let (mut out, mut log_sums) = ([0.0; 2], [0.0; 2]);
/// attention.forward(&Threads::new(1)?, &q, &k, &v, &mut out, &mut log_sums);
/// // The first query attends to one position, the second to both alike.
/// assert_eq!(out, [3.0, 4.0]);
/// assert_eq!(log_sums, [0.0, 2.0f32.ln()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Attention {
    geometry: AttentionGeometry,
    /// Most queries and source positions of a block.
    block: [usize; 2],
    axes: Axes,
}

/// Positions in the tensors and in blocks.
#[derive(Debug)]
struct Axes {
    /// Rows of a block of queries, of the result, of keys and of values.
    queries: Axis,
    results: Axis,
    keys: Axis,
    values: Axis,
    /// Rows and columns of a block of scores.
    score_rows: Axis,
    score_columns: Axis,
    /// Features of queries and keys, and of values.
    width: Axis,
    value_width: Axis,
}

impl Attention {
    /// Prepares attention.
    ///
    /// # Errors
    /// If the number of key heads is zero or does not divide that of heads, or a tensor is too
    /// large.
    pub fn new(geometry: AttentionGeometry) -> Result<Self, AttentionError> {
        // Smaller blocks of queries exclude more of the positions that a causal mask does.
        let is_short = geometry.causal && geometry.source <= 2 * POSITIONS;
        let queries = if is_short { QUERIES / 2 } else { QUERIES };
        Attention::with_blocks(geometry, [queries, POSITIONS])
    }

    /// As [`new`](Self::new), with these most queries and source positions of a block.
    fn with_blocks(geometry: AttentionGeometry, most: [usize; 2]) -> Result<Self, AttentionError> {
        geometry.check()?;
        let AttentionGeometry {
            time,
            source,
            heads,
            kv_heads,
            width,
            value_width,
            ..
        } = geometry;
        let block = [time.min(most[0]), source.min(most[1])];
        let axis = |count: usize, stride: usize| {
            Axis::new((0..count).map(|at| (at * stride) as u32).collect())
        };
        let axes = Axes {
            queries: axis(block[0], heads * width),
            results: axis(block[0], heads * value_width),
            keys: axis(block[1], kv_heads * width),
            values: axis(block[1], kv_heads * value_width),
            score_rows: axis(block[0], block[1]),
            score_columns: axis(block[1], 1),
            width: axis(width, 1),
            value_width: axis(value_width, 1),
        };
        Ok(Attention {
            geometry,
            block,
            axes,
        })
    }

    /// Sizes of the attention.
    pub fn geometry(&self) -> &AttentionGeometry {
        &self.geometry
    }

    /// The blocks of queries: index of the first, and their number.
    fn query_blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        blocks(self.geometry.time, self.block[0])
    }

    /// The blocks of the source: index of the first position, and their number.
    fn source_blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        blocks(self.geometry.source, self.block[1])
    }

    /// Number of source positions, the first ones, that a query attends to.
    fn allowed(&self, query: usize) -> usize {
        let AttentionGeometry {
            time,
            source,
            causal,
            ..
        } = self.geometry;
        if causal {
            (query + 1 + source).saturating_sub(time).min(source)
        } else {
            source
        }
    }

    /// A block of queries of a head.
    fn queries<'a>(&'a self, q: &'a [f32], batch: usize, head: usize, first: usize) -> Operand<'a> {
        let AttentionGeometry {
            time, heads, width, ..
        } = self.geometry;
        Operand {
            data: q,
            offset: ((batch * time + first) * heads + head) * width,
            rows: &self.axes.queries,
            columns: &self.axes.width,
        }
    }

    /// A block of rows of the result of a head, or of its gradient.
    fn results<'a>(&'a self, g: &'a [f32], batch: usize, head: usize, first: usize) -> Operand<'a> {
        let AttentionGeometry {
            time,
            heads,
            value_width,
            ..
        } = self.geometry;
        Operand {
            data: g,
            offset: ((batch * time + first) * heads + head) * value_width,
            rows: &self.axes.results,
            columns: &self.axes.value_width,
        }
    }

    /// A block of keys of a head: `[positions, width]`.
    fn keys<'a>(&'a self, k: &'a [f32], batch: usize, head: usize, first: usize) -> Operand<'a> {
        let AttentionGeometry {
            source,
            kv_heads,
            width,
            ..
        } = self.geometry;
        Operand {
            data: k,
            offset: ((batch * source + first) * kv_heads + head) * width,
            rows: &self.axes.keys,
            columns: &self.axes.width,
        }
    }

    /// A block of values of a head: `[positions, value_width]`.
    fn values<'a>(&'a self, v: &'a [f32], batch: usize, head: usize, first: usize) -> Operand<'a> {
        let AttentionGeometry {
            source,
            kv_heads,
            value_width,
            ..
        } = self.geometry;
        Operand {
            data: v,
            offset: ((batch * source + first) * kv_heads + head) * value_width,
            rows: &self.axes.values,
            columns: &self.axes.value_width,
        }
    }

    /// A block of scores or weights.
    fn scores<'a>(&'a self, scores: &'a [f32]) -> Operand<'a> {
        Operand {
            data: scores,
            offset: 0,
            rows: &self.axes.score_rows,
            columns: &self.axes.score_columns,
        }
    }

    /// An estimate of the time of `products` products for each query and source position of `parts`
    /// heads.
    fn nanoseconds(&self, parts: usize, products: usize) -> usize {
        let AttentionGeometry {
            time,
            source,
            width,
            ..
        } = self.geometry;
        let sizes = [parts, time, source, width + 8, products];
        sizes.into_iter().fold(1, usize::saturating_mul) / 64
    }

    /// Calls `work` with the parts of each batch element: in turns if there are fewer than threads,
    /// which share the heads then; else one on each thread.
    fn for_each_batch<T: Send>(
        &self,
        threads: &Threads,
        products: usize,
        parts: impl Iterator<Item = T>,
        work: impl Fn(&Threads, usize, T) + Send + Sync,
    ) {
        let AttentionGeometry { batch, heads, .. } = self.geometry;
        let parts = parts.enumerate();
        if batch < threads.count() {
            return parts.for_each(|(batch, part)| work(threads, batch, part));
        }
        let serial = threads.serial();
        let cost = self.nanoseconds(batch * heads, products);
        threads.for_each(cost, parts, |(batch, part)| work(&serial, batch, part));
    }
}

fn blocks(count: usize, block: usize) -> impl Iterator<Item = (usize, usize)> {
    let firsts = (0..count).step_by(block.max(1));
    firsts.map(move |first| (first, block.min(count - first)))
}

/// The matrix with rows and columns exchanged.
fn transposed(operand: Operand<'_>) -> Operand<'_> {
    Operand {
        rows: operand.columns,
        columns: operand.rows,
        ..operand
    }
}

/// `count` equal parts of a slice.
fn parts<T>(slice: &mut [T], count: usize) -> impl Iterator<Item = &mut [T]> {
    let length = slice.len().checked_div(count).unwrap_or(0);
    let mut rest = slice;
    (0..count).map(move |_| {
        let (part, next) = std::mem::take(&mut rest).split_at_mut(length);
        rest = next;
        part
    })
}

/// A right matrix, packed.
struct Right<'p> {
    panels: Panels,
    packed: &'p [f32],
}

impl<'p> Right<'p> {
    fn len(terms: usize, columns: usize) -> usize {
        Panels::new(terms, 0..columns).len()
    }

    /// Packs the first terms and columns of a matrix into memory that is taken from `memory`.
    fn pack(
        threads: &Threads,
        b: Operand<'_>,
        dims: [usize; 2],
        memory: &mut &'p mut [f32],
    ) -> Self {
        let [terms, columns] = dims;
        let panels = Panels::new(terms, 0..columns);
        let (packed, rest) = std::mem::take(memory).split_at_mut(panels.len());
        *memory = rest;
        panels.pack(threads, b, packed);
        Right { panels, packed }
    }

    /// Computes rows of a product with the first terms and columns, or adds it to them.
    fn multiply(
        &self,
        threads: &Threads,
        a: Operand<'_>,
        dims: [usize; 2],
        out: &mut [f32],
        length: usize,
        accumulate: bool,
    ) {
        let [terms, columns] = dims;
        if out.is_empty() {
            return;
        }
        if terms == 0 {
            if !accumulate {
                out.fill(0.0);
            }
            return;
        }
        let rows = Rows {
            out,
            length,
            first: 0,
            accumulate,
        };
        (self.panels).multiply_first(threads, a, self.packed, rows, [terms, columns]);
    }
}

#[cfg(test)]
mod tests;
