//! The backward pass.

use super::{
    Attention, AttentionGeometry, Right, forward::interleave, parts, rows::Slopes, transposed,
};
use crate::Threads;

/// Operands of [`Attention::backward`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionBackward<'a> {
    /// Queries, keys and values of [`Attention::forward`].
    pub q: &'a [f32],
    /// Keys.
    pub k: &'a [f32],
    /// Values.
    pub v: &'a [f32],
    /// Logarithms of sums that the forward pass returned, `[batch, heads, time]`.
    pub log_sums: &'a [f32],
    /// Gradient of the result, `[batch, time, heads, value_width]`.
    pub g: &'a [f32],
    /// Sums of `g` times the result over the last dimension, less the gradient of the logarithms:
    /// `[batch, heads, time]`.
    pub row_sums: &'a [f32],
}

/// Gradients of the queries, keys and values of some heads.
type Gradients<'a> = [&'a mut [f32]; 3];

impl Attention {
    /// Computes the gradients of the queries, keys and values: with weights
    /// `p = exp(q k^T - log_sums)` and `ds = p * (g v^T - row_sums)`, these are `ds k`, `ds^T q`
    /// and `p^T g`.
    ///
    /// # Panics
    /// If a slice does not have the length of the geometry's tensor.
    pub fn backward(
        &self,
        threads: &Threads,
        operands: AttentionBackward<'_>,
        dq: &mut [f32],
        dk: &mut [f32],
        dv: &mut [f32],
    ) {
        let geometry = &self.geometry;
        let AttentionBackward {
            q,
            k,
            v,
            log_sums,
            g,
            row_sums,
        } = operands;
        let sums = [log_sums.len(), row_sums.len()];
        let lengths = [q.len(), k.len(), v.len(), dq.len(), dk.len(), dv.len()];
        let [q_len, k_len, v_len] = [geometry.q_len(), geometry.k_len(), geometry.v_len()];
        let is_expected = lengths == [q_len, k_len, v_len, q_len, k_len, v_len]
            && sums == [geometry.log_sums_len(); 2]
            && g.len() == geometry.out_len();
        assert!(
            is_expected,
            "operands and gradients have the sizes of the geometry"
        );
        let &AttentionGeometry {
            batch,
            time,
            source,
            heads,
            kv_heads,
            width,
            value_width,
            ..
        } = geometry;
        let all = parts(dq, batch).zip(parts(dk, batch)).zip(parts(dv, batch));
        self.for_each_batch(threads, 5, all, |threads, batch, ((dq, dk), dv)| {
            threads.with_scratch(dq.len() + dk.len() + dv.len(), |memory| {
                let (queries, rest) = memory.split_at_mut(dq.len());
                let (keys, values) = rest.split_at_mut(dk.len());
                let of_keys = parts(keys, kv_heads).zip(parts(values, kv_heads));
                let of_heads = parts(queries, kv_heads).zip(of_keys).enumerate();
                let cost = self.nanoseconds(heads, 5);
                threads.for_each(cost, of_heads, |(head, (dq, (dk, dv)))| {
                    self.backward_head(threads, operands, [batch, head], [dq, dk, dv]);
                });
                interleave(queries, heads, [time, width], dq);
                interleave(keys, kv_heads, [source, width], dk);
                interleave(values, kv_heads, [source, value_width], dv);
            });
        });
    }

    /// Computes the gradients of a key head and its query heads.
    fn backward_head(
        &self,
        threads: &Threads,
        operands: AttentionBackward<'_>,
        head: [usize; 2],
        gradients: Gradients<'_>,
    ) {
        let [dq, dk, dv] = gradients;
        let [batch, kv_head] = head;
        let AttentionBackward {
            q,
            k,
            v,
            log_sums,
            g,
            row_sums,
        } = operands;
        let &AttentionGeometry {
            time,
            heads,
            width,
            value_width,
            ..
        } = &self.geometry;
        let [most_queries, most_positions] = self.block;
        let packed = self.source_blocks().map(|(_, count)| {
            Right::len(width, count) + Right::len(value_width, count) + Right::len(count, width)
        });
        let packed: usize = packed.sum::<usize>()
            + Right::len(most_queries, width)
            + Right::len(most_queries, value_width);
        let scores_len = most_queries * most_positions;
        let serial = &threads.serial();
        dk.fill(0.0);
        dv.fill(0.0);
        threads.with_scratch(packed + 2 * scores_len, |memory| {
            let (scores, memory) = memory.split_at_mut(scores_len);
            let (slopes, mut memory) = memory.split_at_mut(scores_len);
            let blocks: Vec<_> = (self.source_blocks())
                .map(|(first, count)| {
                    let keys = self.keys(k, batch, kv_head, first);
                    let values = self.values(v, batch, kv_head, first);
                    let by_keys =
                        Right::pack(serial, transposed(keys), [width, count], &mut memory);
                    let by_values = Right::pack(
                        serial,
                        transposed(values),
                        [value_width, count],
                        &mut memory,
                    );
                    let keys = Right::pack(serial, keys, [count, width], &mut memory);
                    (first, count, by_keys, by_values, keys)
                })
                .collect();
            let groups = self.geometry.groups();
            for (group, dq) in parts(dq, groups).enumerate() {
                let head = kv_head * groups + group;
                for (first, count) in self.query_blocks() {
                    let dq = &mut dq[first * width..][..count * width];
                    let row = (batch * heads + head) * time + first;
                    let queries = self.queries(q, batch, head, first);
                    let g = self.results(g, batch, head, first);
                    let mut memory = &mut *memory;
                    let q_packed = Right::pack(serial, queries, [count, width], &mut memory);
                    let g_packed = Right::pack(serial, g, [count, value_width], &mut memory);
                    dq.fill(0.0);
                    let last = self.allowed(first + count - 1);
                    for (start, length, by_keys, by_values, keys) in &blocks {
                        let positions = last.saturating_sub(*start).min(*length);
                        if positions == 0 {
                            break;
                        }
                        let scores = &mut scores[..count * most_positions];
                        let slopes = &mut slopes[..count * most_positions];
                        by_keys.multiply(
                            serial,
                            queries,
                            [width, positions],
                            scores,
                            most_positions,
                            false,
                        );
                        by_values.multiply(
                            serial,
                            g,
                            [value_width, positions],
                            slopes,
                            most_positions,
                            false,
                        );
                        let allowed = |row: usize| self.allowed(first + row).saturating_sub(*start);
                        Slopes {
                            scores,
                            slopes,
                            length: most_positions,
                            positions,
                            log_sums: &log_sums[row..][..count],
                            row_sums: &row_sums[row..][..count],
                        }
                        .compute(allowed);
                        let (scores, slopes) = (self.scores(scores), self.scores(slopes));
                        let rows = *start..*start + positions;
                        g_packed.multiply(
                            serial,
                            transposed(scores),
                            [count, value_width],
                            &mut dv[rows.start * value_width..rows.end * value_width],
                            value_width,
                            true,
                        );
                        q_packed.multiply(
                            serial,
                            transposed(slopes),
                            [count, width],
                            &mut dk[rows.start * width..rows.end * width],
                            width,
                            true,
                        );
                        keys.multiply(serial, slopes, [positions, width], dq, width, *start > 0);
                    }
                }
            }
        });
    }
}
