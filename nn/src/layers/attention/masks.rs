//! Masks of attention: their dimensions, and what they leave out altogether.

use halite_core::{DType, TensorType};
use halite_ir::Reduction;

use super::{Mask, scaled_dot_product::Sizes};
use crate::Tensor;

impl Sizes {
    /// The mask as `[batch, heads, time, source]`, where each size may be 1.
    ///
    /// # Errors
    /// What is wrong with the mask; `None` after an earlier mistake.
    pub(super) fn checked(self, mask: Mask<'_>) -> Result<Mask<'_>, Option<String>> {
        Ok(match mask {
            Mask::None | Mask::Causal => mask,
            Mask::Where(allowed) => {
                let is_bool = |dtype| dtype == DType::Bool;
                Mask::Where(self.four_dims(allowed, is_bool, "bool")?)
            }
            Mask::Add(bias) => Mask::Add(self.four_dims(bias, DType::is_float, "floats")?),
        })
    }

    fn four_dims<'t>(
        self,
        mask: Tensor<'t>,
        fits: fn(DType) -> bool,
        expected: &str,
    ) -> Result<Tensor<'t>, Option<String>> {
        if mask.is_error() {
            return Err(None);
        }
        let ty = mask.ty();
        let full = [self.batch, self.heads, self.time, self.source];
        let mut sizes = ty.dims().iter().rev().zip(full.iter().rev());
        let broadcasts = ty.rank() <= 4 && sizes.all(|(&size, &full)| size == 1 || size == full);
        if !broadcasts || !fits(ty.dtype()) {
            return Err(Some(format!(
                "a mask of {ty}; expected {expected} that broadcast to {full:?}, which is \
                 [batch, heads, time, source]"
            )));
        }
        let mut shape = vec![1; 4 - ty.rank()];
        shape.extend(ty.dims());
        Ok(mask.reshape(shape))
    }

    /// Queries, keys and values with 0 where a checked mask leaves out the whole position: a query
    /// that attends to nothing, a source position that no query attends to. The products would
    /// multiply them by weights of 0, and 0 * NaN is NaN.
    #[track_caller]
    pub(super) fn cleared<'t>(self, mask: Mask<'t>, operands: [Tensor<'t>; 3]) -> [Tensor<'t>; 3] {
        let [q, k, v] = operands;
        // `[batch, positions]`, where each size may be 1.
        let clear = |x: Tensor<'t>, kept: Tensor<'t>| {
            let kept = kept.unsqueeze(2).unsqueeze(3).broadcast_to(x.dims());
            kept.select(x, x.zeros_like())
        };
        let allowed = match mask {
            Mask::None => return [q, k, v],
            Mask::Causal => {
                let Some(idle) = self.time.checked_sub(self.source + 1) else {
                    return [q, k, v];
                };
                let index = TensorType::new(DType::S64, [1, self.time]);
                let attends = q.trace().iota(&index, 1).gt(idle as f64);
                return [clear(q, attends), k, v];
            }
            Mask::Where(allowed) => allowed,
            Mask::Add(bias) => bias.ne(f64::NEG_INFINITY),
        };
        let attends = allowed.reduce(Reduction::Or, [1, 3]);
        let attended = allowed.reduce(Reduction::Or, [1, 2]);
        [clear(q, attends), clear(k, attended), clear(v, attended)]
    }

    /// A checked mask with its heads split like those of the queries, and its dimensions in the
    /// order of the scores.
    #[track_caller]
    pub(super) fn like_scores(self, mask: Mask<'_>) -> Mask<'_> {
        match mask {
            Mask::None | Mask::Causal => mask,
            Mask::Where(allowed) => Mask::Where(self.split_mask(allowed)),
            Mask::Add(bias) => Mask::Add(self.split_mask(bias)),
        }
    }

    #[track_caller]
    fn split_mask(self, mask: Tensor<'_>) -> Tensor<'_> {
        let shape = mask.dims();
        if self.groups() == 1 {
            return mask;
        }
        let [kv_heads, groups] = match shape[1] {
            1 => [1, 1],
            _ => [self.kv_heads, self.groups()],
        };
        mask.reshape([shape[0], kv_heads, groups, shape[2], shape[3]])
            .swap_dims(2, 3)
    }
}
