//! The forward pass.

use super::{
    Attention, AttentionGeometry, Right, parts,
    rows::{Softmax, scale},
    transposed,
};
use crate::Threads;

/// Queries, keys and values.
type Operands<'a> = [&'a [f32]; 3];

impl Attention {
    /// Computes the result `softmax(q k^T) v` for scaled queries `[batch, time, heads, width]`,
    /// keys `[batch, source, kv_heads, width]` and values `[batch, source, kv_heads, value_width]`
    /// to `[batch, time, heads, value_width]`, and the natural logarithms of the sums of the
    /// exponentials of the scores, `[batch, heads, time]`. A query that attends to no position has
    /// the result 0 and the logarithm -inf.
    ///
    /// # Panics
    /// If a slice does not have the length of the geometry's tensor.
    pub fn forward(
        &self,
        threads: &Threads,
        q: &[f32],
        k: &[f32],
        v: &[f32],
        out: &mut [f32],
        log_sums: &mut [f32],
    ) {
        let geometry = &self.geometry;
        let lengths = [q.len(), k.len(), v.len(), out.len(), log_sums.len()];
        let expected = [
            geometry.q_len(),
            geometry.k_len(),
            geometry.v_len(),
            geometry.out_len(),
            geometry.log_sums_len(),
        ];
        assert_eq!(
            lengths, expected,
            "operands and results have the sizes of the geometry"
        );
        let &AttentionGeometry {
            batch,
            time,
            heads,
            kv_heads,
            value_width,
            ..
        } = geometry;
        let all = parts(out, batch).zip(parts(log_sums, batch));
        self.for_each_batch(threads, 2, all, |threads, batch, (out, log_sums)| {
            // Head by head first: a slice of the result is not that of one head.
            threads.with_scratch(out.len(), |of_heads| {
                let of_parts = parts(of_heads, kv_heads).zip(parts(log_sums, kv_heads));
                let cost = self.nanoseconds(heads, 2);
                threads.for_each(cost, of_parts.enumerate(), |(head, (out, log_sums))| {
                    self.forward_head(threads, [q, k, v], [batch, head], out, log_sums);
                });
                interleave(of_heads, heads, [time, value_width], out);
            });
        });
    }

    /// Computes the query heads of a key head.
    fn forward_head(
        &self,
        threads: &Threads,
        operands: Operands<'_>,
        head: [usize; 2],
        out: &mut [f32],
        log_sums: &mut [f32],
    ) {
        let [batch, kv_head] = head;
        let [q, k, v] = operands;
        let &AttentionGeometry {
            width, value_width, ..
        } = &self.geometry;
        let [most_queries, most_positions] = self.block;
        let packed = self
            .source_blocks()
            .map(|(_, count)| Right::len(width, count) + Right::len(count, value_width));
        let packed: usize = packed.sum();
        let scores_len = most_queries * most_positions;
        let serial = threads.serial();
        threads.with_scratch(packed + scores_len + 3 * most_queries, |memory| {
            let mut memory = memory;
            let blocks: Vec<_> = (self.source_blocks())
                .map(|(first, count)| {
                    let keys = transposed(self.keys(k, batch, kv_head, first));
                    let keys = Right::pack(&serial, keys, [width, count], &mut memory);
                    let values = self.values(v, batch, kv_head, first);
                    let values = Right::pack(&serial, values, [count, value_width], &mut memory);
                    (first, count, keys, values)
                })
                .collect();
            let (scores, rest) = memory.split_at_mut(scores_len);
            let groups = self.geometry.groups();
            let of_heads = parts(out, groups).zip(parts(log_sums, groups));
            for (group, (out, log_sums)) in of_heads.enumerate() {
                let head = kv_head * groups + group;
                for (first, count) in self.query_blocks() {
                    let out = &mut out[first * value_width..][..count * value_width];
                    let log_sums = &mut log_sums[first..][..count];
                    let queries = self.queries(q, batch, head, first);
                    let (maxima, rest) = rest.split_at_mut(most_queries);
                    let (sums, decays) = rest.split_at_mut(most_queries);
                    let mut softmax = Softmax {
                        maxima: &mut maxima[..count],
                        sums: &mut sums[..count],
                        decays: &mut decays[..count],
                    };
                    softmax.reset();
                    out.fill(0.0);
                    let last = self.allowed(first + count - 1);
                    for (start, length, keys, values) in &blocks {
                        let positions = last.saturating_sub(*start).min(*length);
                        if positions == 0 {
                            break;
                        }
                        let is_first = *start == 0;
                        let scores = &mut scores[..count * most_positions];
                        keys.multiply(
                            &serial,
                            queries,
                            [width, positions],
                            scores,
                            most_positions,
                            false,
                        );
                        let allowed = |row: usize| self.allowed(first + row).saturating_sub(*start);
                        softmax.add(scores, most_positions, positions, allowed);
                        if !is_first {
                            scale(out, value_width, softmax.decays);
                        }
                        values.multiply(
                            &serial,
                            self.scores(scores),
                            [positions, value_width],
                            out,
                            value_width,
                            !is_first,
                        );
                    }
                    softmax.finish(out, value_width, log_sums);
                }
            }
        });
    }
}

/// Copies `[heads, rows, length]` to `[rows, heads, length]`.
pub(super) fn interleave(x: &[f32], heads: usize, dims: [usize; 2], out: &mut [f32]) {
    let [rows, length] = dims;
    if out.is_empty() {
        return;
    }
    for (row, out) in out.chunks_exact_mut(heads * length).enumerate() {
        for (head, out) in out.chunks_exact_mut(length).enumerate() {
            out.copy_from_slice(&x[(head * rows + row) * length..][..length]);
        }
    }
}
