//! Sizes of attention.

use std::{error, fmt};

/// Most elements of a tensor.
const MOST_ELEMENTS: usize = 1 << 40;
/// Most elements of all heads of a position.
const MOST_OF_POSITION: usize = 1 << 22;

/// Sizes of attention. Tensors are row-major.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct AttentionGeometry {
    /// Number of sequences.
    pub batch: usize,
    /// Number of queries of a sequence.
    pub time: usize,
    /// Number of source positions of a sequence: keys and values.
    pub source: usize,
    /// Number of heads of the queries and of the result.
    pub heads: usize,
    /// Number of heads of the keys and values. Head `h` of the queries uses head
    /// `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Features of queries and keys.
    pub width: usize,
    /// Features of values and of the result.
    pub value_width: usize,
    /// Whether query `i` attends to the positions up to `i + source - time` only.
    pub causal: bool,
}

/// Reason why an [`AttentionGeometry`] is not one of attention.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AttentionError(String);

impl fmt::Display for AttentionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attention: {}", self.0)
    }
}

impl error::Error for AttentionError {}

impl AttentionGeometry {
    /// Number of elements of the queries, `[batch, time, heads, width]`.
    pub fn q_len(&self) -> usize {
        elements([self.batch, self.time, self.heads, self.width])
    }

    /// Number of elements of the keys, `[batch, source, kv_heads, width]`.
    pub fn k_len(&self) -> usize {
        elements([self.batch, self.source, self.kv_heads, self.width])
    }

    /// Number of elements of the values, `[batch, source, kv_heads, value_width]`.
    pub fn v_len(&self) -> usize {
        elements([self.batch, self.source, self.kv_heads, self.value_width])
    }

    /// Number of elements of the result, `[batch, time, heads, value_width]`.
    pub fn out_len(&self) -> usize {
        elements([self.batch, self.time, self.heads, self.value_width])
    }

    /// Number of elements of the logarithms of sums, `[batch, heads, time]`.
    pub fn log_sums_len(&self) -> usize {
        elements([self.batch, self.heads, self.time, 1])
    }

    /// Number of query heads that share keys and values.
    pub(super) fn groups(&self) -> usize {
        self.heads / self.kv_heads
    }

    pub(super) fn check(&self) -> Result<(), AttentionError> {
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(AttentionError(format!(
                "{kv_heads} key heads do not divide {heads} heads"
            )));
        }
        let lengths = [
            self.q_len(),
            self.k_len(),
            self.v_len(),
            self.out_len(),
            self.log_sums_len(),
        ];
        let of_position = elements([
            1,
            1,
            heads.max(kv_heads),
            self.width.max(self.value_width).max(1),
        ]);
        if of_position > MOST_OF_POSITION || lengths.iter().any(|&length| length > MOST_ELEMENTS) {
            return Err(AttentionError(format!(
                "{self:?} is too large: a tensor has at most 2^40 elements, a position 2^22"
            )));
        }
        Ok(())
    }
}

/// The product of sizes; `usize::MAX` if it is larger.
fn elements(sizes: [usize; 4]) -> usize {
    if sizes.contains(&0) {
        return 0;
    }
    sizes.into_iter().fold(1, usize::saturating_mul)
}
