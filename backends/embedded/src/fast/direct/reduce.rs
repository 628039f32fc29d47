//! Reductions by a function of scalars.

use halite_core::Result;

use super::{Call, Direct, Input, Lines};
use crate::fast::scalar::{Combine, Format, Function, LANES, Lanes, convert, load, store};
use crate::storage::Storage;

/// Combines the elements of lines, from initial values on. Operands: what is combined, and then the
/// initial values.
#[derive(Debug)]
pub(in super::super) struct Reduce {
    pub(in super::super) lines: Lines,
    pub(in super::super) inputs: Vec<Input>,
    /// Function of accumulators and then elements.
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
        let mut results = Vec::with_capacity(self.inputs.len());
        for number in 0..self.inputs.len() {
            results.push(call.take(number)?);
        }
        let mut outs: Vec<&mut [u8]> = results.iter_mut().map(Storage::bytes_mut).collect();
        let mut machine = Machine::new(self, call)?;
        let Lines { length, .. } = self.lines;
        if self.scan.is_none() && self.lines.count().saturating_mul(segmented(length)) < length {
            for line in 0..self.lines.count() {
                machine.segments(self.lines.first(line));
                machine.store(&mut outs, line, 1, 1);
            }
        } else {
            for block in self.lines.blocks() {
                machine.block(&block, &mut outs);
            }
        }
        for (number, result) in results.into_iter().enumerate() {
            call.set(number, result);
        }
        Ok(())
    }
}

/// Steps in which a line is reduced as segments: those of a segment, of combining all of them, and
/// of the elements behind the last one.
fn segmented(length: usize) -> usize {
    match length / LANES {
        0 => usize::MAX,
        segment => segment + LANES.ilog2() as usize + 1 + length % LANES,
    }
}

/// Registers of a reduction.
struct Machine<'r> {
    reduce: &'r Reduce,
    /// The inputs that are in memory, and the sizes of their elements.
    operands: Vec<(Option<&'r [u8]>, usize)>,
    initial: Vec<u64>,
    registers: Vec<Lanes>,
    spare: Vec<Lanes>,
    /// The first registers of accumulators, and of elements.
    left: usize,
    right: usize,
}

/// Elements that are loaded: the first, and the distance of those of the lanes.
#[derive(Clone, Copy)]
struct Elements {
    first: usize,
    stride: usize,
    /// Positions in their lines.
    position: usize,
    position_stride: usize,
}

impl<'r> Machine<'r> {
    fn new(reduce: &'r Reduce, call: &'r Call<'_, '_>) -> Result<Self> {
        let count = reduce.inputs.len();
        let first = reduce
            .inputs
            .iter()
            .filter(|input| **input != Input::Counter);
        let first = first.count();
        let (mut operands, mut initial) = (Vec::new(), Vec::new());
        for (number, input) in reduce.inputs.iter().enumerate() {
            let size = call.result_ty(number).element.size();
            let bytes = match input {
                Input::Operand(operand) => Some(&call.operand(*operand)?[..]),
                Input::Counter => None,
            };
            operands.push((bytes, size));
            let mut bits = [0];
            load(call.operand(first + number)?, size, 0, 1, &mut bits);
            reduce.widen(number, &mut bits);
            initial.extend(bits);
        }
        // Backward, what is on the right is the accumulator: it is of later elements.
        let (left, right) = match reduce.scan {
            Some(Direction::Backward) => (count, 0),
            _ => (0, count),
        };
        Ok(Machine {
            reduce,
            operands,
            initial,
            registers: reduce.function.registers(),
            spare: Vec::with_capacity(count),
            left,
            right,
        })
    }

    /// Reduces a block of lines.
    fn block(&mut self, block: &Block, outs: &mut [&mut [u8]]) {
        let Lines { length, inner, .. } = self.reduce.lines;
        let lanes = block.count;
        self.start(lanes);
        for step in 0..length {
            let step = match self.reduce.scan {
                Some(Direction::Backward) => length - 1 - step,
                _ => step,
            };
            let elements = Elements {
                first: block.first + step * inner,
                stride: block.stride,
                position: step,
                position_stride: 0,
            };
            self.load(self.right, elements, lanes);
            self.step(lanes);
            if self.reduce.scan.is_some() {
                self.store(outs, elements.first, block.stride, lanes);
            }
        }
        if self.reduce.scan.is_none() {
            self.store(outs, block.result, 1, lanes);
        }
    }

    /// Reduces one line, as many segments that are combined in order.
    fn segments(&mut self, first: usize) {
        let Lines { length, inner, .. } = self.reduce.lines;
        let segment = length / LANES;
        let elements = |position: usize| Elements {
            first: first + position * inner,
            stride: segment * inner,
            position,
            position_stride: segment,
        };
        self.load(self.left, elements(0), LANES);
        for step in 1..segment {
            self.load(self.right, elements(step), LANES);
            self.step(LANES);
        }
        // Neighbors are combined, so that the order stays.
        let registers = self.operands.len();
        let mut lanes = LANES;
        while lanes > 1 {
            lanes /= 2;
            for number in 0..registers {
                let sums = self.registers[self.left + number];
                for lane in 0..lanes {
                    self.registers[self.left + number][lane] = sums[2 * lane];
                    self.registers[self.right + number][lane] = sums[2 * lane + 1];
                }
            }
            self.step(lanes);
        }
        for number in 0..registers {
            self.registers[self.right + number][0] = self.registers[self.left + number][0];
        }
        self.start(1);
        self.step(1);
        for position in segment * LANES..length {
            self.load(self.right, elements(position), 1);
            self.step(1);
        }
    }

    fn start(&mut self, lanes: usize) {
        for (number, &initial) in self.initial.iter().enumerate() {
            self.registers[self.left + number][..lanes].fill(initial);
        }
    }

    fn load(&mut self, into: usize, elements: Elements, lanes: usize) {
        for (number, &(bytes, size)) in self.operands.iter().enumerate() {
            let register = &mut self.registers[into + number][..lanes];
            match bytes {
                Some(bytes) => {
                    load(bytes, size, elements.first, elements.stride, register);
                    self.reduce.widen(number, register);
                }
                None => register.iter_mut().enumerate().for_each(|(lane, value)| {
                    *value = (elements.position + lane * elements.position_stride) as u64;
                }),
            }
        }
    }

    /// Combines the elements with the accumulators.
    fn step(&mut self, lanes: usize) {
        let function = &self.reduce.function;
        function.run(&mut self.registers, lanes);
        if let [result] = function.results[..] {
            self.registers.copy_within(result..=result, self.left);
            return;
        }
        // All before the first is replaced: results may be arguments.
        self.spare.clear();
        let of = function.results.iter();
        self.spare.extend(of.map(|&result| self.registers[result]));
        self.registers[self.left..self.left + self.spare.len()].copy_from_slice(&self.spare);
    }

    /// Stores the accumulators, `stride` apart.
    fn store(&self, outs: &mut [&mut [u8]], at: usize, stride: usize, lanes: usize) {
        for (number, out) in outs.iter_mut().enumerate() {
            let mut values = self.registers[self.left + number];
            self.reduce.narrow(number, &mut values[..lanes]);
            scatter(&values[..lanes], out, self.operands[number].1, at, stride);
        }
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
