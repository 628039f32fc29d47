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
        let mut out = result.bytes_mut();
        for number in 0..out.len().checked_div(row).unwrap_or(0) {
            for (part, &length) in parts.iter().zip(&self.bytes) {
                let (target, rest) = out.split_at_mut(length);
                target.copy_from_slice(&part[number * length..][..length]);
                out = rest;
            }
        }
        call.set(0, result);
        Ok(())
    }
}
