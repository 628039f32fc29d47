//! Slices at starts that a program computes.

use halite_core::Result;
use halite_stablehlo::ElementType;

use super::{Call, Direct};
use crate::{slice::Slice, storage::Storage};

/// Copies a slice of operand 0; its start is the other operands.
#[derive(Debug)]
pub(in super::super) struct DynamicSlice;

impl Direct for DynamicSlice {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let slice = slice(call, &call.result_ty(0).dims, 1)?;
        if let Some(range) = slice.range().filter(|_| call.can_share) {
            let part = Storage::Part(call.operand(0)?.clone(), range);
            call.set(0, part);
            return Ok(());
        }
        let mut result = call.take(0)?;
        slice.read(call.operand(0)?, result.bytes_mut());
        call.set(0, result);
        Ok(())
    }
}

/// A copy of operand 0 with operand 1 at a start, which is the other operands.
#[derive(Debug)]
pub(in super::super) struct DynamicUpdate {
    /// Dimensions of operand 1.
    pub(in super::super) dims: Vec<usize>,
}

impl Direct for DynamicUpdate {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let slice = slice(call, &self.dims, 2)?;
        let mut result = call.owned(0)?;
        slice.write(call.operand(1)?, result.bytes_mut());
        call.set(0, result);
        Ok(())
    }

    fn overwrites(&self) -> usize {
        1
    }
}

/// The part of operand 0 with these dimensions at the operands from `first` on, a start that is
/// moved to be inside.
fn slice(call: &Call<'_, '_>, dims: &[usize], first: usize) -> Result<Slice> {
    let x = call.ty(0);
    let mut starts = Vec::with_capacity(x.rank());
    for (number, (&all, &part)) in (first..).zip(x.dims.iter().zip(dims)) {
        let bytes = call.operand(number)?.iter().rev();
        let bits = bytes.fold(0u64, |all, &byte| all << 8 | u64::from(byte));
        let start = match call.ty(number).element {
            ElementType::S8 => i64::from(bits as i8),
            ElementType::S16 => i64::from(bits as i16),
            ElementType::S32 => i64::from(bits as i32),
            ElementType::S64 => bits as i64,
            _ => i64::try_from(bits).unwrap_or(i64::MAX),
        };
        let most = all.saturating_sub(part);
        starts.push(usize::try_from(start).unwrap_or(0).min(most));
    }
    Ok(Slice::new(&x.dims, dims, &starts, x.element.size()))
}
