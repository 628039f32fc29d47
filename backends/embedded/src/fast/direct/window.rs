//! Windows whose elements a function of scalars combines or selects from, one after the other.

use halite_core::Result;
use halite_stablehlo::WindowAttributes;

use super::{Call, Direct, accumulator::Accumulator};
use crate::fast::place::ALWAYS_PADDED;
use crate::fast::scalar::{Format, Function, LANES, convert, load, store};

/// Combines the elements of each window, from initial values on. Operands: what is combined, and
/// then the initial values.
#[derive(Debug)]
pub(in super::super) struct ReduceWindow {
    pub(in super::super) windows: Windows,
    /// Function of accumulators and then elements.
    pub(in super::super) function: Function,
    /// The formats of the elements in memory.
    pub(in super::super) formats: Vec<Format>,
}

/// Combines the elements of operand 1 with those of a tensor of operand 2, at the position that is
/// selected in each window of operand 0.
#[derive(Debug)]
pub(in super::super) struct SelectAndScatter {
    pub(in super::super) windows: Windows,
    pub(in super::super) select: Function,
    pub(in super::super) combine: Function,
    /// The formats of what is selected from, and of what is combined.
    pub(in super::super) formats: [Format; 2],
}

/// Windows over a tensor.
#[derive(Debug)]
pub(in super::super) struct Windows {
    pub(in super::super) attributes: WindowAttributes,
    pub(in super::super) dims: Vec<usize>,
    /// Numbers of windows along each dimension.
    pub(in super::super) counts: Vec<usize>,
}

/// Windows that are neighbors along the last dimension.
#[derive(Debug)]
struct Block {
    /// The first one.
    index: Vec<usize>,
    number: usize,
    count: usize,
}

/// The position of what is not in a tensor.
const OUTSIDE: usize = usize::MAX;

impl Windows {
    /// Whether all windows are over an operand of which a padded copy is worth its memory: a window
    /// may be far larger, and then meets padding alone.
    pub(in super::super) fn is_bounded(&self) -> bool {
        let of = &self.attributes;
        let windows: usize = self.counts.iter().product();
        let elements: usize = self.dims.iter().product();
        let most = elements.saturating_add(windows).saturating_mul(16);
        let padded = (self.dims.iter().enumerate()).try_fold(1u64, |all, (dim, &size)| {
            let filled = size.saturating_sub(1).checked_mul(of.base_dilations[dim])? as i64 + 1;
            let (low, high) = of.padding[dim];
            let length = filled.checked_add(low)?.checked_add(high)?;
            all.checked_mul(u64::try_from(length).unwrap_or(0).max(1))
        });
        padded.is_some_and(|padded| padded <= most.max(ALWAYS_PADDED) as u64)
    }

    /// Calls `visit` with all windows, in row-major order.
    fn blocks(&self, mut visit: impl FnMut(&Block) -> Result<()>) -> Result<()> {
        let Some((&columns, outer)) = self.counts.split_last() else {
            let index = Vec::new();
            return visit(&Block {
                index,
                number: 0,
                count: 1,
            });
        };
        let rows: usize = outer.iter().product();
        let mut index = vec![0; self.counts.len()];
        for row in 0..rows {
            let mut rest = row;
            for dim in (0..outer.len()).rev() {
                index[dim] = rest % outer[dim];
                rest /= outer[dim];
            }
            for start in (0..columns).step_by(LANES) {
                let mut index = index.clone();
                index[outer.len()] = start;
                visit(&Block {
                    index,
                    number: row * columns + start,
                    count: LANES.min(columns - start),
                })?;
            }
        }
        Ok(())
    }

    /// Calls `visit` with the positions of the elements of all windows of a block that have the same
    /// place in the window, in row-major order of places.
    fn elements(&self, block: &Block, mut visit: impl FnMut(&[usize])) {
        let rank = self.dims.len();
        let mut positions = [0; LANES];
        let positions = &mut positions[..block.count];
        let Some(last) = rank.checked_sub(1) else {
            return visit(positions);
        };
        let sizes = &self.attributes.sizes;
        let mut place = vec![0; rank];
        loop {
            if let Some(base) = self.base(block, &place) {
                for (lane, position) in positions.iter_mut().enumerate() {
                    let at = self.coordinate(last, block.index[last] + lane, place[last]);
                    *position = at.map_or(OUTSIDE, |at| base + at);
                }
                visit(positions);
            }
            // The last dimension that has a next place; those after it start over.
            let Some(dim) = (0..rank).rev().find(|&dim| place[dim] + 1 < sizes[dim]) else {
                return;
            };
            place[dim] += 1;
            place[dim + 1..].fill(0);
        }
    }

    /// The position in the operand, but for the last coordinate. `None` if it is outside.
    fn base(&self, block: &Block, place: &[usize]) -> Option<usize> {
        let mut base = 0;
        let outer = place.iter().zip(&block.index).zip(&self.dims[1..]);
        for (dim, ((&place, &window), &size)) in outer.enumerate() {
            base = (base + self.coordinate(dim, window, place)?) * size;
        }
        Some(base)
    }

    /// The coordinate of a place in a window. `None` if it is padding.
    fn coordinate(&self, dim: usize, window: usize, place: usize) -> Option<usize> {
        let WindowAttributes {
            strides,
            base_dilations,
            window_dilations,
            padding,
            ..
        } = &self.attributes;
        let from_low = (window * strides[dim] + place * window_dilations[dim]) as i64;
        let at = usize::try_from(from_low - padding[dim].0).ok()?;
        let gap = base_dilations[dim];
        (at.is_multiple_of(gap) && at / gap < self.dims[dim]).then_some(at / gap)
    }
}

/// Loads elements at positions; those outside are unspecified.
fn gather(bytes: &[u8], size: usize, positions: &[usize], out: &mut [u64]) {
    fn each<const N: usize>(
        bytes: &[u8],
        positions: &[usize],
        out: &mut [u64],
        decode: impl Fn([u8; N]) -> u64,
    ) {
        let elements = bytes.as_chunks::<N>().0;
        for (out, &at) in out.iter_mut().zip(positions) {
            *out = elements.get(at).map_or(0, |&element| decode(element));
        }
    }
    match size {
        1 => each(bytes, positions, out, |[byte]| byte.into()),
        2 => each(bytes, positions, out, |it| u16::from_le_bytes(it).into()),
        4 => each(bytes, positions, out, |it| u32::from_le_bytes(it).into()),
        _ => each(bytes, positions, out, u64::from_le_bytes),
    }
}

impl Direct for ReduceWindow {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let count = self.formats.len();
        let mut results = Vec::with_capacity(count);
        let mut operands: Vec<(&[u8], usize)> = Vec::with_capacity(count);
        for number in 0..count {
            results.push(call.take(number)?);
        }
        for number in 0..count {
            operands.push((call.operand(number)?, call.ty(number).element.size()));
        }
        let mut registers = self.function.registers();
        let mut spare = Vec::with_capacity(count);
        self.windows.blocks(|block| {
            let lanes = block.count;
            for (number, &(_, size)) in operands.iter().enumerate() {
                let register = &mut registers[number];
                load(
                    call.operand(count + number)?,
                    size,
                    0,
                    1,
                    &mut register[..1],
                );
                let bits = register[0];
                register[..lanes].fill(bits);
                self.widen(number, &mut register[..lanes]);
            }
            self.windows.elements(block, |positions| {
                for (number, &(bytes, size)) in operands.iter().enumerate() {
                    let register = &mut registers[count + number][..lanes];
                    gather(bytes, size, positions, register);
                    self.widen(number, register);
                }
                self.function.run(&mut registers, lanes);
                // All before the first is replaced: results may be arguments.
                let of = self.function.results.iter();
                spare.clear();
                spare.extend(of.map(|&result| registers[result]));
                for (accumulator, value) in registers.iter_mut().zip(&spare) {
                    let each = accumulator.iter_mut().zip(value).zip(positions);
                    each.filter(|(_, at)| **at != OUTSIDE)
                        .for_each(|((accumulator, &value), _)| *accumulator = value);
                }
            });
            for (number, result) in results.iter_mut().enumerate() {
                let values = &mut registers[number][..lanes];
                convert(
                    values,
                    self.function.arguments[number],
                    self.formats[number],
                );
                store(values, result.bytes_mut(), operands[number].1, block.number);
            }
            Ok(())
        })?;
        for (number, result) in results.into_iter().enumerate() {
            call.set(number, result);
        }
        Ok(())
    }
}

impl ReduceWindow {
    fn widen(&self, number: usize, values: &mut [u64]) {
        convert(
            values,
            self.formats[number],
            self.function.arguments[number],
        );
    }
}

impl Direct for SelectAndScatter {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut result = call.take(0)?;
        let [of_x, of_source] = [0, 1].map(|number| call.ty(number).element.size());
        let (x, source) = (call.operand(0)?, call.operand(1)?);
        let mut initial = [0];
        load(call.operand(2)?, of_source, 0, 1, &mut initial);
        let elements = result.len() / of_source.max(1);
        for at in 0..elements {
            store(&initial, result.bytes_mut(), of_source, at);
        }
        let (narrow, wide) = (self.formats[1], self.combine.arguments[0]);
        let mut sums = Accumulator::new(&mut result, of_source, narrow, wide)?;
        let mut select = self.select.registers();
        let mut combine = self.combine.registers();
        let mut selected = [OUTSIDE; LANES];
        let mut updates = [0; LANES];
        self.windows.blocks(|block| {
            let lanes = block.count;
            selected[..lanes].fill(OUTSIDE);
            self.windows.elements(block, |positions| {
                gather(x, of_x, positions, &mut select[1][..lanes]);
                self.select.run(&mut select, lanes);
                let keeps = select[self.select.results[0]];
                for (lane, &at) in positions.iter().enumerate() {
                    let is_kept = selected[lane] != OUTSIDE && keeps[lane] != 0;
                    if at != OUTSIDE && !is_kept {
                        selected[lane] = at;
                        select[0][lane] = select[1][lane];
                    }
                }
            });
            load(source, of_source, block.number, 1, &mut updates[..lanes]);
            convert(&mut updates[..lanes], narrow, wide);
            for (&at, &update) in selected[..lanes].iter().zip(&updates) {
                if at != OUTSIDE {
                    sums.load(at, &mut combine[0][..1]);
                    combine[1][0] = update;
                    self.combine.run(&mut combine, 1);
                    sums.store(at, &combine[self.combine.results[0]][..1]);
                }
            }
            Ok(())
        })?;
        sums.finish();
        call.set(0, result);
        Ok(())
    }
}
