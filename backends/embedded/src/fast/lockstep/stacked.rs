//! Products of several processes as one, where these multiply their own rows with a matrix that
//! they share, such as activations with replicated parameters: the matrix is packed once.

use std::sync::Arc;

use halite_core::Result;

use super::Run;
use crate::fast::plan::Unit;

impl Run<'_> {
    /// Runs a product for all processes. False, and nothing is done, if it is another unit, or does
    /// not pay: the rows are copied, which costs more than to pack a smaller matrix several times.
    pub(super) fn stacked(&mut self, unit: &Unit) -> Result<bool> {
        let &Unit::Product {
            ref product,
            left,
            right,
            out,
        } = unit
        else {
            return Ok(false);
        };
        let count = self.values.len();
        let [rows, columns, length] = [left, right, out].map(|base| self.plan.types[base].bytes());
        let element = self.plan.types[left].element.size();
        let matrix = Arc::as_ptr(self.values[0].get(right)?);
        let shares =
            |at: usize| -> Result<bool> { Ok(Arc::as_ptr(self.values[at].get(right)?) == matrix) };
        if count == 1
            || rows * length == 0
            || product.batches.len() != 1
            || columns < count * (rows + length)
        {
            return Ok(false);
        }
        for at in 1..count {
            if !shares(at)? {
                return Ok(false);
            }
        }
        let Some(product) = product.stacked(count, rows / element) else {
            return Ok(false);
        };
        let mut all = self.arena.scratch(count * rows);
        for (values, part) in (self.values.iter()).zip(all.bytes_mut().chunks_exact_mut(rows)) {
            part.copy_from_slice(values.get(left)?);
        }
        let mut results = self.arena.scratch(count * length);
        let first = &mut self.values[0];
        let own = first.values[left].replace(Arc::new(all));
        let multiplied = first.product(&product, left, right, &mut results, self.launch.threads);
        let all = std::mem::replace(&mut first.values[left], own);
        if let Some(Ok(all)) = all.map(Arc::try_unwrap) {
            self.arena.keep(all);
        }
        multiplied?;
        for (at, part) in results.chunks_exact(length).enumerate() {
            let mut result = self.arena.take(self.plan, out)?;
            result.bytes_mut().copy_from_slice(part);
            self.values[at].set(out, result);
        }
        self.arena.keep(results);
        Ok(true)
    }
}
