//! Slices of a tensor at positions that a program computes: `gather` and `scatter`.

mod slices;

use halite_core::Result;
use halite_stablehlo::RankedType;

pub(in super::super) use self::slices::Slices;
use super::{Call, Direct, accumulator::Accumulator};
use crate::{
    fast::scalar::{Format, Function, LANES, extended, load},
    oracle::allocate,
};

/// Slices of operand 0 at the positions of operand 1, moved to be inside.
#[derive(Debug)]
pub(in super::super) struct Gather(pub(in super::super) Slices);

/// The first operands, combined with slices, the last operands, at the positions of the operand
/// between them. A slice that is not inside is skipped.
#[derive(Debug)]
pub(in super::super) struct Scatter {
    pub(in super::super) slices: Slices,
    pub(in super::super) combine: Combine,
    /// The number of tensors that are updated.
    pub(in super::super) count: usize,
}

/// What a scatter does with an element and its update.
#[derive(Debug)]
pub(in super::super) enum Combine {
    Replace,
    /// Adds elements of `f32` in place.
    Add,
    /// A function of the elements and then the updates, with the formats of these in memory.
    By(Function, Vec<Format>),
}

/// The integers of an operand.
enum Indices<'a> {
    S32(&'a [[u8; 4]]),
    Decoded(Vec<i64>),
}

impl<'a> Indices<'a> {
    fn new(ty: &RankedType, bytes: &'a [u8]) -> Result<Self> {
        let (size, count) = (ty.element.size(), ty.elements());
        let format = Format::of(ty.element).unwrap_or(Format::Signed(64));
        if format == Format::Signed(32) {
            return Ok(Indices::S32(bytes.as_chunks().0));
        }
        let mut integers = allocate(count)?;
        let mut lanes = [0; LANES];
        for start in (0..count).step_by(LANES) {
            let lanes = &mut lanes[..LANES.min(count - start)];
            load(bytes, size, start, 1, lanes);
            let integer = |&bits: &u64| match format {
                Format::Signed(_) => extended(bits, format).cast_signed(),
                _ => i64::try_from(bits).unwrap_or(i64::MAX),
            };
            integers.extend(lanes.iter().map(integer));
        }
        Ok(Indices::Decoded(integers))
    }
}

impl Direct for Gather {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut result = call.take(0)?;
        let indices = Indices::new(call.ty(1), call.operand(1)?)?;
        let size = call.ty(0).element.size();
        let runs = Runs {
            slices: &self.0,
            indices: &indices,
            is_gather: true,
        };
        runs.copy(call.operand(0)?, result.bytes_mut(), size);
        call.set(0, result);
        Ok(())
    }
}

impl Direct for Scatter {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let count = self.count;
        let mut results = Vec::with_capacity(count);
        for number in 0..count {
            results.push(call.owned(number)?);
        }
        let indices = Indices::new(call.ty(count), call.operand(count)?)?;
        let runs = Runs {
            slices: &self.slices,
            indices: &indices,
            is_gather: false,
        };
        let updates = (0..count).map(|number| call.operand(count + 1 + number));
        let updates: Vec<_> = updates.collect::<Result<_>>()?;
        match &self.combine {
            Combine::Replace => {
                let size = call.ty(0).element.size();
                runs.copy(updates[0], results[0].bytes_mut(), size);
            }
            Combine::Add => runs.add(updates[0], results[0].bytes_mut()),
            Combine::By(function, formats) => {
                let updates: Vec<&[u8]> = updates.iter().map(|it| &it[..]).collect();
                let operands = results.iter_mut().zip(formats).enumerate();
                let mut accumulators = operands
                    .map(|(number, (result, &format))| {
                        let size = call.ty(number).element.size();
                        Accumulator::new(result, size, format, function.arguments[number])
                    })
                    .collect::<Result<Vec<_>>>()?;
                runs.combine(function, &mut accumulators, &updates);
                accumulators.into_iter().for_each(Accumulator::finish);
            }
        }
        for (number, result) in results.into_iter().enumerate() {
            call.set(number, result);
        }
        Ok(())
    }

    fn overwrites(&self) -> usize {
        self.count
    }
}

/// The runs of slices at positions.
struct Runs<'s> {
    slices: &'s Slices,
    indices: &'s Indices<'s>,
    is_gather: bool,
}

impl Runs<'_> {
    /// Copies all slices from or to the operand, whose elements have `size` bytes.
    fn copy(&self, x: &[u8], out: &mut [u8], size: usize) {
        fn elements<const N: usize>(runs: &Runs<'_>, x: &[u8], out: &mut [u8]) {
            let (x, out) = (x.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
            runs.each(|to, from| out[to] = x[from]);
        }
        match (self.slices.run, size) {
            (1, 1) => elements::<1>(self, x, out),
            (1, 2) => elements::<2>(self, x, out),
            (1, 4) => elements::<4>(self, x, out),
            (1, 8) => elements::<8>(self, x, out),
            (run, _) => {
                let run = run * size;
                self.each(|to, from| {
                    out[to * size..][..run].copy_from_slice(&x[from * size..][..run]);
                });
            }
        }
    }

    /// Calls `each` with the positions of runs in the target and in the source.
    fn each(&self, mut each: impl FnMut(usize, usize)) {
        if self.is_gather {
            (self.slices).runs::<true>(self.indices, |operand, slice| each(slice, operand));
        } else {
            self.slices.runs::<false>(self.indices, each);
        }
    }

    fn add(&self, updates: &[u8], out: &mut [u8]) {
        let (updates, out) = (updates.as_chunks::<4>().0, out.as_chunks_mut::<4>().0);
        let run = self.slices.run;
        self.each(|to, from| {
            let pairs = out[to..][..run].iter_mut().zip(&updates[from..][..run]);
            for (out, &update) in pairs {
                *out = (f32::from_le_bytes(*out) + f32::from_le_bytes(update)).to_le_bytes();
            }
        });
    }

    fn combine(
        &self,
        function: &Function,
        accumulators: &mut [Accumulator<'_>],
        updates: &[&[u8]],
    ) {
        let (run, count) = (self.slices.run, accumulators.len());
        if let (1, Some(combine), [accumulator]) = (run, function.of_two(), &mut accumulators[..]) {
            return self.each(|to, from| {
                let mut pair = [[0; 1]; 2];
                accumulator.load(to, &mut pair[0]);
                accumulator.load_updates(updates[0], from, &mut pair[1]);
                accumulator.store(to, &[combine(pair[0][0], pair[1][0])]);
            });
        }
        let mut registers = function.registers();
        self.each(|to, from| {
            for start in (0..run).step_by(LANES) {
                let lanes = LANES.min(run - start);
                for (number, accumulator) in accumulators.iter().enumerate() {
                    accumulator.load(to + start, &mut registers[number][..lanes]);
                    let register = &mut registers[count + number][..lanes];
                    accumulator.load_updates(updates[number], from + start, register);
                }
                function.run(&mut registers, lanes);
                for (accumulator, &result) in accumulators.iter_mut().zip(&function.results) {
                    accumulator.store(to + start, &registers[result][..lanes]);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use halite_stablehlo::GatherAttributes;

    use super::*;

    #[test]
    fn rows_are_runs() {
        let attributes = GatherAttributes {
            offset_dims: vec![1],
            collapsed_slice_dims: vec![0],
            start_index_map: vec![0],
            index_vector_dim: 1,
            slice_sizes: vec![1, 3],
            ..GatherAttributes::default()
        };
        let of = |dims: &[usize]| RankedType::new(halite_stablehlo::ElementType::F32, dims);
        let slices = Slices::of_gather(&attributes, &of(&[4, 3]), &of(&[2]), &of(&[2, 3]));
        assert_eq!(slices.run, 3);
        let mut found = Vec::new();
        slices.runs::<true>(&Indices::Decoded(vec![9, -1]), |operand, slice| {
            found.push((operand, slice))
        });
        assert_eq!(found, [(9, 0), (0, 3)]);
        found.clear();
        slices.runs::<false>(&Indices::Decoded(vec![9, 2]), |operand, slice| {
            found.push((operand, slice))
        });
        assert_eq!(found, [(6, 3)]);
    }
}
