//! Reductions by a function of scalars.

use halite_core::Result;

use super::{Call, Direct, Input, Lines};
use crate::fast::scalar::{Combine, Format, Function, LANES, convert, load, store};

/// Combines the elements of lines, from initial values on. Operands: what is combined, and then the
/// initial values.
#[derive(Debug)]
pub(in super::super) struct Reduce {
    pub(in super::super) lines: Lines,
    pub(in super::super) inputs: Vec<Input>,
    /// Of accumulators and then elements.
    pub(in super::super) function: Function,
    /// The formats of the elements in memory.
    pub(in super::super) formats: Vec<Format>,
    /// Whether the results are those of all elements up to each of the line, or from each on.
    pub(in super::super) scan: Option<Direction>,
}

/// Where a running reduction starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in super::super) enum Direction {
    Forward,
    Backward,
}

impl Direct for Reduce {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let is_dense = self.lines.inner == 1 && self.inputs == [Input::Operand(0)];
        if let (true, Some(direction), Some(combine)) =
            (is_dense, self.scan, self.function.of_two())
        {
            return self.scan_lines(call, direction, &*combine);
        }
        let count = self.inputs.len();
        let Lines { length, inner, .. } = self.lines;
        let mut results = Vec::with_capacity(count);
        let mut sizes = Vec::with_capacity(count);
        for number in 0..count {
            results.push(call.take(number)?);
            sizes.push(call.result_ty(number).element.size());
        }
        let operands = self.inputs.iter().map(|input| match input {
            Input::Operand(operand) => call.operand(*operand).map(|it| Some(&it[..])),
            Input::Counter => Ok(None),
        });
        let operands: Vec<_> = operands.collect::<Result<_>>()?;
        // Backward, what is on the right is the accumulator: it is of later elements.
        let (left, right) = match self.scan {
            Some(Direction::Backward) => (count, 0),
            _ => (0, count),
        };
        let mut registers = self.function.registers();
        let mut spare = Vec::with_capacity(count);
        for block in self.lines.blocks() {
            let lanes = block.count;
            for number in 0..count {
                let initial = call.operand(self.initial() + number)?;
                let register = &mut registers[left + number];
                load(initial, sizes[number], 0, 1, &mut register[..1]);
                self.widen(number, &mut register[..1]);
                let bits = register[0];
                register[..lanes].fill(bits);
            }
            for step in 0..length {
                let step = match self.scan {
                    Some(Direction::Backward) => length - 1 - step,
                    _ => step,
                };
                for (number, bytes) in operands.iter().enumerate() {
                    let register = &mut registers[right + number][..lanes];
                    match bytes {
                        Some(bytes) => {
                            let at = block.first + step * inner;
                            load(bytes, sizes[number], at, block.stride, register);
                            self.widen(number, register);
                        }
                        None => register.fill(step as u64),
                    }
                }
                self.function.run(&mut registers, lanes);
                // All before the first is replaced: results may be arguments.
                let of = self.function.results.iter();
                spare.clear();
                spare.extend(of.map(|&result| registers[result]));
                registers[left..left + count].copy_from_slice(&spare);
                if self.scan.is_some() {
                    let at = block.first + step * inner;
                    for (number, result) in results.iter_mut().enumerate() {
                        let mut values = registers[left + number];
                        self.narrow(number, &mut values[..lanes]);
                        let out = result.bytes_mut();
                        scatter(&values[..lanes], out, sizes[number], at, block.stride);
                    }
                }
            }
            if self.scan.is_none() {
                for (number, result) in results.iter_mut().enumerate() {
                    let values = &mut registers[number][..lanes];
                    self.narrow(number, values);
                    store(values, result.bytes_mut(), sizes[number], block.result);
                }
            }
        }
        for (number, result) in results.into_iter().enumerate() {
            call.set(number, result);
        }
        Ok(())
    }
}

impl Reduce {
    /// Running reductions of lines of neighbors by one operation.
    fn scan_lines(
        &self,
        call: &mut Call<'_, '_>,
        direction: Direction,
        combine: &Combine,
    ) -> Result<()> {
        let (mut result, length) = (call.take(0)?, self.lines.length);
        let size = call.result_ty(0).element.size();
        let (x, out) = (call.operand(0)?, result.bytes_mut());
        let mut values = [0; LANES];
        load(call.operand(1)?, size, 0, 1, &mut values[..1]);
        self.widen(0, &mut values[..1]);
        let initial = values[0];
        for line in 0..self.lines.outer {
            let mut sum = initial;
            for start in (0..length).step_by(LANES) {
                let count = LANES.min(length - start);
                let at = match direction {
                    Direction::Forward => line * length + start,
                    Direction::Backward => (line + 1) * length - start - count,
                };
                let values = &mut values[..count];
                load(x, size, at, 1, values);
                self.widen(0, values);
                match direction {
                    Direction::Forward => values.iter_mut().for_each(|value| {
                        sum = combine(sum, *value);
                        *value = sum;
                    }),
                    // What is on the right is of later elements.
                    Direction::Backward => values.iter_mut().rev().for_each(|value| {
                        sum = combine(*value, sum);
                        *value = sum;
                    }),
                }
                self.narrow(0, values);
                store(values, out, size, at);
            }
        }
        call.set(0, result);
        Ok(())
    }

    /// The operand that is the first initial value.
    fn initial(&self) -> usize {
        let inputs = self.inputs.iter();
        inputs.filter(|input| **input != Input::Counter).count()
    }

    fn widen(&self, number: usize, values: &mut [u64]) {
        convert(
            values,
            self.formats[number],
            self.function.arguments[number],
        );
    }

    fn narrow(&self, number: usize, values: &mut [u64]) {
        convert(
            values,
            self.function.arguments[number],
            self.formats[number],
        );
    }
}

/// Stores elements that are `stride` apart.
fn scatter(values: &[u64], bytes: &mut [u8], size: usize, at: usize, stride: usize) {
    if stride == 1 {
        return store(values, bytes, size, at);
    }
    for (number, value) in values.iter().enumerate() {
        let at = (at + number * stride) * size;
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
}

/// Some lines, which are computed at a time.
#[derive(Debug)]
pub(super) struct Block {
    /// The first element of the first line, and the distance of first elements.
    pub(super) first: usize,
    pub(super) stride: usize,
    pub(super) count: usize,
    /// The number of the first line.
    pub(super) result: usize,
}

impl Lines {
    /// Blocks of lines that are equally far from each other.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let &Lines {
            outer,
            length,
            inner,
        } = self;
        // Neighbors along the inner dimension, or else lines one after the other.
        let (groups, lines, stride) = match inner {
            1 => (1, outer, length),
            _ => (outer, inner, 1),
        };
        let block = |group: usize, start: usize| Block {
            first: group * length * inner + start * stride,
            stride,
            count: LANES.min(lines - start),
            result: group * lines + start,
        };
        let group = |group| {
            (0..lines)
                .step_by(LANES)
                .map(move |start| block(group, start))
        };
        (0..groups).flat_map(group).collect()
    }
}
