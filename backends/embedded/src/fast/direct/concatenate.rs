//! Concatenation.

use halite_core::Result;

use super::{Call, Direct};

/// Copies rows of `bytes[operand]` from each operand in turn.
#[derive(Debug)]
pub(in super::super) struct Concatenate {
    pub(in super::super) bytes: Vec<usize>,
}

impl Direct for Concatenate {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut result = call.take(0)?;
        let row: usize = self.bytes.iter().sum();
        let parts = (0..self.bytes.len()).map(|part| call.operand(part));
        let parts: Vec<_> = parts.collect::<Result<_>>()?;
        let out = result.bytes_mut();
        let mut first = 0;
        for (part, &length) in parts.iter().zip(&self.bytes) {
            let rows = out.chunks_exact_mut(row.max(1));
            let targets = rows.map(|row| &mut row[first..first + length]);
            match length {
                0 => {}
                1 => elements::<1>(part, targets),
                2 => elements::<2>(part, targets),
                4 => elements::<4>(part, targets),
                8 => elements::<8>(part, targets),
                _ => targets
                    .zip(part.chunks_exact(length))
                    .for_each(|(target, part)| target.copy_from_slice(part)),
            }
            first += length;
        }
        call.set(0, result);
        Ok(())
    }
}

/// Copies elements of `N` bytes.
fn elements<'t, const N: usize>(part: &[u8], targets: impl Iterator<Item = &'t mut [u8]>) {
    let (elements, _) = part.as_chunks::<N>();
    for (target, element) in targets.zip(elements) {
        if let Some(target) = target.first_chunk_mut() {
            *target = *element;
        }
    }
}
