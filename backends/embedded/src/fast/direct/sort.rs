//! Sorts along a dimension.

use halite_core::Result;

use super::{Call, Direct, Input, Lines};
use crate::{
    fast::scalar::{Floats, Format, Function, LANES, Lanes, Order, decode, load, sortable},
    oracle::{allocate, collect},
};

/// Sorts operands together along a dimension, stably.
#[derive(Debug)]
pub(in super::super) struct Sort {
    pub(in super::super) lines: Lines,
    pub(in super::super) dim: usize,
    /// Number of sorted elements of each line that something reads.
    pub(in super::super) count: usize,
    pub(in super::super) inputs: Vec<Input>,
    pub(in super::super) comparator: Comparator,
}

/// What comes first.
#[derive(Debug)]
pub(in super::super) enum Comparator {
    /// The first order that does not find two elements equal decides.
    Orders(Vec<Order>),
    /// A function of pairs of elements, and its partial orders, if it has any.
    Function(Function, Vec<Order>),
}

impl Direct for Sort {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut results = Vec::with_capacity(self.inputs.len());
        for number in 0..self.inputs.len() {
            results.push(call.take(number)?);
        }
        let mut sorter = Sorter::new(self, call)?;
        for line in 0..self.lines.count() {
            let first = self.lines.first(line);
            let sorted = sorter.sort(first)?;
            for (number, input) in self.inputs.iter().enumerate() {
                let (size, out) = (call.result_ty(number).element.size(), &mut results[number]);
                let Input::Operand(operand) = input else {
                    count(sorted, out.bytes_mut(), size, first, self.lines.inner);
                    continue;
                };
                let x = call.operand(*operand)?;
                permute(x, out.bytes_mut(), size, first, self.lines.inner, sorted);
            }
        }
        for (number, result) in results.into_iter().enumerate() {
            call.set(number, result);
        }
        Ok(())
    }

    fn limit(&mut self, read: &[usize]) {
        self.count = read[self.dim];
    }
}

/// Finds the order of lines.
struct Sorter<'s> {
    sort: &'s Sort,
    /// Operands of the inputs, with the sizes of their elements.
    operands: Vec<(Option<&'s [u8]>, usize)>,
    registers: Vec<Lanes>,
    /// Keys in the high bits, positions in the low ones.
    packed: Vec<u64>,
    wide: Vec<(u64, u32)>,
    positions: Vec<u32>,
}

impl<'s> Sorter<'s> {
    fn new(sort: &'s Sort, call: &'s Call<'_, '_>) -> Result<Self> {
        let mut operands = Vec::with_capacity(sort.inputs.len());
        for (number, input) in sort.inputs.iter().enumerate() {
            let bytes = match input {
                Input::Operand(operand) => Some(&call.operand(*operand)?[..]),
                Input::Counter => None,
            };
            operands.push((bytes, call.result_ty(number).element.size()));
        }
        let registers = match &sort.comparator {
            // The keys have the same first registers.
            Comparator::Orders(orders) => {
                let all = orders.iter().map(|order| order.key.registers());
                all.max_by_key(Vec::len).unwrap_or_default()
            }
            Comparator::Function(function, _) => function.registers(),
        };
        Ok(Sorter {
            sort,
            operands,
            registers,
            packed: Vec::new(),
            wide: Vec::new(),
            positions: allocate(sort.lines.length)?,
        })
    }

    /// The positions of the first elements of a line, sorted.
    fn sort(&mut self, first: usize) -> Result<&[u32]> {
        let sort = self.sort;
        self.positions.clear();
        let orders = match &sort.comparator {
            Comparator::Orders(orders) => orders,
            Comparator::Function(function, orders) => {
                let has_nan = orders.iter().any(|order| self.has_nan(order, first));
                if orders.is_empty() || has_nan {
                    self.by_function(function, first)?;
                    return Ok(&self.positions);
                }
                orders
            }
        };
        match &orders[..] {
            [order] if order.format.bits() <= 32 => self.by_small_keys(order, first)?,
            [order] => self.by_wide_keys(order, first)?,
            _ => self.by_several_keys(orders, first)?,
        }
        Ok(&self.positions)
    }

    /// Calls `each` with the keys of blocks of a line, and the position of the first.
    fn keys(&mut self, order: &Order, first: usize, mut each: impl FnMut(usize, &[u64])) {
        let Lines { length, inner, .. } = self.sort.lines;
        let (bytes, size) = self.operands[order.argument / 2];
        for start in (0..length).step_by(LANES) {
            let count = LANES.min(length - start);
            let argument = &mut self.registers[order.argument][..count];
            match bytes {
                Some(bytes) => load(bytes, size, first + start * inner, inner, argument),
                None => (start..).zip(argument).for_each(|(at, it)| *it = at as u64),
            }
            order.key.run(&mut self.registers, count);
            each(start, &self.registers[order.key.results[0]][..count]);
        }
    }

    fn has_nan(&mut self, order: &Order, first: usize) -> bool {
        let mut found = false;
        if order.format.is_float() {
            self.keys(order, first, |_, keys| {
                found |= keys.iter().any(|&bits| decode(bits, order.format).is_nan());
            });
        }
        found
    }

    fn by_small_keys(&mut self, order: &Order, first: usize) -> Result<()> {
        let Lines { length, .. } = self.sort.lines;
        let count = self.sort.count;
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        // Few elements of many: those above the last of the best so far are dropped at once.
        let room = if count < length / 8 {
            (2 * count).max(LANES)
        } else {
            length
        };
        packed.try_reserve(room + LANES).ok();
        let mut limit = u64::MAX;
        self.keys(order, first, |start, keys| {
            let mut ranks = [0; LANES];
            let ranks = &mut ranks[..keys.len()];
            rank(keys, order, ranks);
            if !ranks.iter().any(|&rank| rank <= limit >> 32) {
                return;
            }
            for (at, rank) in (start as u64..).zip(ranks) {
                let item = *rank << 32 | at;
                if item < limit {
                    packed.push(item);
                }
            }
            if room < length && packed.len() >= room {
                limit = keep(&mut packed, count).unwrap_or(limit);
            }
        });
        keep(&mut packed, count);
        packed.sort_unstable();
        self.positions
            .extend(packed.iter().map(|&item| item as u32));
        self.packed = packed;
        Ok(())
    }

    fn by_wide_keys(&mut self, order: &Order, first: usize) -> Result<()> {
        let mut wide = std::mem::take(&mut self.wide);
        wide.clear();
        self.keys(order, first, |start, keys| {
            let mut ranks = [0; LANES];
            rank(keys, order, &mut ranks[..keys.len()]);
            let each = (start as u32..).zip(&ranks[..keys.len()]);
            wide.extend(each.map(|(at, &rank)| (rank, at)));
        });
        if self.sort.count < wide.len() {
            wide.select_nth_unstable(self.sort.count);
            wide.truncate(self.sort.count);
        }
        wide.sort_unstable();
        self.positions.extend(wide.iter().map(|&(_, at)| at));
        self.wide = wide;
        Ok(())
    }

    fn by_several_keys(&mut self, orders: &[Order], first: usize) -> Result<()> {
        let (length, count) = (self.sort.lines.length, orders.len());
        let mut all = collect(length * count, std::iter::repeat_n(0, length * count))?;
        for (number, order) in orders.iter().enumerate() {
            self.keys(order, first, |start, keys| {
                let mut ranks = [0; LANES];
                rank(keys, order, &mut ranks[..keys.len()]);
                let elements = all[start * count..].chunks_exact_mut(count);
                let each = elements.zip(&ranks[..keys.len()]);
                each.for_each(|(of_element, &rank)| of_element[number] = rank);
            });
        }
        let ranks = |at: u32| &all[at as usize * count..][..count];
        self.positions.extend(0..length as u32);
        (self.positions).sort_unstable_by(|&a, &b| ranks(a).cmp(ranks(b)).then(a.cmp(&b)));
        self.positions.truncate(self.sort.count);
        Ok(())
    }

    /// A merge sort, which is defined for every comparator, however inconsistent.
    fn by_function(&mut self, function: &Function, first: usize) -> Result<()> {
        let length = self.sort.lines.length;
        let mut items = collect(length, 0..length as u32)?;
        let mut spare = collect(length, 0..length as u32)?;
        self.merge_sort(function, first, &mut items, &mut spare);
        self.positions.extend_from_slice(&items[..self.sort.count]);
        Ok(())
    }

    fn merge_sort(
        &mut self,
        function: &Function,
        first: usize,
        items: &mut [u32],
        spare: &mut [u32],
    ) {
        if items.len() < 2 {
            return;
        }
        let middle = items.len() / 2;
        for half in [0..middle, middle..items.len()] {
            self.merge_sort(function, first, &mut items[half.clone()], &mut spare[half]);
        }
        let (mut left, mut right) = (0, middle);
        for out in spare.iter_mut() {
            let takes_right = left == middle
                || right < items.len()
                    && self.comes_first(function, first, items[right], items[left]);
            let from = if takes_right { &mut right } else { &mut left };
            *out = items[*from];
            *from += 1;
        }
        items.copy_from_slice(spare);
    }

    fn comes_first(&mut self, function: &Function, first: usize, a: u32, b: u32) -> bool {
        let inner = self.sort.lines.inner;
        let pairs = self.registers.chunks_exact_mut(2).zip(&self.operands);
        for (pair, &(bytes, size)) in pairs {
            for (register, position) in pair.iter_mut().zip([a, b]) {
                let at = first + position as usize * inner;
                match bytes {
                    Some(bytes) => load(bytes, size, at, 1, &mut register[..1]),
                    None => register[0] = position.into(),
                }
            }
        }
        function.run(&mut self.registers, 1);
        self.registers[function.results[0]][0] != 0
    }
}

/// Keeps the smallest `count` items, and returns the largest of them.
fn keep(items: &mut Vec<u64>, count: usize) -> Option<u64> {
    if count >= items.len() {
        return None;
    }
    items.select_nth_unstable(count);
    items.truncate(count);
    items.iter().max().copied()
}

/// Keys as unsigned integers that are smaller for what comes first.
fn rank(keys: &[u64], order: &Order, ranks: &mut [u64]) {
    let format = order.format;
    let all = largest(format);
    ranks.copy_from_slice(keys);
    if format.is_float() && order.floats != Floats::Total {
        // One zero, and one NaN, which is positive.
        for bits in ranks.iter_mut() {
            let value = decode(*bits, format);
            if value.is_nan() {
                *bits = all >> 1;
            } else if value == 0.0 {
                *bits = 0;
            }
        }
    }
    sortable(ranks, format);
    if order.is_descending {
        ranks.iter_mut().for_each(|rank| *rank ^= all);
    }
}

fn largest(format: Format) -> u64 {
    u64::MAX >> (64 - format.bits())
}

/// Copies the elements at `positions` of a line to its first ones.
fn permute(x: &[u8], out: &mut [u8], size: usize, first: usize, stride: usize, positions: &[u32]) {
    fn each<const N: usize>(
        x: &[u8],
        out: &mut [u8],
        first: usize,
        stride: usize,
        positions: &[u32],
    ) {
        let (x, out) = (x.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
        for (number, &from) in positions.iter().enumerate() {
            out[first + number * stride] = x[first + from as usize * stride];
        }
    }
    match size {
        1 => each::<1>(x, out, first, stride, positions),
        2 => each::<2>(x, out, first, stride, positions),
        4 => each::<4>(x, out, first, stride, positions),
        8 => each::<8>(x, out, first, stride, positions),
        _ => each::<16>(x, out, first, stride, positions),
    }
}

/// Stores positions as integers of `size` bytes.
fn count(positions: &[u32], out: &mut [u8], size: usize, first: usize, stride: usize) {
    for (number, &position) in positions.iter().enumerate() {
        let at = (first + number * stride) * size;
        out[at..at + size].copy_from_slice(&u64::from(position).to_le_bytes()[..size]);
    }
}
