//! Reductions of large windows by one operation, which take the same time for windows of any size.
//!
//! Dimensions are reduced one after the other. Along one, positions are cut into blocks of as many
//! as a window has: a window is the end of one block and the start of the next, and both are
//! running reductions (van Herk, 1992). Nothing is subtracted, so that infinities and roundings
//! stay what they are.

use halite_core::Result;

use super::{Call, Direct, Lines, window::Windows};
use crate::{
    fast::scalar::{Format, Function, LANES, Lanes, convert, load, store},
    oracle::{allocate, collect},
};

/// Window sizes up to which each window is reduced on its own.
const SMALL: usize = 4;

/// Combines the elements of each window of operand 0, and operand 1, by an operation that is
/// associative.
#[derive(Debug)]
pub(in super::super) struct Sliding {
    pub(in super::super) windows: Windows,
    pub(in super::super) function: Function,
    /// The format of the elements in memory.
    pub(in super::super) format: Format,
    /// What changes nothing.
    pub(in super::super) identity: u64,
}

impl Direct for Sliding {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut result = call.take(0)?;
        let ty = call.ty(0);
        let (size, count) = (ty.element.size(), ty.elements());
        let mut values = collect(count, std::iter::repeat_n(0, count))?;
        load(call.operand(0)?, size, 0, 1, &mut values);
        convert(&mut values, self.format, self.function.arguments[0]);
        let mut dims = ty.dims.to_vec();
        for dim in 0..dims.len() {
            if !self.is_unchanged(dim) {
                values = self.along(dim, &values, &dims)?;
                dims[dim] = self.windows.counts[dim];
            }
        }
        let mut initial = [0];
        load(call.operand(1)?, size, 0, 1, &mut initial);
        convert(&mut initial, self.format, self.function.arguments[0]);
        let mut registers = self.function.registers();
        for start in (0..values.len()).step_by(LANES) {
            let block = &mut values[start..];
            let lanes = LANES.min(block.len());
            registers[0].fill(initial[0]);
            registers[1][..lanes].copy_from_slice(&block[..lanes]);
            self.function.run(&mut registers, lanes);
            block[..lanes].copy_from_slice(&registers[self.function.results[0]][..lanes]);
        }
        convert(&mut values, self.function.arguments[0], self.format);
        store(&values, result.bytes_mut(), size, 0);
        call.set(0, result);
        Ok(())
    }
}

impl Sliding {
    /// Whether the windows along a dimension are its elements.
    fn is_unchanged(&self, dim: usize) -> bool {
        let of = &self.windows.attributes;
        let [size, stride, gap] = [of.sizes[dim], of.strides[dim], of.base_dilations[dim]];
        (size, stride, gap, of.padding[dim]) == (1, 1, 1, (0, 0))
    }

    /// Reduces windows along one dimension.
    fn along(&self, dim: usize, values: &[u64], dims: &[usize]) -> Result<Vec<u64>> {
        let of = &self.windows.attributes;
        let lines = Lines::along(dims, dim);
        let windows = self.windows.counts[dim];
        let count = lines.outer * windows * lines.inner;
        let mut results = collect(count, std::iter::repeat_n(0, count))?;
        let ends = of.padding[dim].0 + of.padding[dim].1;
        let length = (lines.length.saturating_sub(1) * of.base_dilations[dim]) as i64 + 1 + ends;
        let length = usize::try_from(length).unwrap_or(0);
        let mut line = Line {
            function: &self.function,
            registers: self.function.registers(),
            lanes: 0,
            values: allocate(length * LANES.min(lines.outer.max(lines.inner)))?,
            ends: Vec::new(),
        };
        for block in lines.blocks() {
            line.lanes = block.count;
            line.values.clear();
            line.values.resize(length * block.count, self.identity);
            for number in 0..lines.length {
                let at = (number * of.base_dilations[dim]) as i64 + of.padding[dim].0;
                let Some(at) = usize::try_from(at).ok().filter(|&at| at < length) else {
                    continue;
                };
                let from = block.first + number * lines.inner;
                let each = line.at(at).iter_mut().enumerate();
                each.for_each(|(lane, to)| *to = values[from + lane * block.stride]);
            }
            line.reduce(
                of.sizes[dim],
                of.window_dilations[dim],
                of.strides[dim],
                windows,
            );
            let (first, stride) = match lines.inner {
                1 => (block.result * windows, windows),
                inner => (
                    block.result / inner * windows * inner + block.result % inner,
                    1,
                ),
            };
            for (number, window) in line
                .values
                .chunks_exact(block.count)
                .take(windows)
                .enumerate()
            {
                let to = first + number * lines.inner;
                let each = window.iter().enumerate();
                each.for_each(|(lane, &value)| results[to + lane * stride] = value);
            }
        }
        Ok(results)
    }
}

/// Some lines, padded: the values of all at each position.
struct Line<'f> {
    function: &'f Function,
    registers: Vec<Lanes>,
    lanes: usize,
    values: Vec<u64>,
    /// The reduction of each position and those behind it in its block.
    ends: Vec<u64>,
}

impl Line<'_> {
    fn at(&mut self, position: usize) -> &mut [u64] {
        &mut self.values[position * self.lanes..][..self.lanes]
    }

    /// Replaces the values at `to` by combined ones.
    fn combine(&mut self, left: usize, right: usize, to: usize) {
        let lanes = self.lanes;
        self.registers[0][..lanes].copy_from_slice(&self.values[left * lanes..][..lanes]);
        self.finish(right, to);
    }

    /// Replaces the first positions by the results of as many windows.
    fn reduce(&mut self, size: usize, dilation: usize, stride: usize, windows: usize) {
        // Later windows do not have the positions that are replaced.
        if dilation != 1 || size <= SMALL {
            for window in 0..windows {
                let first = window * stride;
                self.values.copy_within(
                    first * self.lanes..(first + 1) * self.lanes,
                    window * self.lanes,
                );
                for place in 1..size {
                    self.combine(window, first + place * dilation, window);
                }
            }
            return;
        }
        let length = self.values.len() / self.lanes;
        let positions = self.values.clone();
        for at in (0..length - 1)
            .rev()
            .filter(|at| !(at + 1).is_multiple_of(size))
        {
            self.combine(at, at + 1, at);
        }
        self.ends = std::mem::replace(&mut self.values, positions);
        for at in (1..length).filter(|at| !at.is_multiple_of(size)) {
            self.combine(at - 1, at, at);
        }
        for window in 0..windows {
            let (first, last) = (window * stride, window * stride + size - 1);
            if first.is_multiple_of(size) {
                let last = last * self.lanes;
                self.values
                    .copy_within(last..last + self.lanes, window * self.lanes);
            } else {
                let end = &self.ends[first * self.lanes..][..self.lanes];
                self.registers[0][..self.lanes].copy_from_slice(end);
                self.finish(last, window);
            }
        }
    }

    /// Combines the first register with the values of a position.
    fn finish(&mut self, last: usize, to: usize) {
        let lanes = self.lanes;
        self.registers[1][..lanes].copy_from_slice(&self.values[last * lanes..][..lanes]);
        self.function.run(&mut self.registers, lanes);
        let result = &self.registers[self.function.results[0]];
        self.values[to * lanes..][..lanes].copy_from_slice(&result[..lanes]);
    }
}
